// SPDX-License-Identifier: Apache-2.0
// How many bits are ones: a table of 256 entries for each byte, then a tree of adders. 1 + LEVELS steps.
module ww_count #(
    parameter BYTES  = 32,
    parameter LEVELS = 5
) (
    input  wire               clk,
    input  wire               step,
    input  wire [8*BYTES-1:0] in,
    output wire [ LEVELS+3:0] out
);
    wire [4*BYTES-1:0] ones;

    genvar i;
    generate
        for (i = 0; i < BYTES; i = i + 1) begin : table_of_byte
            wire [3:0] entry;
            reg  [3:0] held;
            ww_ones ones_of_byte (.in(in[8*i +: 8]), .out(entry));
            always @(posedge clk) if (step) held <= entry;
            assign ones[4*i +: 4] = held;
        end
    endgenerate

    ww_sum #(.TERMS(BYTES), .BITS(4), .LEVELS(LEVELS)) tree (
        .clk(clk), .step(step), .in(ones), .out(out)
    );
endmodule
