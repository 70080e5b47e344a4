# SPDX-License-Identifier: Apache-2.0
"""Files that others wrote: whatever they hold, they are read or refused in one line, within limits."""

from __future__ import annotations

import copy
import io
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from tests.patience import PATIENCE_S
from tests.unit.test_bundle import CONTENT, FEATURES, STUMP, make, manifest_of
from wirewise.cli import app
from wirewise.cli.inspect import inspect
from wirewise.datasets import Table
from wirewise.datasets.flow_list import FlowList
from wirewise.datasets.labels import LabelFile
from wirewise.datasets.manifest import CaptureFolder
from wirewise.datasets.parquet import read_parquet
from wirewise.datasets.published.reader import header_of
from wirewise.datasets.published.unsw import read_set
from wirewise.errors import InputError
from wirewise.feature_sets import FeatureSet
from wirewise.files import files_below, parse_json, parse_yaml, read_bytes
from wirewise.formats import model_file, training_file
from wirewise.formats.bundle import Bundle
from wirewise.formats.card import write_card
from wirewise.formats.training_file import TrainingRecord
from wirewise.policy import Policy

REMOVED = object()
OTHERS: list[Any] = [
    REMOVED, None, True, [], {}, "", "x\ud800", "x" * 300, -1, 10**30, 10**4000, 1e308,
    float("nan"), [[]], {"a": {}},
]  # fmt: skip

SCORES = {"name": "benign", "packets": 9, "precision": 0.5, "recall": 1.0, "f1": 0.7}
REPORT = {"accuracy": 0.9, "packets": 10, "classes": [SCORES, SCORES | {"name": "attack"}]}
POINT = {
    "wish": 0.001, "by": 7, "benign": 100, "attack": 3, "loss": 0.01, "elsewhere": 0.02, "recall": 0.9,
    "loss_before": 0.1, "recall_before": 0.95, "how": "flows kept apart", "after": 2,
    "compared": [{"after": 1, "by": 9, "recall": 0.8, "loss": 0.001}],
}  # fmt: skip
RECORDS: dict[str, Any] = {
    "training": {"table": "t", "table_sha256": "00", "test_share": 0.3, "seed": 1, "split": "by flow"},
    "accuracy": REPORT | {"confusion": [[5, 1], [0, 4]]},
    "fidelity": {
        "rows": 10, "agree": 9,
        "differences": [{"row": 3, "model": "benign", "estimator": "attack", "features": [1, 2]}],
        "held_out": {"how": "kept", "packets": 10, "lost": 0.1, "estimator": REPORT, "model": REPORT},
        "saturation": {
            "rows": 10, "features": [{"feature": "length", "low": 0, "high": 9, "below": 1, "above": 2}],
            "layers": [{"layer": 0, "rows": 3, "neuron": 1, "neuron_rows": 2}],
        },
        "operating_point": POINT,
        "open_set": {"bounds": [], "rows": 10, "how": "kept", "benign": 0.1, "attack": None},
    },
}  # fmt: skip


def full() -> bytes:
    bundle = make(**RECORDS)
    manifest = bundle.manifest.model_dump(mode="json")
    manifest["program"]["verifier"] = {"kernel": "6.18", "verified_instructions": 5, "load_ms": 0.5}
    manifest["program"]["predicted"] = {"instructions": 5}
    return forged({"manifest.json": manifest}, bundle.to_bytes())


def forged(changed: dict[str, Any], content: bytes = CONTENT) -> bytes:
    """The bundle with documents replaced, and digests and seal made anew."""
    source = zipfile.ZipFile(io.BytesIO(content))
    members = {name: source.read(name) for name in source.namelist()}
    manifest = changed.get("manifest.json", json.loads(members["manifest.json"]))
    members |= {
        name: document if isinstance(document, bytes) else json.dumps(document).encode()
        for name, document in changed.items()
    }
    if isinstance(manifest, dict) and isinstance(manifest.get("digests"), dict):
        digests = {
            name: sha256(data).hexdigest() for name, data in members.items() if name in manifest["digests"]
        }
        model = manifest.get("model")
        if not isinstance(changed.get("model.json", b""), bytes) and isinstance(model, dict):
            canonical = json.dumps(changed["model.json"], sort_keys=True, separators=(",", ":"))
            manifest = manifest | {"model": model | {"digest": sha256(canonical.encode()).hexdigest()}}
        members["manifest.json"] = json.dumps(manifest | {"digests": digests}).encode()
    return sealed(members)


def sealed(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        archive.comment = b"0" * 64
    body = buffer.getvalue()[:-64]
    return body + sha256(body).hexdigest().encode()


def places(document: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where each part of a document is."""
    parts: Any = ()
    if isinstance(document, dict):
        parts = document.items()
    elif isinstance(document, list):
        parts = list(enumerate(document))[:3]
    for key, value in parts:
        if at != ("digests",):
            yield (*at, key)
            yield from places(value, (*at, key))


def variants(document: Any) -> Iterator[tuple[str, Any]]:
    """The document with each of its parts missing, or something else."""
    for place in places(document):
        for other in OTHERS:
            changed = copy.deepcopy(document)
            parent = changed
            for key in place[:-1]:
                parent = parent[key]
            if other is REMOVED:
                del parent[place[-1]]
            else:
                parent[place[-1]] = other
            yield f"{place}: {'removed' if other is REMOVED else repr(other)[:40]}", changed


def shown(bundle: Bundle) -> None:
    """All that shows a bundle."""
    write_card(bundle.manifest, bundle.model)
    bundle.to_html().encode()
    repr(bundle)


def refused_or_shown(read: Callable[[], Any], show: Callable[[Any], None], what: str) -> None:
    try:
        found = read()
    except InputError as error:
        assert "\n" not in str(error), what
        str(error).encode("utf-8", "backslashreplace")
        return
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
    try:
        show(found)
    except Exception as error:
        raise AssertionError(f"{what}, when shown: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize("member", ["manifest.json", "features.json", "model.json"])
def test_a_bundle_with_any_key_missing_or_of_another_kind(member: str) -> None:
    content = full()
    document = json.loads(zipfile.ZipFile(io.BytesIO(content)).read(member))
    read = Bundle.from_bytes(content, source="b.wirewise")
    shown(read)
    number = 0
    for what, changed in variants(document):
        number += 1
        data = forged({member: changed}, content)
        refused_or_shown(lambda data=data: Bundle.from_bytes(data, source="b.wirewise"), shown, what)  # type: ignore[misc]
    assert number > 100


def test_inspect_shows_or_refuses_them_in_one_line(tmp_path: Path) -> None:
    content = full()
    path = tmp_path / "b.wirewise"
    for what, changed in variants(manifest_of(content)):
        if "removed" in what:
            path.write_bytes(forged({"manifest.json": changed}, content))
            refused_or_shown(lambda: inspect(path), lambda found: None, what)


def test_a_training_record_with_any_key_missing_or_of_another_kind(tmp_path: Path) -> None:
    record = TrainingRecord(FEATURES, RECORDS["training"], RECORDS["accuracy"])
    content = training_file.behind_pickle(b"pickle", record)
    start = content.index(b"{")
    path = tmp_path / "m.pkl"
    path.write_bytes(content)
    assert training_file.read(path) is not None
    for what, changed in variants(json.loads(content[start:])):
        path.write_bytes(content[:start] + json.dumps(changed).encode() + b"\n")
        refused_or_shown(lambda: training_file.read(path), lambda found: None, what)


def test_an_imported_model_with_any_key_missing_or_of_another_kind(tmp_path: Path) -> None:
    document = {
        "format": "wirewise-model", "version": 1, "classes": ["a", "b"], "source": "s", "notes": ["n"],
        "feature_names": ["x", "y"], "model": STUMP.to_dict(),
    }  # fmt: skip
    path = tmp_path / "m.json"
    for what, changed in variants(document):
        path.write_text(json.dumps(changed))
        # Without its format it is somebody else's model.
        if changed.get("format") == "wirewise-model":
            refused_or_shown(lambda: model_file.read(path), lambda found: repr(found), what)


YAMLS = [
    "!!bool x", "!!int ''", "!!timestamp x", "!!float x", "!!binary '*'", "!!python/name:os.system x",
    "a: *b", "? [1]", "&a [*a]", "&a {b: *a}", "<<: 3", "<<: &a {<<: *a}", "9" * 5000,
    "[" * 20_000, "{a: " * 10_000, "- " * 10_000,
    "0x" + "f" * 5000, "1:" * 3000 + "1", "'" + "x" * 10_000, "a\x00b", "\ufeff", "--- a\n--- b",
    "%YAML 9.9\n---\na", "!<x> y", "2001-99-99",
    "a0: &a0 [x]\n" + "\n".join(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 9}]" for n in range(1, 9)),
    "a0: &a0 {x: 1}\n" + "\n".join(f"a{n}: &a{n} {{<<: [{f'*a{n - 1}, ' * 9}]}}" for n in range(1, 9)),
]  # fmt: skip


@pytest.mark.parametrize("text", YAMLS, ids=range(len(YAMLS)))
def test_yaml_that_means_harm(tmp_path: Path, text: str) -> None:
    path = tmp_path / "f.yaml"
    for whole in (
        text,
        f"version: 1\nfeatures: {text}\n",
        f"version: 1\nrules:\n- label: {text}\n",
        f"version: 1\nclasses: {text}\n",
        f"name: {text}\nfeatures: [length]\n",
    ):
        path.write_bytes(whole.encode("utf-8", "surrogatepass"))
        readers: tuple[Callable[[], Any], ...] = (
            lambda: FeatureSet.load(path),
            lambda: LabelFile.read(path),
            lambda: Policy.load(path, ["benign", "attack"]),
        )
        for read in readers:
            refused_or_shown(read, lambda found: repr(found), whole[:60])


def test_limits_come_before_anything_is_built() -> None:
    with pytest.raises(ValueError, match="lists and objects"):
        parse_json(b"[" + b"[]," * (1 << 20) + b"[]]")
    with pytest.raises(ValueError, match="values"):
        parse_json(b"[" + b"0," * (1 << 22) + b"0]")
    with pytest.raises(ValueError, match="deep"):
        parse_json(b"[" * 100_000 + b"]" * 100_000)
    with pytest.raises(ValueError):
        parse_json(rb'["\ud800"]')
    assert parse_json(rb'["\ud83d\ude00", "\\ud800"]') == ["\U0001f600", "\\ud800"]
    with pytest.raises(ValueError, match="values"):
        parse_yaml("[" + "0," * 1000 + "0]", nodes=1000)


MUCH = 15 << 20
BOMBS: dict[str, Callable[[], bytes]] = {
    "model of zeros": lambda: forged({"model.json": b"[" + b"0," * (MUCH // 2) + b"0]"}),
    "model of lists": lambda: forged({"model.json": b"[" + b"[]," * (MUCH // 3) + b"[]]"}),
    "model of objects": lambda: forged({"model.json": b"[" + b"{}," * (MUCH // 3) + b"{}]"}),
    "fewer lists": lambda: forged({"model.json": b"[" + b"[]," * 1_000_000 + b"[]]"}),
    "deep model": lambda: forged({"model.json": b"[" * (MUCH // 2)}),
    "one text": lambda: forged({"model.json": b'"' + b"a" * MUCH + b'"'}),
    "features of zeros": lambda: forged({"features.json": b"[" + b"0," * (MUCH // 2) + b"0]"}),
    "manifest of lists": lambda: forged({"manifest.json": b"[" + b"[]," * (MUCH // 3) + b"[]]"}),
    "large object": lambda: forged({"program.bpf.o": bytes(MUCH)}),
    "much more": lambda: forged({"card.md": bytes(300 << 20)}),
    "many members": lambda: sealed({f"sources/{n}": b"" for n in range(60_000)}),
}
_INSPECT = """
import resource, sys
from wirewise.cli import inspect
from wirewise.formats import bundle
from wirewise import html, stages, report, text
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
code = 0
try:
    bundle.Bundle.read(sys.argv[1])
except bundle.InputError as error:
    print(error, file=sys.stderr)
    code = 2
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
sys.exit(code)
"""


@pytest.mark.parametrize("name", BOMBS)
def test_what_a_bundle_becomes_is_bounded(tmp_path: Path, name: str) -> None:
    path = tmp_path / "b.wirewise"
    path.write_bytes(BOMBS[name]())
    # By way of env, for a process begins with the peak of what started it.
    command = ["env", sys.executable, "-c", _INSPECT, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode in (0, 2) and len(done.stderr.splitlines()) <= 1, done.stderr[-2000:]
    grown = int(done.stdout) << 10
    assert grown <= (64 << 20) + 10 * path.stat().st_size, f"{grown >> 20} MiB"


def not_files(folder: Path) -> list[tuple[str, str]]:
    os.mkfifo(folder / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(folder)  # a socket's path is short
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
    (folder / "folder").mkdir()
    return [("fifo", "a pipe"), ("socket", "a socket"), ("folder", "a folder"), ("/dev/zero", "a device")]


def test_what_is_not_a_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    signal.alarm(60)  # it would wait for ever
    for target, called in not_files(tmp_path):
        with pytest.raises(InputError, match=f"is {called}, not a file; give the path of a thing"):
            read_bytes(tmp_path / target, what="thing", limit=100)
        reads: dict[str, Callable[[Path], Any]] = {
            "b.wirewise": Bundle.read,
            "f.yaml": FeatureSet.load,
            "l.yaml": LabelFile.read,
            "p.yaml": lambda path: Policy.load(path, ["a", "b"]),
            "manifest.json": lambda path: CaptureFolder.read(path.parent),
            "m.json": model_file.read,
            "l.flows": FlowList.read,
            "t.parquet": lambda path: read_parquet(path, what="table"),
            "set.csv": read_set,
            "conn.log": header_of,
            "m.pkl": training_file.read,
        }
        for name, read in reads.items():
            (tmp_path / name).symlink_to(target)
            try:
                found = read(tmp_path / name)
                assert found is None, (name, target)
            except InputError as error:
                assert re.search("not a file|is a folder|does not exist", str(error)), (target, error)
            (tmp_path / name).unlink()
    signal.alarm(0)


def test_a_damaged_archive_that_was_sealed_again() -> None:
    body, rng = full()[:-64], random.Random(5)
    for number in range(600):
        data = bytearray(body)
        for _ in range(rng.choice([1, 1, 3])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        again = bytes(data) + sha256(data).hexdigest().encode()
        refused_or_shown(
            lambda again=again: Bundle.from_bytes(again, source="b.wirewise"),  # type: ignore[misc]
            shown,
            f"damage {number}",
        )


def test_damaged_tables_are_refused_in_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    frame = pl.DataFrame(
        {
            "time_ns": np.arange(300, dtype=np.uint64), "capture": ["x.pcap"] * 300, "packet": np.arange(300),
            "flow": [f"f{index % 9}" for index in range(300)], "sender": np.ones(300, np.int32),
            "length": np.arange(300), "mean_length": np.arange(300), "label": ["a", "b"] * 150,
            "status": np.zeros(300, np.int32),
        }
    )  # fmt: skip
    path = tmp_path / "t.parquet"
    frame.write_parquet(path, metadata={"wirewise.feature_set": json.dumps(FEATURES.to_dict())})
    assert len(Table.read(path).frame) == 300
    good, rng = path.read_bytes(), random.Random(3)
    for number in range(200):
        data = bytearray(good)
        for _ in range(rng.choice([1, 1, 2, 4])):
            # Most of it is the footer.
            at = rng.randrange(len(data)) if rng.random() < 0.3 else -1 - rng.randrange(1600)
            data[at] = rng.choice([0, 255, 127, 128, rng.randrange(256), data[at] ^ 1 << rng.randrange(8)])
        path.write_bytes(data)
        refused_or_shown(lambda: Table.read(path), lambda found: None, f"damage {number}")
    assert capfd.readouterr().err == ""


def test_a_table_of_more_rows_than_its_bytes_can_hold(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pl.select(pl.repeat(0, 30_000_000, dtype=pl.Int8)).write_parquet(path, row_group_size=30_000_000)
    with pytest.raises(InputError, match="claims 30,000,000 rows of 1 columns"):
        Table.read(path)


def test_names_of_files_add_no_line_to_what_is_shown(tmp_path: Path) -> None:
    name = "b\n  from        nobody\n\x1b[2J\tsigned  by you; $(id).wirewise"
    (tmp_path / name).write_bytes(full())
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path / name)])
    assert shown.exit_code == 0, shown.exception
    assert "\x1b" not in shown.output
    assert not re.search("^ *from +nobody", shown.output, re.MULTILINE), shown.output


def test_the_lists_of_features_have_no_escaped_line_breaks() -> None:
    shown = CliRunner().invoke(app, ["features"])
    assert shown.exit_code == 0 and "u000a" not in shown.output, shown.output


def test_files_below_a_folder_are_those_that_can_be_asked_about(tmp_path: Path) -> None:
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    files = [tmp_path / "deep" / "deeper" / "x.pcap", tmp_path / "y.pcap"]
    for file in files:
        file.touch()
    (tmp_path / "gone.pcap").symlink_to("nowhere")
    (tmp_path / "long.pcap").symlink_to("x" * 300)
    (tmp_path / "deep" / "around").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.pcap")
    assert files_below(tmp_path) == files
