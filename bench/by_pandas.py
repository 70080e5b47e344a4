# SPDX-License-Identifier: Apache-2.0
"""hara2023 of a capture by a pandas group-by: what one would write without wirewise."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pandas as pd

from wirewise.datasets import read_capture

KEY = ["source", "destination", "source_port", "destination_port", "protocol"]
_WITH_PORTS = (6, 17, 132)
_TAGS = (0x8100, 0x88A8)
_PORTS = struct.Struct("!HH")
ONE = 1 << 16  # 16 fractional bits


def read(capture: Path) -> pd.DataFrame:
    """A row for each IP packet of an Ethernet capture: time_ns, the five-tuple (KEY) and length."""
    rows = []
    for packet in read_capture(capture):
        frame, at = packet.frame, 14
        kind = frame[12] << 8 | frame[13]
        while kind in _TAGS:
            kind, at = frame[at + 2] << 8 | frame[at + 3], at + 4
        if kind == 0x0800:
            length, protocol = frame[at + 2] << 8 | frame[at + 3], frame[at + 9]
            source, destination = frame[at + 12 : at + 16], frame[at + 16 : at + 20]
            begins = not (frame[at + 6] & 0x1F or frame[at + 7])
            at += (frame[at] & 15) * 4
        elif kind == 0x86DD:
            length, protocol = (frame[at + 4] << 8 | frame[at + 5]) + 40, frame[at + 6]
            source, destination = frame[at + 8 : at + 24], frame[at + 24 : at + 40]
            begins, at = True, at + 40
        else:
            continue
        ports = _PORTS.unpack_from(frame, at) if begins and protocol in _WITH_PORTS else (0, 0)
        rows.append((packet.time_ns, source, destination, *ports, protocol, length))
    return pd.DataFrame(rows, columns=["time_ns", *KEY, "length"])


def features(packets: pd.DataFrame) -> pd.DataFrame:
    """The features of each packet in its flow so far, in the order and integer units of hara2023.

    For captures in which no flow is idle for longer than a flow table keeps it.
    """
    flow = packets.groupby(KEY, sort=False)
    count = flow.cumcount() + 1
    # The first packet's interval is 0.
    iat = (flow["time_ns"].diff().fillna(0).astype(np.int64) // 1000).clip(0, 2**32 - 1)
    length = packets["length"]
    mean_length = flow["length"].cumsum() * ONE // count
    mean_iat = packets.assign(iat=iat).groupby(KEY, sort=False)["iat"].cumsum() * ONE // count
    return pd.DataFrame(
        {
            "source_port": packets["source_port"],
            "destination_port": packets["destination_port"],
            "protocol": packets["protocol"],
            "length": length,
            "direction": 1,
            "iat": iat,
            "mean_length": mean_length,
            "mean_direction": ONE,
            "mean_iat": mean_iat,
            "deviation_length": (length * ONE - mean_length).abs(),
            "deviation_direction": 0,
            "deviation_iat": (iat * ONE - mean_iat).abs(),
        }
    )
