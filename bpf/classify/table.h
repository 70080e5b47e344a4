/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* One table, of flows or of aggregates; flow.h includes this once for each, with WW_TABLE and others that say how it differs. What is of this
 * table alone is undefined at the end.
 */
#define WW_T(name) WW_PASTE(name, WW_TABLE, )
#define WW_STATE struct WW_T(ww_state)
#define WW_FLOW struct WW_T(ww_flow)

/* An entry, wherever it is. slot is NULL if there is none (a map look-up failed). */
WW_FLOW
{
	struct ww_slot *slot;
	WW_STATE *state;
	__u32 lookup; /* enum ww_lookup */
	__u32 bucket; /* as the tables are indexed */
	__u32 way;
	__u32 swapped;	  /* 1: this packet's source and destination are swapped in the key */
	__u64 elapsed_ns; /* since the previous packet; 0 for the first */
	__u32 hash;
#if WW_TABLE_SHARED
	__u32 claim; /* the entry's claim before it was taken */
#endif
};

#define WW_VERSION 4
#include "classify/flow_table.h"
#undef WW_VERSION
#define WW_VERSION 6
#include "classify/flow_table.h"
#undef WW_VERSION

/* Memory for a key that the packet's trace does not use; and what is cleared of an entry. */
#if !WW_TABLE_FLOWS
#define WW_KEY_SCRATCH aggregate_key
#elif WW_SHARED
#define WW_KEY_SCRATCH seen_key
#else
#define WW_KEY_SCRATCH key
#endif
#if WW_TABLE_SHARED
#define WW_STATE_BYTES offsetof(WW_STATE, claim)
#else
#define WW_STATE_BYTES sizeof(WW_STATE)
#endif

/* Finds or makes the packet's entry and accounts the packet in it; version: 4 or 6; context gets the packet's place there,
 * and the time if that is read late. ctx: for the clock. */
static __always_inline WW_FLOW WW_T(ww_account)(const struct ww_packet *p, struct ww_scratch *scratch,
						struct ww_stats *stats, __u32 cpu, const __u32 version,
						struct ww_context *context, WW_HOOK_CTX *ctx)
{
	WW_FLOW flow = {.lookup = WW_FLOW_HIT};
	struct ww_slot *slot;

	if (version == 4)
		WW_PASTE(ww_find, WW_TABLE, 4)(&flow, p, &scratch->WW_KEY_SCRATCH, cpu, context, ctx);
	else
		WW_PASTE(ww_find, WW_TABLE, 6)(&flow, p, &scratch->WW_KEY_SCRATCH, cpu, context, ctx);
	slot = flow.slot;
	if (!slot)
		return flow;
	if (ww_unlikely(flow.lookup != WW_FLOW_HIT)) {
#if WW_TABLE_SHARED
		if (flow.lookup == WW_FLOW_MISSED)
			WW_TABLE_COUNTER(stats, missed)++;
		else
#endif
			(&WW_TABLE_COUNTER(stats, new))[flow.lookup & (WW_LOOKUPS - 1)]++;
		__builtin_memset(flow.state, 0, WW_STATE_BYTES);
#if WW_TABLE_SHARED
		slot->generation++;
#else
		slot->packets = 0;
		slot->last_seen_ns = context->now_ns;
#endif
		slot->class_id = 0;
		slot->flags = flow.swapped ? WW_SLOT_SWAPPED : 0;
		WW_T(ww_begin)(flow.state, context);
	}
	context->elapsed_ns = flow.elapsed_ns;
	context->iat_us = ww_microseconds(flow.elapsed_ns);
#if WW_TABLE_SHARED
	/* The packet count of a new entry shows others that it is taken, so it must not be 0, not even for a moment. */
	context->packets = ww_increment(flow.lookup == WW_FLOW_HIT ? slot->packets : 0, 1);
#else
	context->packets = ww_increment(slot->packets, 1);
#endif
	__builtin_assume(context->packets >
			 0); /* so that a mean over the flow's packets never divides by 0 */
#if WW_TABLE_FLOWS
	context->forward = (slot->flags & WW_SLOT_SWAPPED) == flow.swapped;
	context->flow_packets = context->packets;
	context->flow_hash = flow.hash;
#endif
	slot->packets = context->packets;
	/* A packet that is accounted later may have the earlier time, on another CPU or in a capture, so the latest time is kept: what has
	 * elapsed between packets then adds up to no more than time did. For a new flow it is already there. */
	slot->last_seen_ns += flow.elapsed_ns;
	return flow;
}

#if !WW_TABLE_FLOWS
/* Accounts a packet in its aggregate, whose key and samples are in scratch. read: 1 to put down what the features read of it. */
static __always_inline int WW_T(ww_update_aggregate)(struct ww_scratch *scratch, struct ww_stats *stats,
						     __u64 now, __u32 read, const __u32 version)
{
	struct ww_context context = {.now_ns = now};
	WW_FLOW entry;

	ww_hide(read); /* or a caller leaves it out, where no feature reads the aggregate */
	if (!scratch || !stats)
		return 0;
	entry = WW_T(ww_account)(0, scratch, stats, 0, version, &context, 0);
	if (ww_unlikely(!entry.slot))
		return 0;
	WW_T(ww_accumulate)(entry.state, scratch->sample, &context);
	if (read)
		WW_T(ww_extract)(scratch->feature, entry.state, scratch->sample, &context);
	ww_release(&entry.state->claim, entry.claim + 2);
	return 0;
}

/* Global functions, verified once each: inlined, their paths would multiply those of the flow table. */
__noinline int WW_PASTE(ww_aggregate, WW_TABLE, 4)(struct ww_scratch *scratch, struct ww_stats *stats,
						   __u64 now, __u32 read)
{
	return WW_T(ww_update_aggregate)(scratch, stats, now, read, 4);
}

__noinline int WW_PASTE(ww_aggregate, WW_TABLE, 6)(struct ww_scratch *scratch, struct ww_stats *stats,
						   __u64 now, __u32 read)
{
	return WW_T(ww_update_aggregate)(scratch, stats, now, read, 6);
}

/* Has the entry of the packet's aggregate fetched. */
static __always_inline void WW_T(ww_expect)(const struct ww_packet *p, const __u32 version)
{
	if (version == 4)
		WW_PASTE(ww_expect, WW_TABLE, 4)(p);
	else
		WW_PASTE(ww_expect, WW_TABLE, 6)(p);
}

/* Hands the packet to its aggregate. flow: its place in its flow. */
static __always_inline void WW_T(ww_aggregate)(const struct ww_packet *p, struct ww_cpu *percpu,
					       const __u32 version, const struct ww_context *flow, __u32 read)
{
	__u64 *key = (void *)&percpu->scratch.aggregate_key;
	__u32 swapped = WW_TABLE_KEY & WW_PART_CLIENT ? !flow->forward : 0;

	WW_T(ww_sample)(percpu->scratch.sample, p, flow);
	if (version == 4) {
		ww_make_key4(key, p, swapped, WW_TABLE_KEY);
		WW_PASTE(ww_aggregate, WW_TABLE, 4)(&percpu->scratch, &percpu->stats, flow->now_ns, read);
	} else {
		ww_make_key6(key, p, swapped, WW_TABLE_KEY);
		WW_PASTE(ww_aggregate, WW_TABLE, 6)(&percpu->scratch, &percpu->stats, flow->now_ns, read);
	}
}
#endif

#undef WW_TABLE
#undef WW_TABLE_MAP
#undef WW_TABLE_KEY
#undef WW_TABLE_BLANK
#undef WW_STATE_BYTES
#undef WW_KEY_SCRATCH
#undef WW_FLOW
#undef WW_STATE
#undef WW_T
