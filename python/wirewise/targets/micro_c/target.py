# SPDX-License-Identifier: Apache-2.0
"""micro-C as a target: a program for the NFP, and a check of it on this machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from typing import ClassVar

import wirewise.targets.target as target
from wirewise.errors import InputError
from wirewise.feature_sets import FeatureSet
from wirewise.models import BinaryMlp, Bounded, Model
from wirewise.targets.comments import comment, of_features, of_model
from wirewise.targets.micro_c import model_code
from wirewise.targets.micro_c.options import Options
from wirewise.targets.micro_c.plan import DEFAULT_EXECUTORS, LMEM_WORDS, Plan, plan_network
from wirewise.targets.micro_c.vectors import vectors
from wirewise.targets.rows import trying_rows

HOST = (
    "nfp.c", "nfp.h", "nfp_intrinsic.h", "types.h", "nfp/cls.h", "nfp/mem_atomic.h", "nfp/mem_bulk.h",
    "pkt/pkt.h",
)  # fmt: skip


@dataclass(frozen=True)
class Sources(target.Sources):
    """ww_main.c and the headers that it includes; in host/ what runs them on this machine."""

    plan: Plan
    executors: int

    def about(self) -> list[tuple[str, str]]:
        plan = self.plan
        sizes = "-".join(str(size) for size in (plan.layers[0].inputs, *(one.neurons for one in plan.layers)))
        how = "data-parallel: each thread judges a packet"
        if plan.chained:
            how = f"model-parallel: {self.executors} threads judge a packet together"
        return [
            ("model", f"network {sizes}"),
            ("mode", how),
            (
                "memory",
                f"{plan.table_bytes:,} bytes of {'EMEM' if plan.chained else 'CLS'}, {plan.lmem} of "
                f"{LMEM_WORDS} words of a thread's local memory",
            ),
        ]


class MicroCTarget(target.Target[Options, Sources]):
    """micro-C for Netronome's NFP."""

    name: ClassVar[str] = "micro-c"
    summary: ClassVar[str] = "micro-C for Netronome's NFP: binary networks"
    options = Options

    def emit(self, model: Model, feature_set: FeatureSet, options: Options) -> Sources:
        return emit(model, feature_set, options)


MICRO_C = MicroCTarget()


def emit(model: Model, feature_set: FeatureSet, options: Options | None = None) -> Sources:
    """The micro-C of a binary network. Raises InputError for other families, for options that do not go with
    the model, and where a memory is too small, saying what would fit.
    """
    options = options or Options()
    inside, bounds = (model.model, model.bounds) if isinstance(model, Bounded) else (model, ())
    if not isinstance(inside, BinaryMlp):
        raise InputError(
            f"model of family {inside.family}",
            "has no micro-C",
            "train a binary network (--estimator bnn), or use another target",
        )
    if model.n_features != len(feature_set.features):
        raise InputError(
            f"model: reads {model.n_features} features, feature set {feature_set.name!r} has "
            f"{len(feature_set.features)}; "
            "train on the features of this set, or name the set it was trained on"
        )
    if options.input == "bits" and bounds:
        raise InputError(
            "--input bits", "does not have the features that --unknown compares", "use packet or memory"
        )
    features = model.used_features
    plan = plan_network(inside, features, options)
    executors = options.executors or DEFAULT_EXECUTORS
    parts = [
        "ww_config.h",
        "ww_tables.h",
        "ww_numbers.h",
        *([] if options.input == "bits" else ["ww_encode.h"]),
        *(["ww_chain.h"] if plan.chained else []),
        "ww_layers.h",
        f"ww_input_{options.input}.h",
        f"ww_result_{_result(options)}.h",
    ]
    layers = [model_code.local_memory(plan)] if len(plan.layers) > 1 else []
    if options.input != "bits":
        labels = [feature.label for feature in feature_set.features]
        layers.append(model_code.encode(inside, features, labels, bounds))
    layers += [model_code.layer_function(layer, plan.chained) for layer in plan.layers]
    layers.append(
        model_code.execute_function(plan, executors) if plan.chained else model_code.infer_function(plan)
    )
    tables = [model_code.tables(inside, plan, options)]
    if options.result == "port":
        tables.append(model_code.ports(model.n_classes))
    head = _banner(model, feature_set)
    texts = {
        "ww_config.h": head + model_code.config(inside, features, model.n_classes - 1, plan, options),
        "ww_tables.h": head + "\n".join(tables),
        "ww_layers.h": head + "\n".join(layers),
        "ww_model.h": head + "".join(f'#include "{part}"\n' for part in parts),
    }
    texts = {name: re.sub("^(?:    )+", _tabs, text, flags=re.MULTILINE) for name, text in texts.items()}
    folder = files(__package__)
    for name in ("ww_main.c", *parts):
        if name not in texts:
            texts[name] = (folder / "nfp" / name).read_text(encoding="utf-8")
    if options.vectors:
        texts["host/vectors.txt"] = vectors(model, features, options, trying_rows(model, options.vectors))
        for name in HOST:
            texts[f"host/{name}"] = (folder / "host" / name).read_text(encoding="utf-8")
    return Sources(dict(sorted(texts.items())), plan, executors)


def _tabs(spaces: re.Match[str]) -> str:
    """The indentation of the parts that are written by hand."""
    return "\t" * (len(spaces[0]) // 4)


def _result(options: Options) -> str:
    if options.result != "field":
        return options.result
    return "dscp" if options.input == "memory" else "header"


def _banner(model: Model, feature_set: FeatureSet) -> str:
    lines = [
        f"Generated by wirewise from {of_features(feature_set)}",
        f"and {of_model(model)}. Change those, not this.",
        comment(model.describe()),
    ]
    text = "\n".join(f" * {line}" for line in lines)
    return f"/* SPDX-License-Identifier: Apache-2.0 */\n/*\n{text}\n */\n\n"
