# SPDX-License-Identifier: Apache-2.0
"""Packets a second on every plane: what hara2023 (Figure 4) and hara2026 (Figure 4) compare, on this
machine.

    python -m bench.planes --output build/bench/planes.json

A program that drops every packet runs on one end of a veth pair, and the kernel sends frames of 64 bytes
from the other end, at rising rates. The sender has the first CPU for itself. All of the receiver, the
driver's polling too, has the second one: the pair's receiving end polls in a kernel thread (threaded
NAPI) that is moved there, and so is the agent. Offered are the packets sent, received those that got a
verdict; the rest found a queue full. CPU time is that of the second CPU.

Where packets may be merged before the program (generic XDP, TC, the raw socket) it only counts what it
would drop, as `run` does not enforce there with GRO on, which live frames need at this end; the kernel
then throws the packets away as another host's.

A veth pair has no hardware: its driver costs little, and AF_XDP copies. So the planes' order holds here;
on a network card the distances differ.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import files, machine
from bench.live_frames import Sender
from bench.programs import forest, network
from wirewise import agent
from wirewise.compiler import compile
from wirewise.demo.network import Wire, inside_namespace, wire, within
from wirewise.errors import MissingFeatureError
from wirewise.feature_sets import PRESETS
from wirewise.models import Model

MODELS: dict[str, Callable[[], Model]] = {
    "tree-10": lambda: forest(1, 10),
    "forest-10x10": lambda: forest(10, 10),
    "mlp-int8-16x16": lambda: network("int8", 16, 16),
    "mlp-q16-32x32": lambda: network("q16", 32, 32),
    "bnn-32-16": lambda: network("binary", 32, 16),
}
"""Name -> a model over hara2023."""
CLASSES = ["one", "two"]
RATES: tuple[float | None, ...] = (250e3, 500e3, 1e6, 2e6, None)
SECONDS = 1.0
_TICK = os.sysconf("SC_CLK_TCK")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives the exit code."""
    options = _parser().parse_args(arguments)

    def shown(report: dict[str, Any]) -> None:
        show(report)
        if options.plot:
            plot(report, options.plot)

    return files.report_on(options, measure, shown, keep_as="-planes")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Compiles what has changed, then measures each plane with each model at each rate."""
    if len(os.sched_getaffinity(0)) < 2:
        raise MissingFeatureError("planes are measured on two CPUs: one sends, one receives")
    facts, _ = machine.begin()
    folder = options.output.parent / "bundles"
    folder.mkdir(parents=True, exist_ok=True)
    planes = options.plane or [
        plane["name"] for plane in agent.call("planes")["planes"] if plane["name"] != "tc-egress"
    ]
    results: list[dict[str, Any]] = []
    for name in options.model or MODELS:
        bundle = folder / f"{name}.wirewise"
        compile(MODELS[name](), PRESETS["hara2023"], name=name, classes=CLASSES, verify="never").bundle.write(
            bundle
        )
        for plane in planes:
            print(f"{name} on {plane}", file=sys.stderr)
            with receiver(plane, bundle, options.output.parent) as (made, ask):
                results += [
                    {"plane": plane, "model": name, **at_rate(made, ask, rate, options.seconds)}
                    for rate in RATES
                ]
    return {"machine": facts, "results": results}


def at_rate(
    made: Wire, ask: Callable[[str], dict[str, Any]], rate: float | None, seconds: float
) -> dict[str, Any]:
    """What became of packets offered at a rate."""
    sending, receiving = sorted(os.sched_getaffinity(0))[:2]
    before, spent = judged(ask), cpu_time(receiving)

    def act() -> tuple[int, float]:
        os.sched_setaffinity(0, {sending})  # of the thread that enters the namespace
        sender = Sender(made.sender, udp_frame())
        begin = time.monotonic()
        sent = sender.send_at(rate, seconds)
        took = time.monotonic() - begin
        sender.close()
        return sent, took

    sent, took = inside_namespace(made.outside, act)
    time.sleep(0.2)  # what is in queues is still judged
    used = {kind: round(now - spent[kind], 3) for kind, now in cpu_time(receiving).items()}
    received = judged(ask) - before
    return {
        "wanted": rate, "offered": round(sent / took), "received": round(received / took),
        "seconds": round(took, 3), "cpu_seconds": used,
    }  # fmt: skip


def judged(ask: Callable[[str], dict[str, Any]]) -> int:
    """Packets that got a verdict. An agent that carries them tells its counts some times a second."""
    return sum(int(row["packets"]) for row in ask("stats")["classes"])


def cpu_time(cpu: int) -> dict[str, float]:
    """Seconds that a CPU has spent, by kind (proc(5))."""
    line = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith(f"cpu{cpu} "))
    user, nice, system, _, _, _, softirq = (int(word) / _TICK for word in line.split()[1:8])
    return {"user": user + nice, "system": system, "softirq": softirq}


def udp_frame() -> bytes:
    """64 bytes of IPv4 with UDP, with the checksum of the header left out: nobody looks at it."""
    ethernet = bytes((2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1)) + b"\x08\x00"
    ip = bytes((0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2))
    return ethernet + ip + bytes((0x0F, 0xA0, 0, 53, 0, 30, 0, 0)) + bytes(22)


@contextmanager
def receiver(
    plane: str, bundle: Path, folder: Path
) -> Iterator[tuple[Wire, Callable[[str], dict[str, Any]]]]:
    """The bundle on a plane of a wire, on the second CPU; yields what asks the agent."""
    policy = folder / "drop.yaml"
    policy.write_text("version: 1\nclasses: {one: drop, two: drop}\n")
    described = next(it for it in agent.call("planes")["planes"] if it["name"] == plane)
    _, receiving = sorted(os.sched_getaffinity(0))[:2]
    with wire() as made:
        there = within(made.inside)

        def ask(command: str) -> dict[str, Any]:
            return agent.call(command, "--interface", made.receiver, within=there)

        # Polling by NAPI, which live frames need at the other end, in a thread that can be moved.
        run_in(made, "ethtool", "-K", made.receiver, "gro", "on")
        run = ["run", "--bundle", str(bundle), "--interface", made.receiver, "--plane", plane]
        run += ["--policy", str(policy), "--yes", "--json"]
        run += ["--mode", "observe" if described["sees_merged"] else "enforce"]
        run += ["--workers", "1"] if plane == "af-packet" else []
        pinned = ["taskset", "--cpu-list", str(receiving)]
        carrier = subprocess.Popen(
            [*there, *pinned, agent.find(), *run], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert carrier.stdout is not None and carrier.stderr is not None
        if not carrier.stdout.readline():
            raise MissingFeatureError(f"{plane}: {carrier.stderr.read().strip()}")
        move_polling(made, receiving)
        try:
            yield made, ask
        finally:
            if described["runs_in"] == "the kernel":
                ask("detach")
            else:
                carrier.terminate()
            carrier.communicate(timeout=30)


def run_in(made: Wire, *command: str) -> None:
    """In the namespace of the receiving end, with a /sys that shows it."""
    subprocess.run(["ip", "netns", "exec", made.inside, *command], check=True, capture_output=True)


def move_polling(made: Wire, cpu: int) -> None:
    """Has the receiving end polled by a thread on that CPU."""
    run_in(made, "sh", "-c", f"echo 1 > /sys/class/net/{made.receiver}/threaded")
    time.sleep(0.1)
    found = subprocess.run(
        ["pgrep", "-f", f"napi/{made.receiver}"[:15]], capture_output=True, text=True, check=False
    ).stdout.split()
    if not found:
        raise MissingFeatureError(f"{made.receiver}: no thread polls it (threaded NAPI, Linux 5.12)")
    for process in found:
        os.sched_setaffinity(int(process), {cpu})


def show(report: dict[str, Any]) -> None:
    """The highest rate of each plane with each model, and where its CPU was."""
    machine.show(report["machine"])
    print(f"\n{'plane':<12} {'model':<15} {'received/s':>11} {'of':>11}  user system softirq")
    for row in report["results"]:
        if row["wanted"] is None:
            used = row["cpu_seconds"]
            share = " ".join(f"{used[kind] / row['seconds']:6.0%}" for kind in ("user", "system", "softirq"))
            print(
                f"{row['plane']:<12} {row['model']:<15} {row['received']:>11,} {row['offered']:>11,} {share}"
            )


def plot(report: dict[str, Any], path: Path) -> None:
    """What each plane received of what was offered, with one model, and the most it received with each."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    rows = report["results"]
    planes = list(dict.fromkeys(row["plane"] for row in rows))
    models = list(dict.fromkeys(row["model"] for row in rows))
    shown = "forest-10x10" if "forest-10x10" in models else models[0]
    figure, (curves, bars) = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for plane in planes:
        points = [
            (row["offered"] / 1e6, row["received"] / 1e6)
            for row in rows
            if (row["plane"], row["model"]) == (plane, shown)
        ]
        curves.plot(*zip(*sorted(points), strict=True), marker="o", label=plane)
    curves.set(
        title=f"{shown}: received of offered",
        xlabel="offered, million packets/s",
        ylabel="received, million packets/s",
    )
    curves.legend()
    width = 0.8 / len(models)
    for number, model in enumerate(models):
        most = [
            max(row["received"] for row in rows if (row["plane"], row["model"]) == (plane, model)) / 1e6
            for plane in planes
        ]
        bars.bar([at + number * width for at in range(len(planes))], most, width, label=model)
    bars.set(title="the most received", ylabel="million packets/s")
    bars.set_xticks([at + 0.4 - width / 2 for at in range(len(planes))], planes, rotation=20)
    bars.legend()
    figure.savefig(path, dpi=110)
    print(f"drawn as {path}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.planes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", type=Path, default=Path("build/bench/planes.json"), metavar="FILE")
    parser.add_argument("--keep", action="store_true", help="keep the result in bench/results")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the result too")
    parser.add_argument("--plane", action="append", help="only this one")
    parser.add_argument("--model", action="append", choices=MODELS, help="only this one")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="at each rate")
    return parser


if __name__ == "__main__":
    sys.exit(main())
