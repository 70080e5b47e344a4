/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of 64 bits in two words, and the largest score. */

/* A thread's own: the bits that the first layer reads, the largest score (high and low word), its class. */
static __lmem uint32_t ww_x0[WW_INPUT_ROOM];
static __lmem uint32_t ww_best[3];
#ifdef WW_SCORES
static __lmem uint32_t ww_scores[2 * WW_OUTPUTS];
#endif

/* Whether a > b, both signed. */
__intrinsic uint32_t ww_above(uint32_t a_high, uint32_t a_low, uint32_t b_high, uint32_t b_low)
{
	return (int32_t)a_high > (int32_t)b_high || (a_high == b_high && a_low > b_low);
}

/* The score of a class: count and bias added up to 64 bits. Of equal ones the first stays the best. */
static void ww_offer(uint32_t class_id, uint32_t high, uint32_t low)
{
#ifdef WW_SCORES
	ww_scores[2 * class_id] = high;
	ww_scores[2 * class_id + 1] = low;
#endif
	if (class_id == 0 || ww_above(high, low, ww_best[0], ww_best[1])) {
		ww_best[0] = high;
		ww_best[1] = low;
		ww_best[2] = class_id;
	}
}
