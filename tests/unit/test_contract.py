# SPDX-License-Identifier: Apache-2.0
"""What scripts/abi.py writes is what the headers in bpf/ say, and it refuses what it cannot read."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.abi import WRITTEN, Contract, whole

CONTRACT = whole()


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_written_files_are_what_the_header_says(path: Path) -> None:
    assert path.read_text() == WRITTEN[path](CONTRACT), "run `make abi`"


def test_structs_enums_and_numbers_are_read() -> None:
    read = Contract(
        "#define WW_ROOM (WW_MORE + 1) /* of a name */\n#define WW_MORE 3\n"
        "/* Which. */\nenum ww_side {\n\tWW_SIDE_IN = 0, /* here */\n\tWW_SIDE_OUT,\n\tWW_SIDES\n};\n"
        "enum ww_flag { WW_FLAG_A = 1, WW_FLAG_B = 4 };\n"
        "struct ww_one {\n\t__u32 first; /* enum ww_flag bits */\n\t__u8 name[WW_ROOM]; /* text */\n};\n"
        "struct ww_two {\n\tstruct ww_one ones[2];\n\t__u64 last;\n};\n"
    )
    assert {define.name: define.value for define in read.defines} == {"ROOM": 4, "MORE": 3}
    side, flag = read.enums
    assert (side.about, side.texts(), side.counts_up, flag.flags) == ("Which.", ["in", "out"], True, True)
    assert read.field_of("enum ww_flag") == "__u32"
    assert (read.structs["one"].size, read.structs["two"].size) == (8, 24)
    assert [field.offset for field in read.structs["two"].fields] == [0, 16]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("struct ww_x {\n\t__u8 a;\n\t__u32 b;\n};\n", "a hole of 3 bytes before b"),
        ("struct ww_x {\n\t__u32 a;\n\t__u8 b;\n};\n", "not aligned"),
        ("struct ww_x {\n\tstruct in_addr a;\n};\n", "cannot be read"),
        ("struct ww_x {\n\tint a;\n};\n", "unknown type"),
        ("struct ww_x {\n\t__u8 a[WW_NONE];\n};\n", "WW_NONE is not known"),
        ("#define WW_X sizeof(int)\n", "is no number"),
        ("struct ww_x {\n\t__u32 a : 3;\n};\n", "cannot be read"),
    ],
)
def test_what_has_no_certain_layout_is_refused(text: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Contract(text)
