# SPDX-License-Identifier: Apache-2.0
"""What a deny list, bans and an allow list cost, and how long a list of a million prefixes takes to load.

    python -m bench.lists --output build/bench/lists.json

A tree of depth 5 is attached to a veth interface for each case. The kernel runs each program on the same UDP
packet of one flow, in many short rounds in which they take turns; the median of the rounds counts. The empty
program only passes packets. Then a flood of SYNs comes through a veth pair, from 1,000 senders and each from
another port, to a tree that drops them by class, with and without bans.
"""

from __future__ import annotations

import argparse
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from ctypes import addressof, create_string_buffer
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench import files, machine
from bench.memory import measured
from bench.programs import HARA2023, forest
from bench.sender import BURST, Sender
from wirewise import agent
from wirewise.compiler import compile
from wirewise.demo.kernel_stats import bpf, open_program, program_runs, run_program, run_time_statistics
from wirewise.demo.network import Wire, wire
from wirewise.errors import WirewiseError

_LOAD = 5
_XDP, _DROP, _PASS = 6, 1, 2
_SENDER = "10.1.2.3"
_FRAME = bytes.fromhex("0200000000020200000000010800") + bytes(
    [0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, *map(int, _SENDER.split(".")), 192, 0, 2, 1]
    + [0x9C, 0x40, 0, 53, 0, 26, 0, 0] + [0] * 18
)  # fmt: skip
_SYN = bytes.fromhex(
    "0200000000020200000000010800"
    "4500002800000000400600000a010000c0000201"
    "0000005000000001000000005002040000000000"
)
_REPEAT = 100_000
_SENDERS = 1_000
_FLOODS = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--prefixes", type=files.at_least(1), default=1_000_000, help="default: %(default)s")
    parser.add_argument("--rounds", type=files.at_least(1), default=31, help="default: %(default)s")
    parser.add_argument(
        "--seconds", type=files.at_least(1), default=3, help="of each flood; default: %(default)s"
    )
    parser.add_argument("--output", type=Path, default=Path("build/bench/lists.json"))
    parser.add_argument("--keep", action="store_true", help="also keep the result in bench/results")
    return files.report_on(parser.parse_args(arguments), measure, show, keep_as="-lists")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Attaches a program for each case, and has them take turns."""
    facts, _ = machine.begin()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        made = stack.enter_context(wire())
        compiled = compile(forest(1, 5), HARA2023, name="tree", classes=["a", "b"], verify="never")
        compiled.bundle.write(folder / "tree.wirewise")
        lab = Lab(made, folder)
        programs = {"empty": _empty()}
        programs["no list"] = lab.attach("none", "")
        its_class = lab.class_given("none", programs["no list"])
        programs["empty list, no match"] = lab.attach("listed", "deny: {}\n")
        programs["long list, no match"] = lab.attach("long", "deny: {}\n")
        programs["denied"] = lab.attach("denied", f"deny: {{prefixes: [{_SENDER}/32]}}\n")
        programs["denied for a while"] = lab.attach("timed", "deny: {}\n")
        agent.call("deny", "add", _SENDER, "--for", "1h", *lab.place("timed"))
        ban = "{{{}: {{ban: {{by: source, for: 1h, spoofable: true}}}}}}"
        other = "b" if its_class == "a" else "a"
        programs["bans, not banned"] = lab.attach("free", f"classes: {ban.format(other)}\n")
        programs["banned"] = lab.attach("banned", f"classes: {ban.format(its_class)}\n")
        programs["allowed"] = lab.attach("allowed", f"allow: {{prefixes: [{_SENDER}/32]}}\n")
        for place, case, prefix in (
            ("allowance", "allowed for a while", _SENDER), ("other", "allowance, no match", "192.0.2.77")
        ):  # fmt: skip
            programs[case] = lab.attach(place, "")
            agent.call("allow", "add", prefix, "--for", "1h", *lab.place(place))
        loaded = lab.load("long", options.prefixes)
        drop = "classes: {a: {action: drop}, b: {action: drop}}\n"
        bans = "classes: {a: &all {ban: {by: source, for: 1h, spoofable: true}}, b: *all}\n"
        flooded = lab.flood({"tree": drop, "tree and bans": bans}, options.seconds)
        times: dict[str, list[int]] = {name: [] for name in programs}
        expected = dict.fromkeys(("denied", "denied for a while", "banned"), _DROP)
        for number in range(-1, options.rounds):
            for name, program in programs.items():
                answer, duration = run_program(program, _FRAME, _REPEAT)
                if answer != expected.get(name, _PASS):
                    raise WirewiseError(f"{name}: the program answers {answer}")
                if number >= 0:
                    times[name].append(duration)
    rows = [
        {"case": name, "ns": median(values), "least": min(values), "most": max(values)}
        for name, values in times.items()
    ]
    conditions = {"flood_rounds": _FLOODS, "flood_seconds": options.seconds, "senders": _SENDERS}
    conditions |= {"rounds": options.rounds, "packets_a_round": _REPEAT, "prefixes": options.prefixes}
    return {"machine": facts, "conditions": conditions, "cases": rows, "load": loaded, "flood": flooded}


class Lab:
    """Programs, each on a veth pair of its own in the namespaces of a wire."""

    def __init__(self, made: Wire, folder: Path) -> None:
        self.made, self.folder = made, folder
        self.ends: dict[str, tuple[str, str]] = {}
        """Interfaces of each case: with the program, and to send from. The wire removes such names."""

    def place(self, case: str) -> list[str]:
        """Options that name the attachment of a case."""
        return ["--interface", self.ends[case][0], "--netns", self.made.inside]

    def attach(self, case: str, policy: str) -> int:
        """A descriptor of the program that judges by this policy and enforces it."""
        number = len(self.ends)
        ends = self.ends[case] = (f"{self.made.receiver}{number}", f"{self.made.sender}{number}")
        ip = ["ip", "-n", self.made.inside, "link"]
        subprocess.run([*ip, "add", ends[0], "type", "veth", "peer", "name", ends[1]], check=True)
        for name in ends:
            subprocess.run([*ip, "set", name, "arp", "off", "up"], check=True)
        file = self.folder / f"{case}.yaml"
        file.write_text(f"version: 1\n{policy}")
        agent.call(
            "run", "--bundle", self.folder / "tree.wirewise", *self.place(case), "--policy", file,
            "--mode", "enforce", "--yes",
        )  # fmt: skip
        return open_program(self.pin(case))

    def pin(self, case: str) -> Path:
        """Where the program is pinned."""
        (attached,) = agent.call("status", *self.place(case))["attachments"]
        return Path(attached["pins"], "prog")

    def class_given(self, case: str, program: int) -> str:
        """The class that the tree gives to the packet."""
        run_program(program, _FRAME, _REPEAT)
        rows = agent.call("stats", *self.place(case))["classes"]
        return str(max(rows, key=lambda row: sum(it["packets"] for it in row["outcomes"].values()))["name"])

    def flood(self, policies: Mapping[str, str], seconds: int) -> list[dict[str, Any]]:
        """What a packet costs under each policy, and how many are judged; the policies take turns."""
        places = {name: f"f{number}" for number, name in enumerate(policies)}
        for name, policy in policies.items():
            self.attach(places[name], policy)
        costs: dict[str, list[float]] = {name: [] for name in policies}
        rates: dict[str, list[float]] = {name: [] for name in policies}
        draw = np.random.default_rng(1)

        def vary(frames: np.ndarray, number: int) -> None:
            senders = (np.arange(BURST) + number * BURST) % _SENDERS
            frames[:, 28], frames[:, 29] = senders >> 8, senders & 255
            frames[:, 34:36] = draw.integers(0, 256, (BURST, 2), np.uint8)

        with run_time_statistics():
            for number in range(_FLOODS + 1):
                for name, case in places.items():
                    pin = self.pin(case)
                    with Sender(self.made.inside, self.ends[case][1], _SYN, vary) as sender:
                        time.sleep(1)  # until all senders are known
                        (spent, runs), sent, begin = program_runs(pin), sender.sent, time.monotonic()
                        time.sleep(seconds)
                        sender.check()
                        (spent, runs) = (
                            now - then for now, then in zip(program_runs(pin), (spent, runs), strict=True)
                        )
                        rate = (sender.sent - sent) / (time.monotonic() - begin)
                    if number:
                        costs[name].append(spent / runs)
                        rates[name].append(rate)
        return [
            {
                "policy": name, "ns": round(median(costs[name])), "least": round(min(costs[name])),
                "most": round(max(costs[name])), "packets_per_second": round(median(rates[name])),
            }
            for name in policies
        ]  # fmt: skip

    def load(self, case: str, count: int) -> dict[str, Any]:
        """Loads prefixes, most of them whole addresses; none has the packet's sender."""
        draw, prefixes = random.Random(1), set[str]()
        while len(prefixes) < count:
            length = draw.choice([32, 32, 32, 32, 24, 22])
            number = draw.randrange(20 << 24, 224 << 24) >> (32 - length) << (32 - length)
            prefixes.add(f"{'.'.join(str(number >> shift & 255) for shift in (24, 16, 8, 0))}/{length}")
        file = self.folder / "prefixes.txt"
        file.write_text("\n".join(sorted(prefixes)) + "\n")
        command = [str(agent.find()), "deny", "load", str(file), *self.place(case), "--json"]
        _, peak, seconds = measured(command)
        return {"prefixes": count, "seconds": round(seconds, 2), "peak_rss_mib": round(peak / 1024, 1)}


def _empty() -> int:
    """A descriptor of a program that passes every packet: r0 = XDP_PASS, exit."""
    code = create_string_buffer(bytes([0xB7, 0, 0, 0, _PASS, 0, 0, 0]) + bytes([0x95] + [0] * 7), 16)
    licence = create_string_buffer(b"GPL")
    return bpf(_LOAD, struct.pack("IIQQ", _XDP, 2, addressof(code), addressof(licence)))


def show(report: dict[str, Any]) -> None:
    """A line for each case."""
    machine.show(report["machine"])
    for row in report["cases"]:
        print(f"  {row['case']:<22} {row['ns']:>6.0f} ns  ({row['least']} to {row['most']})")
    for row in report["flood"]:
        rate = f"{row['packets_per_second']:,} packets/s"
        print(f"  flood: {row['policy']:<15} {row['ns']:>6} ns  ({row['least']} to {row['most']}), {rate}")
    load = report["load"]
    print(f"  {load['prefixes']:,} prefixes load in {load['seconds']} s, {load['peak_rss_mib']} MiB at most")


if __name__ == "__main__":
    sys.exit(main())
