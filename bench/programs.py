# SPDX-License-Identifier: Apache-2.0
"""The programs that are measured, and their objects."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirewise import agent
from wirewise.errors import RefusedError
from wirewise.feature_sets import PRESETS, Feature, FeatureSet
from wirewise.feature_sets.reference import Extractor
from wirewise.files import write_atomically
from wirewise.formats.bundle import Bundle
from wirewise.models import BinaryMlp, BitsInput, Model, StepsInput, TreeEnsemble
from wirewise.models.random import (
    random_binary_layers,
    random_fixed_point_mlp,
    random_quantized_mlp,
    random_tree_ensemble,
)
from wirewise.targets import ebpf
from wirewise.targets.ebpf import clang
from wirewise.traffic import generate

SEED = 2023
PACKETS = 20_000  # of generated traffic
EMPTY = "empty"
CLOCK = "clock"
_ROOT = Path(__file__).parents[1]

HARA2023 = replace(PRESETS["hara2023"], sharing="per-cpu")
"""With the flow tables of the programs that it is compared with; what shared ones cost says bench.sharing."""

# As many features as the presets have, none of which needs the time.
NO_TIME = FeatureSet.from_dict(
    {
        "name": "no-time",
        "features": [
            "source_port", "destination_port", "protocol", "length", "ttl", "tcp_window",
            "mean(length)", "min(length)", "max(length)", "deviation_from_mean(length)",
            "first(tcp_window)", "count(tcp_ack)",
        ],
    }
)  # fmt: skip


def _beside(name: str, *features: str) -> FeatureSet:
    """hara2023 with features of the packet's destination."""
    more = (Feature.parse(f"{head}, by=destination, window=1s)") for head in features)
    return replace(HARA2023, name=name, features=(*HARA2023.features, *more))


AGGREGATES = {
    "by-destination": _beside(
        "by-destination", "sum(length", "mean(length", "sum(new_flow", "pending(handshake"
    ),
    "distinct-sources": _beside("distinct-sources", "distinct(source"),
}
"""Name -> feature sets with an aggregate beside the flow."""

BOTH_WAYS = replace(HARA2023, name="both-ways", key="five-tuple-bidirectional")


def _group(name: str, *features: str) -> FeatureSet:
    """BOTH_WAYS with more features."""
    more = (*BOTH_WAYS.features, *(Feature.parse(feature) for feature in features))
    return replace(BOTH_WAYS, name=name, features=more)


_WAYS = ("forward", "backward")
_FIRST_BYTES = ("printable", "zero", "high")
_OF_PAIRS = ("sum(new_flow", "latest(flow_gap", "mean(flow_gap", "mean_abs_deviation(flow_gap", "sum(length")
_OF_CLIENTS = ("distinct(server, by=client-port", "distinct(server_port, by=hosts")
_COMPARED = ("ratio", "deviation")
GROUPS = {
    "payload": _group(
        "payload", *(f"first(payload_{what}, direction={way})" for way in _WAYS for what in _FIRST_BYTES)
    ),
    "sequence": _group("sequence", *(f"at(length, {place})" for place in range(1, 9))),
    "own-times": _group("own-times", *(f"mean(own_iat, direction={way})" for way in _WAYS)),
    "sent-again": _group("sent-again", *(f"repeats(tcp_end, direction={way})" for way in _WAYS)),
    "pairs": _group("pairs", *(f"{head}, by=pair, window=10m)" for head in _OF_PAIRS)),
    "clients": _group("clients", *(f"{head}, window=10m)" for head in _OF_CLIENTS)),
    "dns": _group(
        "dns", "first(dns_name_length)", "first(dns_type)", "distinct(dns_name, by=pair, window=1m)"
    ),
    "baselines": _group(
        "baselines", *(f"{how}(count(by=destination, window=1s), baseline=10m)" for how in _COMPARED)
    ),
}
"""Name -> feature sets with a group of features beside those of BOTH_WAYS."""


def _query() -> bytes:
    from scapy.layers.dns import DNS, DNSQR
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether

    return bytes(Ether(dst="02:00:00:00:00:01", src="02:00:00:00:00:02")
                 / IP(src="10.0.0.2", dst="10.0.0.1") / UDP(sport=40000, dport=53)
                 / DNS(rd=1, qd=DNSQR(qname="www.example.org")))  # fmt: skip


FRAMES: dict[str, Callable[[], bytes]] = {"dns": _query}
"""Name -> the frame that is run, where it is not the agent's TCP segment."""


@dataclass(frozen=True)
class Compiled:
    """An object, and what is known of it without timing it.

    facts: shape, instructions, object_bytes, verified_instructions, load_ms.
    """

    path: Path
    facts: dict[str, Any]


@cache
def feature_rows() -> NDArray[np.int64]:
    """hara2023 of some generated traffic, (packets, features)."""
    extractor = Extractor(HARA2023)
    seen = (extractor.process(p.frame, p.time_ns).features for p in generate(SEED, packets=PACKETS))
    return np.array([features for features in seen if features is not None], dtype=np.int64)


@cache
def threshold_ranges() -> tuple[tuple[int, int], ...]:
    """For each feature of hara2023 the range of its values in generated traffic, but the outermost percents.

    Thresholds drawn from it divide packets.
    """
    low, high = np.percentile(feature_rows(), [1, 99], axis=0).astype(np.int64)
    return tuple(zip(low.tolist(), high.tolist(), strict=True))


def forest(n_trees: int, depth: int) -> TreeEnsemble:
    """Full trees over hara2023 that vote for one of two classes; together they test every feature but those
    that are the same for all packets, which cost nothing.
    """
    ranges = threshold_ranges()
    varying = tuple(index for index, (low, high) in enumerate(ranges) if low < high)
    for attempt in range(1000):
        model = random_tree_ensemble(
            np.random.default_rng([SEED, n_trees, depth, attempt]),
            n_features=len(ranges),
            n_trees=n_trees,
            depth=depth,
            votes="majority",
            full=True,
            thresholds=ranges,
            tested=varying,
        )
        if model.used_features == varying:
            return model
    raise AssertionError(f"no {n_trees} trees of depth {depth} test all of {len(varying)} features")


def network(family: str, *layers: int) -> Model:
    """A network of two classes over hara2023 with random weights. family: int8, q16 or binary.

    A binary network reads all bits of the features that vary, 251, and which of five lengths it is above.
    """
    rng, ranges = np.random.default_rng([SEED, *layers]), threshold_ranges()
    if family == "int8":
        return random_quantized_mlp(rng, layers=layers, ranges=ranges)
    if family == "q16":
        return random_fixed_point_mlp(rng, layers=layers, ranges=ranges)
    return binary_network(256, *layers)


def binary_network(input_bits: int, *layers: int) -> BinaryMlp:
    """A binary network of two classes over hara2023 with random weights, hidden layers as given.

    It reads bits of the features that vary, as many as there is room for, then how long the packet is.
    """
    features, ranges, left = HARA2023.features, threshold_ranges(), input_bits
    inputs: list[BitsInput | StepsInput] = []
    for index, (feature, (low, high)) in enumerate(zip(features, ranges, strict=True)):
        width = min(left, feature.maximum.bit_length())
        if low < high and width:
            inputs.append(BitsInput(index, 0, width))
            left -= width
    if left:
        inputs.append(StepsInput(3, tuple(64 << step for step in range(left))))
    widths = (input_bits, *layers, 2)
    rng = np.random.default_rng([SEED, *layers])
    return BinaryMlp(len(features), 2, tuple(inputs), random_binary_layers(rng, widths))


def _empty(defines: str = "") -> ebpf.Sources:
    text = (_ROOT / "bench" / "empty.bpf.c").read_text()
    return ebpf.Sources({"main.bpf.c": defines + text}, "none", "", {}, (), "none")


def _flow(feature_set: FeatureSet) -> Callable[[], ebpf.Sources]:
    return lambda: ebpf.emit(None, feature_set)


def _trees(n_trees: int, depth: int) -> Callable[[], ebpf.Sources]:
    return lambda: ebpf.emit(forest(n_trees, depth), HARA2023)


def _network(family: str, *layers: int) -> Callable[[], ebpf.Sources]:
    return lambda: ebpf.emit(network(family, *layers), HARA2023)


FORESTS: dict[str, tuple[int, int]] = {
    "tree-5": (1, 5),
    "tree-10": (1, 10),
    "forest-5x10": (5, 10),
    "forest-10x10": (10, 10),
    "forest-100x10": (100, 10),
}
"""Name -> trees and their depth."""

NETWORKS: dict[str, tuple[Any, ...]] = {
    "mlp-int8-16x16": ("int8", 16, 16),
    "mlp-int8-32x32": ("int8", 32, 32),
    "mlp-q16-32x32": ("q16", 32, 32),
    "bnn-32-16": ("binary", 32, 16),
    "bnn-128-64": ("binary", 128, 64),
}
"""Name -> family and widths of the hidden layers."""

TRIGGERED = {f"{name}-triggered": name for name in NETWORKS}
"""Name -> the program whose model runs on some packets of a flow only."""
FLOW_PACKETS = 100
TRIGGER_PACKETS = (1, 2, 4, 8, 16)
FLOW = "flow-hara2023"  # what the triggered ones are compared with
FLOW_BOTH_WAYS = "flow-both-ways"  # what groups of features are compared with

PROGRAMS: dict[str, Callable[[], ebpf.Sources]] = {
    EMPTY: _empty,
    FLOW: _flow(HARA2023),
    "flow-hara2026": _flow(replace(PRESETS["hara2026"], sharing="per-cpu")),
    "flow-no-time": _flow(NO_TIME),
    **{f"flow-{name}": _flow(PRESETS[name]) for name in ("intrusion", "pairs")},
    FLOW_BOTH_WAYS: _flow(BOTH_WAYS),
    **{name: _flow(feature_set) for name, feature_set in (AGGREGATES | GROUPS).items()},
    **{name: _trees(*size) for name, size in FORESTS.items()},
    **{name: _network(*size) for name, size in NETWORKS.items()},
}
"""Name -> generated sources. The models test all of hara2023 that varies."""

KERNEL_ONLY: dict[str, Callable[[], ebpf.Sources]] = {CLOCK: lambda: _empty("#define WITH_CLOCK\n")}
"""Likewise, of what only a kernel's figure says something: the clock in user space is another."""


def compiled(name: str, folder: Path, clang_path: str) -> Compiled:
    """The object of a program by its name in `folder`, compiled again only if it or the compiler changed.

    This kernel verifies it. Raises RefusedError if it refuses.
    """
    return compiled_from((PROGRAMS | KERNEL_ONLY)[name](), name, folder, clang_path)


def compiled_from(sources: ebpf.Sources, name: str, folder: Path, clang_path: str) -> Compiled:
    """As `compiled`, of any sources. name : of the file."""
    path = folder / f"{name}-{_digest(sources, clang_path)[:16]}.bpf.o"
    facts_path = path.with_suffix(".json")
    if not (path.is_file() and facts_path.is_file()):
        built = ebpf.build(sources, clang=clang_path)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, built.object)
        facts = {
            "shape": sources.shape,
            "instructions": built.instructions,
            "object_bytes": len(built.object),
        }
        write_atomically(facts_path, json.dumps(facts).encode())
    said = agent.call("verify", "--object", path)
    if not said["accepted"]:
        raise RefusedError(f"{path}: {' | '.join(said['refusal']['deciding'])}")
    verified = sum(program["verified_instructions"] for program in said["programs"])
    known = json.loads(facts_path.read_text())
    return Compiled(path, {**known, "verified_instructions": verified, "load_ms": said["load_ms"]})


def bundled(name: str, folder: Path, clang_path: str) -> Path:
    """The bundle of a forest or network by its name, or of flow extraction (FLOW), in `folder`; classes `one`
    and `two`.
    """
    feature_set = HARA2023
    # In place of none, one that reads what the others read.
    model: Model = forest(*FORESTS.get(name, (30, 1)))
    if name in NETWORKS:
        model = network(*NETWORKS[name])
    sources, notes = ebpf.emit(model, feature_set), []
    if name == FLOW:
        sources = replace(sources, files={**sources.files, "ww_model.h": _EXTRACTION})
        notes = ["the program has no model: it computes all features, and every packet is of the first class"]
    return _bundle(name, model, sources, notes, folder, clang_path)


def bundle_of(model: Model, name: str, folder: Path, clang_path: str) -> Path:
    """As `bundled`, of any model over hara2023 with two classes."""
    return _bundle(name, model, ebpf.emit(model, HARA2023), [], folder, clang_path)


def _bundle(
    name: str, model: Model, sources: ebpf.Sources, notes: list[str], folder: Path, clang_path: str
) -> Path:
    feature_set = HARA2023
    options = ebpf.Options(clang=clang_path, verify="never")
    classes = ["one", "two"]
    made = ebpf.EBPF.build(sources, model, feature_set, classes, options, lambda text: nullcontext())
    bundle = Bundle.create(
        name=name, classes=classes, model=model, feature_set=feature_set, flow=made.flow,
        program=made.program, object_file=made.object_file, sources=sources.files, notes=notes,
        tools=made.tools,
    )  # fmt: skip
    path = folder / f"{name}.wirewise"
    folder.mkdir(parents=True, exist_ok=True)
    bundle.write(path)
    return path


# In place of a model. Features are computed, as `ww_extract` stores them where others could read them.
_EXTRACTION = """\
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#ifndef WW_MODEL_H
#define WW_MODEL_H

#define WW_NO_MODEL 0
#define WW_TAIL_CALLS 0
#define WW_BOUNDED 0
#define WW_SCORES 0

static __always_inline __u32 ww_infer(struct ww_scratch *s)
{
\t(void)s;
\treturn 0;
}

#endif
"""


def _digest(sources: ebpf.Sources, clang_path: str) -> str:
    digest = hashlib.sha256(repr((clang.FLAGS, clang.clang_version(clang_path))).encode())
    for name, text in sorted(sources.files.items()):
        digest.update(f"{name}\n{text}".encode())
    digest.update(clang.data_path_digest().encode())
    return digest.hexdigest()
