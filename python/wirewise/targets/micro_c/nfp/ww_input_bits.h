/* SPDX-License-Identifier: Apache-2.0 */
/* Input selector: the packet has the input bits themselves behind Ethernet, the first one in the last bit. */

/* Whether the model judges a frame. */
static uint32_t ww_select(__mem40 uint8_t *frame, uint32_t length)
{
	__xread uint32_t kind[1];

	if (length < WW_LEAST)
		return 0;
	mem_read32(kind, frame + 12, sizeof(kind));
	return kind[0] >> 16 == WW_ETHERTYPE;
}

/* The input bits of a frame. There are no features that could be outside their bounds. */
static uint32_t ww_read_input(__mem40 uint8_t *frame)
{
	__xread uint32_t bits[1];
	__gpr uint32_t word;

	frame += 14 + WW_HEADER_BYTES;
	for (word = 0; word < WW_INPUT_WORDS; word++) {
		frame -= 4; /* the last one may begin in the Ethernet header */
		mem_read32(bits, frame, sizeof(bits));
		ww_x0[word] = bits[0];
	}
#if WW_INPUT_BITS % 32
	ww_x0[WW_INPUT_WORDS - 1] &= (1u << WW_INPUT_BITS % 32) - 1;
#endif
	return 0;
}
