# SPDX-License-Identifier: Apache-2.0
"""Features with conditions load, however many read the same field.

A register that is tested twice keeps the verifier's paths apart between the two tests, and with several such
registers the paths multiply: the first set below needed more than a million instructions, the kernel's limit.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests import needs
from tests.multiplicity import few
from wirewise import agent
from wirewise.feature_sets import FeatureSet
from wirewise.models.random import random_binary_bank, random_tree_ensemble
from wirewise.targets import ebpf

SETS = {
    "payload, DNS and flags": [
        "pending(payload_printable)", "min(dns_type)", "distinct(tcp_psh)", "payload_head",
        "mean_abs_deviation(payload_printable)", "first(iat)",
        "variance(source_port, by=destination, window=50ms)", "sum(tos)", "count",
        "latest(ttl, window=500ms, previous)", "pending(tos)", "repeats(tcp_end)", "distinct(destination)",
        "count(icmp_type)", "deviation_from_mean(payload_printable)", "server_port",
    ],
    "one field for each condition": [
        f"{accumulator}({field}{direction})"
        for field in ("tos", "icmp_type", "payload_printable", "dns_type")
        for accumulator in ("pending", "count", "first")
        for direction in (", direction=forward", ", direction=backward")
    ],
    "places": [f"at({field}, {place})" for field in ("length", "iat", "tos") for place in range(2, 9)],
}  # fmt: skip


@pytest.mark.root
@needs.root
@pytest.mark.parametrize(("name", "model"), few(list(SETS), ["trees", "bank"]))
def test_it_loads(name: str, model: str, tmp_path: Path) -> None:
    features, rng = SETS[name], np.random.default_rng(1)
    directed = any("direction=" in feature for feature in features)
    feature_set = FeatureSet.from_dict(
        {
            "name": "conditions", "features": features, "decapsulate": ["gtp-u"],
            "key": "five-tuple-bidirectional" if directed else "source-destination+vlan",
            "keeps": ["min(pdu_type, window=2h)"], "flow_table": {"sharing": "per-cpu"},
        }
    )  # fmt: skip
    count = len(features)
    made = (
        random_binary_bank(rng, networks=2, n_features=count, layers=(16, 16), input_bits=2 * count)
        if model == "bank"
        else random_tree_ensemble(rng, n_features=count, n_classes=2, n_trees=20, depth=6)
    )
    file = tmp_path / "program.bpf.o"
    file.write_bytes(ebpf.build(ebpf.emit(made, feature_set)).object)
    said = agent.call("verify", "--object", file, timeout=None)
    assert said["accepted"], said["refusal"]
    # Half of the limit, so that another compiler's code still fits.
    assert max(program["verified_instructions"] for program in said["programs"]) < 500_000
