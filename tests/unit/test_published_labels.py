# SPDX-License-Identifier: Apache-2.0
"""Labels as data sets publish them, with all that is odd about their files, read as flows."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import published as files
from tests.published import Flow
from wirewise.datasets import flow_list
from wirewise.datasets.flow_list import RECORD, FlowList, Run, Skipped, write_list
from wirewise.datasets.published import READERS, LabelOptions, find_label_files
from wirewise.datasets.published.reader import moment_ns
from wirewise.errors import InputError

# 2017-07-07 18:30:05 UTC: half past three in the afternoon in Fredericton.
AFTERNOON = 1_499_452_205_000_000_000
FLOWS = [
    Flow(AFTERNOON, AFTERNOON + 4_000_000, "192.168.10.5", 104, "10.0.0.1", 80, 6, "BENIGN"),
    Flow(AFTERNOON, AFTERNOON + 10**9, "172.16.0.1", 5000, "192.168.10.50", 53, 17, "DDoS"),
    Flow(AFTERNOON - 6 * 3600 * 10**9, AFTERNOON, "172.16.0.1", 5001, "192.168.10.50", 80, 6, "Bot"),
]


def read(
    name: str, path: Path, content: str | bytes, options: LabelOptions | None = None
) -> tuple[Any, Skipped]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    skipped = Skipped()
    frames = list(READERS[name].read(path, options or LabelOptions(), skipped))
    run = Run(path.parent)
    for frame in frames:
        run.add(frame, skipped, path.name)
    write_list(path.with_suffix(".flows"), [run])
    for file in run.files:
        file.unlink()
    return pl.concat(frames).to_dicts(), skipped


@pytest.mark.parametrize(
    ("form", "least_ns"), [("%d/%m/%Y %H:%M:%S", 10**9), ("%-d/%-m/%Y %-H:%M", 60 * 10**9)]
)
def test_cic_ids2017_in_the_clock_of_fredericton(tmp_path: Path, form: str, least_ns: int) -> None:
    rows, skipped = read("cic-ids2017", tmp_path / "x.csv", files.cic(FLOWS, form, twelve=True))
    rows = [row for row in rows if row["from_ns"]]
    whole = [flow.start_ns // least_ns * least_ns for flow in FLOWS]
    assert [row["from_ns"] for row in rows] == whole
    lasts = [row["until_ns"] - row["from_ns"] for row in rows]
    assert lasts == [least_ns + flow.end_ns - flow.start_ns for flow in FLOWS]
    assert [row["label"] for row in rows] == ["benign", "ddos", "bot"]
    assert skipped.counts == {"the header again": 1, "an empty line": 2}
    assert skipped.rows == 6 and "x.csv, from line 1" in skipped.places.values()


def test_cic_ddos2019_has_microseconds_in_winter_time_too(tmp_path: Path) -> None:
    winter = 1_543_670_231_183_810_000  # 2018-12-01 13:17:11.183810 UTC
    flow = FLOWS[1]._replace(start_ns=winter, end_ns=winter, label="DrDoS_DNS")
    text = files.cic([flow], "%Y-%m-%d %H:%M:%S.%f", hours=-4, first=["Unnamed: 0"])
    (row,), _ = read("cic-ddos2019", tmp_path / "x.csv", text)
    assert (row["from_ns"], row["label"]) == (winter, "drdos-dns")
    assert 0 < row["until_ns"] - winter <= 10**6
    (row,), _ = read("cic-ddos2019", tmp_path / "x.csv", text, LabelOptions(time_zone="-03:30"))
    assert row["from_ns"] == winter - 1800 * 10**9


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8", "latin-1"])
def test_labels_are_the_same_in_every_encoding(tmp_path: Path, encoding: str) -> None:
    dash = "\x96" if encoding == "latin-1" else "\u2013"
    flow = FLOWS[0]._replace(label=f"Web Attack {dash} Brute Force")
    text = files.cic([flow, FLOWS[1]], "%d/%m/%Y %H:%M:%S").encode(encoding)
    rows, _ = read("cic-ids2017", tmp_path / "x.csv", text)
    assert rows[0]["label"] == "web-attack-brute-force"


def test_what_cannot_be_read_is_counted(tmp_path: Path) -> None:
    broken = [
        FLOWS[0]._replace(src="10.0.0"),
        FLOWS[0]._replace(dst="::1"),
        FLOWS[0]._replace(label=""),
        FLOWS[0]._replace(sport=70000),
    ]
    text = files.cic([*FLOWS, *broken], "%d/%m/%Y %H:%M:%S").replace("\r\n", "\n")
    lines = text.splitlines()
    lines[1] = lines[1].replace("07/07/2017", "31/02/2017")
    _, skipped = read("cic-ids2017", tmp_path / "x.csv", "\n".join(lines))
    assert skipped.counts == {
        "the header again": 1, "an empty line": 2, "no time, or one that cannot be read": 1, "no label": 1,
        "a port is none": 1, "an address is none, or the two are of different versions": 2,
    }  # fmt: skip
    assert skipped.rows - skipped.total == FlowList.read(tmp_path / "x.flows").flows == 2


def test_unsw_nb15(tmp_path: Path) -> None:
    flows = [flow._replace(label="benign" if flow.label == "BENIGN" else "x") for flow in FLOWS]
    rows, skipped = read("unsw-nb15", tmp_path / "UNSW-NB15_1.csv", files.unsw(flows))
    assert [row["label"] for row in rows[:3]] == ["benign", "backdoor", "backdoor"]
    assert [(row["sport"], row["dport"]) for row in rows] == [(104, 80), (5000, 53), (5001, 80), (0, 0)]
    assert rows[2]["until_ns"] == AFTERNOON // 10**9 * 10**9 + 10**9
    assert skipped.counts == {"an unknown protocol": 1}


def test_zeek_as_text_json_and_by_notices(tmp_path: Path) -> None:
    flows = [flow._replace(label=flow.label.lower()) for flow in FLOWS]
    tabs, _ = read("zeek", tmp_path / "conn.log", files.zeek(flows))
    lines, _ = read("zeek", tmp_path / "conn.json", files.zeek_json(flows))
    assert [row["label"] for row in tabs] == [row["label"] for row in lines] == ["benign", "ddos", "bot"]
    assert [row["from_ns"] for row in tabs] == [flow.start_ns for flow in flows]
    assert all(abs(a["until_ns"] - b["until_ns"]) < 10**4 for a, b in zip(tabs, lines, strict=True))
    notice = tmp_path / "notice.log"
    notice.write_text("#separator \\x09\n#fields\tts\tuid\tnote\n1.0\tC1\tScan::Port_Scan\n2.0\t-\tWeird\n")
    named, _ = read(
        "zeek", tmp_path / "plain.log", files.zeek(flows, labelled=False), LabelOptions(alerts=(notice,))
    )
    assert [row["label"] for row in named] == ["benign", "scan-port-scan", "benign"]
    with pytest.raises(InputError, match=r"no field that names a class.*--alerts"):
        read("zeek", tmp_path / "plain.log", files.zeek(flows, labelled=False))


@pytest.mark.parametrize("form", ["seconds", "milliseconds", "iso", "offset"])
@pytest.mark.parametrize("shape", ["dotted", "nested", "underscored"])
def test_zeek_writes_times_and_names_in_several_ways(tmp_path: Path, form: str, shape: str) -> None:
    """`JSON::TimestampFormat` of Zeek, and names as those who ship its logs on change them."""
    start = datetime.fromtimestamp(AFTERNOON // 10**9, tz=timezone.utc)
    moment = {
        "seconds": AFTERNOON / 10**9,
        "milliseconds": AFTERNOON // 10**6,
        "iso": start.strftime("%Y-%m-%dT%H:%M:%S.000000Z"),
        "offset": (start.astimezone(timezone(timedelta(hours=-3)))).isoformat(),
    }[form]
    ends = {"orig_h": "192.0.2.76", "orig_p": 36844, "resp_h": "192.0.2.1", "resp_p": 53}
    ids: dict[str, Any] = {"nested": {"id": ends}}.get(
        shape, {f"id{'.' if shape == 'dotted' else '_'}{name}": value for name, value in ends.items()}
    )
    row = {"ts": moment, "uid": "C1", **ids, "proto": "udp", "duration": 0.5, "label": "dns"}
    ((read_row,), skipped) = read("zeek", tmp_path / "conn.log", json.dumps(row) + "\n")
    assert not skipped.counts
    assert read_row["from_ns"] == AFTERNOON and read_row["until_ns"] == AFTERNOON + 501_000_000
    assert [read_row[name] for name in ("src", "sport", "dst", "dport")] == list(ends.values())


def test_moments_are_read_exactly() -> None:
    nanoseconds = {
        "1591368000": 1_591_368_000_000_000_000,
        "1591368000.000000001": 1_591_368_000_000_000_001,
        "1591368000123": 1_591_368_000_123_000_000,
        "2020-06-05T14:40:00.123456789Z": 1_591_368_000_123_456_789,
        "2020-06-05 14:40:00": 1_591_368_000_000_000_000,
        "2020-06-05T11:40:00.5-0300": 1_591_368_000_500_000_000,
        "2020-06-05T11:40:00.5-03:00": 1_591_368_000_500_000_000,
        "2020-06-05T14:40:00+00": 1_591_368_000_000_000_000,
        "2020-13-05T14:40:00Z": None,
        "yesterday": None,
        "": None,
    }
    frame = pl.DataFrame({"ts": list(nanoseconds)}).select(moment_ns("ts").alias("ts"))
    assert frame["ts"].to_list() == list(nanoseconds.values())


def test_suricata_by_the_gravest_alert(tmp_path: Path) -> None:
    flows = [flow._replace(label="benign" if flow.label == "BENIGN" else flow.label) for flow in FLOWS]
    rows, skipped = read("suricata", tmp_path / "eve.json", files.eve(flows) + "not json\n")
    assert [row["label"] for row in rows] == ["benign", "ddos", "bot"]
    assert [row["from_ns"] for row in rows] == [flow.start_ns for flow in flows]
    assert skipped.counts == {"no JSON object": 1}
    named, _ = read(
        "suricata", tmp_path / "eve.json", files.eve(flows), LabelOptions(label_column="signature")
    )
    assert {row["label"] for row in named} == {"benign", "et-x"}


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("cic-ids2017", " Destination Port, Flow Duration, Label\n80,1,BENIGN\n", "GeneratedLabelledFlows"),
        ("cic-ids2017", "a,b\n1,2\n", "has no column of the src"),
        ("cic-ids2017", "", "has no column"),
        ("unsw-nb15", "id,dur,proto,service,state,spkts,label\n1,0,tcp,-,FIN,2,0\n", "unsw-nb15-sets"),
        ("unsw-nb15", "a,b,c\n", "3 columns, not the 49"),
        ("zeek", "a,b\n", "is no log of Zeek"),
        ("zeek", "#separator ,\n", "not separated by tabs"),
        ("suricata", '{"event_type": "alert"}\n', "no event of type flow"),
    ],
)
def test_other_files_are_refused_with_a_way_out(tmp_path: Path, name: str, content: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read(name, tmp_path / "x.csv", content)


def test_folders_and_packed_files(tmp_path: Path) -> None:
    text = files.cic(FLOWS, "%d/%m/%Y %H:%M:%S")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "in" / "README.txt").write_text("no labels")
    reader = READERS["cic-ids2017"]
    (found,) = find_label_files([tmp_path / "in"], reader)
    assert len(pl.concat(reader.read(found, LabelOptions(), Skipped()))) == 3
    for missing in (tmp_path / "none", tmp_path / "in" / "a.csv.gz" / "x"):
        with pytest.raises(InputError, match="does not exist"):
            find_label_files([missing], reader)
    (tmp_path / "in" / "a.csv.gz").write_bytes(gzip.compress(text.encode())[:-9])
    with pytest.raises(InputError, match="cannot be read"):
        list(reader.read(found, LabelOptions(), Skipped()))


@settings(max_examples=25, deadline=None)
@given(times=st.lists(st.integers(0, 10**6), min_size=1, max_size=300), pieces=st.integers(1, 7))
def test_runs_are_merged_in_order(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], pieces: int
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    frame = pl.DataFrame(
        {"from_ns": times, "until_ns": [t + 5 for t in times], "src": "10.0.0.1", "sport": 1,
         "dst": "10.0.0.2", "dport": 2, "protocol": 6, "label": [f"l{t % 3}" for t in times]}
    )  # fmt: skip
    runs = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow_list, "_PIECE", 4)
        for index in range(pieces):
            place = folder / str(index)
            place.mkdir()
            runs.append(Run(place))
            runs[-1].add(frame[index::pieces], Skipped(), "x")
        listed = write_list(folder / "x.flows", runs)
    records = np.fromfile(folder / "x.flows", RECORD, len(times), offset=64)
    assert records["from_ns"].tolist() == sorted(times)
    names = list(listed.labels)
    assert all(names[r["label"]] == f"l{r['from_ns'] % 3}" for r in records)
    assert listed == FlowList.read(folder / "x.flows")
    assert replace(listed, flows=0) != listed
