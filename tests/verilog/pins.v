// SPDX-License-Identifier: Apache-2.0
// 256-32-16-2 behind few pins, for its clock: wide ports are shift registers, all others registers.
module pins (
    input  wire clk,
    input  wire resetn,
    input  wire in,
    input  wire in_valid,
    input  wire in_last,
    output reg  in_ready,
    input  wire load,
    input  wire load_valid,
    input  wire load_last,
    output reg  load_ready,
    input  wire out_ready,
    output reg  out_valid,
    output reg  out
);
    reg  [255:0] record;
    reg  [ 63:0] word;
    reg  [191:0] held;
    wire [191:0] result;
    reg          valid, last, loading, loading_last, take;
    wire         took, loaded, offered;

    ww_model model (
        .aclk(clk), .aresetn(resetn),
        .s_axis_tvalid(valid), .s_axis_tready(took), .s_axis_tlast(last), .s_axis_tdata(record),
        .s_cfg_tvalid(loading), .s_cfg_tready(loaded), .s_cfg_tlast(loading_last), .s_cfg_tdata(word),
        .m_axis_tvalid(offered), .m_axis_tready(take), .m_axis_tlast(), .m_axis_tdata(result),
        .dropped()
    );

    always @(posedge clk) begin
        record <= {record[254:0], in};
        word   <= {word[62:0], load};
        valid  <= in_valid;
        last   <= in_last;
        loading      <= load_valid;
        loading_last <= load_last;
        take       <= out_ready;
        in_ready   <= took;
        load_ready <= loaded;
        out_valid  <= offered;
        held <= offered && take ? result : {1'b0, held[191:1]};
        out  <= held[0];
    end
endmodule
