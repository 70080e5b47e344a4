# SPDX-License-Identifier: Apache-2.0
"""Traffic classification at a 5G user plane function: the figures of galvao2026, and the delay of URLLC.

sudo .venv/bin/python examples/5g/run.py all
sudo .venv/bin/python examples/5g/run.py all --quick

Makes the network of network.sh, records its traffic, trains a forest of ten trees, and runs it at the UPF's
N3: in the kernel, and in user space from an event for each packet. Then N6 is saturated by video, and the
delay of URLLC is measured with and without steering. docs/5g.md says what is measured, and how.

J. S. da S. Galvão et al., "Leveraging eBPF/XDP for Real-Time Machine Learning Traffic Classification in 5G
User Plane Networks" (2026).
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # bench: machine, results, the forest as C

import lab
import wirewise as ww
from bench import files, machine, native
from figures import document, plot, show
from lab import Traffic
from wirewise import agent
from wirewise.console import step
from wirewise.datasets import write_capture
from wirewise.demo.kernel_stats import program_runs, run_time_statistics
from wirewise.demo.network import check_needs, within
from wirewise.errors import WirewiseError
from wirewise.formats.bundle import Bundle
from wirewise.targets import ebpf

FEATURES = lab.HERE / "features.yaml"
POLICY = lab.HERE / "policy.yaml"
DOCS = lab.HERE.parents[1] / "docs"
_CODE_POINTS = {"urllc": 46, "embb": 10}  # EF and AF11, by which policy.yaml says the class
_SLICES = ("urllc", "embb")


@dataclass(frozen=True)
class Scale:
    """Devices are of URLLC and eMBB. Times in seconds."""

    collect_s: float = 30
    collect_devices: tuple[int, int] = (10, 10)
    rounds: int = 5
    round_s: float = 10
    devices: tuple[int, int] = (4, 4)
    judged_packets: int = 50_000
    delay_rounds: int = 3
    delay_s: float = 12
    delay_devices: tuple[int, int] = (4, 14)
    warm_up_s: float = 2
    rate: str = "20mbit"


QUICK = Scale(
    collect_s=3, collect_devices=(3, 4), rounds=1, round_s=1, devices=(2, 2), judged_packets=3_000,
    delay_rounds=1, delay_s=1, delay_devices=(2, 4), warm_up_s=0.5, rate="6mbit",
)  # fmt: skip


@dataclass(frozen=True)
class Variant:
    """A way to carry URLLC past a saturated N6. Another one is another entry here."""

    name: str
    mode: str
    policy: Path = POLICY
    plane: str = "xdp-native"
    interface: str = "n3"
    saturated: bool = True


AT_N6 = lab.HERE / "priority.yaml"
BYPASS = lab.HERE / "bypass.yaml"
VARIANTS = (
    Variant("no video", "observe", saturated=False),
    Variant("without steering", "observe"),
    Variant("with steering", "enforce"),
    Variant("with steering, at N6", "enforce", AT_N6, plane="tc-egress", interface="n6"),
    # Its redirects need no program at the other end of N6.
    Variant("past the UPF", "enforce", BYPASS, plane="xdp-generic"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives the exit code."""
    options = _parser().parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # as Ctrl-C: through the clean-up

    def shown(report: dict[str, Any]) -> None:
        show(report)
        plot(report, options.output.parent)
        if options.keep:
            plot(report, DOCS)
            document(report, DOCS / "5g.md")

    try:
        return files.report_on(options, measure, shown, keep_as="-5g")
    except KeyboardInterrupt:
        return 130


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All parts that were asked for, one after the other."""
    check_needs()
    scale = QUICK if options.quick else Scale()
    facts, clang = machine.begin()
    folder: Path = options.output.parent
    folder.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    with lab.network():
        forest = Forest(scale, folder, clang)
        report = {"machine": facts, "scale": asdict(scale), "training": forest.facts}
        if options.what in ("all", "classify"):
            report["equal"] = equality(scale, forest, folder)
            report["classification"] = classification(scale, forest)
        if options.what in ("all", "delay"):
            report["delay"] = delay(scale, forest)
    return report


class Forest:
    """Trained on recorded traffic, in three forms: a bundle, scikit-learn's estimator, and C."""

    def __init__(self, scale: Scale, folder: Path, clang: str) -> None:
        self.bundle, self.pickled = folder / "forest.wirewise", folder / "forest.pkl"
        rows = folder / "rows.parquet"
        with _saying(f"recording {scale.collect_s:g} s of traffic"):
            recorded = record(scale, rows)
        with _saying("training ten trees"):
            training = ww.train(rows, _estimator(), test_share=0.2, folds=0)
            compiled = ww.compile(training, name="galvao2026", verify="always")
        compiled.write(self.bundle)
        self.classes = list(training.classes)
        self.estimator = plain(training.estimator, self.pickled)
        bundle = compiled.bundle
        (folder / "forest.bpf.o").write_bytes(bundle.program)
        self.object = folder / "forest.bpf.o"
        self.compiled = self._native(bundle, folder, clang)
        self.facts = {
            "rows": recorded["rows"], "lost": recorded["lost"], "tested_on": training.report.packets,
            "accuracy": training.report.accuracy, "instructions": bundle.manifest.program.instructions,
            "model": bundle.model.describe(), "fidelity": bundle.manifest.fidelity,
            "nodes": [tree.tree_.node_count for tree in self.estimator.estimators_],
        }  # fmt: skip

    def _native(self, bundle: Bundle, folder: Path, clang: str) -> Path:
        sources = ebpf.emit(bundle.model, bundle.feature_set)
        kind = next(iter(native.OPTIMISED))
        return native.compiled(
            sources, folder / "forest", clang, kind, seed=0, table_size=4, check=False, files=native.INFERENCE
        )


def _estimator() -> Any:
    """With the paper's hyperparameters (section 3.2)."""
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(n_estimators=10, max_depth=10, min_samples_leaf=5, random_state=0)


def plain(estimator: Any, path: Path) -> Any:
    """The estimator as scikit-learn fitted it: class numbers, and no names of features to look for."""
    import joblib

    estimator = copy.copy(estimator)
    estimator.classes_ = np.arange(len(estimator.classes_))
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    joblib.dump(estimator, path)
    return estimator


def record(scale: Scale, rows: Path) -> dict[str, Any]:
    """`wirewise record` at N3, while all devices send."""
    rows.unlink(missing_ok=True)
    command = [
        *within(lab.UPF), sys.executable, "-m", "wirewise", "record", "-i", "n3", "-f", str(FEATURES),
        "-l", str(lab.HERE / "labels.yaml"), "-o", str(rows), "--duration", f"{scale.collect_s:g}s", "--json",
    ]  # fmt: skip
    path = os.pathsep.join(filter(None, sys.path))
    with Traffic(*scale.collect_devices, seed=1) as traffic:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
        )
        traffic.end()
    if done.returncode:
        raise WirewiseError(f"wirewise record: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def equality(scale: Scale, forest: Forest, folder: Path) -> dict[str, int]:
    """Packets of N3 through the program in the kernel: its verdicts, and the estimator's on its features."""
    capture = folder / "n3.pcap"
    with (
        _saying("comparing verdicts"),
        Traffic(*scale.collect_devices, seed=2) as traffic,
        lab.Sniffer(scale.judged_packets) as sniffer,
    ):
        until = time.monotonic() + scale.collect_s
        while len(sniffer.packets) < scale.judged_packets and time.monotonic() < until:
            time.sleep(0.1)
        traffic.end()
    write_capture(capture, sniffer.packets)
    said = agent.trace(capture, forest.bundle, n_features=4, plane="kernel")
    judged = said[said["inferred"] == 1]
    predicted = forest.estimator.predict(judged["feature"].astype(np.float32))
    frames = [frame for _, frame in sniffer.packets]
    return {
        "packets": len(said), "judged": len(judged),
        "differing": int(np.count_nonzero(predicted != judged["class_id"])),
        **_forms(frames),
    }  # fmt: skip


def _forms(frames: Sequence[bytes]) -> dict[str, int]:
    """How many of N3's packets are of which form."""
    import gtpu

    found = dict.fromkeys(("extension_headers", "fragments_of_n3", "fragments_inside", "ipv6_inside"), 0)
    for frame in frames:
        if (frame[20] & 0x3F) | frame[21]:
            found["fragments_of_n3"] += 1
            if (frame[20] & 0x1F) | frame[21]:
                continue  # which begins in the middle
        message = frame[42:]
        try:
            at = gtpu.begin_of_packet(message)
        except ValueError:
            continue
        inside = message[at:]
        found["extension_headers"] += at > 12
        found["ipv6_inside"] += inside[0] >> 4 == 6
        later = (inside[6] & 0x3F) | inside[7] if inside[0] >> 4 == 4 else inside[6] == 44
        found["fragments_inside"] += bool(later)
    return found


def classification(scale: Scale, forest: Forest) -> dict[str, Any]:
    """Accuracy, time, CPU and context switches of each way, which take turns."""
    ways: dict[str, dict[str, Any]] = {
        way: {"usage": {}, "right": 0, "judged": 0} for way in ("none", "kernel", "scikit-learn", "compiled")
    }
    for round_ in range(scale.rounds):
        for way, found in ways.items():
            with _saying(f"round {round_ + 1} of {scale.rounds}: {way}"):
                _classify(way, found, scale, forest, seed=10 + round_)
    with _saying("timing the program in the kernel"):
        ways["kernel"] |= _kernel_time(scale, forest)
    for way in ("scikit-learn", "compiled"):
        spent = np.array(ways[way].pop("spent_ns"))
        ways[way] |= {
            "ns": float(spent.mean()), "median_ns": float(np.median(spent)), "windows": len(spent),
            "p99_ns": float(np.quantile(spent, 0.99)),
        }  # fmt: skip
    return ways


def _classify(way: str, found: dict[str, Any], scale: Scale, forest: Forest, seed: int) -> None:
    beside: dict[str, list[str | Path]] = {
        "scikit-learn": [forest.pickled, "--classes", ",".join(forest.classes)],
        "compiled": [forest.compiled, "--compiled", "--classes", ",".join(forest.classes)],
    }
    there = lab.attached(forest.bundle, POLICY, "enforce") if way == "kernel" else nullcontext()
    with there, Traffic(*scale.devices, seed=seed, beside=beside.get(way, ())) as traffic:
        time.sleep(0.5)
        for name, values in asdict(lab.usage(scale.round_s, min(1.0, scale.round_s))).items():
            found["usage"].setdefault(name, []).extend(round(value, 3) for value in values)
        traffic.end()
    found["packets"] = found.get("packets", 0) + sum(traffic.ended[name]["packets"] for name in _SLICES)
    if way == "kernel":
        _count_verdicts(found, traffic.ended["upf"])
    elif way != "none":
        said = traffic.ended["classifier"]
        found["judged"] += said["windows"]
        found["right"] += said["right"]
        found["lost"] = found.get("lost", 0) + said["lost"]
        found.setdefault("spent_ns", []).extend(said["spent_ns"])


def _count_verdicts(found: dict[str, Any], upf: dict[str, Any]) -> None:
    """By what the program has written on packets: every one, as they came by."""
    for slice_, seen in zip(_SLICES, upf["code_points"], strict=True):
        found["judged"] += sum(seen.values())
        found["right"] += seen.get(str(_CODE_POINTS[slice_]), 0)


def _kernel_time(scale: Scale, forest: Forest) -> dict[str, Any]:
    """Of the whole program, for each packet: live by the kernel's own statistics, and in a tight loop."""
    with (
        lab.attached(forest.bundle, POLICY, "enforce") as pin,
        Traffic(*scale.devices, seed=99) as traffic,
        run_time_statistics(),
    ):
        before = program_runs(pin)
        time.sleep(scale.round_s)
        after = program_runs(pin)
        traffic.end()
    runs = after[1] - before[1]
    spent = agent.call(
        "bench", "--object", forest.object, "--frame", forest.object.parent / "n3.pcap",
        "--rounds", "5", "--repeat", "100000",
    )  # fmt: skip
    return {"ns": (after[0] - before[0]) / max(1, runs), "runs": runs, "loop": spent}


def delay(scale: Scale, forest: Forest) -> dict[str, Any]:
    """One-way delay of URLLC in each variant; N6 sends `rate`, and videos want more."""
    found: dict[str, dict[str, Any]] = {
        variant.name: {"delays_ns": [], "sent": 0, "arrived": 0, "first": 0, "urllc": 0, "offered_bit": []}
        for variant in VARIANTS
    }
    with lab.limited(scale.rate):
        for round_ in range(scale.delay_rounds):
            for variant in VARIANTS:
                with _saying(f"delay, round {round_ + 1} of {scale.delay_rounds}: {variant.name}"):
                    _delay(variant, found[variant.name], scale, forest, seed=50 + round_)
    return {"rate": scale.rate, "variants": {name: _summary(of) for name, of in found.items()}}


def _delay(variant: Variant, found: dict[str, Any], scale: Scale, forest: Forest, seed: int) -> None:
    urllc, embb = scale.delay_devices
    with (
        lab.attached(forest.bundle, variant.policy, variant.mode, variant.plane, variant.interface),
        Traffic(urllc, embb if variant.saturated else 0, seed=seed) as traffic,
    ):
        begun = time.monotonic()
        time.sleep(scale.warm_up_s + scale.delay_s)
        lasted = time.monotonic() - begun
        traffic.end()
    numbers = np.array(traffic.ended["dn"]["numbers"], np.int64)
    delays = np.array(traffic.ended["dn"]["delays_ns"], np.int64)
    # Until the queue is full it is another experiment. Numbers count what was sent.
    first = int(traffic.ended["urllc"]["packets"] * scale.warm_up_s / lasted)
    kept = numbers > first
    if not kept.any():
        raise WirewiseError(f"{variant.name}: no URLLC packet arrived after the first {scale.warm_up_s:g} s")
    found["delays_ns"].append(delays[kept])
    found["arrived"] += int(kept.sum())
    found["sent"] += int(numbers.max()) - first
    urllc_seen = traffic.ended["upf"]["code_points"][0]
    found["urllc"] += sum(urllc_seen.values())
    found["first"] += urllc_seen.get(str(_CODE_POINTS["urllc"]), 0)
    if variant.saturated:
        found["offered_bit"].append(8 * traffic.ended["embb"]["bytes"] / lasted)


def _summary(found: dict[str, Any]) -> dict[str, Any]:
    delays = np.sort(np.concatenate(found["delays_ns"]))
    shares = [*(1 - np.logspace(0, -4, 81)), 1.0]
    return {
        "sent": found["sent"], "arrived": found["arrived"], "lost": 1 - found["arrived"] / found["sent"],
        **{f"{name}_ns": float(np.quantile(delays, share))
           for name, share in (("median", 0.5), ("p99", 0.99), ("p999", 0.999))},
        "quantiles": [[round(share, 6), round(float(np.quantile(delays, share)))] for share in shares],
        "seen_by_upf": found["urllc"],
        "written_ef": found["first"] / max(1, found["urllc"]),
        "offered_mbit": float(np.mean(found["offered_bit"]) / 1e6) if found["offered_bit"] else 0.0,
    }  # fmt: skip


def _saying(text: str) -> Any:
    if not sys.stderr.isatty():
        print(text, file=sys.stderr)
    return step(text)


def _parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").partition("\n\n")[0]
    parser = argparse.ArgumentParser(prog="run.py", description=description)
    add = parser.add_argument
    add("what", choices=("all", "classify", "delay"), help="what is measured, after recording and training")
    add("--output", type=Path, default=Path("build/5g/5g.json"), metavar="FILE", help="[%(default)s]")
    add("--quick", action="store_true", help="seconds instead of minutes: to see that it works")
    add("--keep", action="store_true", help="keep the result in bench/results, tables and plots in docs")
    return parser


if __name__ == "__main__":
    sys.exit(main())
