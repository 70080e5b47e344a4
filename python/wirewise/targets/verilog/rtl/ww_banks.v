// SPDX-License-Identifier: Apache-2.0
// Two banks of weights: the active one judges records, the other is loaded. The load's last word makes it the
// active one; a record is judged wholly by the bank that was active when it entered. Nothing is loaded while
// a record is still judged by the bank that would be written.
module ww_banks (
    input  wire        clk,
    input  wire        resetn,
    input  wire        load_valid,
    output wire        load_ready,
    input  wire        load_last,
    input  wire [63:0] load_data,
    input  wire        enters,
    input  wire        leaves,
    output reg         active,
    output reg         write,
    output reg  [31:0] write_address,
    output reg  [31:0] write_data
);
    reg        switch;
    reg  [9:0] under_way;  // records
    reg  [9:0] older;  // those of them that entered before the last switch
    wire [9:0] under_way_next = under_way + {9'd0, enters} - {9'd0, leaves};

    assign load_ready = !switch && older == 10'd0;

    always @(posedge clk) begin
        write_address <= load_data[63:32];
        write_data    <= load_data[31:0];
        if (!resetn) begin
            active <= 1'b0;
            write  <= 1'b0;
            switch <= 1'b0;
            under_way <= 10'd0;
            older <= 10'd0;
        end else begin
            write  <= load_valid && load_ready;
            switch <= load_valid && load_ready && load_last;
            under_way <= under_way_next;
            if (switch) begin
                active <= !active;
                older <= under_way_next;
            end else if (leaves && older != 10'd0) begin
                older <= older - 10'd1;
            end
        end
    end
endmodule
