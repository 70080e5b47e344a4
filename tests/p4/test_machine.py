# SPDX-License-Identifier: Apache-2.0
"""The interpreter itself, on programs written by hand: what it computes, and what it refuses."""

from __future__ import annotations

import zlib

import pytest

from tests.p4.machine import Switch
from tests.p4.nodes import P4Error

V1MODEL = """
#include <core.p4>
#include <v1model.p4>
const bit<8> ONE = 8w1;
header byte_t {{ bit<8> a; bit<8> b; }}
struct headers_t {{ byte_t x; byte_t y; }}
struct metadata_t {{ bit<8> m; bit<16> wide; bit<1> one; }}
parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {{
    state start {{
        packet.extract(hdr.x);
        transition select(hdr.x.a, hdr.x.b) {{ (8w1, 8w2): more; default: accept; }}
    }}
    state more {{ packet.extract(hdr.y); transition accept; }}
}}
control V(inout headers_t hdr, inout metadata_t meta) {{ apply {{ }} }}
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {{
    {declarations}
    apply {{ {statements} }}
}}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {{ apply {{ }} }}
control C(inout headers_t hdr, inout metadata_t meta) {{ apply {{ }} }}
control D(packet_out packet, in headers_t hdr) {{ apply {{ packet.emit(hdr.x); packet.emit(hdr.y); }} }}
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


def switch(statements: str, declarations: str = "") -> Switch:
    return Switch(V1MODEL.format(declarations=declarations, statements=statements))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("8w255 + 8w3", 2),
        ("8w3 - 8w5", 254),
        ("-8w1", 255),
        ("~8w0x0f", 0xF0),
        ("8w0x81 << 1", 2),
        ("8w0x81 >> 7", 1),
        ("8w1 << 9", 0),
        ("8w1 + 8w2 << 1", 6),  # + binds more than <<
        ("8w6 & 8w3 ^ 8w1 | 8w8", 11),  # &, then ^, then |
        ("(bit<8>) (bit<1>) (8w6 & 8w3 == 8w2)", 1),  # & binds more than ==
        ("(bit<8>) 16w0x1ff", 0xFF),
        ("4w0xa ++ 4w0x5", 0xA5),
        ("(2w1 ++ 2w2) ++ 4w0", 0x60),
        ("(8w0xa5)[7:4] ++ 4w0", 0xA0),
        ("(bit<8>) hdr.x.a[3:0] + ONE", 4),
        ("hdr.x.a == 3 ? 8w7 : 8w9", 7),
        ("(bit<8>) (bit<1>) (!(8w1 > 8w2) && 8w2 <= 8w2 || 8w1 != 8w1)", 1),
    ],
)
def test_expressions_have_the_values_of_the_specification(expression: str, value: int) -> None:
    assert switch(f"meta.m = {expression};").run(0, b"\3\4").meta["m"] == value


def test_headers_are_taken_off_and_put_back_where_they_are_valid() -> None:
    program = switch("hdr.x.b = hdr.x.b + 1; if (hdr.y.isValid()) { hdr.y.a = 8w9; } else { meta.m = 8w5; }")
    assert program.run(0, b"\1\1rest").frame == b"\1\2rest"
    assert program.run(0, b"\1\2yyrest").frame == b"\1\3\x09yrest"
    assert program.run(0, b"\1\2y").frame == b"\1\3y"  # too short for the second header
    assert program.run(0, b"\1\2y").meta["m"] == 5


TABLES = """
    action set(bit<8> v) { meta.m = v; }
    action drop() { mark_to_drop(standard); }
    table t {
        key = { hdr.x.a : exact; hdr.x.b : range; }
        actions = { set; drop; }
        size = 3;
        default_action = drop();
    }
    register<bit<8>>(4) r;
"""


def entry(keys: list[object], data: str, priority: int | None = 1) -> dict[str, object]:
    made = {"table": "t", "keys": keys, "action": "set", "data": [data]}
    return {"write": [made if priority is None else {**made, "priority": priority}]}


def test_tables_match_by_value_range_and_priority_and_registers_hold_what_was_written() -> None:
    program = switch("t.apply(); r.read(meta.m, (bit<32>) meta.m);", TABLES)
    assert program.run(0, b"\3\4").port is None
    program.write({"write": [{"register": "r", "index": 2, "value": "0x2a"}]})
    program.write(entry(["3", ["0", "9"]], "1", 2))
    assert program.run(0, b"\3\4").meta["m"] == 0
    program.write(entry(["3", ["4", "4"]], "2", 1))
    assert program.run(0, b"\3\4").meta["m"] == 42
    assert program.run(0, b"\3\5").meta["m"] == 0


def test_a_ternary_key_compares_the_bits_of_its_mask() -> None:
    program = switch("t.apply();", TABLES.replace("range", "ternary"))
    program.write(entry(["3", "0x10&&&0xf0"], "1", 2))
    program.write(entry(["3", "0x17&&&0xff"], "2", 1))
    assert [program.run(0, bytes([3, b])).meta["m"] for b in (0x07, 0x15, 0x17, 0x25)] == [0, 1, 2, 0]


def test_a_hash_is_crc32_of_the_bytes() -> None:
    program = switch("hash(meta.wide, HashAlgorithm.crc32, 16w0, { hdr.x.a, hdr.x.b }, 32w1000);")
    assert program.run(0, b"ab").meta["wide"] == zlib.crc32(b"ab") % 1000


@pytest.mark.parametrize(
    "write",
    [
        entry(["3", ["5", "4"]], "1"),
        entry(["0x100", ["0", "1"]], "1"),
        entry(["3", ["0", "1"]], "0x100"),
        entry(["3", ["0", "1"]], "1", None),
        entry(["3", "1"], "1"),
    ],
)
def test_entries_that_a_switch_would_refuse_are_refused(write: dict[str, object]) -> None:
    program = switch("t.apply();", TABLES)
    with pytest.raises(P4Error):
        program.write(write)
    program.write(entry(["3", ["0", "1"]], "1"))
    with pytest.raises(P4Error, match="there already"):
        program.write(entry(["3", ["0", "1"]], "2"))


def test_a_table_holds_no_more_than_its_size() -> None:
    program = switch("t.apply();", TABLES)
    for index in range(3):
        program.write(entry([str(index), ["0", "1"]], "1"))
    with pytest.raises(P4Error, match="full"):
        program.write(entry(["3", ["0", "1"]], "1"))


@pytest.mark.parametrize(
    "statement",
    [
        "meta.m = 16w1;",
        "meta.m = meta.wide;",
        "meta.m = meta.m + meta.one;",
        "meta.m = 8w256;",
        "meta.m = meta.m[8:1];",
        "meta.m = meta.nothing;",
        "meta.m = hdr.x.a == 8w1;",
        "meta.one = hdr.x.a == 8w1;",
        "if (meta.one) { meta.m = 8w1; }",
        "meta.m = meta.m ++ 1w1;",
        "meta.m = meta.m * 8w2;",
        "meta.m[3:0] = 4w1;",
        "nothing.apply();",
        "meta.m = ;",
        "bit = 8w1;",
        "meta.m = 8w1",
    ],
)
def test_what_is_no_p4_is_refused(statement: str) -> None:
    with pytest.raises(P4Error):
        switch(statement)


SUME = """
#include <core.p4>
#include <sume_switch.p4>
header byte_t { bit<8> a; }
struct headers_t { byte_t x; }
struct metadata_t { bit<8> m; }
struct digest_data_t { bit<256> unused; }
extern void count_reg_rw(in bit<4> index, in bit<8> newVal, in bit<8> opCode, out bit<8> result);
@Xilinx_MaxPacketRegion(1024)
parser TopParser(packet_in packet, out headers_t hdr, out metadata_t meta, out digest_data_t digest_data,
    inout sume_metadata_t sume_metadata) { state start { packet.extract(hdr.x); transition accept; } }
control TopPipe(inout headers_t hdr, inout metadata_t meta, inout digest_data_t digest_data,
    inout sume_metadata_t sume_metadata) {
    action first(bit<8> v) { meta.m = v; }
    table t { key = { hdr.x.a : exact; } actions = { first; NoAction; } default_action = NoAction(); }
    apply { t.apply(); count_reg_rw(hdr.x.a[3:0], meta.m, 8w1, hdr.x.a); sume_metadata.dst_port = 8w4; }
}
control TopDeparser(packet_out packet, in headers_t hdr, in metadata_t meta, inout digest_data_t digest_data,
    inout sume_metadata_t sume_metadata) { apply { packet.emit(hdr.x); } }
SimpleSumeSwitch(TopParser(), TopPipe(), TopDeparser()) main;
"""


def test_the_netfpga_leaves_metadata_open_until_it_is_written() -> None:
    program = Switch(SUME)
    with pytest.raises(P4Error, match=r"meta\.m is read before"):
        program.run(1, b"\7z")
    program.write({"write": [{"table": "t", "keys": ["7"], "action": "first", "data": ["0x41"]}]})
    assert (out := program.run(1, b"\7z")).frame == b"Az" and out.port == 4
    assert program.registers["count_reg_rw"][1][7] == 0x41


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("meta.m = v;", "if (v == 8w0) { meta.m = v; }"),
        ("bit<8> v", "bit<8> v, bit<256> w"),
        (": exact", ": range"),
    ],
)
def test_what_the_netfpga_cannot_is_refused(old: str, new: str) -> None:
    with pytest.raises(P4Error):
        Switch(SUME.replace(old, new))
