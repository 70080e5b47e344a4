# SPDX-License-Identifier: Apache-2.0
"""What a pipeline has: bits of the packet header vector, stages, bytes of a table's look-up."""

from __future__ import annotations

from dataclasses import dataclass

from wirewise.errors import InputError
from wirewise.targets.p4.options import Options

NETFPGA_PHV_BITS = 64 * (256 + 8) + 2 * 256
"""Room for a layer of 64 neurons with 256 inputs, the largest that the paper's P4 was synthesised with; 128
neurons did not fit (section 6.3, Figure 17)."""
NETFPGA_TABLE_BYTES = 32
"""What a table of P4-NetFPGA gives in one look-up at most (section 4.2)."""
_NAMES = {
    "phv_bits": "bits of headers and metadata",
    "stages": "stages",
    "table_bytes": "bytes in a table's look-up",
}


class DoesNotFit(Exception):
    """A limit, by the name of its option, what would be needed of it, and how much there is."""

    def __init__(self, limit: str, needed: int, there: int) -> None:
        super().__init__(f"needs {needed:,} {_NAMES[limit]}, the limit is {there:,}")
        self.limit = limit

    def refused(self, way_out: str) -> InputError:
        """The error for people. way_out : the size that would fit."""
        flag = f"--{self.limit.replace('_', '-')}"
        return InputError("model", str(self), f"{way_out}, or give another {flag} if the device has more")


@dataclass(frozen=True)
class Limits:
    """Each 0 if there is none."""

    phv_bits: int
    stages: int
    table_bytes: int

    @classmethod
    def of(cls, options: Options) -> Limits:
        """Those given, and those of the flavour. bmv2 has none."""
        netfpga = options.flavour == "netfpga"
        usual = cls(NETFPGA_PHV_BITS, 0, NETFPGA_TABLE_BYTES) if netfpga else cls(0, 0, 0)
        return cls(
            usual.phv_bits if options.phv_bits is None else options.phv_bits,
            usual.stages if options.stages is None else options.stages,
            usual.table_bytes if options.table_bytes is None else options.table_bytes,
        )

    def check(self, limit: str, needed: int) -> None:
        """Raises DoesNotFit."""
        there = getattr(self, limit)
        if there and needed > there:
            raise DoesNotFit(limit, needed, there)
