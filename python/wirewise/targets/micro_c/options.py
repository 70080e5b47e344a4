# SPDX-License-Identifier: Apache-2.0
"""What can be chosen about a micro-C program."""

from __future__ import annotations

from dataclasses import dataclass

from wirewise.errors import InputError, choose
from wirewise.targets.target import option

CHOICES = {
    "mode": ("auto", "data", "model"),
    "input": ("packet", "bits", "memory"),
    "result": ("field", "memory", "port"),
    "scores": ("yes", "no"),
}
CTM_SIZES = (256, 512, 1024, 2048)
RANGES = {"cls_bytes": (0, 65_536), "emem_bytes": (0, 3 << 20), "vectors": (0, 100_000)}
MAX_EXECUTORS = 240
MAX_FLOWS = 1 << 16
CLS_BYTES = 8192
"""Room for the largest layer that the paper measured in CLS, 128 neurons of 256 inputs (appendix B.1.1), its
thresholds, and a thermometer step for each input."""


@dataclass(frozen=True)
class Options:
    """How a model becomes micro-C: each is one of CHOICES, or a number. executors : None for 32 where
    there is a chain.
    """

    mode: str = option(
        "auto",
        "data (each thread judges a packet, weights in CLS), model (many threads judge one, weights in EMEM) "
        "or auto: data, if the network fits --cls-bytes. Default: auto.",
    )
    input: str = option(
        "packet",
        "What the model reads: packet (a header with the features), bits (a header with the input bits) or "
        "memory (statistics of the packet's flow in EMEM). Default: packet.",
    )
    result: str = option(
        "field",
        "Where the class goes: field (of the packet: the result header, or the DSCP with --input memory), "
        "memory (an element a flow) or port (a table says which). Default: field.",
    )
    scores: str = option(
        "no", "Write the scores to the packet too, behind the class. Default: no.", yes="yes", no="no"
    )
    executors: int | None = option(
        None, "Threads that judge a packet together with --mode model, 1 to 240. Default: 32."
    )
    cls_bytes: int = option(
        CLS_BYTES, "Bytes of an island's CLS for the network, up to 65536. Default: 8192."
    )
    emem_bytes: int = option(3 << 20, "Bytes of EMEM for the network, up to 3145728. Default: 3145728.")
    ctm_bytes: int = option(256, "Bytes of a packet's buffer in CTM: 256, 512, 1024 or 2048. Default: 256.")
    flows: int = option(1024, "Flows with statistics, a power of two. Default: 1024.")
    vectors: int = option(64, "Packets of the check on this machine; 0 leaves it out. Default: 64.")

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            if (value := getattr(self, name)) not in known:
                raise InputError(f"{flag(name)} {value}", "is not known", choose(value, known))
        for name, (least, most) in RANGES.items():
            if type(value := getattr(self, name)) is not int or not least <= value <= most:
                raise InputError(f"{flag(name)} {value}", f"is no number from {least} to {most}")
        if self.ctm_bytes not in CTM_SIZES:
            known_sizes = ", ".join(map(str, CTM_SIZES))
            raise InputError(
                f"--ctm-bytes {self.ctm_bytes}", "is no size of a buffer", f"there are: {known_sizes}"
            )
        if type(self.flows) is not int or not 2 <= self.flows <= MAX_FLOWS or self.flows & (self.flows - 1):
            raise InputError(f"--flows {self.flows}", f"is no power of two from 2 to {MAX_FLOWS}")
        if self.executors is not None:
            if type(self.executors) is not int or not 1 <= self.executors <= MAX_EXECUTORS:
                raise InputError(f"--executors {self.executors}", f"is no number from 1 to {MAX_EXECUTORS}")
            if self.mode != "model":
                raise InputError("--executors", "is for --mode model", "leave it out, or name the mode too")
        if self.scores == "yes" and (self.result != "field" or self.input == "memory"):
            raise InputError(
                "--scores", "needs the result header", "use --result field and --input packet or bits"
            )
        if self.result == "memory" and self.input != "memory":
            raise InputError(
                "--result memory", "has an element for each flow", "use --input memory, or another result"
            )

    @property
    def flow_bits(self) -> int:
        return self.flows.bit_length() - 1


def flag(name: str) -> str:
    """The option as people write it."""
    return f"--{name.replace('_', '-')}"
