// SPDX-License-Identifier: Apache-2.0
// Records of two beats: one good, one too short, one too long, one good. Two results, two dropped.
module framing;
    reg clk = 1'b0, resetn = 1'b0;
    always #1 clk = !clk;

    reg [63:0] beat = 64'd0;
    reg        valid = 1'b0, last = 1'b0;
    wire       ready, result;
    wire [31:0] dropped;
    integer    results = 0;

    ww_model model (
        .aclk(clk), .aresetn(resetn),
        .s_axis_tvalid(valid), .s_axis_tready(ready), .s_axis_tlast(last), .s_axis_tdata(beat),
        .m_axis_tvalid(result), .m_axis_tready(1'b1), .m_axis_tlast(), .m_axis_tdata(),
        .dropped(dropped)
    );

    task send(input ends);
        begin
            valid <= 1'b1;
            last  <= ends;
            @(posedge clk);
            while (!ready) @(posedge clk);
            valid <= 1'b0;
        end
    endtask

    always @(posedge clk) if (resetn && result) results <= results + 1;

    initial begin
        repeat (3) @(posedge clk);
        resetn <= 1'b1;
        @(posedge clk);
        send(0); send(1);
        send(1);
        send(0); send(0); send(0); send(1);
        send(0); send(1);
        repeat (50) @(posedge clk);
        $display("results=%0d dropped=%0d", results, dropped);
        $finish;
    end
endmodule
