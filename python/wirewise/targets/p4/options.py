# SPDX-License-Identifier: Apache-2.0
"""What can be chosen about a P4 program."""

from __future__ import annotations

from dataclasses import dataclass

from wirewise.errors import InputError, choose
from wirewise.targets.target import option

CHOICES = {
    "flavour": ("v1model", "netfpga"),
    "input": ("packet", "bits", "registers"),
    "result": ("field", "metadata", "port"),
    "weights": ("auto", "tables", "registers", "constants"),
    "scores": ("yes", "no"),
}
MAX_FLOWS = 1 << 20


@dataclass(frozen=True)
class Options:
    """How a model becomes P4: each is one of CHOICES, or a number. A limit is 0 for none, None for the
    flavour's.
    """

    flavour: str = option(
        "v1model",
        "v1model (bmv2's simple_switch) or netfpga (P4-NetFPGA's SimpleSumeSwitch). Default: v1model.",
    )
    input: str = option(
        "packet",
        "What the model reads: packet (a header with the features), bits (a header with the input bits of a "
        "binary network) or registers (one a feature, an element a flow). Default: packet.",
    )
    result: str = option(
        "field",
        "Where the class goes: field (of the packet: the result header, or the DSCP with --input registers), "
        "metadata, or port (a table says which). Default: field.",
    )
    weights: str = option(
        "auto",
        "Where a network's weights are: tables or registers, written at run time, or constants. Default: "
        "tables; with netfpga constants.",
    )
    scores: str = option(
        "no", "Write the scores to the packet too, behind the class. Default: no.", yes="yes", no="no"
    )
    parallel: int | None = option(
        None, "Neurons of a layer computed at once. Default: all; with v1model as many as --phv-bits allows."
    )
    phv_bits: int | None = option(
        None,
        "Bits of headers and metadata that the device has at once, 0 for no limit. Default: 0; with netfpga "
        "17408.",
    )
    stages: int | None = option(None, "Stages of the device's pipeline, 0 for no limit. Default: 0.")
    table_bytes: int | None = option(
        None,
        "Bytes that a table compares or gives in one look-up, 0 for no limit. Default: 0; with netfpga 32.",
    )
    number: int = option(
        0,
        "Number under which the model's entries stand beside those of others of the same program: 0 to 255 "
        "(registers: 0 and 1). Default: 0.",
    )
    flows: int = option(1024, "Elements of a feature's register, a power of two. Default: 1024.")

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            if (value := getattr(self, name)) not in known:
                raise InputError(f"{_flag(name)} {value}", "is not known", choose(value, known))
        for name in ("parallel", "phv_bits", "stages", "table_bytes"):
            value, least = getattr(self, name), int(name == "parallel")
            if value is not None and (type(value) is not int or value < least):
                raise InputError(f"{_flag(name)} {value}", f"is no number from {least} on")
        if type(self.flows) is not int or not 2 <= self.flows <= MAX_FLOWS or self.flows & (self.flows - 1):
            raise InputError(f"--flows {self.flows}", f"is no power of two from 2 to {MAX_FLOWS}")
        most = 1 if self.weights == "registers" else 255
        if type(self.number) is not int or not 0 <= self.number <= most:
            raise InputError(f"--number {self.number}", f"is no number from 0 to {most}")
        if self.scores == "yes" and (self.result != "field" or self.input == "registers"):
            raise InputError(
                "--scores", "needs the result header", "use --result field and --input packet or bits"
            )
        if self.flavour == "netfpga" and self.weights == "registers":
            raise InputError(
                "--weights registers",
                "P4-NetFPGA reads one element of a register a packet",
                "use constants, or tables for small layers",
            )

    @property
    def branches(self) -> bool:
        """Whether an operation may depend on a comparison (P4-NetFPGA's may not)."""
        return self.flavour == "v1model"

    @property
    def weights_in(self) -> str:
        """`weights`, decided."""
        if self.weights != "auto":
            return self.weights
        return "tables" if self.flavour == "v1model" else "constants"


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
