/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Arithmetic of neural networks, without branches: one a neuron would make the verifier walk 2^neurons ways. */
#ifndef WW_NETWORK_H
#define WW_NETWORK_H

#include "frame/arith.h"

/* Read and written in the order of the source, so that the compiler holds no layer in registers or on the stack. */
#define ww_feature(s, n) (*(const volatile __s64 *)&(s)->feature[n])
#define ww_activation(s, turn, n) (*(volatile __u64 *)&(s)->activation[turn][n])

/* sum += word * weight, in this place: the compiler must not put off what it adds, as it has no registers to keep it. */
#define ww_add_product(sum, word, weight)          \
	do {                                       \
		(sum) += (word) * (__u64)(weight); \
		ww_hide(sum);                      \
	} while (0)

/* sum += (a + first) * (b + second); a and b keep what was added, so that nothing need be copied. */
#define ww_add_pair(sum, a, b, first, second) \
	do {                                  \
		(a) += (__u64)(first);        \
		ww_hide(a);                   \
		(b) += (__u64)(second);       \
		ww_hide(b);                   \
		(sum) += (a) * (b);           \
		ww_hide(sum);                 \
	} while (0)

/* ReLU of the numbers in the lanes of a word, all at once; what is above 127 becomes 127. A number has so many bits. Where some may
 * be negative, half their range was added to each, and each is then at least 128. ones: 1 in each lane. large: whether some may be
 * above 127. */
static __always_inline __u64 ww_activate(__u64 word, const __u64 ones, const int bits, const int negative,
					 const int large)
{
	const __u64 tops = ones << (bits - 1);
	__u64 positive = word & tops, over = (negative ? 0 : tops) - (ones << 7);

	if (!large)
		return word & (positive - (positive >> (bits - 1)));
	ww_hide(over); /* what is added comes second, or the word would be copied first */
	over = (over + word) & tops;
	word |= (over >> (bits - 1)) * 127;
	return word & (negative ? (positive >> (bits - 1)) * 127 : ones * 127);
}

/* The larger of value and 0. */
static __always_inline __s64 ww_relu(__s64 value)
{
	__s64 negative = value >> 63;

	ww_hide(negative);
	return value & ~negative;
}

/* The smaller of value and limit, whose difference must fit. */
static __always_inline __s64 ww_at_most(__s64 value, __s64 limit)
{
	__s64 above = value - limit, negative = above >> 63;

	ww_hide(negative);
	return (above & negative) + limit;
}

/* The larger of value and limit, whose difference must fit. */
static __always_inline __s64 ww_at_least(__s64 value, __s64 limit)
{
	return ww_relu(value - limit) + limit;
}

/* Adds a, b and c, bit for bit: the sums to a, the carries to b. c is lost. */
#define ww_add3(a, b, c)        \
	do {                    \
		__u64 _u = (a); \
                                \
		_u ^= (b);      \
		(b) &= (a);     \
		(a) = (c);      \
		(a) &= _u;      \
		(b) |= (a);     \
		(c) ^= _u;      \
		(a) = (c);      \
	} while (0)

/* A word of a table, row bytes and so many words behind its start. */
#define ww_at(base, row, words) (((const volatile __u64 *)((const volatile char *)(base) + (row)))[words])

/* Index of the largest score, the lowest if several, of any 64-bit scores. The index comes out of memory, as the verifier would
 * follow one that it knows through both values of each mask. */
static __always_inline __u32 ww_argmax_wide(struct ww_scratch *s, __u32 count)
{
	__s64 *score = s->score, best = score[0], index;

	s->leaf = 0;
	index = *(volatile __s64 *)&s->leaf;

#pragma unroll
	for (__u32 i = 1; i < count; i++) {
		__s64 next = score[i], difference = (__u64)best - (__u64)next, larger;

		/* The sign that the difference would have with a bit more. */
		larger = (difference ^ ((best ^ next) & (difference ^ best))) >> 63;
		ww_hide(larger);
		best ^= (best ^ next) & larger;
		index ^= (index ^ (__s64)i) & larger;
	}
	return index & (WW_MAX_CLASSES - 1);
}

#endif
