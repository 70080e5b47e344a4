/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The hash of flows and of those who send to each other, and that of networks. */
#ifndef WW_HASH_H
#define WW_HASH_H

#include "abi.h"
#include "frame/hook.h"

/* 32-bit hash: multilinear over pairs of 32-bit words under the load's secret seed. That alone maps an arithmetic sequence (a scan, a
 * pool of addresses) to another one, which under many seeds fills some buckets and leaves others empty: hence the finish. */
static __always_inline __u32 ww_hash(const __u64 *word, int count)
{
	__u64 sum = 0;

	/* The same constant number of iterations for every caller: clang 16 does not unroll a loop whose count it learns only by inlining. That is
	 * slow, and indexes the stack, which the engine does not follow. */
#pragma unroll
	for (int i = 0; i < WW_HASH_WORDS / 2; i++)
		if (i < count)
			sum += (WW_LOAD.hash_seed[2 * i] + (__u32)word[i]) *
			       (WW_LOAD.hash_seed[2 * i + 1] + (word[i] >> 32));
	sum ^= sum >> 32;
	sum *= WW_LOAD.hash_seed[WW_HASH_WORDS];
	return sum ^ sum >> 32;
}

/* The bit of a network, the first bits of an address, in a filter of 2^bits bits. The agent does the same (object/deny_filter.rs). */
static __always_inline __u32 ww_hash_network(__u64 network, const __u32 bits)
{
	return (__u32)(network ^ network >> 16) * WW_NETWORK_FACTOR >> (32 - bits);
}

#endif
