/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Fields and accumulators that take more than an expression: how many different values there were, handshakes, what TCP sends again. Their
 * reference is in feature_sets/accumulators.py and fields.py.
 */
#ifndef WW_SKETCH_H
#define WW_SKETCH_H

#include <linux/in.h>

#include "classify/config.h"
#include "classify/packet.h"
#include "frame/arith.h"

/* 32 bits in, 32 bits out, by the load's secret: who sends packets cannot choose where they fall. */
static __always_inline __u32 ww_mix(__u32 x)
{
	__u64 z = (x + ww_config.hash_seed[0]) * ww_config.hash_seed[WW_HASH_WORDS];

	return ((z ^ z >> 32) * ww_config.hash_seed[WW_HASH_WORDS]) >> 32;
}

/* An address as 32 bits. destination: 1 or 0 for the source, a constant. */
static __always_inline __u32 ww_fold(const struct ww_packet *p, const struct ww_context *c, int destination)
{
	const __be32 *word = ww_addresses6(p) + 4 * destination;

	if (p->ip_version == 4)
		return destination ? p->destination4 : p->source4;
	return ww_mix(ww_mix(ww_mix(word[0]) ^ word[1]) ^ word[2]) ^ word[3];
}

/* Two bitmaps of 64 bits: of all values, and of one in 16. */
static __always_inline void ww_sketch(__u64 *seen, __u64 *sampled, __u32 mixed)
{
	*seen |= 1ULL << (mixed & 63);
	*sampled |= (__u64)ww_equal(mixed >> 6 & 15, 0) << (mixed >> 10 & 63);
}

#if WW_SKETCHES
/* How many values set so many of 64 bits: linear counting. */
static const __u16 ww_linear_counting[64] = {WW_LINEAR_COUNTING};

/* An estimate of the number of different values, from 0 to 16 * WW_LINEAR_COUNTING_FULL. */
static __always_inline __u32 ww_distinct(__u64 seen, __u64 sampled)
{
	__u32 bits = ww_bits(seen), estimate;

	if (bits < WW_SKETCH_FULL) {
		ww_hide(bits); /* otherwise the compiler drops the mask, which the verifier needs */
		return ww_linear_counting[bits & 63];
	}
	bits = ww_bits(sampled);
	ww_hide(bits);
	estimate = bits == 64 ? WW_LINEAR_COUNTING_FULL : ww_linear_counting[bits & 63];
	estimate *= 16;
	return ww_max(estimate, (__u32)WW_LINEAR_COUNTING_SWITCH);
}

#endif

/* Samples of 1 less those of 2, at least 0. */
static __always_inline __u32 ww_pending(__u32 pending, __u32 x)
{
	return ww_increment(pending, ww_equal(x, 1)) - (ww_equal(x, 2) & ww_is_not_0(pending));
}

/* 1: a SYN begins the flow; 2: who sent it goes on with an ACK; else 0. */
static __always_inline __u32 ww_handshake(const struct ww_packet *p, const struct ww_context *c)
{
	__u32 begins = ww_equal(p->tcp_flags & 0x12, 0x02) & ww_equal(c->flow_packets, 1);
	__u32 goes_on =
		ww_equal(p->tcp_flags & 0x17, 0x10) & ww_equal(c->flow_packets, WW_KEY_BIDIRECTIONAL ? 3 : 2);

	return begins + 2 * goes_on;
}

/* Notes when a direction's latest packet came, and how long before this one. goes: 1 if this packet goes that way, or 0. */
static __always_inline void ww_go_way(__u64 *seen_ns, __u32 goes, struct ww_context *c)
{
	__u64 passed = ww_elapsed(c->now_ns, *seen_ns) & -(__u64)goes;
	__u32 is_own = goes & ww_is_not_0(*seen_ns);

	c->is_own |= is_own;
	c->own_us |= ww_microseconds(passed) & -is_own;
	*seen_ns += passed;
}

/* The sequence number behind what a packet occupies; 0 if it occupies nothing, as an acknowledgment alone does. */
static __always_inline __u32 ww_tcp_end(const struct ww_packet *p)
{
	__u32 occupied = p->payload_length + (p->tcp_flags & 1) + (p->tcp_flags >> 1 & 1);
	__u32 has = (1 ^ ww_is_not_0(p->protocol ^ IPPROTO_TCP)) & ww_is_not_0(p->transport_header_length) &
		    ww_is_not_0(occupied);

	return (p->tcp_sequence + occupied) & -has;
}

/* Counts serial numbers (RFC 1982) that are not beyond the furthest so far. 0 is none. */
static __always_inline void ww_repeats(__u32 *furthest, __u32 *repeats, __u32 x)
{
	__u32 ahead = x - *furthest, has = ww_is_not_0(x);
	__u32 beyond = (1 ^ ww_is_not_0(*furthest)) | (ww_is_not_0(ahead) & (1 ^ ahead >> 31));

	*furthest += ahead & -(has & beyond);
	*repeats = ww_increment(*repeats, has & (1 ^ beyond));
}

#endif
