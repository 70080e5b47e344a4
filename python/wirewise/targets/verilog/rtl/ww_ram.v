// SPDX-License-Identifier: Apache-2.0
// One word of each row, in two banks: one is read while the other is written. A read takes two steps, which is
// what block RAM needs to be fast. BLOCK: block RAM, else what the tool thinks fit.
module ww_ram #(
    parameter WIDTH = 32,
    parameter ROWS = 32,
    parameter ROW_BITS = 5,
    parameter BLOCK = 1,
    parameter [WIDTH*ROWS-1:0] INIT = 0
) (
    input  wire                clk,
    input  wire                step,
    input  wire                write,
    input  wire [  ROW_BITS:0] write_address,
    input  wire [   WIDTH-1:0] write_data,
    input  wire [  ROW_BITS:0] address,
    output reg  [   WIDTH-1:0] data
);
    reg [WIDTH-1:0] found;
    integer row;

    generate
        if (BLOCK != 0) begin : block
            (* ram_style = "block" *) reg [WIDTH-1:0] rows [0:(2<<ROW_BITS)-1];
            initial
                for (row = 0; row < ROWS; row = row + 1) begin
                    rows[row] = INIT[row*WIDTH +: WIDTH];
                    rows[row+(1<<ROW_BITS)] = INIT[row*WIDTH +: WIDTH];
                end
            always @(posedge clk) begin
                if (write) rows[write_address] <= write_data;
                if (step) found <= rows[address];
            end
        end else begin : any
            reg [WIDTH-1:0] rows [0:(2<<ROW_BITS)-1];
            initial
                for (row = 0; row < ROWS; row = row + 1) begin
                    rows[row] = INIT[row*WIDTH +: WIDTH];
                    rows[row+(1<<ROW_BITS)] = INIT[row*WIDTH +: WIDTH];
                end
            always @(posedge clk) begin
                if (write) rows[write_address] <= write_data;
                if (step) found <= rows[address];
            end
        end
    endgenerate

    always @(posedge clk) if (step) data <= found;
endmodule
