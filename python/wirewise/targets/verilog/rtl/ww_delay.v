// SPDX-License-Identifier: Apache-2.0
// A value, some steps later; with none of them, a wire.
module ww_delay #(
    parameter BITS  = 1,
    parameter STEPS = 1
) (
    input  wire            clk,
    input  wire            step,
    input  wire [BITS-1:0] in,
    output wire [BITS-1:0] out
);
    wire [BITS*(STEPS+1)-1:0] taps;
    assign taps[BITS-1:0] = in;
    assign out = taps[BITS*STEPS +: BITS];

    genvar i;
    generate
        for (i = 0; i < STEPS; i = i + 1) begin : stage
            reg [BITS-1:0] held;
            always @(posedge clk) if (step) held <= taps[BITS*i +: BITS];
            assign taps[BITS*(i+1) +: BITS] = held;
        end
        if (STEPS == 0) begin : none
            wire unused = &{1'b0, clk, step};
        end
    endgenerate
endmodule
