# SPDX-License-Identifier: Apache-2.0
"""Network tomography: Table 5 and Figure 34 of siracusano-n3ic, made again from a simulation.

python -m examples.tomography simulate -o tomography.parquet
python -m examples.tomography train tomography.parquet --figure figure34.png
python -m examples.tomography live networks.wirewise tomography.parquet

G. Siracusano et al., "Re-architecting Traffic Analysis with Neural Network Interface Cards" (2022),
appendix C.2. docs/tomography.md says what is simulated, and how it differs.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from examples.tomography.live import KEPT_EVENTS, play
from examples.tomography.networks import KINDS, SIZES, Judged, judge, weight_bytes
from examples.tomography.simulator import MOST_RUNS, simulate
from examples.tomography.table import DELAYS, NAMES, Dataset
from wirewise.console import console, listing, percent
from wirewise.errors import InputError, WirewiseError, choose
from wirewise.evaluate.binary_training import BinaryClassifier
from wirewise.files import check_folder, check_place, write_atomically
from wirewise.importers.binary import to_plain

PAPER: dict[tuple[int, ...], dict[str, float]] = {  # accuracy in percent, median over the queues: Table 5
    (32, 16): {"float": 92.0, "binary": 90.0},
    (64, 32): {"float": 94.0, "binary": 90.0},
    (128, 64): {"float": 94.0, "binary": 92.0},
}
LAYERS = {  # queues by what is behind them, in the direction of the first host
    "ToR to first host": "tor0_",
    "aggregation to its ToR": "agg[01]_tor",
    "core to aggregation": "core",
    "near ToR to aggregation": "tor1_",
    "aggregation to core": "agg._core",
    "far ToRs to aggregation": "tor[23]_",
}
SHOWN = 12  # events
PICTURES = (".png", ".svg", ".pdf")
Found = dict[tuple[tuple[int, ...], str], list[Judged]]


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    try:
        asked.run(asked)
    except WirewiseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.tomography", description=(__doc__ or "").partition("\n")[0]
    )
    verbs = parser.add_subparsers(required=True, metavar="simulate|train|live")
    verb = verbs.add_parser("simulate", help="make the data set")
    verb.add_argument("-o", "--output", type=Path, required=True, help="Parquet file to write")
    verb.add_argument("--runs", type=int, default=60, help=f"independent networks, 2 to {MOST_RUNS}")
    verb.add_argument("--rounds", type=int, default=500, help="of probes, 10 ms each, of every run")
    verb.add_argument("--seed", type=int, default=0)
    verb.set_defaults(run=_simulate)
    verb = verbs.add_parser("train", help="train networks for all queues, and test them")
    verb.add_argument("data", type=Path, help="what simulate has written")
    verb.add_argument(
        "--threshold", type=float, default=10.0, help="packets, above which a queue is congested"
    )
    verb.add_argument(
        "--size", action="append", metavar="32-16", help="hidden layers; default: all of the paper"
    )
    verb.add_argument("--seed", type=int, default=0)
    verb.add_argument("--figure", type=Path, help="draw Figure 34 to this .png, .svg or .pdf (matplotlib)")
    verb.add_argument(
        "--models",
        type=Path,
        help="folder for the binary networks, a folder of .bnn files for each kind and size",
    )
    verb.set_defaults(run=_train)
    verb = verbs.add_parser(
        "live", help="send simulated rounds as probes to a bundle that runs in the kernel"
    )
    verb.add_argument("bundle", type=Path, help="of the networks of one kind and size")
    verb.add_argument("data", type=Path, help="what simulate has written")
    verb.add_argument("--rounds", type=int, default=300, help=f"of the last run, 1 to {KEPT_EVENTS}")
    verb.add_argument("--slower", type=int, default=1000, help="how much longer a unit of the delays is")
    verb.set_defaults(run=_live)
    return parser


def _simulate(asked: argparse.Namespace) -> None:
    check_place(asked.output)
    with percent("simulating") as progress:
        rounds = simulate(asked.rounds, asked.runs, seed=asked.seed, progress=progress)
    data, counts = Dataset.of(rounds), rounds.counts
    data.write(asked.output)
    console.print(
        f"{len(data.run):,} rounds of {asked.runs} runs; {counts.sent:,} packets, "
        f"{100 * counts.lost / counts.sent:.1f} % lost in full queues"
    )
    listing(
        ("queue", "mean packets", "above 10"),
        (
            (name, f"{mean:.1f}", f"{100 * above:.0f} %")
            for name, mean, above in zip(
                NAMES, data.packets.mean(axis=0), (data.packets > 10).mean(axis=0), strict=True
            )
        ),
        right=(1, 2),
    )


def _train(asked: argparse.Namespace) -> None:
    sizes = [_size(text) for text in asked.size] if asked.size else list(SIZES)
    if asked.figure is not None:
        check_place(asked.figure)
        if asked.figure.suffix.lower() not in PICTURES:
            raise InputError(
                str(asked.figure), "is no kind of picture", choose(asked.figure.suffix, PICTURES)
            )
    if asked.models is not None:
        check_folder(asked.models)
    data = Dataset.read(asked.data)
    learn, test = data.split()
    console.print(f"learned from {len(learn):,} rounds, tested on {len(test):,} of other runs")
    found: Found = {}
    with percent("training") as progress:
        for hidden in sizes:
            for kind in KINDS:
                networks = found[hidden, kind] = []
                for one in judge(data, kind, hidden, asked.threshold, asked.seed):
                    networks.append(one)
                    done = len(found) - 1 + len(networks) / len(NAMES)
                    progress(done / (len(sizes) * len(KINDS)))
    _table_5(found, asked.threshold)
    _by_layer(found)
    if asked.models is not None:
        _write(found, asked.models)
    if asked.figure is not None:
        _draw(found, asked.figure)


def _size(text: str) -> tuple[int, ...]:
    try:
        hidden = tuple(int(part) for part in text.split("-"))
    except ValueError:
        raise InputError(f"--size {text}", "is no list of widths", "write it as 32-16") from None
    BinaryClassifier(hidden)  # refuses sizes that cannot be
    return hidden


def _name(hidden: Sequence[int]) -> str:
    return "-".join(map(str, (*hidden, 2)))


def _table_5(found: Found, threshold: float) -> None:
    def row(hidden: tuple[int, ...], kind: str, networks: list[Judged]) -> tuple[str, ...]:
        accuracy = 100 * np.array([one.accuracy for one in networks])
        size = weight_bytes(kind, hidden)
        paper = PAPER.get(hidden, {}).get(kind)
        # As the quartiles of a box plot: the accuracies of queues that are there.
        low, lower, middle, upper, high = np.quantile(accuracy, (0, 0.25, 0.5, 0.75, 1), method="nearest")
        return (
            _name(hidden), kind, f"{size / 1000:.1f} kB" if size >= 1000 else f"{size:.0f} B",
            f"{middle:.1f}", f"{paper:.1f}" if paper else "-",
            f"{low:.1f}", f"{lower:.1f}", f"{upper:.1f}", f"{high:.1f}",
        )  # fmt: skip

    listing(
        ("network", "kind", "weights", "median", "paper's", "least", "1st quartile", "3rd", "most"),
        (row(hidden, kind, networks) for (hidden, kind), networks in found.items()),
        title=f"Table 5 and Figure 34: accuracy in %, {len(NAMES)} queues, above {threshold:g} packets",
        right=range(2, 9),
    )


def _by_layer(found: Found) -> None:
    def mean(networks: Sequence[Judged], pattern: str, value: str) -> str:
        of = [getattr(one, value) for one in networks if re.match(pattern, NAMES[one.queue])]
        return f"{100 * np.mean(of):.1f}"

    any_of_them = next(iter(found.values()))
    columns = [(f"{_name(hidden)} {kind}", networks) for (hidden, kind), networks in found.items()]
    listing(
        ("accuracy in percent", *LAYERS),
        [
            ("always the commoner class", *(mean(any_of_them, p, "commoner") for p in LAYERS.values())),
            *((name, *(mean(each, p, "accuracy") for p in LAYERS.values())) for name, each in columns),
        ],
        title="Means by where the queue is",
        right=range(1, 1 + len(LAYERS)),
    )


def _write(found: Mapping[tuple[tuple[int, ...], str], list[Judged]], folder: Path) -> None:
    written = 0
    for (hidden, kind), networks in found.items():
        for one in networks:
            if one.model is not None:
                steps = "-steps" if kind.endswith("steps") else ""
                document = to_plain(one.model, ["clear", "congested"], DELAYS)
                of_these = folder / f"{_name(hidden)}{steps}"
                of_these.mkdir(parents=True, exist_ok=True)
                write_atomically(of_these / f"{NAMES[one.queue]}.bnn", json.dumps(document).encode())
                written += 1
    console.print(f"\n{written} networks written to {folder}")


def _live(asked: argparse.Namespace) -> None:
    for name, value, most in (("rounds", asked.rounds, KEPT_EVENTS), ("slower", asked.slower, 100_000)):
        if not 1 <= value <= most:
            raise InputError(f"--{name} {value}", f"is not 1 to {most}")
    data = Dataset.read(asked.data)
    delays = data.delays[data.run == data.run[-1]][: asked.rounds]
    live = play(asked.bundle, delays, asked.slower)
    before: list[str] = []
    rows = []
    for event, yes in zip(live.events, live.told, strict=True):
        said = event["wirewise"]["answers"]
        rows.append((event["timestamp"][11:23], _signed("+", said["began"]), _signed("-", said["ended"])))
        before = yes
    listing(("time", "congested now", "no longer"), rows[-SHOWN:], title=f"The last of {len(rows)} events")
    console.print(f"congested at the end: {', '.join(before) or 'none'}")
    console.print(
        f"{len(delays):,} rounds, {live.packets:,} probes; {live.inferred:,} rounds judged. Run by hand, "
        f"a probe takes {np.median(live.took_ns[0]) / 1000:.2f} us, one that makes a round whole "
        f"{np.median(live.took_ns[1]) / 1000:.2f} us (medians)"
    )
    if live.told != live.expected or live.inferred != len(delays):
        raise WirewiseError(
            f"the kernel told of {len(live.told)} changes, and the reference of {len(live.expected)} others"
        )
    console.print(f"all {len(live.told)} changes are those of the reference", style="green")


def _signed(sign: str, names: Sequence[str]) -> str:
    return " ".join(sign + name for name in names)


def _draw(found: Found, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes = figure.subplots()
    sizes = list(dict.fromkeys(hidden for hidden, _ in found))
    for at, kind in enumerate(KINDS):
        places = [index + (at - 1) * 0.25 for index in range(len(sizes))]
        boxes = axes.boxplot(
            [[100 * one.accuracy for one in found[hidden, kind]] for hidden in sizes],
            positions=places, widths=0.2, patch_artist=True, manage_ticks=False,
            boxprops={"facecolor": f"C{at}", "alpha": 0.6}, medianprops={"color": "black"},
        )  # fmt: skip
        boxes["boxes"][0].set_label(kind)
    always = np.median([100 * one.commoner for one in next(iter(found.values()))])
    axes.axhline(always, color="grey", linestyle=":", label="always the commoner class (median)")
    axes.set_xticks(range(len(sizes)), [_name(hidden) for hidden in sizes])
    axes.set_ylabel("accuracy of a queue's network (%)")
    figure.legend(fontsize="small", loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=120)
    console.print(f"drawn {path}")


if __name__ == "__main__":
    sys.exit(main())
