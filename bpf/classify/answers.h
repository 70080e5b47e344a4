/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a bank of networks adds to a verdict: which of them say yes, and whose answer is another than for the flow's last packet that they judged.
 *
 * Remembered beside the flow table, whose entries are not held while a model runs.
 */
#ifndef WW_ANSWERS_H
#define WW_ANSWERS_H

#include "classify/maps.h"

/* Flows whose answers are remembered; of one that is forgotten, or new, all are no. */
#define WW_ANSWERS 4096

WW_MAP(ww_answers, BPF_MAP_TYPE_LRU_HASH, struct ww_tunnel_key6, __u64, WW_ANSWERS, 0);

/* Counts the answers in scratch, and returns a bit for each that is another. */
static __always_inline __u64 ww_compare(struct ww_cpu *percpu, const void *key, const __u32 version)
{
	struct ww_tunnel_key6 flow;
	__u64 answers = percpu->scratch.answers, changed = answers, *before;

	ww_copy_key(&flow, key, version);
	flow.teid |= (__u64)version << 32; /* TEIDs have 32 bits */
	before = bpf_map_lookup_elem(&ww_answers, &flow);
	if (before)
		changed ^= *before;
	if (changed)
		bpf_map_update_elem(&ww_answers, &flow, &answers, BPF_ANY);
#pragma unroll
	for (int i = 0; i < WW_BANK; i++)
		percpu->stats.said_yes[i] += answers >> i & 1;
	percpu->scratch.changed = changed;
	return changed;
}

/* One for each size of key. */
__noinline __u64 ww_compare4(struct ww_cpu *percpu, const WW_FLOW_KEY4 *key)
{
	return percpu && key ? ww_compare(percpu, key, 4) : 0;
}

__noinline __u64 ww_compare6(struct ww_cpu *percpu, const WW_FLOW_KEY6 *key)
{
	return percpu && key ? ww_compare(percpu, key, 6) : 0;
}

#endif
