# SPDX-License-Identifier: Apache-2.0
"""The service's explanation of a network has the scores that the reference computes."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest

from tests.e2e import needs
from tests.e2e.serving import Lab, Local, asked, until
from wirewise.compiler import compile
from wirewise.feature_sets import FeatureSet
from wirewise.models.bounded import Bound, Bounded
from wirewise.models.network import Network
from wirewise.models.random import random_binary_mlp, random_fixed_point_mlp, random_quantized_mlp

pytestmark = needs.marks()

FEATURES = FeatureSet("lengths", ["count", "sum(length)", "max(length)", "min(length)"], sharing="shared")
NAMES = [it.name for it in FEATURES.features]
CLASSES = ["benign", "scan", "flood"]
SCALE = {"int8-mlp": 1, "q16-mlp": 1 << 16}


def network(family: str, outputs: int) -> Network:
    random, layers = np.random.default_rng(3), (8,)
    if family == "binary":
        return random_binary_mlp(random, n_features=len(NAMES), layers=layers, n_classes=outputs)
    make = random_quantized_mlp if family == "int8" else random_fixed_point_mlp
    return make(random, n_features=len(NAMES), layers=layers, n_classes=max(2, outputs), n_outputs=outputs)


def explain(lab: Lab, features: dict[str, int]) -> tuple[int, Any]:
    query = urlencode({"interface": lab.made.receiver, "features": json.dumps(features)})
    code, body = asked(Local(lab.socket), "GET", f"/api/v1/explain?{query}")
    return code, json.loads(body)


def keep(lab: Lab, model: Network | Bounded, classes: list[str]) -> None:
    made = compile(model, FEATURES, name="network", classes=classes, verify="never")
    made.bundle.write(lab.folder / "network.wirewise")
    lab.write(lab.entry(bundle="network.wirewise"))
    lab.start()
    until("it is kept", lab.kept)


@pytest.mark.parametrize(("family", "outputs"), [("int8", 3), ("int8", 1), ("q16", 3), ("binary", 3)])
def test_scores_are_those_of_the_reference(family: str, outputs: int, lab: Lab) -> None:
    model = network(family, outputs)
    classes = CLASSES[: max(2, outputs)]
    keep(lab, model, classes)
    rows = np.random.default_rng(4).integers(0, 1600, (8, len(NAMES)))
    for row in rows.tolist():
        code, said = explain(lab, {NAMES[place]: row[place] for place in model.used_features})
        assert code == 200, said
        way = said["network"]
        class_id, scores = model.predict_one(row)
        assert [it["score"] for it in way["scores"]] == list(scores)
        assert [it["class"] for it in way["scores"]] == classes[-len(scores) :]
        assert way["class"] == classes[class_id]
        encoded = model.activations(row)[0]
        for it in way["inputs"]:
            place = NAMES.index(it["feature"])
            if it["encoded"] is not None:
                assert it["encoded"] * SCALE[model.family] == encoded[place]
            for other in it["otherwise"]:
                changed = [*row[:place], int(other["value"]), *row[place + 1 :]]
                assert other["class"] == classes[model.predict_one(changed)[0]]
    code, said = explain(lab, {"other": 1})
    assert (code, "error" in said) == (404, True)


def test_a_value_that_training_did_not_see_is_named(lab: Lab) -> None:
    model = network("int8", 3)
    place = model.used_features[0]
    keep(lab, Bounded(model, (Bound(place, 10, 20),)), [*CLASSES, "unknown"])
    features = {NAMES[it]: 15 for it in model.used_features}
    assert explain(lab, features)[1]["outside"] == []
    features[NAMES[place]] = 21
    code, said = explain(lab, features)
    assert code == 200
    assert said["outside"] == [{"feature": NAMES[place], "value": 21.0, "low": 10.0, "high": 20.0}]
    assert said["network"]["scores"]
