/* SPDX-License-Identifier: Apache-2.0 */
/* Input selector: the features are a flow's statistics in EMEM, which the rest of your program fills: for each
 * flow the features of ww_encode, a high and a low word each. */

__export __shared __emem uint32_t ww_flows[(1 << WW_FLOW_BITS) * 2 * WW_FEATURES];

/* A thread's own: the flow's element, and the words of the IPv4 header that its result goes to. */
static __lmem uint32_t ww_flow[3];

/* Whether the model judges a frame: IPv4 without options, no fragment, TCP or UDP, whose headers end where the total length says or before. */
static uint32_t ww_select(__mem40 uint8_t *frame, uint32_t length)
{
	__xread uint32_t head[7]; /* from the type of Ethernet to the ports, 2 bytes off IPv4's words */
	__gpr uint32_t protocol, folded;

	if (length < WW_LEAST)
		return 0;
	mem_read32(head, frame + 12, sizeof(head));
	protocol = head[2] & 0xff;
	if (head[0] >> 8 != 0x080045 || head[2] >> 16 & 0x3fff)
		return 0;
	if (protocol == 6 ? head[1] >> 16 < 40 : protocol != 17 || head[1] >> 16 < 28)
		return 0;
	folded = head[3] << 16 | head[4] >> 16;
	folded ^= head[4] << 16 | head[5] >> 16;
	folded ^= head[5] << 16 | head[6] >> 16;
	folded ^= folded >> 16 ^ protocol;
	ww_flow[0] = (folded ^ folded >> WW_FLOW_BITS) & ((1 << WW_FLOW_BITS) - 1);
	ww_flow[1] = head[0];
	ww_flow[2] = head[3];
	return 1;
}

/* The input bits of a frame's flow; whether a feature is outside its bounds. */
static uint32_t ww_read_input(__mem40 uint8_t *frame)
{
	(void)frame;
	return ww_encode((__mem40 uint8_t *)&ww_flows[ww_flow[0] * 2 * WW_FEATURES]);
}
