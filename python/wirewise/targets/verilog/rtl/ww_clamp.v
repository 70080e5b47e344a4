// SPDX-License-Identifier: Apache-2.0
// A signed 64-bit number cut to the ends of fewer bits. No threshold inside of these ends tells the two apart.
module ww_clamp #(
    parameter BITS = 16
) (
    input  wire [    63:0] in,
    output wire [BITS-1:0] out
);
    generate
        if (BITS == 64) begin : all
            assign out = in;
        end else begin : fewer
            wire fits = in[63:BITS-1] == {(65-BITS){in[63]}};
            assign out = fits ? in[BITS-1:0] : {in[63], {(BITS-1){!in[63]}}};
        end
    endgenerate
endmodule
