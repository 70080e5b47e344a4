# SPDX-License-Identifier: Apache-2.0
"""Generated micro-C on this machine: compiled with its shim, run, compared with its vectors."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from tests.p4.cases import bounded, feature_set, random_network
from tests.patience import PATIENCE_S
from wirewise.models import BinaryMlp, Model
from wirewise.targets.ebpf.clang import find_clang
from wirewise.targets.micro_c import Options, Sources, emit

STRICT = ("-std=gnu89", "-Wall", "-Wextra", "-Wdeclaration-after-statement", "-Wvla", "-Werror")
"""C as old as micro-C's, in which an array with a size that is no constant is an error too."""
_SAID = re.compile(r"results=(\d+) wrong=(\d+)")
CHOICES = [
    ("packet", "field", "yes"), ("packet", "field", "no"), ("packet", "port", "no"),
    ("bits", "field", "yes"), ("bits", "port", "no"),
    ("memory", "field", "no"), ("memory", "memory", "no"), ("memory", "port", "no"),
]  # fmt: skip
"""Input and output selectors that go together, and whether there are scores."""


@dataclass(frozen=True)
class Outcome:
    """What the check said. code : its exit code."""

    results: int
    wrong: int
    code: int
    text: str

    @property
    def right(self) -> bool:
        return self.results > 0 and self.wrong == 0 and self.code == 0


def compiler() -> str:
    return shutil.which("gcc") or find_clang()


@cache
def sanitizes(kind: str) -> bool:
    """Whether the compiler has what a sanitizer needs at run time."""
    command = [compiler(), f"-fsanitize={kind}", "-pthread", "-x", "c", "-", "-o", "/dev/null"]
    return not subprocess.run(command, input="int main(void) { return 0; }", text=True, check=False,
                              capture_output=True).returncode  # fmt: skip


def sources(model: Model, options: Options) -> Sources:
    return emit(model, feature_set(model.n_features), options)


def write(files: dict[str, str], folder: Path) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def build(folder: Path, *flags: str) -> None:
    command = [compiler(), *STRICT, "-g", *flags, "-pthread", "-Ihost", "-I.", "-o", "check"]
    done = subprocess.run(
        [*command, "ww_main.c", "host/nfp.c"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]


def run(folder: Path, *arguments: str) -> Outcome:
    done = subprocess.run(
        ["./check", "host/vectors.txt", *arguments],
        cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    said = _SAID.search(done.stdout)
    results, wrong = map(int, said.groups()) if said else (0, 0)
    return Outcome(results, wrong, done.returncode, done.stdout + done.stderr)


def check(model: Model, options: Options, folder: Path, seeds: Sequence[str] = (), flags: str = "") -> None:
    """Fails unless every packet is as by the reference; with seeds, threads pause at random as well."""
    write(sources(model, options).files, folder)
    build(folder, *flags.split())
    for arguments in [[], *([seed] for seed in seeds)]:
        said = run(folder, *arguments)
        assert said.right, f"{options}, {model.describe()}: {said.text}"


def drawn(seed: int, vectors: int = 24) -> tuple[Model, Options]:
    """A random network, in one case of four with bounds, and the options of its turn."""
    rng = np.random.default_rng(seed)
    given, result, scores = CHOICES[seed // 2 % len(CHOICES)]
    network = random_network(rng)
    model: Model = network if given == "bits" else bounded(rng, network)
    mode = ("data", "model")[seed % 2]
    executors = int(rng.choice([1, 2, 7, 32, 50])) if mode == "model" else None
    return model, Options(
        mode=mode, input=given, result=result, scores=scores, executors=executors, cls_bytes=65536,
        ctm_bytes=512, vectors=vectors,
    )  # fmt: skip


def paper() -> BinaryMlp:
    """The network of siracusano-n3ic: 256-32-16-2, over 16 features."""
    return random_network(
        np.random.default_rng(1), n_features=16, layers=[32, 16], n_classes=2, input_bits=256, extreme=False
    )
