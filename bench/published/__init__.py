# SPDX-License-Identifier: Apache-2.0
"""Two programs in the published style (flow.h says what that is), to compare ours with on the spot.

They read the same features and hold the same models. `sources` writes the models' numbers, as C, beside the
programs; `check` runs traffic through one and its counterpart of ours, and compares what they say of each
packet.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from bench import programs
from bench.programs import FORESTS, HARA2023, NETWORKS, SEED, Compiled
from wirewise import agent
from wirewise.compiler import compile
from wirewise.datasets import write_capture
from wirewise.errors import WirewiseError
from wirewise.formats.bundle import Bundle as Bundle
from wirewise.models import Model, QuantizedMlp, TreeEnsemble
from wirewise.models.tree import LEAF
from wirewise.targets import ebpf
from wirewise.traffic import generate

COUNTERPART = {"published-tree": "tree-10", "published-int8": "mlp-int8-16x16"}
"""Name -> the program of ours with the same model."""

CHECK_PACKETS = 100_000
_HERE = Path(__file__).parent
_CLASSES = ["class 0", "class 1"]
# In the order in which one is the consequence of another.
_COMPARED = ("status", "packets", "feature", "score", "class_id", "inferred")


def model(name: str) -> Model:
    """What a program of ours and its counterpart hold."""
    ours = COUNTERPART[name]
    return programs.forest(*FORESTS[ours]) if ours in FORESTS else programs.network(*NETWORKS[ours])


def room_for(flows: int) -> int:
    """Entries of a table for so many flows, as `wirewised bench` chooses them for ours."""
    return max(65_536, 1 << (2 * flows - 1).bit_length())


def compiled(name: str, flows: int, folder: Path, clang_path: str) -> Compiled:
    """As bench.programs.compiled, with room for so many flows: a hash map's size is compiled in."""
    return programs.compiled_from(sources(name, flows), f"{name}-{flows}", folder, clang_path)


def sources(name: str, flows: int) -> ebpf.Sources:
    """C of a program, with its model's numbers. flows : that the LRU hash holds."""
    of = model(name)
    if isinstance(of, TreeEnsemble):
        sizes, values, chain = _tree(of)
    else:
        assert isinstance(of, QuantizedMlp)
        sizes, values, chain = _network(of)
    defines = "".join(f"#define {key} {value}\n" for key, value in {"FLOWS": flows, **sizes}.items())
    files = {
        "main.bpf.c": (_HERE / f"{name.removeprefix('published-')}.bpf.c").read_text(),
        "flow.h": (_HERE / "flow.h").read_text(),
        "sizes.h": defines,
        "values.h": "".join(values),
    }
    return ebpf.Sources(files, "look-ups", "written after the paper", {}, chain, name)


def _tree(of: TreeEnsemble) -> tuple[dict[str, int], list[str], tuple[str, ...]]:
    """Sizes, values, programs behind tail calls. A leaf has the number of features as its feature."""
    (tree,) = of.trees
    nodes = [
        (threshold, of.n_features, 0, 0, value[0])
        if feature == LEAF
        else (threshold, feature, left, right, 0)
        for feature, threshold, left, right, value in zip(
            tree.feature, tree.threshold, tree.left, tree.right, tree.value, strict=True
        )
    ]
    return {"NODES": tree.n_nodes, "DEPTH": tree.depth}, [_array("struct node", "node", nodes)], ()


def _network(of: QuantizedMlp) -> tuple[dict[str, int], list[str], tuple[str, ...]]:
    layers = of.layers
    widths = [len(layer.weights) for layer in layers]
    weights = [weight for layer in layers for row in layer.weights for weight in row]
    neurons = [pair for layer in layers for pair in zip(layer.bias, layer.multiplier, strict=True)]
    sizes = {
        **{f"WIDTH_{number}": width for number, width in enumerate(widths, 1)},
        "CLASSES": of.n_classes,
        "LAYERS": len(layers),
        "WEIGHTS": len(weights),
        "NEURONS": len(neurons),
        "WIDEST": max(of.n_features, *widths),
    }
    values = [
        _array("struct input", "input", [(i.low, i.high, i.zero, i.multiplier, i.shift) for i in of.inputs]),
        _array("__s64", "weight", weights),
        _array("struct neuron", "neuron", neurons),
        _array("__s64", "shift", [layer.shift for layer in layers]),
    ]
    return sizes, values, tuple(f"ww_model_{number}" for number in range(1, len(layers) + 1))


def _array(of: str, name: str, rows: Iterable[tuple[int, ...] | int]) -> str:
    values = (f"{{{', '.join(map(str, row))}}}" if isinstance(row, tuple) else str(row) for row in rows)
    lines = "".join(f"\t{value},\n" for value in values)
    return f"static const {of} {name}_values[] = {{\n{lines}}};\n"


# -- whether they say the same


def check(name: str, folder: Path, clang_path: str, packets: int = CHECK_PACKETS) -> dict[str, Any]:
    """Compares a program and its counterpart on generated traffic; at least so many packets."""
    capture = folder / f"traffic-{SEED}-{packets}.pcap"
    if not capture.is_file():
        write_capture(capture, ((p.time_ns, p.frame) for p in generate(SEED, packets=packets)))
    # A flow for each packet at most, so neither table gives one up.
    return compare(name, capture, room_for(packets), folder, clang_path)


def compare(name: str, capture: Path, room: int, folder: Path, clang_path: str) -> dict[str, Any]:
    """Runs a capture through a program and its counterpart, in this kernel and at the captured times.

    room : entries of their flow tables. No flow may pause for the idle timeout of hara2023, as the paper has
    none. Compared of each packet: status, its number in its flow, features, scores, class. Raises
    WirewiseError at the first that differs.
    """
    ours = COUNTERPART[name]
    objects = {
        ours: programs.compiled(ours, folder, clang_path),
        name: compiled(name, room, folder, clang_path),
    }
    frame = compile(
        model(name), HARA2023, name=ours, classes=_CLASSES, clang=clang_path, verify="never"
    ).bundle
    said = {}
    with tempfile.TemporaryDirectory(prefix="wirewise-") as scratch:
        bundle = Path(scratch) / "bundle"
        frame.write(bundle)
        for of, program in objects.items():
            said[of] = agent.trace(
                capture,
                bundle,
                n_features=frame.model.n_features,
                table_size=room,
                plane="kernel",
                object_file=program.path,
            )
    for field in _COMPARED:
        values = {of: records[field].reshape(len(records), -1) for of, records in said.items()}
        if field == "feature":  # ours computes those that the model reads
            values = {of: columns[:, frame.model.used_features] for of, columns in values.items()}
        differing = np.flatnonzero((values[ours] != values[name]).any(axis=1))
        if differing.size:
            row = int(differing[0])
            theirs, own = (values[of][row].tolist() for of in (name, ours))
            raise WirewiseError(
                f"{name}: packet {row + 1} of {capture}: {field} is {theirs}, {ours} has {own}"
            )
    inferred = said[name][said[name]["inferred"] == 1]
    counts = np.bincount(inferred["class_id"], minlength=len(_CLASSES)).tolist()
    return {
        "program": ours,
        "published": name,
        "packets": len(said[name]),
        "verdicts": {**dict(zip(_CLASSES, counts, strict=True)), "none": len(said[name]) - len(inferred)},
    }
