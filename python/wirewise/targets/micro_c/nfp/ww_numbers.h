/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of 64 bits in two words, the bits of the input, and the largest score. */

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
