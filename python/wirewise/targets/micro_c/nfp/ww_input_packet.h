/* SPDX-License-Identifier: Apache-2.0 */
/* Input selector: the features are in the packet, behind Ethernet. */

/* Whether the model judges a frame. */
static uint32_t ww_select(__mem40 uint8_t *frame, uint32_t length)
{
	__xread uint32_t kind[1];

	if (length < WW_LEAST)
		return 0;
	mem_read32(kind, frame + 12, sizeof(kind));
	return kind[0] >> 16 == WW_ETHERTYPE;
}

/* The input bits of a frame; whether a feature is outside its bounds. */
static uint32_t ww_read_input(__mem40 uint8_t *frame)
{
	return ww_encode(frame + 14);
}
