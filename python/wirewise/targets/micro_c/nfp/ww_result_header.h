/* SPDX-License-Identifier: Apache-2.0 */
/* Output selector: a header behind the input has room for the class, a byte, and for the scores. */

/* The port by which a judged frame leaves. port: the one by which all others do. */
static uint32_t ww_give(__mem40 uint8_t *frame, uint32_t class_id, uint32_t port)
{
	__xwrite uint32_t out[2];
#ifdef WW_SCORES
	__gpr uint32_t word;
#endif

	frame += 14 + WW_HEADER_BYTES;
	out[0] = class_id << 24; /* bytes begin at the top of a register */
	mem_write8(out, frame, 1);
#ifdef WW_SCORES
	for (word = 0; word < 2 * WW_OUTPUTS; word += 2) {
		out[0] = ww_scores[word];
		out[1] = ww_scores[word + 1];
		mem_write32(out, frame + 1 + 4 * word, sizeof(out));
	}
#endif
	return port;
}
