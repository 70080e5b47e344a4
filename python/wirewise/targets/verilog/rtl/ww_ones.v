// SPDX-License-Identifier: Apache-2.0
// The table of 256 entries: how many bits of a byte are ones.
module ww_ones (
    input  wire [7:0] in,
    output reg  [3:0] out
);
    always @* begin
        case (in)
            8'd0: out = 4'd0; 8'd1: out = 4'd1; 8'd2: out = 4'd1; 8'd3: out = 4'd2;
            8'd4: out = 4'd1; 8'd5: out = 4'd2; 8'd6: out = 4'd2; 8'd7: out = 4'd3;
            8'd8: out = 4'd1; 8'd9: out = 4'd2; 8'd10: out = 4'd2; 8'd11: out = 4'd3;
            8'd12: out = 4'd2; 8'd13: out = 4'd3; 8'd14: out = 4'd3; 8'd15: out = 4'd4;
            8'd16: out = 4'd1; 8'd17: out = 4'd2; 8'd18: out = 4'd2; 8'd19: out = 4'd3;
            8'd20: out = 4'd2; 8'd21: out = 4'd3; 8'd22: out = 4'd3; 8'd23: out = 4'd4;
            8'd24: out = 4'd2; 8'd25: out = 4'd3; 8'd26: out = 4'd3; 8'd27: out = 4'd4;
            8'd28: out = 4'd3; 8'd29: out = 4'd4; 8'd30: out = 4'd4; 8'd31: out = 4'd5;
            8'd32: out = 4'd1; 8'd33: out = 4'd2; 8'd34: out = 4'd2; 8'd35: out = 4'd3;
            8'd36: out = 4'd2; 8'd37: out = 4'd3; 8'd38: out = 4'd3; 8'd39: out = 4'd4;
            8'd40: out = 4'd2; 8'd41: out = 4'd3; 8'd42: out = 4'd3; 8'd43: out = 4'd4;
            8'd44: out = 4'd3; 8'd45: out = 4'd4; 8'd46: out = 4'd4; 8'd47: out = 4'd5;
            8'd48: out = 4'd2; 8'd49: out = 4'd3; 8'd50: out = 4'd3; 8'd51: out = 4'd4;
            8'd52: out = 4'd3; 8'd53: out = 4'd4; 8'd54: out = 4'd4; 8'd55: out = 4'd5;
            8'd56: out = 4'd3; 8'd57: out = 4'd4; 8'd58: out = 4'd4; 8'd59: out = 4'd5;
            8'd60: out = 4'd4; 8'd61: out = 4'd5; 8'd62: out = 4'd5; 8'd63: out = 4'd6;
            8'd64: out = 4'd1; 8'd65: out = 4'd2; 8'd66: out = 4'd2; 8'd67: out = 4'd3;
            8'd68: out = 4'd2; 8'd69: out = 4'd3; 8'd70: out = 4'd3; 8'd71: out = 4'd4;
            8'd72: out = 4'd2; 8'd73: out = 4'd3; 8'd74: out = 4'd3; 8'd75: out = 4'd4;
            8'd76: out = 4'd3; 8'd77: out = 4'd4; 8'd78: out = 4'd4; 8'd79: out = 4'd5;
            8'd80: out = 4'd2; 8'd81: out = 4'd3; 8'd82: out = 4'd3; 8'd83: out = 4'd4;
            8'd84: out = 4'd3; 8'd85: out = 4'd4; 8'd86: out = 4'd4; 8'd87: out = 4'd5;
            8'd88: out = 4'd3; 8'd89: out = 4'd4; 8'd90: out = 4'd4; 8'd91: out = 4'd5;
            8'd92: out = 4'd4; 8'd93: out = 4'd5; 8'd94: out = 4'd5; 8'd95: out = 4'd6;
            8'd96: out = 4'd2; 8'd97: out = 4'd3; 8'd98: out = 4'd3; 8'd99: out = 4'd4;
            8'd100: out = 4'd3; 8'd101: out = 4'd4; 8'd102: out = 4'd4; 8'd103: out = 4'd5;
            8'd104: out = 4'd3; 8'd105: out = 4'd4; 8'd106: out = 4'd4; 8'd107: out = 4'd5;
            8'd108: out = 4'd4; 8'd109: out = 4'd5; 8'd110: out = 4'd5; 8'd111: out = 4'd6;
            8'd112: out = 4'd3; 8'd113: out = 4'd4; 8'd114: out = 4'd4; 8'd115: out = 4'd5;
            8'd116: out = 4'd4; 8'd117: out = 4'd5; 8'd118: out = 4'd5; 8'd119: out = 4'd6;
            8'd120: out = 4'd4; 8'd121: out = 4'd5; 8'd122: out = 4'd5; 8'd123: out = 4'd6;
            8'd124: out = 4'd5; 8'd125: out = 4'd6; 8'd126: out = 4'd6; 8'd127: out = 4'd7;
            8'd128: out = 4'd1; 8'd129: out = 4'd2; 8'd130: out = 4'd2; 8'd131: out = 4'd3;
            8'd132: out = 4'd2; 8'd133: out = 4'd3; 8'd134: out = 4'd3; 8'd135: out = 4'd4;
            8'd136: out = 4'd2; 8'd137: out = 4'd3; 8'd138: out = 4'd3; 8'd139: out = 4'd4;
            8'd140: out = 4'd3; 8'd141: out = 4'd4; 8'd142: out = 4'd4; 8'd143: out = 4'd5;
            8'd144: out = 4'd2; 8'd145: out = 4'd3; 8'd146: out = 4'd3; 8'd147: out = 4'd4;
            8'd148: out = 4'd3; 8'd149: out = 4'd4; 8'd150: out = 4'd4; 8'd151: out = 4'd5;
            8'd152: out = 4'd3; 8'd153: out = 4'd4; 8'd154: out = 4'd4; 8'd155: out = 4'd5;
            8'd156: out = 4'd4; 8'd157: out = 4'd5; 8'd158: out = 4'd5; 8'd159: out = 4'd6;
            8'd160: out = 4'd2; 8'd161: out = 4'd3; 8'd162: out = 4'd3; 8'd163: out = 4'd4;
            8'd164: out = 4'd3; 8'd165: out = 4'd4; 8'd166: out = 4'd4; 8'd167: out = 4'd5;
            8'd168: out = 4'd3; 8'd169: out = 4'd4; 8'd170: out = 4'd4; 8'd171: out = 4'd5;
            8'd172: out = 4'd4; 8'd173: out = 4'd5; 8'd174: out = 4'd5; 8'd175: out = 4'd6;
            8'd176: out = 4'd3; 8'd177: out = 4'd4; 8'd178: out = 4'd4; 8'd179: out = 4'd5;
            8'd180: out = 4'd4; 8'd181: out = 4'd5; 8'd182: out = 4'd5; 8'd183: out = 4'd6;
            8'd184: out = 4'd4; 8'd185: out = 4'd5; 8'd186: out = 4'd5; 8'd187: out = 4'd6;
            8'd188: out = 4'd5; 8'd189: out = 4'd6; 8'd190: out = 4'd6; 8'd191: out = 4'd7;
            8'd192: out = 4'd2; 8'd193: out = 4'd3; 8'd194: out = 4'd3; 8'd195: out = 4'd4;
            8'd196: out = 4'd3; 8'd197: out = 4'd4; 8'd198: out = 4'd4; 8'd199: out = 4'd5;
            8'd200: out = 4'd3; 8'd201: out = 4'd4; 8'd202: out = 4'd4; 8'd203: out = 4'd5;
            8'd204: out = 4'd4; 8'd205: out = 4'd5; 8'd206: out = 4'd5; 8'd207: out = 4'd6;
            8'd208: out = 4'd3; 8'd209: out = 4'd4; 8'd210: out = 4'd4; 8'd211: out = 4'd5;
            8'd212: out = 4'd4; 8'd213: out = 4'd5; 8'd214: out = 4'd5; 8'd215: out = 4'd6;
            8'd216: out = 4'd4; 8'd217: out = 4'd5; 8'd218: out = 4'd5; 8'd219: out = 4'd6;
            8'd220: out = 4'd5; 8'd221: out = 4'd6; 8'd222: out = 4'd6; 8'd223: out = 4'd7;
            8'd224: out = 4'd3; 8'd225: out = 4'd4; 8'd226: out = 4'd4; 8'd227: out = 4'd5;
            8'd228: out = 4'd4; 8'd229: out = 4'd5; 8'd230: out = 4'd5; 8'd231: out = 4'd6;
            8'd232: out = 4'd4; 8'd233: out = 4'd5; 8'd234: out = 4'd5; 8'd235: out = 4'd6;
            8'd236: out = 4'd5; 8'd237: out = 4'd6; 8'd238: out = 4'd6; 8'd239: out = 4'd7;
            8'd240: out = 4'd4; 8'd241: out = 4'd5; 8'd242: out = 4'd5; 8'd243: out = 4'd6;
            8'd244: out = 4'd5; 8'd245: out = 4'd6; 8'd246: out = 4'd6; 8'd247: out = 4'd7;
            8'd248: out = 4'd5; 8'd249: out = 4'd6; 8'd250: out = 4'd6; 8'd251: out = 4'd7;
            8'd252: out = 4'd6; 8'd253: out = 4'd7; 8'd254: out = 4'd7; default: out = 4'd8;
        endcase
    end
endmodule
