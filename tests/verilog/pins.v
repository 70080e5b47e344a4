// SPDX-License-Identifier: Apache-2.0
// 256-32-16-2 behind few pins: wide ports are shift registers, so that a small package has enough pins.
module pins (
    input  wire clk,
    input  wire resetn,
    input  wire in,
    input  wire in_valid,
    input  wire in_last,
    output wire in_ready,
    input  wire load,
    input  wire load_valid,
    input  wire load_last,
    output wire load_ready,
    input  wire out_ready,
    output wire out_valid,
    output reg  out
);
    reg  [255:0] record;
    reg  [ 63:0] word;
    reg  [191:0] held;
    wire [191:0] result;
    reg          valid, last, loading, loading_last;

    ww_model model (
        .aclk(clk), .aresetn(resetn),
        .s_axis_tvalid(valid), .s_axis_tready(in_ready), .s_axis_tlast(last), .s_axis_tdata(record),
        .s_cfg_tvalid(loading), .s_cfg_tready(load_ready), .s_cfg_tlast(loading_last), .s_cfg_tdata(word),
        .m_axis_tvalid(out_valid), .m_axis_tready(out_ready), .m_axis_tlast(), .m_axis_tdata(result),
        .dropped()
    );

    always @(posedge clk) begin
        record <= {record[254:0], in};
        word   <= {word[62:0], load};
        valid  <= in_valid;
        last   <= in_last;
        loading      <= load_valid;
        loading_last <= load_last;
        held <= out_valid && out_ready ? result : {1'b0, held[191:1]};
        out  <= held[0];
    end
endmodule
