// SPDX-License-Identifier: Apache-2.0
// The sum of TERMS numbers: a tree of adders, one level a step.
module ww_sum #(
    parameter TERMS = 32,
    parameter BITS = 4,
    parameter LEVELS = 5,
    parameter SIGNED = 0
) (
    input  wire                   clk,
    input  wire                   step,
    input  wire [ TERMS*BITS-1:0] in,
    output wire [BITS+LEVELS-1:0] out
);
    genvar l, i;
    generate
        for (l = 0; l <= LEVELS; l = l + 1) begin : level
            wire [(BITS+l)*(1<<(LEVELS-l))-1:0] sums;
            if (l == 0) begin : first
                for (i = 0; i < (1 << LEVELS); i = i + 1) begin : term
                    if (i < TERMS) begin : given
                        assign sums[BITS*i +: BITS] = in[BITS*i +: BITS];
                    end else begin : zero
                        assign sums[BITS*i +: BITS] = {BITS{1'b0}};
                    end
                end
            end else begin : further
                for (i = 0; i < (1 << (LEVELS - l)); i = i + 1) begin : pair
                    wire [BITS+l-2:0] a = level[l-1].sums[(BITS+l-1)*2*i +: BITS+l-1];
                    wire [BITS+l-2:0] b = level[l-1].sums[(BITS+l-1)*(2*i+1) +: BITS+l-1];
                    reg  [BITS+l-1:0] held;
                    always @(posedge clk)
                        if (step) held <= {SIGNED != 0 && a[BITS+l-2], a} + {SIGNED != 0 && b[BITS+l-2], b};
                    assign sums[(BITS+l)*i +: BITS+l] = held;
                end
            end
        end
        if (LEVELS == 0) begin : none
            wire unused = &{1'b0, clk, step};
        end
    endgenerate

    assign out = level[LEVELS].sums;
endmodule
