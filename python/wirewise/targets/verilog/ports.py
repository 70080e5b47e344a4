# SPDX-License-Identifier: Apache-2.0
"""What `ww_model` has of every model: its ports, its input, the words of its result."""

from __future__ import annotations

from wirewise.targets.verilog.input_code import WORD
from wirewise.targets.verilog.text import instance, sized


def ports(width: int, outputs: int, loads: bool) -> list[str]:
    """The head of `ww_model`."""
    load = [
        "    input  wire        s_cfg_tvalid,",
        "    output wire        s_cfg_tready,",
        "    input  wire        s_cfg_tlast,",
        "    input  wire [63:0] s_cfg_tdata,",
    ]
    return [
        "module ww_model (",
        "    input  wire        aclk,",
        "    input  wire        aresetn,",
        "    input  wire        s_axis_tvalid,",
        "    output wire        s_axis_tready,",
        "    input  wire        s_axis_tlast,",
        f"    input  wire [{width - 1}:0] s_axis_tdata,",
        "    output wire        m_axis_tvalid,",
        "    input  wire        m_axis_tready,",
        "    output wire        m_axis_tlast,",
        f"    output wire [{WORD * (1 + outputs) - 1}:0] m_axis_tdata,",
        *(load if loads else []),
        "    output wire [31:0] dropped",
        ");",
    ]


def input_instance() -> str:
    return instance(
        "ww_input",
        "reader",
        {},
        {
            "clk": "aclk", "resetn": "aresetn", "s_axis_tdata": "s_axis_tdata",
            "s_axis_tvalid": "s_axis_tvalid", "s_axis_tready": "s_axis_tready",
            "s_axis_tlast": "s_axis_tlast", "dropped": "dropped", "out_valid": "in_valid",
            "out_ready": "in_ready", "out_bits": "in_bits", "out_outside": "in_outside",
        },
    )  # fmt: skip


def result_words(outputs: int, score_bits: int, unknown: int | None) -> list[str]:
    """`m_axis_tdata` of a result {outside, class, scores}: a 64-bit word for the class and each score."""
    top = score_bits * outputs + 8
    chosen = f"result[{top - 1}:{top - 8}]"
    if unknown is not None:
        chosen = f"result[{top}] ? {sized(unknown, 8)} : {chosen}"
    lines = [
        f"    assign m_axis_tdata[7:0] = {chosen};",
        f"    assign m_axis_tdata[{WORD - 1}:8] = {sized(0, WORD - 8)};",
    ]
    for output in range(outputs):
        at, sign = WORD * (1 + output), score_bits * (output + 1) - 1
        extended = f"{{{{{WORD - score_bits}{{result[{sign}]}}}}, result[{sign}:{score_bits * output}]}}"
        lines.append(f"    assign m_axis_tdata[{at + WORD - 1}:{at}] = {extended};")
    if unknown is None:
        lines.append(f"    wire unused = &{{1'b0, result[{top}]}};")
    return lines
