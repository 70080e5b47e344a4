// SPDX-License-Identifier: Apache-2.0
// The neurons of a layer: PARALLEL of them a step, one row of their weights after another. For each row, the
// agreement of its neurons (how many inputs equal their weights) and their values (thresholds or biases).
//
// Steps from a row's address to its agreement: 2 (memory), 1 (XNOR), 1 (tables), LEVELS (adders).
//
// in_tag, out_tag: bits that go with a record; bit 0 is the bank of weights it is judged by.
module ww_neurons #(
    parameter INPUTS = 256,
    parameter PARALLEL = 1,  // a power of two
    parameter PARALLEL_BITS = 0,
    parameter ROWS = 32,
    parameter ROW_BITS = 5,  // at least 1
    parameter WORDS = 8,  // of 32 inputs
    parameter LEVELS = 5,
    parameter VALUE_BITS = 9,
    parameter TAG_BITS = 1,
    parameter BLOCK = 1,
    parameter [7:0] LAYER = 0,
    // By lane: neuron in the row, word, row.
    parameter [32*ROWS*WORDS*PARALLEL-1:0] WEIGHTS = 0,
    // By neuron in the row, row.
    parameter [VALUE_BITS*ROWS*PARALLEL-1:0] VALUES = 0
) (
    input  wire                           clk,
    input  wire                           resetn,
    input  wire                           step,
    input  wire                           write,
    input  wire                           write_bank,
    input  wire [                   31:0] write_address,
    input  wire [                   31:0] write_data,
    input  wire                           in_valid,
    output wire                           in_ready,
    input  wire [             INPUTS-1:0] in_bits,
    input  wire [           TAG_BITS-1:0] in_tag,
    output wire                           out_valid,
    output wire                           out_last,
    output wire [           ROW_BITS-1:0] out_row,
    output wire [           TAG_BITS-1:0] out_tag,
    output wire [PARALLEL*(LEVELS+4)-1:0] out_counts,
    output wire [PARALLEL*VALUE_BITS-1:0] out_values
);
    localparam STEPS = 4 + LEVELS;
    localparam BYTES = (INPUTS + 7) / 8;
    localparam [ROW_BITS-1:0] LAST_ROW = ROWS[ROW_BITS-1:0] - 1'b1;
    localparam [7:0] VALUE_WORD = 8'd255;

    // The record, and the row that is read for it.
    reg                    busy;
    reg  [   ROW_BITS-1:0] row;
    reg  [   TAG_BITS-1:0] tag;
    reg  [     INPUTS-1:0] bits0, bits1, bits2;
    wire                   last = row == LAST_ROW;

    assign in_ready = step && (!busy || last);

    always @(posedge clk) begin
        if (in_ready) begin
            bits0 <= in_bits;
            tag   <= in_tag;
        end
        if (step) begin
            bits1 <= bits0;
            bits2 <= bits1;
        end
        if (!resetn) begin
            busy <= 1'b0;
            row  <= 0;
        end else if (step) begin
            busy <= in_valid || (busy && !last);
            row  <= busy && !last ? row + 1'b1 : {ROW_BITS{1'b0}};
        end
    end

    // What goes with a row.
    reg [STEPS-1:0] valid;
    always @(posedge clk) begin
        if (!resetn) valid <= {STEPS{1'b0}};
        else if (step) valid <= {valid[STEPS-2:0], busy};
    end
    assign out_valid = valid[STEPS-1];

    wire [ROW_BITS-1:0] late_row;
    wire [TAG_BITS-1:0] late_tag;
    ww_delay #(.BITS(ROW_BITS+TAG_BITS), .STEPS(STEPS-2)) until_value (
        .clk(clk), .step(step), .in({row, tag}), .out({late_row, late_tag})
    );
    ww_delay #(.BITS(ROW_BITS+TAG_BITS), .STEPS(2)) until_count (
        .clk(clk), .step(step), .in({late_row, late_tag}), .out({out_row, out_tag})
    );
    assign out_last = out_row == LAST_ROW;

    // Where a word that is loaded goes.
    wire                for_layer = write && write_address[31:24] == LAYER;
    wire [        15:0] neuron    = write_address[23:8];
    wire [  ROW_BITS:0] to_row    = {write_bank, neuron[PARALLEL_BITS +: ROW_BITS]};
    wire                unused    = &{1'b0, neuron, write_data};

    genvar s, w;
    generate
        for (s = 0; s < PARALLEL; s = s + 1) begin : slot
            wire to_slot;
            if (PARALLEL == 1) begin : only
                assign to_slot = for_layer;
            end else begin : one_of
                localparam [15:0] SLOT = s;
                assign to_slot = for_layer && neuron[PARALLEL_BITS-1:0] == SLOT[PARALLEL_BITS-1:0];
            end

            wire [32*WORDS-1:0] weights;
            for (w = 0; w < WORDS; w = w + 1) begin : lane
                localparam [7:0] WORD = w;
                ww_ram #(
                    .WIDTH(32), .ROWS(ROWS), .ROW_BITS(ROW_BITS), .BLOCK(BLOCK),
                    .INIT(WEIGHTS[32*ROWS*(WORDS*s+w) +: 32*ROWS])
                ) ram (
                    .clk(clk), .step(step),
                    .write(to_slot && write_address[7:0] == WORD),
                    .write_address(to_row), .write_data(write_data),
                    .address({tag[0], row}), .data(weights[32*w +: 32])
                );
            end

            reg  [ INPUTS-1:0] agree;
            wire [8*BYTES-1:0] agree_bytes;
            always @(posedge clk) if (step) agree <= ~(weights[INPUTS-1:0] ^ bits2);
            assign agree_bytes[INPUTS-1:0] = agree;
            if (8 * BYTES > INPUTS) begin : padding
                assign agree_bytes[8*BYTES-1:INPUTS] = {(8*BYTES-INPUTS){1'b0}};
            end
            if (32 * WORDS > INPUTS) begin : beyond
                wire unused_weights = &{1'b0, weights[32*WORDS-1:INPUTS]};
            end

            ww_count #(.BYTES(BYTES), .LEVELS(LEVELS)) count (
                .clk(clk), .step(step), .in(agree_bytes), .out(out_counts[(LEVELS+4)*s +: LEVELS+4])
            );

            // Read so late that it arrives with the agreement.
            ww_ram #(
                .WIDTH(VALUE_BITS), .ROWS(ROWS), .ROW_BITS(ROW_BITS), .BLOCK(0),
                .INIT(VALUES[VALUE_BITS*ROWS*s +: VALUE_BITS*ROWS])
            ) value (
                .clk(clk), .step(step),
                .write(to_slot && write_address[7:0] == VALUE_WORD),
                .write_address(to_row), .write_data(write_data[VALUE_BITS-1:0]),
                .address({late_tag[0], late_row}), .data(out_values[VALUE_BITS*s +: VALUE_BITS])
            );
        end
    endgenerate
endmodule
