# SPDX-License-Identifier: Apache-2.0
"""Captures and published labels to a folder of Parquet, a part for each capture.

OUT/part-NAME-HASH.parquet    rows of one capture; the folder is read as one table
OUT/_job/job.json             what was asked for: the same job goes on, another one is refused
OUT/_job/labels.flows         the labels as one sorted list
OUT/_job/part-NAME-HASH.json  what became of a capture; there when its part is complete
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from wirewise import agent
from wirewise.datasets.extraction import SEED, Rows, Truth
from wirewise.datasets.flow_list import FlowList, Run, Skipped, temporary_runs, write_list
from wirewise.datasets.published.reader import LabelOptions, Reader
from wirewise.errors import InputError, WirewiseError
from wirewise.feature_sets import FeatureSet
from wirewise.files import check_folder, write_atomically
from wirewise.parallel import Workers
from wirewise.targets import ebpf
from wirewise.text import harmless

R = TypeVar("R")

Progress = Callable[[str, int, int], None]
"""What is going on, bytes done, bytes in all."""


@dataclass
class Outcome:
    """labels : the list, and its rows that were skipped. parts : the agent's summary of each capture, by its
    path; `resumed` of those that were done before. failed : captures without a part, and why.
    """

    output: Path
    labels: FlowList
    skipped: Skipped
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    resumed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def packets(self) -> int:
        return sum(part["packets"] for part in self.parts.values())

    @property
    def rows(self) -> dict[str, int]:
        """Rows by label, over all parts; 0 for a class of the list that no packet belongs to."""
        total: dict[str, int] = dict.fromkeys(self.labels.labels, 0)
        for part in self.parts.values():
            for label, count in part["labels"].items():
                total[label] = total.get(label, 0) + count
        return total

    def warnings(self) -> list[str]:
        """What whoever uses the table has to know."""
        found = []
        for path, part in self.parts.items():
            found += [f"{path}: {warning}" for warning in part["warnings"]]
            found += _misfits(path, part["joined"][0]["flows"], self.labels)
        if missing := [name for name, count in self.rows.items() if not count and name]:
            found.append(f"no row has the label {', '.join(missing)}: no packet belongs to a flow with it")
        return found


def _misfits(path: str, joined: dict[str, int], labels: FlowList) -> list[str]:
    """A capture that hardly any label fits."""
    covers = f"{_moment(joined['first_ns'])} to {_moment(joined['last_ns'])}"
    known = f"{_moment(labels.first_ns)} to {_moment(labels.last_ns)}"
    zone = "or do the labels need --time-zone?"
    if not joined["listed"]:
        return [
            f"{path}: its packets ({covers}) lie in the time of no labelled flow ({known}): "
            f"is it of another day, {zone}"
        ]
    if joined["matched"] * 10 < joined["listed"]:
        share = 100 * joined["matched"] / joined["listed"]
        return [
            f"{path}: only {joined['matched']:,} of the {joined['listed']:,} flows labelled for its time "
            f"have packets in it ({share:.1f} %; {covers}): is it another link, {zone}"
        ]
    return []


def _moment(ns: int) -> str:
    from datetime import datetime, timezone

    try:
        return datetime.fromtimestamp(ns / 1e9, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError):
        return f"{ns / 1e9:.0f} s"


def index_labels(
    path: Path,
    reader: Reader,
    files: Sequence[Path],
    options: LabelOptions,
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> tuple[FlowList, Skipped]:
    """The labels of several files as one sorted list; several files are read at once.

    Raises InputError for a file that is not of the reader's format, and if no row at all can be used.
    """
    sizes = [file.stat().st_size for file in files]
    total, done = sum(sizes), 0
    runs, skipped = dict[int, Run](), Skipped()
    with temporary_runs(path) as folder:
        tasks = []
        for index, file in enumerate(files):
            place = folder / str(index)
            place.mkdir()
            tasks.append((place, reader, file, options))
        for index, (run, left_out) in _over(_index, tasks, jobs):
            runs[index] = run
            skipped.merge(left_out)
            done += sizes[index]
            if progress:
                progress("reading labels", done, total)
        ordered = [runs[index] for index in sorted(runs)]
        if not any(run.files for run in ordered):
            why = "; ".join(
                f"{n:,}: {reason} ({skipped.places[reason]})" for reason, n in skipped.counts.items()
            )
            raise InputError(
                ", ".join(map(str, files[:3])), f"has no row that can be used ({why or 'it is empty'})",
                f"are these labels of {reader.name}?",
            )  # fmt: skip
        return write_list(path, ordered), skipped


def _index(folder: Path, reader: Reader, file: Path, options: LabelOptions) -> tuple[Run, Skipped]:
    run, skipped = Run(folder), Skipped()
    for frame in reader.read(file, options, skipped):
        run.add(frame, skipped, file.name)
    run.flush()
    return run, skipped


def run_job(
    captures: Sequence[Path],
    reader: Reader,
    label_files: Sequence[Path],
    feature_set: FeatureSet,
    output: Path,
    *,
    options: LabelOptions | None = None,
    rows: Rows | None = None,
    otherwise: str | None = None,
    keep_going: bool = False,
    force: bool = False,
    jobs: int | None = None,
    ray: str | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Extract the features of captures, with published labels joined, into a folder of Parquet.

    A part that is complete, of a capture that has not changed since, is not made again. otherwise : label of
    packets of no flow. keep_going : what could be read of a capture that breaks off is kept. force : drop
    what another job left in the folder. Raises InputError if labels or all captures cannot be read.
    """
    options, rows = options or LabelOptions(), rows or Rows()
    check_folder(output)
    private = output / "_job"
    private.mkdir(parents=True, exist_ok=True)
    asked = {
        "version": 1,
        "reader": reader.name,
        "labels": [_stamp(path) for path in (*label_files, *options.alerts)],
        "options": [options.time_zone, options.label_column, otherwise, keep_going, *rows.options()],
        "feature_set": feature_set.to_dict(),
    }
    _check_job(output, private, asked, force)
    done_labels = private / "labels.json"
    listed = private / "labels.flows"
    if listed.is_file() and done_labels.is_file():
        labels, skipped = FlowList.read(listed), Skipped(**json.loads(done_labels.read_bytes()))
    else:
        labels, skipped = index_labels(listed, reader, label_files, options, jobs=jobs, progress=progress)
        write_atomically(done_labels, json.dumps(asdict(skipped)).encode())
    program, features = private / "features.bpf.o", private / "features.json"
    write_atomically(program, ebpf.build(ebpf.emit(None, feature_set)).object)
    write_atomically(features, json.dumps(feature_set.to_dict()).encode())
    outcome = Outcome(output, labels, skipped)
    tasks = []
    for capture in captures:
        part, report = _places(output, capture)
        if (known := _done(part, report, capture)) is not None:
            outcome.parts[str(capture)] = known
            outcome.resumed.append(str(capture))
        else:
            truth = Truth(listed.resolve(), otherwise or reader.otherwise or None)
            arguments = [*truth.options(), *rows.options(), *(["--keep-going"] if keep_going else [])]
            tasks.append(
                (str(capture.resolve()), str(part.resolve()), str(program.resolve()), str(features.resolve()),
                 list(map(str, arguments)))
            )  # fmt: skip
    sizes = [Path(task[0]).stat().st_size for task in tasks]
    finished, total = 0, sum(sizes)
    named = {str(capture.resolve()): capture for capture in captures}
    if progress:
        progress("captures", 0, total)
    with _cleared(private):
        for index, said in _over(_extract, tasks, jobs, ray):
            capture = named[tasks[index][0]]
            if isinstance(said, str):
                outcome.failed[str(capture)] = said
            else:
                _, report = _places(output, capture)
                write_atomically(report, json.dumps({"capture": _stamp(capture), "said": said}).encode())
                outcome.parts[str(capture)] = said
            finished += sizes[index]
            if progress:
                progress(f"captures: {len(outcome.parts)} of {len(captures)}", finished, total)
    if not outcome.parts:
        raise InputError(next(iter(outcome.failed.values()), "no capture was given"))
    return outcome


@contextmanager
def _cleared(private: Path) -> Iterator[None]:
    """Without what agents leave that were interrupted, before and behind."""
    try:
        _clear(private)
        yield
    finally:
        _clear(private)


def _clear(private: Path) -> None:
    for left in (*private.glob(".tmp*"), *private.glob("*.parquet")):
        left.unlink(missing_ok=True)


def _over(
    work: Callable[..., R], tasks: Sequence[tuple[Any, ...]], jobs: int | None, ray: str | None = None
) -> Iterator[tuple[int, R]]:
    """work(*task) for every task, as they get done, with the task's number."""
    with Workers(work, jobs=jobs, waits=True, ray=ray) as workers:
        yield from workers.over(_call, tasks)


def _call(work: Callable[..., R], task: tuple[Any, ...]) -> R:
    return work(*task)


def _extract(
    capture: str, part: str, program: str, features: str, options: list[str]
) -> dict[str, Any] | str:
    """The agent's summary, or what was wrong with the capture."""
    written = Path(program).with_name(Path(part).name)
    try:
        said = agent.call(
            "features",
            capture,
            "--object",
            program,
            "--feature-set",
            features,
            "-o",
            written,
            "--seed",
            SEED,
            *options,
            timeout=None,
        )
    except WirewiseError as error:
        return str(error)
    written.replace(part)
    return said | {"output": part}


def _places(output: Path, capture: Path) -> tuple[Path, Path]:
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in harmless(capture.name))[:80]
    digest = hashlib.sha256(str(capture.resolve()).encode()).hexdigest()[:8]
    return output / f"part-{name}-{digest}.parquet", output / "_job" / f"part-{name}-{digest}.json"


def _done(part: Path, report: Path, capture: Path) -> dict[str, Any] | None:
    """What the agent said of a part that is complete and of this capture as it is now."""
    if not part.is_file() or not report.is_file():
        return None
    try:
        document = json.loads(report.read_bytes())
        said = document["said"] if document["capture"] == _stamp(capture) else None
    except (ValueError, KeyError, TypeError, OSError):
        return None
    return said if isinstance(said, dict) else None


def _stamp(path: Path) -> list[Any]:
    """What changes with a file."""
    about = path.stat()
    return [str(path.resolve()), about.st_size, about.st_mtime_ns]


def _check_job(output: Path, private: Path, asked: dict[str, Any], force: bool) -> None:
    record = private / "job.json"
    text = json.dumps(asked, indent=1).encode()
    if record.is_file() and record.read_bytes() != text:
        if not force:
            raise InputError(
                str(output), "holds what another job made: other labels, options or features",
                "give another folder, or --force to make it anew",
            )  # fmt: skip
        for old in (*output.glob("part-*.parquet"), *private.iterdir()):
            old.unlink()
    elif not record.is_file() and any(path.name != "_job" for path in output.iterdir()):
        raise InputError(str(output), "is not empty", "give a new folder")
    write_atomically(record, text)
