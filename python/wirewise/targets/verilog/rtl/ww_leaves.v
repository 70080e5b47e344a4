// SPDX-License-Identifier: Apache-2.0
// What the leaves of a tree add: a table, one step.
module ww_leaves #(
    parameter LEAVES = 2,
    parameter INDEX_BITS = 1,
    parameter BITS = 8,
    parameter [BITS*LEAVES-1:0] TABLE = 0
) (
    input  wire                  clk,
    input  wire                  step,
    input  wire [INDEX_BITS-1:0] index,
    output reg  [      BITS-1:0] value
);
    reg [BITS-1:0] leaves [0:(1<<INDEX_BITS)-1];
    integer n;
    initial
        for (n = 0; n < (1 << INDEX_BITS); n = n + 1)
            leaves[n] = n < LEAVES ? TABLE[(n < LEAVES ? n : 0)*BITS +: BITS] : {BITS{1'b0}};
    always @(posedge clk) if (step) value <= leaves[index];
endmodule
