# SPDX-License-Identifier: Apache-2.0
"""`wirewise datasets`, from captures and labels as published to a table that can be trained on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests import needs, published
from tests.published import Flow
from tests.unit.test_captures import SHARED
from wirewise.cli import main
from wirewise.datasets import Table, write_capture
from wirewise.feature_sets.packet import parse
from wirewise.traffic import generate

pytestmark = pytest.mark.xdist_group("datasets")

START = 1_499_434_205_000_000_000  # 2017-07-07 13:30:05 UTC, half past ten in Fredericton
Run = Callable[..., Any]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def call(*arguments: object, code: int = 0) -> Any:
        monkeypatch.setattr("sys.argv", ["wirewise", "datasets", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) if code else _nothing():
            main()
        out, err = capsys.readouterr()
        if code:
            return err
        return json.loads(out) if "--json" in arguments else out + err

    return call


class _nothing:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Flow], dict[tuple[str, int], str]]:
    """Two captures, half an hour apart, the flows in them, and the label of each packet by its number."""
    folder = tmp_path_factory.mktemp("made")
    found: dict[tuple[int, object], Flow] = {}
    truth: dict[tuple[str, int], str] = {}
    for index in range(2):
        begin = START + index * 1800 * 10**9
        traffic = generate(7 + index, duration_s=3, packets=3000, both_directions=True)
        packets = []
        for number, packet in enumerate(traffic, 1):
            _, outer = parse(packet.frame)
            packets.append((begin + packet.time_ns, packet.frame))
            if outer is None or outer.protocol not in (6, 17) or (outer.fragment and not outer.source_port):
                continue
            ends = ((outer.source, outer.source_port), (outer.destination, outer.destination_port))
            key = (index, (outer.protocol, *sorted(ends)))
            label = packet.kind if packet.label != "benign" else "benign"
            truth[f"{index}.pcap", number] = label
            if key in found:
                found[key] = found[key]._replace(end_ns=begin + packet.time_ns)
            else:
                (src, sport), (dst, dport) = ends
                begins = begin + packet.time_ns
                found[key] = Flow(
                    begins, begins, text(src), sport, text(dst), dport, outer.protocol, label
                )  # fmt: skip
        write_capture(folder / f"{index}.pcap", packets)
    return folder, list(found.values()), truth


def text(address: bytes) -> str:
    import socket

    return socket.inet_ntop(socket.AF_INET if len(address) == 4 else socket.AF_INET6, address)


def right(table: Table, truth: dict[tuple[str, int], str]) -> float:
    """The share of packets with the label they ought to have."""
    names = table.frame["capture"].to_list()
    given = {
        (Path(name).name, number): label
        for name, number, label in zip(names, table.frame["packet"], table.frame["label"], strict=True)
    }
    return float(np.mean([given[key] == label for key, label in truth.items()]))


def test_a_job_labels_every_packet_goes_on_and_refuses_another(
    made: tuple[Path, list[Flow], dict[tuple[str, int], str]], run: Run, tmp_path: Path
) -> None:
    folder, flows, truth = made
    (tmp_path / "labels").mkdir()
    middle = len(flows) // 2
    for name, part in (("a.csv", flows[middle:]), ("b.csv", flows[:middle])):
        written = published.cic(part, "%Y-%m-%d %H:%M:%S.%f", first=["Unnamed: 0"])
        (tmp_path / "labels" / name).write_text(written)
    job = ("cic-ddos2019", folder, "-l", tmp_path / "labels", "-f", "hara2026", "-o", tmp_path / "out")
    said = run(*job, "--json", "--jobs", 2)
    assert said["joined"]["matched"] == said["joined"]["listed"] == said["labels"]["flows"] == len(flows)
    assert said["labels"]["skipped"]["the header again"] == 2 and not said["failed"] and not said["resumed"]
    table = Table.read(tmp_path / "out")
    assert right(table, truth) == 1.0
    assert len(table.frame) == said["packets"] == sum(said["rows"].values())
    # The same again does nothing; a part that is gone is made again, and a capture that was added.
    parts = sorted((tmp_path / "out").glob("*.parquet"))
    parts[0].unlink()
    kept = parts[1].stat().st_mtime_ns
    interrupted = tmp_path / "out" / "_job" / ".tmpxyz"
    interrupted.write_bytes(b"half a part")
    said = run(*job, "--json")
    assert not interrupted.exists()
    assert len(said["resumed"]) == 1 and parts[1].stat().st_mtime_ns == kept
    assert Table.read(tmp_path / "out").frame.equals(table.frame)
    # Other options are another job.
    assert "another job" in run(*job, "--time-zone", "UTC", code=2)
    said = run(*job, "--time-zone", "UTC", "--force", "--json")
    assert not said["joined"]["matched"] and all("--time-zone" in text for text in said["warnings"][:2])
    assert "no row has the label" in said["warnings"][-1]


def test_labels_alone_serve_wirewise_features(
    made: tuple[Path, list[Flow], dict[tuple[str, int], str]],
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folder, flows, truth = made
    flows = [flow._replace(label="-".join(flow.label.split())) for flow in flows]
    (tmp_path / "conn.log").write_text(published.zeek(flows))
    said = run("zeek", "-l", tmp_path / "conn.log", "-o", tmp_path / "zeek.flows", "--json")
    assert said["flows"] == len(flows)
    arguments = [
        "features",
        folder,
        "-f",
        "hara2026",
        "-l",
        tmp_path / "zeek.flows",
        "-o",
        tmp_path / "t.parquet",
    ]
    monkeypatch.setattr("sys.argv", ["wirewise", *map(str, arguments)])
    main()
    assert right(Table.read(tmp_path / "t.parquet"), truth) == 1.0


def test_a_capture_that_breaks_off_is_named_and_the_others_are_done(
    made: tuple[Path, list[Flow], dict[tuple[str, int], str]], run: Run, tmp_path: Path
) -> None:
    folder, flows, _ = made
    (tmp_path / "eve.json").write_text(published.eve(flows))
    cut = tmp_path / "cut.pcap"
    cut.write_bytes((folder / "1.pcap").read_bytes()[:-30])
    job = (
        "suricata",
        folder / "0.pcap",
        cut,
        "-l",
        tmp_path / "eve.json",
        "-f",
        "hara2023",
        "-o",
        tmp_path / "o",
    )
    error = run(*job, code=2)
    assert "1 of 2 captures could not be read" in error and "cut.pcap" in error and "--keep-going" in error
    assert len(list((tmp_path / "o").glob("*.parquet"))) == 1
    said = run(*job, "--keep-going", "--force", "--json")
    assert said["captures"] == 2 and any("cut.pcap" in warning for warning in said["warnings"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["zeek"], "no labels were given"),
        (["zeek", "-l", "x.log"], "no place for the result"),
        (["zeek", "-l", "x.log", "-o", "out"], "x.log: does not exist"),
        (["zeek", "-l", ".", "-o", "out"], "holds no file of zeek"),
        (["zeek", "-l", "x.log", "-o", "o", "--alerts", "none.log"], "none.log: does not exist"),
        (["unsw-nb15-sets", "none.csv"], "none.csv"),
        (["lucid", "none.hdf5", "-f", "hara2026"], "none.hdf5"),
        (["lucid", "none.hdf5"], "no feature set"),
        (["kdd99"], "kdd99"),
    ],
)
def test_bad_usage(
    arguments: list[str], says: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs.package("h5py")
    monkeypatch.chdir(tmp_path)
    assert says in run(*arguments, code=2)
    assert not list(tmp_path.iterdir())


def test_the_sets_of_unsw_nb15_become_rows_of_the_preset(run: Run, tmp_path: Path) -> None:
    header = "\ufeffid,dur,proto,service,state,spkts,dpkts,sbytes,sttl,sinpkt,smean,attack_cat,label"
    rows = [
        "1,0.5,tcp,-,FIN,6,4,258,252,24.2956,43,Normal,0",
        "2,1e-06,udp,dns,INT,2,0,114,254,0.001,57, Worms ,1",
    ]
    given = tmp_path / "sets [2015]" / "s.csv"
    given.parent.mkdir()
    given.write_text("\n".join([header, *rows, "3,x,udp,dns,INT,2,0,114,254,0,57,Worms,1", ""]))
    said = run("unsw-nb15-sets", given, "-o", tmp_path / "t.parquet", "--json")
    assert said["labels"] == {"benign": 1, "worms": 1} and "1 rows left out" in said["notes"][0]
    table = Table.read(tmp_path / "t.parquet")
    assert table.frame.select(table.feature_set.feature_names).rows() == [
        (500_000, 258, 252, 6, 43 << 16, round(24295.6 * 65536)),
        (1, 114, 254, 2, 57 << 16, 65536),
    ]


def test_arrays_of_lucid_are_replayed(run: Run, tmp_path: Path) -> None:
    h5py = needs.package("h5py")
    maxima = np.array([10, 65536, 2**32, 65536, 4096, 65536, 2**32, 65536, 65536, 65536, 256], float)
    x = np.zeros((2, 10, 11))
    tcp, udp = (1 << 9) + (1 << 6), (1 << 11) + (1 << 6)
    x[0, 0] = [0, 60, 5, 0x4000, tcp, 0, 0, 2, 64240, 0, 0]
    x[0, 1] = [0.25, 140, 5, 0x4000, tcp, 100, 9, 0x18, 501, 0, 0]
    x[1, 0] = [0, 1028, 5, 0, udp, 0, 0, 0, 0, 1008, 0]
    (tmp_path / "01-LDAP").mkdir()
    with h5py.File(tmp_path / "01-LDAP" / "a.hdf5", "w") as file:
        file["set_x"], file["set_y"] = x / maxima, np.array([0, 1])
    said = run("lucid", tmp_path, "-f", "hara2026", "-o", tmp_path / "t.parquet", "--json")
    assert said["labels"] == {"benign": 2, "ldap": 1} and not said["left_out"]
    frame = Table.read(tmp_path / "t.parquet").frame
    shown = frame.select("max_length", "sum_length", "initial_window", "ack_count", "syn_count", "sum_iat")
    assert shown.rows() == [
        (60, 60, 64240, 0, 1, 0),
        (140, 200, 64240, 1, 1, 250_000),
        (1028, 1028, 0, 0, 0, 0),
    ]
    said = run("lucid", tmp_path, "-f", "hara2023", "--json")
    assert "source_port" in said["left_out"] and len(said["feature_set"]["features"]) == 7
    with h5py.File(tmp_path / "bad.hdf5", "w") as file:
        file["set_x"], file["set_y"] = x, np.array([0, 1])
    assert "outside 0 to 1" in run("lucid", tmp_path / "bad.hdf5", "-f", "hara2026", code=2)


@pytest.mark.skipif(not SHARED.is_dir(), reason="captures: ../shared/data/captures is not there")
def test_the_published_arrays_are_read(run: Run) -> None:
    needs.package("h5py")
    said = run("lucid", SHARED.parent / "flad" / "00-WebDDoS", "-f", "hara2026", "--json")
    assert said["samples"] == 321 + 37 and said["packets"] == 2201 + 252


def test_a_ray_cluster_does_the_same(
    made: tuple[Path, list[Flow], dict[tuple[str, int], str]], run: Run, tmp_path: Path
) -> None:
    needs.package("ray", "ray")
    folder, flows, truth = made
    (tmp_path / "conn.log").write_text(published.zeek(flows))
    job = ("zeek", folder, "-l", tmp_path / "conn.log", "-f", "hara2026")
    run(*job, "-o", tmp_path / "ray", "--ray", "local", "--jobs", 2, "--json")
    run(*job, "-o", tmp_path / "here", "--json")
    on_ray, here = Table.read(tmp_path / "ray"), Table.read(tmp_path / "here")
    assert right(on_ray, truth) == 1.0 and on_ray.frame.equals(here.frame)
    cut = tmp_path / "cut.pcap"
    cut.write_bytes((folder / "1.pcap").read_bytes()[:-30])
    assert "cut.pcap" in run("zeek", cut, *job[2:], "-o", tmp_path / "bad", "--ray", "local", code=2)


def test_without_ray_the_way_out_is_named(
    made: tuple[Path, list[Flow], dict[tuple[str, int], str]],
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folder, flows, _ = made
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    (tmp_path / "conn.log").write_text(published.zeek(flows))
    job = (
        "zeek",
        folder,
        "-l",
        tmp_path / "conn.log",
        "-f",
        "hara2026",
        "-o",
        tmp_path / "o",
        "--ray",
        "auto",
    )
    assert "wirewise[ray]" in run(*job, code=3)


def test_the_list_names_them_all(run: Run) -> None:
    names = [entry["name"] for entry in run("--json")["datasets"]]
    assert names[:2] == ["cic-ids2017", "cic-ddos2019"] and {"zeek", "suricata", "lucid"} <= set(names)
    assert pl.Series(names).is_unique().all()
