# SPDX-License-Identifier: Apache-2.0
"""What compiling says on a machine that lacks something for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from wirewise.errors import MissingFeatureError
from wirewise.targets.ebpf.clang import compile_sources


def test_without_clang_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingFeatureError, match=r"no clang found.*apt-get install clang libbpf-dev"):
        compile_sources({"main.bpf.c": "int nothing;\n"})


def test_without_a_header_the_error_names_it_and_what_to_install() -> None:
    with pytest.raises(MissingFeatureError, match=r"bpf/missing\.h; apt-get install clang libbpf-dev"):
        compile_sources({"main.bpf.c": "#include <bpf/missing.h>\n"})
