/* SPDX-License-Identifier: Apache-2.0 */
/* From numbers to the bits of the input. */

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

#ifdef WW_FIELDS
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
	__gpr uint32_t begin, half;

	begin = first; /* all steps before it are below the number, all from begin + count on are not */
	while (count) {
		half = count >> 1;
		WW_READ(step, &ww_steps[2 * (begin + half)], sizeof(step));
		if (ww_above(high, low, step[0], step[1])) {
			begin += half + 1;
			count -= half + 1;
		} else {
			count = half;
		}
	}
	for (count = begin - first; count >= 32; count -= 32, at += 32)
		ww_put(0xffffffff, at, 32);
	if (count)
		ww_put((1u << count) - 1, at, count);
}
#endif
