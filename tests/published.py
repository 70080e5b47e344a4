# SPDX-License-Identifier: Apache-2.0
"""Small files in the formats in which data sets and sensors publish labels, of flows that a test chooses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests import needs
from wirewise.datasets import read_capture
from wirewise.feature_sets.packet import Packet, parse
from wirewise.text import address_text

CIC_BEGIN = ["Flow ID", " Source IP", " Source Port", " Destination IP", " Destination Port", " Protocol",
             " Timestamp", " Flow Duration", " Total Fwd Packets", " Fwd Header Length"]  # fmt: skip
CIC_END = ["Flow Bytes/s", " Flow Packets/s", " Fwd Header Length", " Label"]
ZEEK = ["ts", "uid", "id.orig_h", "id.orig_p", "id.resp_h", "id.resp_p", "proto", "service", "duration"]


class Flow(NamedTuple):
    start_ns: int
    end_ns: int
    src: str
    sport: int
    dst: str
    dport: int
    protocol: int
    label: str


def cic(
    flows: Iterable[Flow], form: str, *, hours: int = -3, twelve: bool = False, first: Sequence[str] = ()
) -> str:
    """A CSV of CICFlowMeter, with what is wrong with the published ones; form : of times, for strftime."""
    header = ",".join([*first, *CIC_BEGIN, *CIC_END])
    lines = [header]
    for number, flow in enumerate(flows):
        local = datetime.fromtimestamp(flow.start_ns // 10**9, timezone.utc) + timedelta(hours=hours)
        local = local.replace(microsecond=flow.start_ns // 1000 % 10**6)
        if twelve and local.hour > 12:
            local = local.replace(hour=local.hour - 12)
        rate = ["Infinity", "NaN", "4.5E8"][number % 3]
        cells = ["x", flow.src, flow.sport, flow.dst, flow.dport, flow.protocol, local.strftime(form),
                 (flow.end_ns - flow.start_ns) // 1000, 2, 40, rate, rate, 40, flow.label]  # fmt: skip
        lines.append(",".join(map(str, [*["7"] * len(first), *cells])))
        if number == 1:
            lines.append(header)
    commas = "," * header.count(",")
    return "\r\n".join([*lines, commas, commas, ""])


def unsw(flows: Iterable[Flow]) -> str:
    lines = []
    for number, flow in enumerate(flows):
        cells = ["0"] * 49
        cells[0:5] = [
            flow.src,
            str(flow.sport),
            flow.dst,
            hex(flow.dport),
            {6: "tcp", 17: "udp"}[flow.protocol],
        ]
        cells[28:30] = [str(flow.start_ns // 10**9), str(flow.end_ns // 10**9)]
        benign = flow.label == "benign"
        cells[47:49] = ["", "0"] if benign else [" Backdoors " if number % 2 else "Backdoor", "1"]
        lines.append(",".join(cells))
    arp = ["10.0.0.1", "-", "10.0.0.2", "-", "arp", *["0"] * 42, "", "0"]
    arp[28:30] = ["1421927414", "1421927415"]
    return "\ufeff" + "\n".join([*lines, ",".join(arp)]) + "\n"


def flows_of(capture: Path, label: Callable[[Packet], str]) -> list[Flow]:
    """The TCP and UDP conversations of a capture; the first packet of each says its label."""
    found: dict[object, Flow] = {}
    for captured in read_capture(capture):
        _, outer = parse(captured.frame)
        if outer is None or outer.protocol not in (6, 17) or (outer.fragment and not outer.source_port):
            continue
        ends = ((outer.source, outer.source_port), (outer.destination, outer.destination_port))
        key = (outer.protocol, *sorted(ends))
        if key in found:
            found[key] = found[key]._replace(end_ns=captured.time_ns)
        else:
            (src, sport), (dst, dport) = ((address_text(address), port) for address, port in ends)
            time = captured.time_ns
            found[key] = Flow(time, time, src, sport, dst, dport, outer.protocol, label(outer))
    return list(found.values())


def bring(folder: Path, capture: Path) -> None:
    """What docs/datasets.md takes for granted: logs and sets in a folder."""
    syn = flows_of(capture, lambda packet: "attack" if packet.protocol == 17 else "benign")
    (folder / "conn.log").write_text(zeek(syn))
    header = "id,dur,proto,service,state,spkts,dpkts,sbytes,sttl,sinpkt,smean,attack_cat,label"
    row = "1,0.5,tcp,-,FIN,6,4,258,252,24.2956,43,Normal,0"
    (folder / "UNSW_NB15_training-set.csv").write_text(f"{header}\n{row}\n")
    (folder / "01-LDAP").mkdir()
    sample = np.zeros((1, 10, 11))
    sample[0, 0, [1, 4, 9]] = 1028 / 65536, ((1 << 11) + (1 << 6)) / 4096, 1008 / 65536
    h5py = needs.package("h5py")
    with h5py.File(folder / "01-LDAP" / "sample.hdf5", "w") as file:
        file["set_x"], file["set_y"] = sample, np.array([1])


def seconds(ns: int) -> str:
    return f"{ns // 10**9}.{ns % 10**9 // 1000:06d}"


def zeek(flows: Iterable[Flow], *, labelled: bool = True) -> str:
    """As IoT-23: what it appends to the last field is separated by three blanks."""
    fields = [*ZEEK, "tunnel_parents" + ("   label   detailed-label" if labelled else "")]
    lines = [
        "#separator \\x09",
        "#set_separator\t,",
        "#empty_field\t(empty)",
        "#unset_field\t-",
        "#path\tconn",
    ]
    lines += ["#fields\t" + "\t".join(fields)]
    for number, flow in enumerate(flows):
        cells = [seconds(flow.start_ns), f"C{number}", flow.src, str(flow.sport), flow.dst, str(flow.dport),
                 {6: "tcp", 17: "udp"}[flow.protocol], "-", seconds(flow.end_ns - flow.start_ns),
                 "-" + (f"   {flow.label}   -" if labelled else "")]  # fmt: skip
        lines.append("\t".join(cells))
    return "\n".join([*lines, "#close\t2019-01-01-00-00-00", ""])


def zeek_json(flows: Iterable[Flow]) -> str:
    lines = []
    for number, flow in enumerate(flows):
        line = {
            "ts": flow.start_ns / 1e9,
            "uid": f"C{number}",
            "id.orig_h": flow.src,
            "id.orig_p": flow.sport,
        }
        line |= {
            "id.resp_h": flow.dst,
            "id.resp_p": flow.dport,
            "proto": {6: "tcp", 17: "udp"}[flow.protocol],
        }
        lines.append(
            json.dumps({**line, "duration": (flow.end_ns - flow.start_ns) / 1e9, "label": flow.label})
        )
    return "\n".join([*lines, ""])


def eve(flows: Iterable[Flow]) -> str:
    """Alerts come while the flow goes on, the flow at its end; other events stand between."""

    def moment(ns: int) -> str:
        whole = datetime.fromtimestamp(ns // 10**9, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{whole}.{ns % 10**9 // 1000:06d}+0000"

    lines = []
    for number, flow in enumerate(flows):
        about = {"timestamp": moment(flow.start_ns), "flow_id": 1 << 62 | number, "src_ip": flow.src,
                 "src_port": flow.sport, "dest_ip": flow.dst, "dest_port": flow.dport,
                 "proto": {6: "TCP", 17: "UDP"}[flow.protocol]}  # fmt: skip
        if flow.label != "benign":
            for severity, category in ((3, "Misc activity"), (1, flow.label)):
                alert = {"signature_id": 1, "signature": "ET x", "category": category, "severity": severity}
                lines.append({**about, "event_type": "alert", "alert": alert})
        lines.append({**about, "event_type": "dns", "dns": {"type": "query"}})
        times = {"start": moment(flow.start_ns), "end": moment(flow.end_ns), "state": "closed"}
        lines.append({**about, "event_type": "flow", "flow": times})
    return "".join(json.dumps(line) + "\n" for line in lines)
