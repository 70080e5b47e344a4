// SPDX-License-Identifier: Apache-2.0
// The largest of 2^LEVELS signed scores and its place, the first of equals: a tree, one level a step. present:
// which scores there are; those that are missing come after all others.
module ww_argmax #(
    parameter LEVELS = 1,
    parameter BITS = 33,
    parameter INDEX_BITS = 1  // at least 1 and LEVELS
) (
    input  wire                        clk,
    input  wire                        step,
    input  wire [       (1<<LEVELS)-1:0] present,
    input  wire [BITS*(1<<LEVELS)-1:0] scores,
    output wire                        best_present,
    output wire [            BITS-1:0] best,
    output wire [      INDEX_BITS-1:0] index
);
    localparam ENTRY = 1 + BITS + INDEX_BITS;

    genvar l, i;
    generate
        for (l = 0; l <= LEVELS; l = l + 1) begin : level
            wire [ENTRY*(1<<(LEVELS-l))-1:0] entries;
            for (i = 0; i < (1 << (LEVELS - l)); i = i + 1) begin : entry
                if (l == 0) begin : given
                    localparam [31:0] PLACE = i;
                    assign entries[ENTRY*i +: ENTRY] =
                        {present[i], scores[BITS*i +: BITS], PLACE[INDEX_BITS-1:0]};
                end else begin : better
                    wire [ENTRY-1:0] a = level[l-1].entries[ENTRY*2*i +: ENTRY];
                    wire [ENTRY-1:0] b = level[l-1].entries[ENTRY*(2*i+1) +: ENTRY];
                    wire b_wins = b[ENTRY-1] && $signed(b[INDEX_BITS +: BITS]) > $signed(a[INDEX_BITS +: BITS]);
                    reg [ENTRY-1:0] held;
                    always @(posedge clk) if (step) held <= b_wins ? b : a;
                    assign entries[ENTRY*i +: ENTRY] = held;
                end
            end
        end
        if (LEVELS == 0) begin : none
            wire unused = &{1'b0, clk, step};
        end
    endgenerate

    assign {best_present, best, index} = level[LEVELS].entries;
endmodule
