# SPDX-License-Identifier: Apache-2.0
"""The kernels and compilers of the matrix, by the Debian suite they come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Kernel:
    """A suite's current kernel for virtual machines; `name` is what the matrix calls it."""

    name: str
    suite: str
    package: str = "linux-image-cloud-amd64"


@dataclass(frozen=True)
class Clang:
    """A compiler. suite: where it comes from if it is not installed here."""

    version: int
    suite: str

    @property
    def name(self) -> str:
        return f"clang-{self.version}"

    @property
    def libraries(self) -> tuple[str, ...]:
        """What the compiler needs to run; its package also asks for a C library's headers and a linker, which
        eBPF does not.
        """
        n = self.version
        return (f"libclang-cpp{n}", f"libllvm{n}", f"libclang-common-{n}-dev")


KERNELS: Final = (Kernel("6.1", "bookworm"), Kernel("6.12", "trixie"), Kernel("newest", "sid"))
CLANGS: Final = (Clang(14, "bookworm"), Clang(16, "bookworm"), Clang(19, "bookworm"), Clang(22, "trixie"))
INSTALLED: Final = 19
"""The version that `make setup` installs."""
