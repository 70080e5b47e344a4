# SPDX-License-Identifier: Apache-2.0
"""Outputs of every command of both programs: never in the place of an input, a device, a pipe or a link, and
with the owner and mode of the file that they replace. A new command fails here until it has a line below.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import typer

from tests.patience import PATIENCE_S
from tests.unit.test_search import numbered_table
from tests.warm import WARM
from wirewise import agent
from wirewise.cli import app
from wirewise.cli.datasets import readers
from wirewise.cli.outputs import OUTPUT_OR_FOLDER, output_names

pytestmark = pytest.mark.xdist_group("outputs")

WIREWISE = [sys.executable, "-m", "wirewise"]
AGENT = str(agent.find())


@dataclass(frozen=True)
class Writer:
    """command : OUT stands for the output. inputs : files that it reads. suffix : of the output's name."""

    command: str
    inputs: tuple[str, ...]
    suffix: str

    @property
    def program(self) -> list[str]:
        return [AGENT] if self.command.startswith("wirewised ") else WIREWISE

    def words(self, output: str | Path) -> list[str]:
        words = self.command.split()[1:]
        return [*self.program, *(str(output) if word == "OUT" else word for word in words)]


DATA = "--bundle model.wirewise"
REPLAY = f"wirewised replay day.pcap {DATA} --policy policy.yaml --mode enforce"
SEARCH = "table.parquet -j 1 -e tree --folds 2 --features 2"
WRITERS = {
    "wirewise compile --output": Writer(
        "wirewise compile model.pkl --table table.parquet -o OUT",
        ("model.pkl", "table.parquet"), ".wirewise",
    ),
    "wirewise preset --output": Writer("wirewise preset hara2026 -o OUT", (), ".yaml"),
    "wirewise features --output": Writer(
        "wirewise features day.pcap -f set.yaml -l day.flows -o OUT",
        ("day.pcap", "set.yaml", "day.flows"), ".parquet",
    ),
    "wirewise train --output": Writer("wirewise train table.parquet -o OUT", ("table.parquet",), ".pkl"),
    "wirewise train --plot": Writer("wirewise train table.parquet --plot OUT", ("table.parquet",), ".html"),
    "wirewise import --output": Writer("wirewise import model.pkl -o OUT", ("model.pkl",), ".json"),
    "wirewise importance --output": Writer(
        "wirewise importance table.parquet -j 1 --eliminate -o OUT", ("table.parquet",), ".yaml"
    ),
    "wirewise importance --journal": Writer(
        "wirewise importance table.parquet -j 1 --journal OUT", ("table.parquet",), ".journal"
    ),
    "wirewise importance --plot": Writer(
        "wirewise importance table.parquet -j 1 --plot OUT", ("table.parquet",), ".html"
    ),
    "wirewise search --output": Writer(
        f"wirewise search {SEARCH} --trials 2 -o OUT", ("table.parquet",), ".pkl"
    ),
    "wirewise search --journal": Writer(
        f"wirewise search {SEARCH} --trials 2 --journal OUT", ("table.parquet",), ".journal"
    ),
    "wirewise search --plot": Writer(
        f"wirewise search {SEARCH} --trials 2 --plot OUT", ("table.parquet",), ".html"
    ),
    "wirewise inspect --html": Writer(
        "wirewise inspect model.wirewise --html OUT", ("model.wirewise",), ".html"
    ),
    "wirewise evaluate --report": Writer(
        "wirewise evaluate model.wirewise table.parquet --report OUT",
        ("model.wirewise", "table.parquet"), ".html",
    ),
    "wirewise evaluate --policy": Writer(
        "wirewise evaluate model.wirewise table.parquet --policy OUT",
        ("model.wirewise", "table.parquet"), ".yaml",
    ),
    "wirewise evaluate --plot": Writer(
        "wirewise evaluate model.wirewise table.parquet --plot OUT",
        ("model.wirewise", "table.parquet"), ".html",
    ),
    "wirewise traffic --output": Writer(
        "wirewise traffic syn-flood --duration 1s --labels l.flows -o OUT", (), ".pcap"
    ),
    "wirewise traffic --labels": Writer(
        "wirewise traffic syn-flood --duration 1s -o c.pcap --labels OUT", (), ".flows"
    ),
    "wirewised trace --output": Writer(
        f"wirewised trace day.pcap {DATA} --plane engine -o OUT", ("day.pcap", "model.wirewise"), ".jsonl"
    ),
    "wirewised trace --write-packets": Writer(
        f"wirewised trace day.pcap {DATA} --plane engine -o t.jsonl --write-packets OUT",
        ("day.pcap", "model.wirewise"), ".pcap",
    ),
    "wirewised trace --dump-flows": Writer(
        f"wirewised trace day.pcap {DATA} --plane engine -o t.jsonl --dump-flows OUT",
        ("day.pcap", "model.wirewise"), ".jsonl",
    ),
    **{
        f"wirewised replay --{option}": Writer(
            f"{REPLAY} --{option} OUT", ("day.pcap", "model.wirewise", "policy.yaml"), ".pcap"
        )
        for option in ("passed", "dropped", "elsewhere")
    },
    "wirewised replay --verdicts": Writer(
        f"{REPLAY} --verdicts OUT", ("day.pcap", "model.wirewise", "policy.yaml"), ".jsonl"
    ),
    "wirewised features --output": Writer(
        f"wirewised features day.pcap {DATA} -l day.flows -o OUT",
        ("day.pcap", "model.wirewise", "day.flows"), ".jsonl",
    ),
    "wirewised infer --output": Writer(
        "wirewised infer rows.csv --bundle network.wirewise -o OUT",
        ("rows.csv", "network.wirewise"), ".jsonl",
    ),
    "wirewised sign --output": Writer(
        "wirewised sign model.wirewise --key own.key -o OUT", ("model.wirewise", "own.key"), ".wirewise"
    ),
}  # fmt: skip
FIRST = {(writer.program[-1], writer.suffix): name for name, writer in reversed(WRITERS.items())}
"""The first output of each suffix and program; the same code writes the others."""
ELSEWHERE = {
    "wirewise emit --output": "a folder, which refuses files that are there",
    "wirewise record --output": "goes on as `wirewised record`",
    "wirewise datasets cicids2017 --output": "a folder; file.flows is as of `features -o`",
    "wirewised record --output": "written as `features -o` is; tests/e2e/test_record.py",
    "wirewised serve --state": "the service's own; tests/e2e/test_serve.py kills it while it writes",
    "wirewised receive --write": "written as `replay --passed` is; needs an interface",
}


def groups_of(of: typer.Typer) -> Iterator[tuple[str, typer.Typer]]:
    for group in of.registered_groups:
        assert group.typer_instance and group.name
        yield group.name, readers() if group.name == "datasets" else group.typer_instance


def options_of_toolkit(of: typer.Typer = app, prefix: str = "wirewise") -> Iterator[str]:
    for name, group in groups_of(of):
        yield from options_of_toolkit(group, f"{prefix} {name}")
    for command in of.registered_commands:
        for name in (*output_names(command.callback), *output_names(command.callback, OUTPUT_OR_FOLDER)):
            yield f"{prefix} {command.name} --{name}"


def options_of_agent() -> Iterator[str]:
    """From the help texts: what names a file to write says so."""

    def shown(*words: str) -> str:
        return subprocess.run([AGENT, *words, "--help"], capture_output=True, text=True, check=True).stdout

    for command in re.findall(r"^  ([a-z]+)  ", shown(), re.M):
        text = shown(command) if command != "help" else ""
        for option, about in re.findall(r"--([a-z-]+) <(?:FILE|PATH)>\s+(.*)", text):
            if re.search(r"\b[Ww]rite\b|Where the|appears", about):
                yield f"wirewised {command} --{option}"


def test_every_output_has_a_line_here() -> None:
    known = WRITERS.keys() | ELSEWHERE.keys()
    found = {*options_of_toolkit(), *options_of_agent()}
    missing = {name for name in found if name not in known and not name.startswith("wirewise datasets")}
    assert not missing
    assert {name for name in WRITERS if name.startswith("wirewised")} <= found
    assert {name for name in WRITERS if name.startswith("wirewise ")} <= found


def test_every_option_of_a_path_of_the_toolkit_is_an_input_or_marked() -> None:
    """By its help: one that is written says so."""

    def check(of: typer.Typer) -> None:
        for _, group in groups_of(of):
            check(group)
        for command in of.registered_commands:
            assert command.callback
            hints = get_type_hints(inspect.unwrap(command.callback), include_extras=True)
            marked = [*output_names(command.callback), *output_names(command.callback, OUTPUT_OR_FOLDER)]
            for name, hint in hints.items():
                about = " ".join(
                    getattr(each, "help", "") or "" for each in getattr(hint, "__metadata__", ())
                )
                if "Path" in str(hint) and re.search(r"\bto write\b|^Write |^Plot ", about):
                    assert name in marked, (command.name, name)

    check(app)


def run(folder: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TMPDIR": str(folder)}
    if words[: len(WIREWISE)] == WIREWISE:
        return WARM.run(words[len(WIREWISE) :], folder, environment)
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True,
        timeout=PATIENCE_S, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


POLICY = "version: 1\nclasses: {flood: drop}\n"
SET = "name: few\nfeatures: [length, mean(length)]\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outputs")
    data = numbered_table()
    data.write(folder / "table.parquet")
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "set.yaml").write_text(SET)
    columns = ",".join(data.feature_set.feature_names)
    (folder / "rows.csv").write_text(f"{columns}\n{','.join('1' for _ in data.feature_set.features)}\n")
    for command in (
        "traffic syn-flood --rate 100 --duration 3s -o day.pcap",
        "train table.parquet -e forest --trees 3 -o model.pkl",
        "compile model.pkl --table table.parquet -o model.wirewise",
    ):
        done = run(folder, [*WIREWISE, *command.split()])
        assert done.returncode == 0, done.stderr
    assert run(folder, [AGENT, "keygen", "own.key"]).returncode == 0
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """The same files, as links to copies of their own: what is written there harms nobody."""
    import shutil

    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


def writer_of(name: str, place: Path) -> Writer:
    writer = WRITERS[name]
    if "network.wirewise" in writer.command and not (place / "network.wirewise").exists():
        import numpy as np

        from wirewise import compiler
        from wirewise.datasets import Table
        from wirewise.importers import Imported
        from wirewise.models import random as models

        data = Table.read(place / "table.parquet")
        model = models.random_binary_mlp(
            np.random.default_rng(1), n_features=len(data.feature_set.features), n_classes=2
        )
        compiled = compiler.compile(
            Imported(model, ["benign", "attack"], "random", [], (), lambda rows: rows),
            data.feature_set,
            name="network",
            classes=["benign", "attack"],
            verify="never",
        )
        compiled.bundle.write(place / "network.wirewise")
    return writer


def first_and_slow(names: Iterable[str]) -> list[Any]:
    marks = {name: () if name in FIRST.values() else pytest.mark.slow for name in names}
    return [pytest.param(name, marks=mark) for name, mark in marks.items()]


def contents(place: Path) -> dict[str, Any]:
    return {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}


@pytest.mark.parametrize("name", WRITERS)
def test_an_output_that_is_an_input_is_refused(place: Path, name: str) -> None:
    writer = writer_of(name, place)
    for source in writer.inputs:
        (place / f"link{writer.suffix}").symlink_to(source)
        (place / f"hard{writer.suffix}").hardlink_to(place / source)
        before = contents(place)
        names = [f"link{writer.suffix}", f"hard{writer.suffix}", f"../{place.name}/./hard{writer.suffix}"]
        names += [source] if source.endswith(writer.suffix) else []
        for output in names:
            done = run(place, writer.words(output))
            assert done.returncode == 2, f"{output}: {done.stderr}"
            assert done.stderr.count("\n") == 1 and "is also an input" in done.stderr
            assert contents(place) == before
        for output in names[:2]:
            (place / output).unlink()


@pytest.mark.parametrize("name", first_and_slow(WRITERS))
def test_an_output_keeps_links_mode_and_owner(place: Path, name: str) -> None:
    writer = writer_of(name, place)
    target, link = place / f"target{writer.suffix}", place / f"link{writer.suffix}"
    journal = name.endswith("--journal")  # goes on with what is there
    if not journal:
        target.write_bytes(b"old")
        target.chmod(0o640)
        if os.geteuid() == 0:
            os.chown(target, 12345, 54321)
    link.symlink_to(target.name)
    done = run(place, writer.words(link))
    assert done.returncode == 0, done.stderr
    assert link.is_symlink() and target.read_bytes() not in (b"old", b"")
    if not journal:
        status = target.stat()
        assert status.st_mode & 0o7777 == 0o640
        assert os.geteuid() != 0 or (status.st_uid, status.st_gid) == (12345, 54321)
    assert not [path for path in place.iterdir() if path.name.startswith((".", "wirewise-"))]


# A journal is read again, so it is a file.
@pytest.mark.parametrize("name", first_and_slow(name for name in WRITERS if not name.endswith("--journal")))
def test_an_output_is_written_into_a_pipe(place: Path, name: str) -> None:
    writer = writer_of(name, place)
    pipe = place / f"pipe{writer.suffix}"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()), daemon=True)
    reader.start()
    done = run(place, writer.words(pipe))
    reader.join(timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert pipe.is_fifo() and received and received[0]


@pytest.mark.parametrize("name", WRITERS)
def test_folders_and_missing_folders_are_one_line(place: Path, name: str) -> None:
    writer = writer_of(name, place)
    (place / f"folder{writer.suffix}").mkdir()
    for output in (f"folder{writer.suffix}", f"no/out{writer.suffix}", f"set.yaml/out{writer.suffix}"):
        done = run(place, writer.words(output))
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), f"{output}: {done.stderr}"


@pytest.mark.parametrize(
    ("absent", "rule"),
    [
        ("absent", r": (does not exist|is not a file|is neither a preset nor a file)"),
        ("long" * 64, ": .*File name too long"),
    ],
)
@pytest.mark.parametrize("name", FIRST.values())
def test_an_input_that_cannot_be_there_is_named(place: Path, name: str, absent: str, rule: str) -> None:
    writer = writer_of(name, place)
    for source in writer.inputs:
        called = f"{absent}{Path(source).suffix}"
        words = [called if word == source else word for word in writer.words(f"out{writer.suffix}")]
        done = run(place, words)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), f"{words}: {done.stderr}"
        assert re.search(rf"\b{called}[\w/.]*{rule}", done.stderr), done.stderr


def numbers_of_toolkit() -> list[tuple[str, str]]:
    """The first output of each command, and each of the command's options that is a number."""
    found = []
    firsts = {name.partition(" --")[0].split()[1]: name for name in reversed(WRITERS)}
    for command in app.registered_commands:
        hints = get_type_hints(inspect.unwrap(command.callback)) if command.name in firsts else {}
        for name, hint in hints.items():
            if {int, float} & {hint, *get_args(hint)}:
                found.append((firsts[str(command.name)], f"--{name.replace('_', '-')}"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("name", "option"), numbers_of_toolkit())
def test_a_number_out_of_range_is_not_called_a_bug(place: Path, name: str, option: str) -> None:
    writer = writer_of(name, place)
    # A large number only takes long.
    without_end = option in ("--trials", "--seeds", "--copies", "--rate")
    for value in ("-1", *(() if without_end else ("99999999999999999999",))):
        done = run(place, [*writer.words(f"out{value}{writer.suffix}"), f"{option}={value}"])
        assert done.returncode in (0, 2) and "a bug in wirewise" not in done.stderr, done.stderr


@pytest.mark.parametrize("pair", [("passed", "dropped"), ("dropped", "verdicts"), ("elsewhere", "passed")])
def test_two_outputs_are_not_one_file(place: Path, pair: tuple[str, str]) -> None:
    (place / "a.jsonl").symlink_to("b.jsonl")
    words = [AGENT, *REPLAY.split()[1:], f"--{pair[0]}", "a.jsonl", f"--{pair[1]}", "b.jsonl"]
    done = run(place, words)
    assert done.returncode == 2 and "is the same file as another output" in done.stderr
    assert not (place / "b.jsonl").exists()


@pytest.mark.parametrize("program", ["wirewise", "wirewised"])
def test_open_files_by_number(place: Path, program: str) -> None:
    """/dev/stdout and /dev/fd/N are written into; those of an input are refused."""
    name = f"{program} features --output"
    words = WRITERS[name].words("/dev/fd/7")
    for redirection, code in (("7> fd.out", 0), ("7>> day.pcap", 2), ("7< set.yaml", 2)):
        before = (place / "day.pcap").read_bytes()
        done = run(place, ["bash", "-c", f'"$@" {redirection}', "bash", *words])
        assert done.returncode == code, done.stderr
        assert (place / "day.pcap").read_bytes() == before
    assert (place / "fd.out").stat().st_size > 100
    done = run(place, ["bash", "-c", '"$@" | cat > piped', "bash", *WRITERS[name].words("/dev/stdout")])
    assert (place / "piped").stat().st_size > 100


def test_a_signature_in_place_goes_to_what_a_link_names(place: Path) -> None:
    (place / "link.wirewise").symlink_to("model.wirewise")
    (place / "model.wirewise").chmod(0o600)
    done = run(place, [AGENT, "sign", "link.wirewise", "--key", "own.key"])
    assert done.returncode == 0, done.stderr
    assert (place / "link.wirewise").is_symlink()
    assert (place / "model.wirewise").stat().st_mode & 0o777 == 0o600
    said = run(place, [AGENT, "verify", "--bundle", "model.wirewise", "--no-load", "--json"])
    assert "fingerprint" in said.stdout
