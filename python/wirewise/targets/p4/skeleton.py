# SPDX-License-Identifier: Apache-2.0
"""The program around a model: headers, parser, forwarding, output selector, deparser; and main."""

from __future__ import annotations

import re
from collections.abc import Sequence

from wirewise.models import Model
from wirewise.targets.p4.entries import Entry
from wirewise.targets.p4.program import CLASS_BITS, ETHERTYPE, MODEL_BITS, Program, lit

V1MODEL_PORTS = ((0, 1), (1, 0), (2, 3), (3, 2))
SUME_PORTS = ((1, 4), (4, 1), (16, 64), (64, 16))
"""Port a packet comes from, port it leaves by: nf0 and nf1 are joined, and nf2 and nf3. One bit a port."""


def port_of_class(program: Program, model: Model) -> None:
    """The table that says where packets of a class go; class k to the k-th port, until it is changed."""
    program.stage("the port of the class")
    program.table("port_of_class", [("meta.class_id", "exact")], ["send"], 64)
    program.do("port_of_class.apply();")
    for index in range(model.n_classes):
        port = index if program.options.flavour == "v1model" else SUME_PORTS[index % len(SUME_PORTS)][0]
        program.ports.add("port_of_class", "send", (index,), port)


def write_dscp(program: Program) -> None:
    """The class as the packet's DSCP, and the header's checksum (RFC 1624, equation 3)."""
    program.stage("the class, as DSCP, and what the checksum becomes by it")
    checksum = program.meta(32, "checksum")
    word = "(bit<32>) (hdr.ipv4.version ++ hdr.ipv4.ihl ++ hdr.ipv4.dscp ++ hdr.ipv4.ecn)"
    fold = f"{checksum} = ({checksum} & 0xffff) + ({checksum} >> 16);"
    program.do(
        f"{checksum} = (bit<32>) (~hdr.ipv4.checksum) + ((~{word}) & 0xffff);",
        "hdr.ipv4.dscp = meta.class_id[5:0];",
        f"{checksum} = {checksum} + {word};",
        fold,
        fold,
        f"hdr.ipv4.checksum = ~{checksum}[15:0];",
    )


def forwarding(program: Program) -> None:
    """Where packets go by the port they come from, whatever the model says."""
    v1model = program.options.flavour == "v1model"
    bits = 9 if v1model else 8
    if v1model:
        program.action("drop", [], ["mark_to_drop(standard_metadata);"])
        program.action("send", [(bits, "port")], ["standard_metadata.egress_spec = port;"])
        source = "standard_metadata.ingress_port"
    else:
        program.action("drop", [], ["sume_metadata.dst_port = 8w0;"])
        program.action("send", [(bits, "port")], ["sume_metadata.dst_port = port;"])
        source = "sume_metadata.src_port"
    program.table("forward", [(source, "exact")], ["send"], 64, default="drop")
    for came, leaves in V1MODEL_PORTS if v1model else SUME_PORTS:
        program.ports.add("forward", "send", (came,), leaves)


def switch_on(program: Program) -> str:
    """Declares what says which model is in use; the condition under which there is one."""
    options = program.options
    program.meta(MODEL_BITS, "model")
    program.meta(1, "ready")
    if options.weights_in == "registers":
        program.declarations.append("register<bit<8>>(1) model;")
        program.entries.last_registers.append(("model", 0, 1 + options.number))
        return "meta.model != 8w0"
    program.action("use_model", [(MODEL_BITS, "number")], ["meta.model = number;", "meta.ready = 1w1;"])
    keys = [] if options.flavour == "v1model" else [("meta.model", "exact")]
    program.table("model", keys, ["use_model"], 64)
    at = () if options.flavour == "v1model" else (0,)
    program.entries.last.append(Entry("model", "use_model", at, (options.number,)))
    return "meta.ready == 1w1"


def text(program: Program, banner: Sequence[str], condition: str) -> str:
    """The program as P4. condition : under which the model runs; "" for always."""
    v1model = program.options.flavour == "v1model"
    architecture = "v1model" if v1model else "sume_switch"
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        *(f"// {line}" for line in banner),
        "",
        "#include <core.p4>",
        f"#include <{architecture}.p4>",
        "",
        *program.constants,
        *program.externs,
        "",
        *_headers(program),
        "",
        *(_v1model(program, condition) if v1model else _sume(program, condition)),
    ]
    return re.sub(r"\n{3,}", "\n\n", "".join(f"{line}\n" for line in lines)).rstrip("\n") + "\n"


def _headers(program: Program) -> list[str]:
    lines = _fields("header ethernet_t", [(48, "destination"), (48, "source"), (16, "kind")])
    members = [("ethernet_t", "ethernet")]
    if program.options.input == "registers":
        lines += _fields("header ipv4_t", _IPV4)
        lines += _fields("header ports_t", [(16, "source"), (16, "destination")])
        members += [("ipv4_t", "ipv4"), ("ports_t", "ports")]
    else:
        lines += _fields("header features_t", program.features_header)
        members.append(("features_t", "features"))
    if program.result_header:
        lines += _fields("header result_t", program.result_header)
        members.append(("result_t", "result"))
    lines += ["struct headers_t {", *(f"    {kind} {name};" for kind, name in members), "}", ""]
    metadata = [*program.metadata, (CLASS_BITS, "class_id")]
    return lines + _fields("struct metadata_t", metadata)[:-1]


_IPV4 = [
    (4, "version"), (4, "ihl"), (6, "dscp"), (2, "ecn"), (16, "total_length"), (16, "identification"),
    (3, "flags"), (13, "fragment"), (8, "ttl"), (8, "protocol"), (16, "checksum"), (32, "source"),
    (32, "destination"),
]  # fmt: skip


_IN_DATAGRAM = (
    "hdr.ports.isValid() && (hdr.ipv4.total_length >= 16w40 || "
    "(hdr.ipv4.protocol == 8w17 && hdr.ipv4.total_length >= 16w28))"
)
"""The ports are those of a transport header that the IP packet has whole, and not of padding behind it."""


def _fields(what: str, fields: Sequence[tuple[int, str]]) -> list[str]:
    return [f"{what} {{", *(f"    bit<{bits}> {name};" for bits, name in fields), "}", ""]


def _parser_states(program: Program, first: Sequence[str]) -> list[str]:
    registers = program.options.input == "registers"
    kind, state = (0x800, "ipv4") if registers else (ETHERTYPE, "features")
    lines = [
        "    state start {",
        *(f"        {line}" for line in first),
        "        packet.extract(hdr.ethernet);",
        "        transition select(hdr.ethernet.kind) {",
        f"            {lit(16, kind)}: parse_{state};",
        "            default: accept;",
        "        }",
        "    }",
        f"    state parse_{state} {{",
        f"        packet.extract(hdr.{state});",
    ]
    if registers:
        lines += [
            "        transition select(hdr.ipv4.ihl, hdr.ipv4.fragment, hdr.ipv4.protocol) {",
            "            (4w5, 13w0, 8w6): parse_ports;",
            "            (4w5, 13w0, 8w17): parse_ports;",
            "            default: accept;",
            "        }",
            "    }",
            "    state parse_ports {",
            "        packet.extract(hdr.ports);",
        ]
    elif program.result_header:
        lines.append("        packet.extract(hdr.result);")
    return [*lines, "        transition accept;", "    }"]


def _control(program: Program, condition: str) -> list[str]:
    """The body of the control that has everything."""
    options = program.options
    valid = _IN_DATAGRAM if options.input == "registers" else "hdr.features.isValid()"
    if program.result_header:
        valid = "hdr.result.isValid()"
    inner = [f"    {line}" if line else "" for line in program.statements]
    if condition:
        ask = "model.read(meta.model, 32w0);" if options.weights_in == "registers" else "model.apply();"
        inner = [f"    {ask}", f"    if ({condition}) {{", *(f"    {line}" for line in inner), "    }"]
    lines = [*program.declarations, "apply {", "    forward.apply();", f"    if ({valid}) {{"]
    lines += [f"    {line}" for line in inner]
    return [f"    {line}".rstrip() for line in [*lines, "    }", "}"]]


def _emit_headers(program: Program) -> list[str]:
    names = ["ethernet", *(["ipv4", "ports"] if program.options.input == "registers" else ["features"])]
    if program.result_header:
        names.append("result")
    return ["    apply {", *(f"        packet.emit(hdr.{name});" for name in names), "    }", "}", ""]


def _v1model(program: Program, condition: str) -> list[str]:
    both = "inout headers_t hdr, inout metadata_t meta"
    standard = "inout standard_metadata_t standard_metadata"
    return [
        f"parser WwParser(packet_in packet, out headers_t hdr, inout metadata_t meta, {standard}) {{",
        *_parser_states(program, []),
        "}",
        "",
        f"control WwVerifyChecksum({both}) {{",
        "    apply { }",
        "}",
        "",
        f"control WwIngress({both}, {standard}) {{",
        *_control(program, condition),
        "}",
        "",
        f"control WwEgress({both}, {standard}) {{",
        "    apply { }",
        "}",
        "",
        f"control WwComputeChecksum({both}) {{",
        "    apply { }",
        "}",
        "",
        "control WwDeparser(packet_out packet, in headers_t hdr) {",
        *_emit_headers(program),
        "V1Switch(WwParser(), WwVerifyChecksum(), WwIngress(), WwEgress(), WwComputeChecksum(), "
        "WwDeparser()) main;",
    ]


def _sume(program: Program, condition: str) -> list[str]:
    user = "metadata_t meta, inout digest_data_t digest_data, inout sume_metadata_t sume_metadata"
    first = ["digest_data.unused = 256w0;", "meta.class_id = 8w0;"]
    if condition:
        first += ["meta.model = 8w0;", "meta.ready = 1w0;"]
    return [
        *_fields("struct digest_data_t", [(256, "unused")]),
        "@Xilinx_MaxPacketRegion(16384)",
        "parser TopParser(packet_in packet, out headers_t hdr, out metadata_t meta, "
        "out digest_data_t digest_data, inout sume_metadata_t sume_metadata) {",
        *_parser_states(program, first),
        "}",
        "",
        f"control TopPipe(inout headers_t hdr, inout {user}) {{",
        *_control(program, condition),
        "}",
        "",
        f"control TopDeparser(packet_out packet, in headers_t hdr, in {user}) {{",
        *_emit_headers(program),
        "SimpleSumeSwitch(TopParser(), TopPipe(), TopDeparser()) main;",
    ]
