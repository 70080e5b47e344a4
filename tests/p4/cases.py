# SPDX-License-Identifier: Apache-2.0
"""Random models as P4, and packets through them, against the Python reference."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.fields import ALONE
from tests.p4.machine import Output, Switch
from wirewise.feature_sets import FeatureSet
from wirewise.models import (
    BinaryMlp,
    BitsInput,
    Bounded,
    Model,
    TreeEnsemble,
    random_binary_mlp,
    random_tree_ensemble,
)
from wirewise.targets.p4 import Options, Sources, emit

INT64 = (-(2**63), 2**63 - 1)
ENDS = [*INT64, INT64[0] + 1, INT64[1] - 1, -1, 0, 1, 2**31, 2**32, 2**47 - 1]
PAYLOAD = b"payload"
PORTS = {"v1model": [0, 1, 2, 3], "netfpga": [1, 4, 16, 64]}
OPTIONS = [
    Options(scores="yes"),
    Options(flavour="netfpga", scores="yes"),
    Options(weights="registers", parallel=3, scores="yes"),
    Options(weights="constants", result="metadata"),
    Options(input="bits", table_bytes=64, scores="yes"),
    Options(flavour="netfpga", input="bits", result="port"),
    Options(input="registers"),
    Options(flavour="netfpga", input="registers"),
    Options(result="port", weights="tables", parallel=7),
    Options(flavour="netfpga", result="metadata"),
]
"""All selectors and places of weights, with each flavour."""


def feature_set(n_features: int) -> FeatureSet:
    """Of so many features; which they are makes no difference to P4."""
    return FeatureSet.from_dict({"name": "case", "features": ALONE[:n_features]})


@dataclass
class Case:
    """A model in a switch."""

    model: Model
    options: Options
    sources: Sources
    switch: Switch

    @classmethod
    def of(cls, model: Model, options: Options, *, ready: bool = True) -> Case:
        sources = emit(model, feature_set(model.n_features), options)
        switch = Switch(sources.files["wirewise.p4"])
        switch.write(json.loads(sources.files["ports.json"]))
        if ready:
            switch.write(json.loads(sources.files["model.json"]))
        return cls(model, options, sources, switch)

    def frame(self, row: list[int]) -> bytes:
        """A packet with this row; with registers, of a flow whose elements are set to it."""
        if self.options.input == "registers":
            return self._flow(row)
        if self.options.input == "bits":
            assert isinstance(self.model, BinaryMlp)
            bits = [bit for source in self.model.inputs for bit in source.encode(row[source.feature])]
            words = sum(bit << k for k, bit in enumerate(bits)).to_bytes(-(-len(bits) // 8), "big")
        else:
            words = b"".join(struct.pack(">q", row[index]) for index in self.model.used_features)
        room = b""
        if self.options.result == "field":
            room = b"\xff" * (1 + 8 * self.model.n_outputs * (self.options.scores == "yes"))
        return bytes(12) + b"\x88\xb5" + words + room + PAYLOAD

    def _flow(self, row: list[int]) -> bytes:
        source, ports = zlib.crc32(repr(row).encode()), (1234, 53)
        addresses = struct.pack(">II", source, 0x0A000001)
        head = struct.pack(">BBHHHBBH", 0x45, 0x01, 40, 7, 0x4000, 64, 17, 0) + addresses
        head = head[:10] + struct.pack(">H", checksum(head)) + head[12:]
        key = addresses + struct.pack(">HHB", *ports, 17)
        if self.options.flavour == "v1model":
            index = zlib.crc32(key) % self.options.flows
        else:
            folded = source ^ 0x0A000001 ^ (ports[0] << 16 | ports[1])
            folded ^= folded >> 16 ^ 17
            bits = self.options.flows.bit_length() - 1
            index = (folded ^ folded >> bits) % self.options.flows
        for feature in self.model.used_features:
            start = f"register_f{feature}_" if self.options.flavour == "v1model" else f"f{feature}_"
            name = next(name for name in self.switch.registers if name.startswith(start))
            self.switch.registers[name][1][index] = row[feature] & 2**64 - 1
        return bytes(12) + b"\x08\x00" + head + struct.pack(">HH", *ports) + PAYLOAD

    def run(self, row: list[int]) -> Output:
        """What becomes of the packet of this row, which comes by the second port."""
        return self.switch.run(PORTS[self.options.flavour][1], self.frame(row))

    def expected(self, row: list[int]) -> tuple[int, bytes]:
        """Port and packet, by the reference."""
        frame, options = self.frame(row), self.options
        class_id, scores = self.model.predict_one(row)
        ports = PORTS[options.flavour]
        if options.result == "port":
            return class_id if options.flavour == "v1model" else ports[class_id % 4], frame
        if options.result == "metadata":
            return ports[0], frame
        if options.input == "registers":
            head = bytearray(frame[14:34])
            head[1] = class_id << 2 | head[1] & 3
            head[10:12] = b"\0\0"
            head[10:12] = struct.pack(">H", checksum(bytes(head)))
            return ports[0], frame[:14] + bytes(head) + frame[34:]
        result = bytes([class_id])
        if options.scores == "yes":
            result += b"".join(struct.pack(">q", score) for score in scores)
        return ports[0], frame[: -len(PAYLOAD) - len(result)] + result + PAYLOAD

    def differences(self, rows: NDArray[np.int64]) -> list[str]:
        """A line for each row with which switch and reference differ."""
        found = []
        for row in rows.tolist():
            out, (port, frame) = self.run(row), self.expected(row)
            class_id = self.model.predict_one(row)[0]
            if (out.port, out.frame, out.meta["class_id"]) != (port, frame, class_id):
                found.append(
                    f"{row}: port {out.port}, class {out.meta['class_id']}, {out.frame.hex()}; "
                    f"the reference: {port}, {class_id}, {frame.hex()}"
                )
        return found

    def check(self, rows: NDArray[np.int64]) -> None:
        found = self.differences(rows)
        assert not found, "\n".join(
            [f"{len(found)} of {len(rows)} rows differ, {self.options}, {self.model.describe()}", *found[:3]]
        )


def checksum(head: bytes) -> int:
    """Of an IPv4 header whose checksum is 0 (RFC 1071)."""
    total = sum(struct.unpack(f">{len(head) // 2}H", head))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def random_network(rng: np.random.Generator, **given: Any) -> BinaryMlp:
    """8 to 256 inputs, 1 to 3 layers; half of them with extreme weights, thresholds and inputs."""
    hidden = rng.integers(1, 33, int(rng.integers(3))).tolist()
    sizes: dict[str, Any] = {
        "n_features": int(rng.integers(1, 5)),
        "layers": hidden,
        "n_classes": int(rng.choice([2, 2, 3, 5, 17])),
        "input_bits": int(rng.integers(8, 257)),
        "extreme": bool(rng.integers(2)),
    }
    return random_binary_mlp(rng, **{**sizes, **given})


def random_trees(rng: np.random.Generator) -> TreeEnsemble:
    """1 to 6 trees of every kind of vote; half of them with thresholds from all of int64."""
    votes = str(rng.choice(["sum", "majority"]))
    n_classes = int(rng.choice([2, 2, 3, 6]))
    one = votes == "sum" and n_classes == 2 and bool(rng.integers(2))
    return random_tree_ensemble(
        rng,
        n_features=int(rng.integers(1, 7)),
        n_classes=n_classes,
        n_trees=int(rng.integers(1, 7)),
        depth=int(rng.integers(0, 6)),
        votes=votes,  # type: ignore[arg-type]
        n_outputs=1 if one else None,
        thresholds=INT64 if rng.integers(2) else (-5, 40),
    )


def rows_for(rng: np.random.Generator, model: Model, count: int) -> NDArray[np.int64]:
    """Rows that are usual, at the ends of int64, and at the model's own thresholds and one beside."""
    near = [set(ENDS) for _ in range(model.n_features)]
    inside = model.model if isinstance(model, Bounded) else model
    if isinstance(model, Bounded):
        for bound in model.bounds:
            near[bound.feature] |= {bound.low, bound.high}
    if isinstance(inside, TreeEnsemble):
        for tree in inside.trees:
            for feature, threshold in zip(tree.feature, tree.threshold, strict=True):
                if feature >= 0:
                    near[feature].add(threshold)
    elif isinstance(inside, BinaryMlp):
        for source in inside.inputs:
            steps = [1 << source.shift + source.bits] if isinstance(source, BitsInput) else source.thresholds
            near[source.feature] |= set(steps)
    rows = []
    for _ in range(count):
        row = []
        for values in near:
            kind = rng.integers(3)
            if kind == 0:
                row.append(int(rng.integers(-10, 2000)))
                continue
            value = sorted(values)[int(rng.integers(len(values)))] + (
                int(rng.integers(-1, 2)) if kind == 1 else 0
            )
            row.append(min(max(value, INT64[0]), INT64[1]))
        rows.append(row)
    return np.array(rows, np.int64)


def bounded(rng: np.random.Generator, model: TreeEnsemble | BinaryMlp) -> Model:
    """The model, or with bounds in one case of four."""
    if rng.integers(4) or not model.used_features:
        return model
    return Bounded.by(model, rng.integers(0, 1500, (5, model.n_features)))


def options_for(index: int, model: Model) -> Options:
    """Those of a turn that the model can have."""
    options = OPTIONS[index % len(OPTIONS)]
    inside = model.model if isinstance(model, Bounded) else model
    if isinstance(inside, TreeEnsemble):
        kept = {"scores": options.scores if options.input == "packet" else "no", "result": options.result}
        kept["input"] = "registers" if options.input == "registers" else "packet"
        return Options(**kept)
    if isinstance(model, Bounded) and options.input == "bits":
        return replace(options, input="packet")
    return options
