// SPDX-License-Identifier: Apache-2.0
// Bits of a signed 64-bit number that is cut to 0 .. 2^(SHIFT+BITS) - 1 first.
module ww_bits #(
    parameter SHIFT = 0,
    parameter BITS  = 16
) (
    input  wire [    63:0] in,
    output wire [BITS-1:0] out
);
    wire over;
    generate
        if (SHIFT + BITS < 63) begin : some_above
            assign over = |in[62:SHIFT+BITS];
        end else begin : none_above
            assign over = 1'b0;
        end
        if (SHIFT > 0) begin : some_below
            wire unused = &{1'b0, in[SHIFT-1:0]};
        end
    endgenerate
    assign out = in[63] ? {BITS{1'b0}} : over ? {BITS{1'b1}} : in[SHIFT +: BITS];
endmodule
