# SPDX-License-Identifier: Apache-2.0
"""LUCID's arrays: windows of flows, replayed as packets into the features that they allow.

R. Doriguzzi-Corin et al., "LUCID: A Practical, Lightweight Deep Learning Solution for DDoS Attack Detection",
IEEE TNSM 2020. A file has `set_x` (samples, packets, 11), each value scaled linearly from 0 to a fixed
maximum, and `set_y` (samples,), 0 benign and 1 attack. A sample is what one bidirectional flow sent in one
window, up to 10 packets; rows of zeros fill it up. Every sample becomes a flow of its own: nothing tells
which samples are of one. Packets stand in it without direction, so a flow is both directions together here.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirewise.datasets.captures import CapturedPacket
from wirewise.datasets.published.reader import BENIGN
from wirewise.datasets.table import Table, build_table_from
from wirewise.errors import InputError, MissingFeatureError
from wirewise.feature_sets import FeatureSet
from wirewise.files import files_below

COLUMNS = {
    "timestamp": 10, "packet_length": 65536, "highest_layer": 2**32, "ip_flags": 65536, "protocols": 4096,
    "tcp_length": 65536, "tcp_ack": 2**32, "tcp_flags": 65536, "tcp_window": 65536, "udp_length": 65536,
    "icmp_type": 256,
}  # fmt: skip
"""Columns of `set_x`, and the value that 1.0 stands for."""
ALLOWED = frozenset(
    {
        "length", "payload_length", "protocol", "ip_version", "fragment", "tcp_flags", "tcp_fin", "tcp_syn",
        "tcp_rst", "tcp_psh", "tcp_ack", "tcp_urg", "tcp_ece", "tcp_cwr", "tcp_window", "icmp_type", "iat",
        "iat_or_zero", "duration", "network_header_length",
    }
)  # fmt: skip
"""Packet fields whose values follow from the columns."""
_TCP, _UDP, _ICMP = 1 << 9, 1 << 11, 1 << 5  # bits of `protocols`
_BATCH = 4096  # samples at once
_GAP_NS = 1_000_000_000


@dataclass(frozen=True)
class Read:
    """table : with the features that the arrays allow; left_out : the others, and why."""

    table: Table
    left_out: dict[str, str]
    samples: int
    files: int


def allowed(feature_set: FeatureSet) -> tuple[FeatureSet, dict[str, str]]:
    """The features that follow from the arrays, and why the others do not."""
    kept, left_out = [], {}
    for feature in feature_set.features:
        if feature.field and feature.field.name not in ALLOWED:
            left_out[feature.name] = f"the arrays do not hold {feature.field.name}"
        elif feature.scope.direction:
            left_out[feature.name] = "the arrays do not hold directions"
        else:
            kept.append(feature)
    if not kept:
        raise InputError(
            f"feature set {feature_set.name}", "has no feature that LUCID's arrays allow",
            f"they allow those of {', '.join(sorted(ALLOWED))}",
        )  # fmt: skip
    return replace(feature_set, features=tuple(kept), kept=()), left_out


def read_arrays(
    given: Sequence[Path], feature_set: FeatureSet, attack: str | None = None, *, progress: bool = True
) -> Read:
    """Arrays as a table; given : files or folders. attack : label of samples with 1; None is from the folder.

    Raises InputError for files that are no such arrays; MissingFeatureError without h5py.
    """
    try:
        import h5py
    except ImportError as error:
        raise MissingFeatureError("HDF5 needs h5py; install it with `pip install wirewise[hdf5]`") from error
    paths: list[Path] = []
    for path in given:
        found = [f for f in files_below(path) if f.suffix == ".hdf5"] if path.is_dir() else [path]
        if not found or not found[0].is_file():
            raise InputError(str(path), "does not exist or holds no .hdf5", "give files, or folders of them")
        paths += found
    chosen, left_out = allowed(feature_set)
    tasks, samples = [], 0
    for path in paths:
        try:
            with h5py.File(path) as file:
                shapes = [file[name].shape for name in ("set_x", "set_y")]
        except (OSError, KeyError) as error:
            raise InputError(
                str(path), f"is no array of LUCID ({error})", "give files with set_x, set_y"
            ) from error
        (count, *rest), labels = shapes
        if len(rest) != 2 or rest[1] != len(COLUMNS) or labels != (count,) or rest[0] > 1000:
            raise InputError(
                str(path),
                f"has set_x {shapes[0]} and set_y {shapes[1]}, not (n, packets, {len(COLUMNS)}) and (n,)",
            )
        samples += count
        name = attack or _attack_of(path)
        tasks += [(str(path), name, start) for start in range(0, count, _BATCH)]
    if not samples:
        raise InputError(", ".join(map(str, paths[:3])), "hold no sample")
    table = build_table_from(_packets, tasks, chosen, what="replaying arrays", progress=progress)
    return Read(table, left_out, samples, len(paths))


def _attack_of(path: Path) -> str:
    """`ldap` of a folder `01-LDAP`."""
    name = re.sub(r"^\d+-", "", path.resolve().parent.name).lower()
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-") or "attack"


def _packets(path: str, attack: str, start: int) -> tuple[str, Iterator[CapturedPacket], list[str]]:
    import h5py

    with h5py.File(path) as file:
        stored = np.asarray(file["set_x"][start : start + _BATCH], np.float64)
        truth = np.asarray(file["set_y"][start : start + _BATCH]).tolist()
    if not np.isfinite(stored).all() or stored.min(initial=0) < 0 or stored.max(initial=0) > 1:
        raise InputError(path, "has values outside 0 to 1", "give arrays that LUCID's parser has normalised")
    values = stored * np.array(list(COLUMNS.values()), np.float64)
    used = (values[:, :, 1] > 0).sum(axis=1)
    labels = [attack if truth[i] else BENIGN for i, count in enumerate(used) for _ in range(count)]
    return path, _frames(values, used, start), labels


def _frames(values: NDArray[Any], used: NDArray[Any], start: int) -> Iterator[CapturedPacket]:
    """A frame of headers for each packet; each sample has addresses of its own and follows the last."""
    now = 0
    for index in range(len(values)):
        sample = values[index, : used[index]]
        begin = now
        for row in sample:
            time_ns = begin + round(row[0] * 1e9 / 1000) * 1000
            now = max(now, time_ns)
            yield _frame(start + index, time_ns, row)
        now += _GAP_NS


def _frame(number: int, time_ns: int, row: NDArray[Any]) -> CapturedPacket:
    length, flags, protocols, tcp_length, tcp_flags, window, udp_length, icmp = (
        round(float(row[column])) for column in (1, 3, 4, 5, 7, 8, 9, 10)
    )
    first = not flags & 0x1FFF
    if protocols & _TCP:
        # The header is what the payload leaves of the packet, as far as one can be.
        words = min(15, max(5, (length - 20 - tcp_length) // 4)) if first else 5
        protocol = 6
        transport = struct.pack(">HHIIBBHHH", 1, 2, 0, 0, words << 4, tcp_flags & 0xFF, window & 0xFFFF, 0, 0)
        transport += bytes(words * 4 - 20)
    elif protocols & _UDP:
        # A fragment's header has the length of all of them.
        most = 65535 if flags & 0x3FFF else max(8, length - 20)
        protocol, transport = 17, struct.pack(">HHHH", 1, 2, min(most, max(8, udp_length)), 0)
    elif protocols & _ICMP:
        protocol, transport = 1, struct.pack(">BBHHH", icmp & 0xFF, 0, 0, 0, 0)
    else:
        protocol, transport = 255, b""
    total = min(65535, max(length, 20 + (len(transport) if first else 0)))
    source, destination = 0x0A000000 + (number & 0xFFFFFF), 0xC0000201
    header = struct.pack(
        ">BBHHHBBHII", 0x45, 0, total, 0, flags & 0xFFFF, 64, protocol, 0, source, destination
    )
    frame = bytes.fromhex("0200000000020200000000010800") + header + transport
    return CapturedPacket(time_ns, frame, total + 14, 1)
