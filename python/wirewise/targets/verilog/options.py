# SPDX-License-Identifier: Apache-2.0
"""The options of the Verilog target, and what a model becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wirewise.errors import InputError, choose
from wirewise.targets.target import option

INPUTS = ("features", "bits")
WIDTHS = (64, 128, 256, 512, 1024)
MAX_PARALLEL = 256
MAX_MODULES = 64
MAX_VECTORS = 100_000


@dataclass(frozen=True)
class Options:
    """parallel : a power of two. input : one of INPUTS. width : one of WIDTHS. vectors : records of the test
    bench. Raises InputError for others.
    """

    parallel: int = option(1, "Neurons of a layer in a cycle: 1, 2, 4, ... 256. Default: 1.")
    modules: int = option(1, "Executors that take turns, 1 to 64. Default: 1.")
    input: str = option(
        "features",
        "What a record is: features, of 64 bits each, or the input bits of a binary network. "
        "Default: features.",
    )
    width: int = option(256, "Bits of a beat of the input: 64, 128, 256, 512 or 1024. Default: 256.")
    vectors: int = option(64, "Records of the test bench; 0 leaves it out. Default: 64.")

    def __post_init__(self) -> None:
        if not 1 <= self.parallel <= MAX_PARALLEL or self.parallel & (self.parallel - 1):
            raise InputError(
                f"parallel {self.parallel}", f"is no power of two from 1 to {MAX_PARALLEL}", "try 8"
            )
        if not 1 <= self.modules <= MAX_MODULES:
            raise InputError(f"modules {self.modules}", f"is not from 1 to {MAX_MODULES}", "try 4")
        if self.input not in INPUTS:
            raise InputError(f"input {self.input!r}", "is not known", choose(self.input, INPUTS))
        if self.width not in WIDTHS:
            known = ", ".join(map(str, WIDTHS))
            raise InputError(f"width {self.width}", "is no width of a beat", f"there are: {known}")
        if not 0 <= self.vectors <= MAX_VECTORS:
            raise InputError(f"vectors {self.vectors}", f"is not from 0 to {MAX_VECTORS:,}", "try 64")


@dataclass(frozen=True)
class Design:
    """A model as Verilog. files: name -> text of the modules generated for it. library: modules of rtl/.

    shape: for people. features: those a record holds, ascending, 64 bits each; none where it holds bits.
    record_bits: of a record. outputs: scores of a result. latency: cycles from the last beat of a record to
    its result, if nothing waits. interval: (results, cycles), at best. load: the stream that loads the
    network, 64 bits a beat; None for what cannot be loaded.
    """

    files: dict[str, str]
    library: tuple[str, ...]
    shape: str
    features: tuple[int, ...]
    record_bits: int
    outputs: int
    latency: int
    interval: tuple[int, int]
    load: Sequence[int] | None
