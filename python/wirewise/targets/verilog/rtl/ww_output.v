// SPDX-License-Identifier: Apache-2.0
// The last layer: a class's score is its neuron's agreement plus a bias; the largest wins, the first of equals.
module ww_output #(
    parameter INPUTS = 16,
    parameter NEURONS = 2,
    parameter PARALLEL = 1,
    parameter PARALLEL_BITS = 0,
    parameter ROWS = 2,
    parameter ROW_BITS = 1,
    parameter WORDS = 1,
    parameter LEVELS = 1,
    parameter TAG_BITS = 1,
    parameter BLOCK = 1,
    parameter [7:0] LAYER = 0,
    parameter [32*ROWS*WORDS*PARALLEL-1:0] WEIGHTS = 0,
    parameter [32*ROWS*PARALLEL-1:0] BIASES = 0
) (
    input  wire                  clk,
    input  wire                  resetn,
    input  wire                  write,
    input  wire                  write_bank,
    input  wire [          31:0] write_address,
    input  wire [          31:0] write_data,
    input  wire                  in_valid,
    output wire                  in_ready,
    input  wire [    INPUTS-1:0] in_bits,
    input  wire [  TAG_BITS-1:0] in_tag,
    output wire                  out_valid,
    input  wire                  out_ready,
    output wire [           7:0] out_class,
    output wire [33*NEURONS-1:0] out_scores,
    output wire [  TAG_BITS-1:0] out_tag
);
    localparam COUNT = LEVELS + 4;
    localparam INDEX_BITS = PARALLEL_BITS == 0 ? 1 : PARALLEL_BITS;

    wire                      row_valid, row_last, room;
    wire [      ROW_BITS-1:0] row;
    wire [      TAG_BITS-1:0] row_tag;
    wire [PARALLEL*COUNT-1:0] counts;
    wire [   PARALLEL*32-1:0] biases;
    wire                      done;
    wire                      step = !done || room;

    ww_neurons #(
        .INPUTS(INPUTS), .PARALLEL(PARALLEL), .PARALLEL_BITS(PARALLEL_BITS), .ROWS(ROWS), .ROW_BITS(ROW_BITS),
        .WORDS(WORDS), .LEVELS(LEVELS), .VALUE_BITS(32), .TAG_BITS(TAG_BITS), .BLOCK(BLOCK), .LAYER(LAYER),
        .WEIGHTS(WEIGHTS), .VALUES(BIASES)
    ) neurons (
        .clk(clk), .resetn(resetn), .step(step),
        .write(write), .write_bank(write_bank), .write_address(write_address), .write_data(write_data),
        .in_valid(in_valid), .in_ready(in_ready), .in_bits(in_bits), .in_tag(in_tag),
        .out_valid(row_valid), .out_last(row_last), .out_row(row), .out_tag(row_tag),
        .out_counts(counts), .out_values(biases)
    );

    // Scores of a row: one step; its best: PARALLEL_BITS steps; the best so far: one step.
    localparam STEPS = 1 + PARALLEL_BITS;
    localparam [31:0] CLASSES = NEURONS;
    reg  [33*PARALLEL-1:0] sums;
    reg  [   PARALLEL-1:0] present;
    genvar s;
    generate
        for (s = 0; s < PARALLEL; s = s + 1) begin : slot
            localparam [31:0] SLOT = s;
            wire [31:0] bias = biases[32*s +: 32];
            always @(posedge clk)
                if (step) begin
                    sums[33*s +: 33] <= {bias[31], bias} + {{(33-COUNT){1'b0}}, counts[COUNT*s +: COUNT]};
                    present[s] <= ({{(32-ROW_BITS){1'b0}}, row} << PARALLEL_BITS) + SLOT < CLASSES;
                end
        end
    endgenerate

    reg [STEPS-1:0] valid;
    generate
        if (STEPS == 1) begin : short
            always @(posedge clk)
                if (!resetn) valid <= 1'b0;
                else if (step) valid <= row_valid;
        end else begin : long
            always @(posedge clk)
                if (!resetn) valid <= {STEPS{1'b0}};
                else if (step) valid <= {valid[STEPS-2:0], row_valid};
        end
    endgenerate

    wire                   late_valid = valid[STEPS-1];
    wire                   late_last;
    wire [   ROW_BITS-1:0] late_row;
    wire [   TAG_BITS-1:0] late_tag;
    wire [33*PARALLEL-1:0] late_sums;
    wire                   row_present;
    wire [           32:0] row_best;
    wire [ INDEX_BITS-1:0] row_index;
    ww_delay #(.BITS(1+ROW_BITS+TAG_BITS), .STEPS(STEPS)) beside (
        .clk(clk), .step(step), .in({row_last, row, row_tag}), .out({late_last, late_row, late_tag})
    );
    ww_delay #(.BITS(33*PARALLEL), .STEPS(PARALLEL_BITS)) scores_beside (
        .clk(clk), .step(step), .in(sums), .out(late_sums)
    );
    ww_argmax #(.LEVELS(PARALLEL_BITS), .BITS(33), .INDEX_BITS(INDEX_BITS)) argmax (
        .clk(clk), .step(step), .present(present), .scores(sums),
        .best_present(row_present), .best(row_best), .index(row_index)
    );

    // As in ww_layer: the scores of the first row end at the bottom.
    reg  [           32:0] best;
    reg  [            7:0] best_class;
    reg                    complete;
    reg  [   TAG_BITS-1:0] tag;
    reg  [33*ROWS*PARALLEL-1:0] all;
    wire [           31:0] row_class = ({{(32-ROW_BITS){1'b0}}, late_row} << PARALLEL_BITS)
        + (PARALLEL_BITS == 0 ? 32'd0 : {{(32-INDEX_BITS){1'b0}}, row_index});
    wire                   first = late_row == {ROW_BITS{1'b0}};
    wire                   unused = &{1'b0, row_class, row_index, row_present};

    assign done = complete;
    always @(posedge clk) begin
        if (step && late_valid) begin
            if (first || $signed(row_best) > $signed(best)) begin
                best       <= row_best;
                best_class <= row_class[7:0];
            end
            tag <= late_tag;
        end
        if (!resetn) complete <= 1'b0;
        else if (step) complete <= late_valid && late_last;
    end
    generate
        if (ROWS == 1) begin : at_once
            always @(posedge clk) if (step && late_valid) all <= late_sums;
        end else begin : by_row
            always @(posedge clk)
                if (step && late_valid) all <= {late_sums, all[33*ROWS*PARALLEL-1:33*PARALLEL]};
        end
        if (ROWS * PARALLEL > NEURONS) begin : beyond
            wire unused_scores = &{1'b0, all[33*ROWS*PARALLEL-1:33*NEURONS]};
        end
    endgenerate

    ww_slice #(.BITS(TAG_BITS+8+33*NEURONS)) slice (
        .clk(clk), .resetn(resetn),
        .in_valid(done), .in_ready(room), .in_data({tag, best_class, all[33*NEURONS-1:0]}),
        .out_valid(out_valid), .out_ready(out_ready), .out_data({out_tag, out_class, out_scores})
    );
endmodule
