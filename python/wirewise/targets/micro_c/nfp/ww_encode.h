/* SPDX-License-Identifier: Apache-2.0 */
/* From numbers to the bits of the input. */

#ifdef WW_FIELDS
/* Sets `bits` bits of the input, 1 to 32, from bit `at` on. They were 0. */
static void ww_put(uint32_t value, uint32_t at, uint32_t bits)
{
	__gpr uint32_t word, shift;

	word = at >> 5;
	shift = at & 31;
	ww_x0[word] |= value << shift;
	if (shift + bits > 32)
		ww_x0[word + 1] |= value >> (32 - shift);
}

/* Input bits from `at` on: `bits` bits of a number from bit `shift` on; of one that is too large, all ones. */
static void ww_take_bits(uint32_t high, uint32_t low, uint32_t at, uint32_t shift, uint32_t bits)
{
	__gpr uint32_t top, beyond;

	if (high >> 31)
		return;
	top = shift + bits;
	beyond = top >= 32 ? high >> (top - 32) : high | low >> top;
	if (beyond) {
		high = 0xffffffff;
		low = 0xffffffff;
	} else if (shift >= 32) {
		low = high >> (shift - 32);
		high = 0;
	} else if (shift) {
		low = low >> shift | high << (32 - shift);
		high = high >> shift;
	}
	if (bits < 32) {
		ww_put(low & ((1u << bits) - 1), at, bits);
		return;
	}
	ww_put(low, at, 32);
	if (bits > 32)
		ww_put(high & ((1u << (bits - 32)) - 1), at + 32, bits - 32);
}
#endif

#ifdef WW_STEPS
/* Input bits from `at` on: whether a number is above each of `count` steps, which ascend. */
static void ww_take_steps(uint32_t high, uint32_t low, uint32_t at, uint32_t first, uint32_t count)
{
	__xread uint32_t step[2];
	__gpr uint32_t end;

	end = at + count;
	for (; at < end; at++, first++) {
		WW_READ(step, &ww_steps[2 * first], sizeof(step));
		if (!ww_above(high, low, step[0], step[1]))
			return;
		ww_x0[at >> 5] |= 1u << (at & 31);
	}
}
#endif
