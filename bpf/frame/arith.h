/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Integer arithmetic of the accumulators; each helper has its reference in feature_sets/accumulators.py.
 *
 * Branch-free where a branch would make the verifier follow both paths. eBPF before -mcpu=v4 has unsigned division only.
 */
#ifndef WW_ARITH_H
#define WW_ARITH_H

#include <linux/types.h>

#include "abi.h"

#define WW_SUM_MAX ((1ULL << 47) - 1)
#define WW_SQUARE_MAX (1ULL << 62)
#define WW_DEVIATION_MAX ((1LL << 31) - 1)
#define WW_US_MAX 0xffffffffULL

/* Makes the compiler forget what it knows of a value, so that it neither makes a branch of it nor drops a check the verifier needs. */
#define ww_hide(value) asm volatile("" : "+r"(value))

/* Which branch is the usual one: the compiler lays it out in a straight line. */
#define ww_likely(condition) __builtin_expect(!!(condition), 1)
#define ww_unlikely(condition) __builtin_expect(!!(condition), 0)

#define ww_min(a, b)                              \
	({                                        \
		typeof(a) _a = (a);               \
		typeof(a) _b = (b);               \
		typeof(a) _c = _a < _b ? _a : _b; \
		ww_hide(_c);                      \
		_c;                               \
	})
#define ww_max(a, b)                              \
	({                                        \
		typeof(a) _a = (a);               \
		typeof(a) _b = (b);               \
		typeof(a) _c = _a > _b ? _a : _b; \
		ww_hide(_c);                      \
		_c;                               \
	})

/* value + amount (0 or 1), saturating at 2^32 - 1. */
static __always_inline __u32 ww_increment(__u32 value, __u32 amount)
{
	__u64 sum = (__u64)value + amount;

	return (__u32)sum - (__u32)(sum >> 32);
}

/* 1, or 0 of 0. value: below 2^63. Without a branch. */
static __always_inline __u32 ww_is_not_0(__u64 value)
{
	__u64 negative = -value;

	ww_hide(negative);
	return negative >> 63;
}

/* 1 if they are equal, else 0. a, b: below 2^63. Without a branch. */
static __always_inline __u32 ww_equal(__u64 a, __u64 b)
{
	return 1 ^ ww_is_not_0(a ^ b);
}

/* taken if which is 1, other if it is 0. Without a branch. */
static __always_inline __u64 ww_either(__u32 which, __u64 taken, __u64 other)
{
	return other ^ ((other ^ taken) & -(__u64)which);
}

/* Time from then to now, 0 if that runs backwards, as it may in captures. Without a branch. */
static __always_inline __u64 ww_elapsed(__u64 now, __u64 then)
{
	__s64 elapsed = now - then;

	return elapsed & ~(elapsed >> 63);
}

/* Generic cell rate algorithm: whether one more is within the rate. arrival: the theoretical time of the next, which is kept. interval: time
 * between two; burst: how far ahead of now that may be. */
static __always_inline int ww_within_rate(__u64 *arrival, __u64 now, __u64 interval, __u64 burst)
{
	__u64 start = ww_max(now, *arrival);

	if (start - now > burst)
		return 0;
	*arrival = start + interval;
	return 1;
}

/* Nanoseconds to microseconds, saturating at 2^32 - 1. */
static __always_inline __u32 ww_microseconds(__u64 ns)
{
	/* Below 2^32 a product divides exactly: 274877907 = ceil(2^38 / 1000). */
	if (ww_likely(ns >> 32 == 0))
		return ns * 274877907 >> 38;
	ns /= 1000;
	return ns < WW_US_MAX ? ns : WW_US_MAX;
}

/* dividend / divisor, 0 for a divisor of 0: eBPF's own division, which C would make a branch of. The processor divides in two registers of
 * its own, r0 and r3 on x86-64: with anything else in them, the kernel's code saves and restores it around each division.
 * (Tests and bench/native compile this for the processor itself.)
 */
static __always_inline __u64 ww_ratio(__u64 dividend, __u64 divisor)
{
#ifdef __bpf__
	register __u64 quotient asm("r0") = dividend;

	asm("%0 /= %1" : "+r"(quotient) : "r"(divisor) : "r3");
	return quotient;
#else
	return divisor ? dividend / divisor : 0;
#endif
}

/* How many bits are 1. */
static __always_inline __u32 ww_bits(__u64 word)
{
	word -= word >> 1 & 0x5555555555555555ULL;
	word = (word & 0x3333333333333333ULL) + (word >> 2 & 0x3333333333333333ULL);
	return (((word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fULL) * 0x0101010101010101ULL) >> 56;
}

/* Mean with 16 fractional bits; 0 without samples. */
static __always_inline __u64 ww_mean(__u64 sum, __u32 samples)
{
	return ww_ratio(sum << 16, samples);
}

/* |sample - mean| with 16 fractional bits, mean having them already; 0 without samples. */
static __always_inline __u64 ww_deviation(__u64 sample, __u64 mean, __u32 samples)
{
	__s64 difference = (sample << 16) - mean;
	__s64 sign = difference >> 63;

	return samples ? (difference ^ sign) - sign : 0;
}

static __always_inline __s64 ww_clamp_deviation(__s64 value)
{
	value = ww_min(value, WW_DEVIATION_MAX);
	return ww_max(value, -WW_DEVIATION_MAX);
}

/* Welford's recurrence on a sample with fractional bits; samples counts this one. */
static __always_inline void ww_welford_step(__s64 *mean, __u64 *squares, __s64 sample, __u32 samples)
{
	__s64 before = ww_clamp_deviation(sample - *mean);
	__s64 sign = before >> 63;
	__u64 step = ww_ratio((before ^ sign) - sign, samples);
	__s64 after;

	*mean += (step ^ sign) - sign;
	after = ww_clamp_deviation(sample - *mean);
	/* Both have the same sign: the product is not negative. */
	*squares = ww_min(*squares + (__u64)(before * after), WW_SQUARE_MAX);
}

/* The same on places of the state, which may be narrower. */
#define ww_welford(mean, squares, sample, samples)                   \
	({                                                           \
		__s64 _mean = (mean);                                \
		__u64 _squares = (squares);                          \
		ww_welford_step(&_mean, &_squares, sample, samples); \
		(mean) = _mean;                                      \
		(squares) = _squares;                                \
	})

/* Index of the largest score, the lowest if several; scores fit 32 bits. Score and index travel in one number whose value
 * the verifier never knows, through arithmetic that neither it nor the compiler can make a branch of: one a class
 * would double the paths, and a mask over known numbers is walked with both its values.
 */
static __always_inline __u32 ww_argmax(const __s64 *score, __u32 count)
{
	__s64 best = score[0] * WW_MAX_CLASSES + WW_MAX_CLASSES - 1;

#pragma unroll
	for (__u32 i = 1; i < count; i++) {
		__s64 difference = best - (score[i] * WW_MAX_CLASSES + (WW_MAX_CLASSES - 1 - (__s64)i)),
		      larger;

		ww_hide(difference);
		larger = difference >> 63; /* all ones where score[i] is */
		ww_hide(larger);
		best -= difference & larger;
	}
	return WW_MAX_CLASSES - 1 - (best & (WW_MAX_CLASSES - 1));
}

#endif
