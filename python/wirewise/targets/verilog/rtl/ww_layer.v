// SPDX-License-Identifier: Apache-2.0
// A hidden layer: a neuron's bit is 1 where its agreement reaches its threshold.
module ww_layer #(
    parameter INPUTS = 256,
    parameter NEURONS = 32,
    parameter PARALLEL = 1,
    parameter PARALLEL_BITS = 0,
    parameter ROWS = 32,
    parameter ROW_BITS = 5,
    parameter WORDS = 8,
    parameter LEVELS = 5,
    parameter TAG_BITS = 1,
    parameter BLOCK = 1,
    parameter [7:0] LAYER = 0,
    parameter [32*ROWS*WORDS*PARALLEL-1:0] WEIGHTS = 0,
    parameter [(LEVELS+4)*ROWS*PARALLEL-1:0] THRESHOLDS = 0
) (
    input  wire                clk,
    input  wire                resetn,
    input  wire                write,
    input  wire                write_bank,
    input  wire [        31:0] write_address,
    input  wire [        31:0] write_data,
    input  wire                in_valid,
    output wire                in_ready,
    input  wire [  INPUTS-1:0] in_bits,
    input  wire [TAG_BITS-1:0] in_tag,
    output wire                out_valid,
    input  wire                out_ready,
    output wire [ NEURONS-1:0] out_bits,
    output wire [TAG_BITS-1:0] out_tag
);
    localparam BITS = LEVELS + 4;

    wire                     row_valid, row_last, room;
    wire [     ROW_BITS-1:0] row;
    wire [     TAG_BITS-1:0] row_tag;
    wire [PARALLEL*BITS-1:0] counts, thresholds;
    wire                     done = row_valid && row_last;
    wire                     step = !done || room;
    wire                     unused = &{1'b0, row};

    ww_neurons #(
        .INPUTS(INPUTS), .PARALLEL(PARALLEL), .PARALLEL_BITS(PARALLEL_BITS), .ROWS(ROWS), .ROW_BITS(ROW_BITS),
        .WORDS(WORDS), .LEVELS(LEVELS), .VALUE_BITS(BITS), .TAG_BITS(TAG_BITS), .BLOCK(BLOCK), .LAYER(LAYER),
        .WEIGHTS(WEIGHTS), .VALUES(THRESHOLDS)
    ) neurons (
        .clk(clk), .resetn(resetn), .step(step),
        .write(write), .write_bank(write_bank), .write_address(write_address), .write_data(write_data),
        .in_valid(in_valid), .in_ready(in_ready), .in_bits(in_bits), .in_tag(in_tag),
        .out_valid(row_valid), .out_last(row_last), .out_row(row), .out_tag(row_tag),
        .out_counts(counts), .out_values(thresholds)
    );

    // The bits of a row come in at the top; those of the first row are at the bottom when the last has come.
    wire [     PARALLEL-1:0] fired;
    wire [ROWS*PARALLEL-1:0] all;
    genvar s;
    generate
        for (s = 0; s < PARALLEL; s = s + 1) begin : slot
            assign fired[s] = counts[BITS*s +: BITS] >= thresholds[BITS*s +: BITS];
        end
        if (ROWS == 1) begin : at_once
            assign all = fired;
        end else begin : by_row
            reg [(ROWS-1)*PARALLEL-1:0] earlier;
            assign all = {fired, earlier};
            always @(posedge clk) if (step && row_valid) earlier <= all[ROWS*PARALLEL-1:PARALLEL];
        end
        if (ROWS * PARALLEL > NEURONS) begin : beyond
            wire unused_bits = &{1'b0, all[ROWS*PARALLEL-1:NEURONS]};
        end
    endgenerate

    ww_slice #(.BITS(TAG_BITS+NEURONS)) slice (
        .clk(clk), .resetn(resetn),
        .in_valid(done), .in_ready(room), .in_data({row_tag, all[NEURONS-1:0]}),
        .out_valid(out_valid), .out_ready(out_ready), .out_data({out_tag, out_bits})
    );
endmodule
