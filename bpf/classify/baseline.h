/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What is usual for an aggregate, learned from its finished windows. The reference is feature_sets/baseline.py.
 */
#ifndef WW_BASELINE_H
#define WW_BASELINE_H

#include "frame/arith.h"

#define WW_RATE_MAX \
	((1ULL << 39) - 1) /* of a window's value, so that all that is computed of it fits 64 bits */
#define WW_ONE (1ULL << 16)
#define WW_FREE 4 /* how much more than twice the mean a window counts as at most */

/* from, 1/n of the way toward to. Both below 2^63; n not 0. */
static __always_inline __u64 ww_toward(__u64 from, __u64 to, __u32 n)
{
	__s64 way = to - from, sign = way >> 63;
	__u64 step = ww_ratio((way ^ sign) - sign, n);

	return from + ((step ^ sign) - sign);
}

/* A window is over. finished: how many are, with it; most: the baseline's length; warm: after how many it is warm. */
static __always_inline void ww_learn(__u64 *mean, __u64 *spread, __u64 value, __u32 finished,
				     const __u32 most, const __u32 warm)
{
	__u32 n = ww_min(finished, most);
	__u64 x = ww_min(value, WW_RATE_MAX) << 16, farthest = 2 * *mean + WW_FREE * WW_ONE;
	__s64 off;

	if (finished > warm)
		x = ww_min(x, farthest);
	*mean = ww_toward(*mean, x, n);
	off = x - *mean;
	*spread = ww_toward(*spread, off < 0 ? -off : off, n);
}

/* value, or 0 if fewer windows than warm are finished. Without a branch. */
static __always_inline __u64 ww_if_warm(__u64 value, __u32 finished, const __u32 warm)
{
	__s64 missing = (__s64)finished - warm;

	ww_hide(missing);
	return value & ~(missing >> 63);
}

/* value / mean, 16 fractional bits. */
static __always_inline __u64 ww_times_usual(__u64 value, __u64 mean)
{
	return ww_ratio(ww_min(value, WW_RATE_MAX) << 24, ww_max(mean, WW_ONE) >> 8);
}

/* How far value is above the mean / spread, 16 fractional bits. */
static __always_inline __u64 ww_above_usual(__u64 value, __u64 mean, __u64 spread)
{
	return ww_ratio(ww_elapsed(ww_min(value, WW_RATE_MAX) << 16, mean) << 8, ww_max(spread, WW_ONE) >> 8);
}

#endif
