// SPDX-License-Identifier: Apache-2.0
// One level of a tree: looks a node up, then compares the feature that it names. Two steps. A node that is a
// leaf already goes on as it is. FIRST: place of the left child in the next level; the right one follows it.
module ww_level #(
    parameter NODES = 1,
    parameter INDEX_BITS = 1,
    parameter NEXT_BITS = 1,
    parameter FEATURES = 1,
    parameter SELECT_BITS = 1,
    parameter BITS = 16,
    // By node: inner, first, select, threshold; the threshold lowest.
    parameter [(1+NEXT_BITS+SELECT_BITS+BITS)*NODES-1:0] TABLE = 0
) (
    input  wire                     clk,
    input  wire                     step,
    input  wire [   INDEX_BITS-1:0] index,
    input  wire [FEATURES*BITS-1:0] features,  // a step after the index
    output reg  [    NEXT_BITS-1:0] next
);
    localparam ENTRY = 1 + NEXT_BITS + SELECT_BITS + BITS;

    reg [ENTRY-1:0] nodes [0:(1<<INDEX_BITS)-1];
    reg [ENTRY-1:0] node;
    integer n;
    initial
        for (n = 0; n < (1 << INDEX_BITS); n = n + 1)
            nodes[n] = n < NODES ? TABLE[(n < NODES ? n : 0)*ENTRY +: ENTRY] : {ENTRY{1'b0}};
    always @(posedge clk) if (step) node <= nodes[index];

    wire                   inner;
    wire [  NEXT_BITS-1:0] first;
    wire [SELECT_BITS-1:0] select;
    wire [       BITS-1:0] threshold;
    assign {inner, first, select, threshold} = node;

    reg [BITS-1:0] value;
    integer f;
    always @* begin
        value = features[BITS-1:0];
        for (f = 1; f < FEATURES; f = f + 1)
            if (select == f[SELECT_BITS-1:0]) value = features[f*BITS +: BITS];
    end

    wire right = inner && $signed(value) > $signed(threshold);
    generate
        if (NEXT_BITS == 1) begin : one_bit
            always @(posedge clk) if (step) next <= first ^ right;
        end else begin : more
            always @(posedge clk) if (step) next <= first + {{(NEXT_BITS-1){1'b0}}, right};
        end
    endgenerate
endmodule
