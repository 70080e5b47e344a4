# SPDX-License-Identifier: Apache-2.0
"""Packets for the check on this machine, and what must become of them by the reference."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wirewise.models import BinaryMlp, Bounded, Model
from wirewise.targets.micro_c.model_code import ETHERTYPE
from wirewise.targets.micro_c.options import Options

_IN, _OUT = 1, 0
_PAYLOAD = b"payload"
_DESTINATION, _PORTS, _UDP = 0x0A000001, 1234 << 16 | 53, 17


def vectors(model: Model, features: Sequence[int], options: Options, rows: NDArray[np.int64]) -> str:
    """The lines of host/vectors.txt, as host/nfp.c reads them. With --input memory, no two rows have the same
    flow, so there are no more than half of the flows.
    """
    inside = model.model if isinstance(model, Bounded) else model
    assert isinstance(inside, BinaryMlp)
    lines, used = [], set[int]()
    for line in rows.tolist():
        class_id, scores = model.predict_one(line)
        out = class_id if options.result == "port" else _OUT
        if options.input == "memory":
            if len(used) >= max(1, options.flows // 2):
                break
            head, element = _new_flow(used, options.flow_bits)
            values = b"".join(struct.pack(">q", line[feature]) for feature in features)
            lines.append(f"flow {element} {values.hex()}")
            frame = after = _ipv4(head, 1)
            if options.result == "field":
                after = _ipv4(head, class_id << 2 | 1)
            elif options.result == "memory":
                lines.append(f"class {element} {class_id}")
        else:
            kind = bytes(12) + struct.pack(">H", ETHERTYPE)
            if options.input == "bits":
                bits = [bit for source in inside.inputs for bit in source.encode(line[source.feature])]
                given = sum(bit << k for k, bit in enumerate(bits)).to_bytes(-(-len(bits) // 8), "big")
            else:
                given = b"".join(struct.pack(">q", line[feature]) for feature in features)
            result = b""
            if options.result == "field":
                result = bytes([class_id])
                if options.scores == "yes":
                    result += b"".join(struct.pack(">q", score) for score in scores)
            frame = kind + given + b"\xff" * len(result) + _PAYLOAD
            after = kind + given + result + _PAYLOAD
        lines.append(f"packet {_IN} {out} {frame.hex()} {after.hex()}")
    lines += [f"packet {_IN} {_OUT} {frame.hex()} {frame.hex()}" for frame in _others()]
    return "".join(f"{line}\n" for line in lines)


def _new_flow(used: set[int], bits: int) -> tuple[int, int]:
    """A source address whose flow has an element of its own, and that element."""
    source = 0xC0A80000 + 7919 * len(used)
    while (element := flow_element(source, _DESTINATION, _PORTS, _UDP, bits)) in used:
        source += 1
    used.add(element)
    return source, element


def flow_element(source: int, destination: int, ports: int, protocol: int, bits: int) -> int:
    """The element of a flow, of 2^bits."""
    folded = source ^ destination ^ ports
    folded ^= folded >> 16 ^ protocol
    return (folded ^ folded >> bits) & (1 << bits) - 1


def _ipv4(source: int, service: int) -> bytes:
    head = struct.pack(">BBHHHBBHII", 0x45, service, 40, 7, 0x4000, 64, _UDP, 0, source, _DESTINATION)
    head = head[:10] + struct.pack(">H", _checksum(head)) + head[12:]
    return bytes(12) + b"\x08\x00" + head + struct.pack(">I", _PORTS) + _PAYLOAD


def _checksum(head: bytes) -> int:
    """Of an IPv4 header whose checksum is 0 (RFC 1071)."""
    total: int = sum(struct.unpack(f">{len(head) // 2}H", head))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _others() -> list[bytes]:
    """Packets that no input selector selects."""
    return [
        bytes(12) + b"\x86\xdd" + bytes(60),
        bytes(12) + b"\x88\xb5",
        *(
            bytes(12) + b"\x08\x00" + struct.pack(">BxHxxHxB", first, length, fragment, protocol) + bytes(30)
            for first, length, fragment, protocol in (
                (0x46, 44, 0, 6),  # IPv4 with options
                (0x45, 40, 0x2001, _UDP),  # a fragment
                (0x45, 40, 0, 1),  # ICMP
                (0x45, 39, 0, 6),  # padding where the header of TCP should end
                (0x45, 27, 0, _UDP),
                (0x45, 0, 0, _UDP),
            )
        ),
    ]
