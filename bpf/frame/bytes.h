/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Counting kinds of bytes: printable, zero, above 0x7f; eight at a time, without a branch.
 *
 * Reference: feature_sets/packet.py (`Packet.payload_printable` and others).
 */
#ifndef WW_BYTES_H
#define WW_BYTES_H

#include <linux/types.h>

#include "frame/arith.h"

#define WW_EACH_BYTE(byte) ((byte) * 0x0101010101010101ULL)

/* The first bytes of a word, up to eight; those behind become 0. Shifts twice, because eight bytes are more than one shift can be. */
static __always_inline __u64 ww_first_bytes(__u64 word, __u32 bytes)
{
	__u32 half = 4 * bytes;

	return word & ~(~0ULL << half << half);
}

/* How many bytes of two words have their highest bit set. */
static __always_inline __u32 ww_count_highest(__u64 low, __u64 high)
{
	low = low >> 7 & WW_EACH_BYTE(0x01);
	high = high >> 7 & WW_EACH_BYTE(0x01);
	return (low + high) * WW_EACH_BYTE(0x01) >> 56;
}

/* Highest bit set where the byte is printable ASCII: the sums of seven bits carry nothing into the next byte. */
static __always_inline __u64 ww_printable(__u64 word)
{
	__u64 seven = word & WW_EACH_BYTE(0x7f);

	return (seven + WW_EACH_BYTE(0x60)) & ~(seven + WW_EACH_BYTE(0x01)) & ~word;
}

/* Highest bit set where the byte is not 0. */
static __always_inline __u64 ww_nonzero(__u64 word)
{
	return ((word & WW_EACH_BYTE(0x7f)) + WW_EACH_BYTE(0x7f)) | word;
}

/* Counts of the first bytes of two words, the first byte the lowest: how many there are (0 to 16), and, 8 bits higher each, how many of these are
 * printable, zero and above 0x7f. */
static __always_inline __u32 ww_count_bytes(__u64 low, __u64 high, __u32 bytes)
{
	__u32 bytes_low = ww_min(bytes, 8U), zero;

	low = ww_first_bytes(low, bytes_low);
	high = ww_first_bytes(high, bytes - bytes_low);
	zero = bytes - ww_count_highest(ww_nonzero(low), ww_nonzero(high));
	return bytes | ww_count_highest(ww_printable(low), ww_printable(high)) << 8 | zero << 16 |
	       ww_count_highest(low, high) << 24;
}

#endif
