// SPDX-License-Identifier: Apache-2.0
// Two places between a sender and a receiver, so that ready is a register and no cycle is lost.
module ww_slice #(
    parameter BITS = 32
) (
    input  wire            clk,
    input  wire            resetn,
    input  wire            in_valid,
    output wire            in_ready,
    input  wire [BITS-1:0] in_data,
    output reg             out_valid,
    input  wire            out_ready,
    output reg  [BITS-1:0] out_data
);
    reg            waiting;
    reg [BITS-1:0] second;

    assign in_ready = !waiting;
    wire free = !out_valid || out_ready;

    always @(posedge clk) begin
        if (free) out_data <= waiting ? second : in_data;
        if (!waiting) second <= in_data;
        if (!resetn) begin
            out_valid <= 1'b0;
            waiting   <= 1'b0;
        end else if (free) begin
            out_valid <= waiting || in_valid;
            waiting   <= 1'b0;
        end else if (in_valid) begin
            waiting <= 1'b1;
        end
    end
endmodule
