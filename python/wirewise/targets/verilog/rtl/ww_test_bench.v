// SPDX-License-Identifier: Apache-2.0
// Sends records, compares results with those of the reference, and counts cycles.
//
//     iverilog -g2005 -o bench ww_*.v && vvp bench && vvp bench +stall=5 +seed=7
//
// With +stall=N, of 8, sender, receiver and loader pause at random. Without, it says how long a result takes.
`include "ww_test_bench.vh"
module ww_test_bench;
    reg clk = 1'b0;
    reg resetn = 1'b0;
    always #1 clk = !clk;

    reg [`WW_WIDTH-1:0] records [0:`WW_RECORDS*`WW_BEATS-1];
    reg [`WW_RESULT-1:0] expected [0:`WW_RECORDS-1];
`ifdef WW_LOADING
    reg [`WW_RESULT-1:0] expected_loaded [0:`WW_RECORDS-1];
    reg [63:0] words [0:`WW_WORDS-1];
`endif

    reg               s_valid = 1'b0;
    wire              s_ready;
    reg               s_last = 1'b0;
    reg [`WW_WIDTH-1:0] s_data = 0;
    wire               m_valid, m_last;
    reg                m_ready = 1'b0;
    wire [`WW_RESULT-1:0] m_data;
    wire [31:0]        dropped;
`ifdef WW_LOADING
    reg         c_valid = 1'b0;
    wire        c_ready;
    reg         c_last = 1'b0;
    reg  [63:0] c_data = 0;
    integer     loaded = 0;
    reg         switched = 1'b0;
`endif

    ww_model model (
        .aclk(clk), .aresetn(resetn),
        .s_axis_tvalid(s_valid), .s_axis_tready(s_ready), .s_axis_tlast(s_last), .s_axis_tdata(s_data),
`ifdef WW_LOADING
        .s_cfg_tvalid(c_valid), .s_cfg_tready(c_ready), .s_cfg_tlast(c_last), .s_cfg_tdata(c_data),
`elsif WW_LOADS
        .s_cfg_tvalid(1'b0), .s_cfg_tready(), .s_cfg_tlast(1'b0), .s_cfg_tdata(64'd0),
`endif
        .m_axis_tvalid(m_valid), .m_axis_tready(m_ready), .m_axis_tlast(m_last), .m_axis_tdata(m_data),
        .dropped(dropped)
    );

    integer stall = 0, seed = 1;
    integer sent = 0, got = 0, wrong = 0, cycle = 0;
    integer entered = -1, first = -1, last = -1;
    reg               held = 1'b0;
    reg [`WW_RESULT-1:0] held_data = 0;
    reg               new_one = 1'b0;
    reg               right;

    // Records that were dropped, and a load that had no effect, are faults too.
`ifdef WW_LOADING
    wire [31:0] missed = dropped + {31'd0, !new_one};
`else
    wire [31:0] missed = dropped;
`endif

    initial begin
        if ($value$plusargs("stall=%d", stall)) ;
        if ($value$plusargs("seed=%d", seed)) ;
        $readmemh("records.memh", records);
        $readmemh("expected.memh", expected);
`ifdef WW_LOADING
        $readmemh("expected_loaded.memh", expected_loaded);
        $readmemh("load.memh", words);
`endif
    end

    // Reset, and what chance decides: three bits each for sender, receiver and loader (xorshift).
    reg  [ 2:0] started = 3'd0;
    reg  [31:0] dice = 32'd0;
    wire [31:0] dice1 = dice ^ (dice << 13);
    wire [31:0] dice2 = dice1 ^ (dice1 >> 17);
    wire        send_now = {29'd0, dice[2:0]} >= stall;
    wire        take_now = {29'd0, dice[12:10]} >= stall;
    wire        load_now = {29'd0, dice[22:20]} >= stall;
    always @(posedge clk) begin
        started <= started == 3'd7 ? started : started + 3'd1;
        resetn  <= started == 3'd7;
        dice    <= started == 3'd7 ? dice2 ^ (dice2 << 5) : seed * 32'd40503 + 32'd1;
    end

    always @(posedge clk) if (resetn) begin
        cycle <= cycle + 1;
        // The sender: what is offered stays until it is taken.
        if (!s_valid || s_ready) begin
            if (sent < `WW_RECORDS * `WW_BEATS && send_now) begin
                s_valid <= 1'b1;
                s_data  <= records[sent];
                s_last  <= sent % `WW_BEATS == `WW_BEATS - 1;
                sent    <= sent + 1;
            end else begin
                s_valid <= 1'b0;
            end
        end
        if (s_valid && s_ready && s_last && entered < 0) entered <= cycle;
        // The receiver.
        m_ready <= take_now;
        if (held && (!m_valid || m_data !== held_data)) begin
            wrong <= wrong + 1;
            $display("result %0d changed before it was taken", got);
        end
        held <= m_valid && !m_ready;
        held_data <= m_data;
        if (m_valid && m_ready) begin
            if (first < 0) first <= cycle;
            last <= cycle;
            got  <= got + 1;
            right = m_data === expected[got] && !new_one;
`ifdef WW_LOADING
            if (!right && switched && m_data === expected_loaded[got]) begin
                right = 1'b1;
                if (m_data !== expected[got]) new_one <= 1'b1;
            end
`endif
            if (!right || m_last !== 1'b1) begin
                wrong <= wrong + 1;
                if (wrong < 5)
                    $display("record %0d: result %h, the reference says %h", got, m_data, expected[got]);
            end
        end
`ifdef WW_LOADING
        // The loader: a third of the records first.
        if (!c_valid || c_ready) begin
            if (c_valid && c_last) switched <= 1'b1;
            if (loaded < `WW_WORDS && got >= `WW_RECORDS / 3 && load_now) begin
                c_valid <= 1'b1;
                c_data  <= words[loaded];
                c_last  <= loaded == `WW_WORDS - 1;
                loaded  <= loaded + 1;
            end else begin
                c_valid <= 1'b0;
            end
        end
`endif
        if (got == `WW_RECORDS) begin
            $display("results=%0d wrong=%0d latency=%0d cycles=%0d", got, wrong + missed, first - entered,
                last - first);
            $finish;
        end
        if (cycle > 10000 + 40 * (`WW_RECORDS * (`WW_BEATS + 300) + `WW_WORDS)) begin
            $display("results=%0d wrong=%0d: no more results come", got, wrong);
            $finish;
        end
    end
endmodule
