/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Flow keys and the flow table: the only place that builds a key. Reference: features/flow.py.
 *
 * Buckets of four entries in an array map. Either all CPUs share the table, and claim.h says who may touch an entry; or each has a shard
 * of its own, and nothing is shared and nothing claimed. The hash names the entry to try first: the usual packet touches one
 * entry and nothing else of the table.
 */
#ifndef WW_FLOW_H
#define WW_FLOW_H

#include "arith.h"
#include "claim.h"
#include "maps.h"
#include "packet.h"

/* A flow's entry, wherever it lies. slot NULL: there is none (a map look-up failed). */
struct ww_flow {
	struct ww_slot *slot;
	struct ww_state *state;
	__u32 lookup; /* enum ww_lookup */
	__u32 bucket; /* as ww_flows4/6 are indexed */
	__u32 way;
	__u32 swapped;	  /* 1: this packet's source and destination changed places in the key */
	__u64 elapsed_ns; /* since the flow's previous packet; 0 for its first */
#if WW_SHARED
	__u32 claim; /* what the entry's claim was before it was taken */
#endif
};

#if WW_KEY_BIDIRECTIONAL
static __always_inline __u32 ww_swap4(const struct ww_packet *p)
{
	__u64 source = (__u64)bpf_ntohl(p->source4) << 16 | bpf_ntohs(p->source_port_be);
	__u64 destination = (__u64)bpf_ntohl(p->destination4) << 16 | bpf_ntohs(p->destination_port_be);

	return source > destination;
}

static __always_inline __u32 ww_swap6(const struct ww_packet *p)
{
#pragma unroll
	for (int i = 0; i < 4; i++) {
		__u32 source = bpf_ntohl(p->addresses6[i]), destination = bpf_ntohl(p->addresses6[i + 4]);

		if (source != destination)
			return source > destination;
	}
	return bpf_ntohs(p->source_port_be) > bpf_ntohs(p->destination_port_be);
}
#else
#define ww_swap4(p) 0U
#define ww_swap6(p) 0U
#endif

/* Keys are built, hashed and compared as the 64-bit words of struct ww_key4 and ww_key6, in registers: written to memory piece by
 * piece and read back as words they would stall the processor (a load cannot be served from several stores). */
static __always_inline __u64 ww_transport_word(const struct ww_packet *p, __u32 swapped)
{
	__u64 first = swapped ? p->destination_port_be : p->source_port_be;
	__u64 second = swapped ? p->source_port_be : p->destination_port_be;

	return WW_KEY_TRANSPORT ? first | second << 16 | (__u64)p->protocol << 32 : 0;
}

static __always_inline void ww_make_key4(__u64 *word, const struct ww_packet *p, __u32 swapped)
{
	__u64 first = swapped ? p->destination4 : p->source4;
	__u64 second = swapped ? p->source4 : p->destination4;

	word[0] = (WW_KEY_SOURCE ? first : 0) | (WW_KEY_DESTINATION ? second << 32 : 0);
	word[1] = ww_transport_word(p, swapped);
}

static __always_inline void ww_make_key6(__u64 *word, const struct ww_packet *p, __u32 swapped)
{
	const __be32 *first = p->addresses6 + (swapped ? 4 : 0);
	const __be32 *second = p->addresses6 + (swapped ? 0 : 4);

	word[0] = WW_KEY_SOURCE ? first[0] | (__u64)first[1] << 32 : 0;
	word[1] = WW_KEY_SOURCE ? first[2] | (__u64)first[3] << 32 : 0;
	word[2] = WW_KEY_DESTINATION ? second[0] | (__u64)second[1] << 32 : 0;
	word[3] = WW_KEY_DESTINATION ? second[2] | (__u64)second[3] << 32 : 0;
	word[4] = ww_transport_word(p, swapped);
}

/* A key in the form of events and traces: an IPv4 address lies in the first 4 bytes. version: 4 or 6, a constant. */
static __always_inline void ww_copy_key(struct ww_key6 *to, const void *from, const __u32 version)
{
	__builtin_memset(to, 0, sizeof(*to));
	if (version == 4) {
		const struct ww_key4 *key = from;

		*(__be32 *)to->source = key->source;
		*(__be32 *)to->destination = key->destination;
		to->source_port = key->source_port;
		to->destination_port = key->destination_port;
		to->protocol = key->protocol;
	} else {
		const __u64 *word = from;
		__u64 *copy = (void *)to;

#pragma unroll
		for (int i = 0; i < (int)sizeof(*to) / 8; i++)
			copy[i] = word[i];
	}
}

/* 32-bit hash: multilinear over pairs of 32-bit words under the load's secret seed. That alone makes an arithmetic sequence (a scan, a
 * pool of addresses) another one, which under many seeds fills some buckets and leaves others empty: hence the finish. */
static __always_inline __u32 ww_hash(const __u64 *word, int count)
{
	__u64 sum = 0;

	/* So many turns for every caller: clang 16 leaves a loop whose number of turns it learns by inlining, which is slow, and reads the
	 * stack at an index, which the engine does not follow. */
#pragma unroll
	for (int i = 0; i < WW_HASH_WORDS / 2; i++)
		if (i < count)
			sum += (ww_config.hash_seed[2 * i] + (__u32)word[i]) *
			       (ww_config.hash_seed[2 * i + 1] + (word[i] >> 32));
	sum ^= sum >> 32;
	sum *= ww_config.hash_seed[WW_HASH_WORDS];
	return sum ^ sum >> 32;
}

static __always_inline int ww_protected(const struct ww_slot *slot, __u64 now)
{
	return slot->packets >= ww_config.proven_packets &&
	       ww_elapsed(now, slot->last_seen_ns) <= ww_config.grace_ns;
}

/* Both IP versions from one text: their entries differ in the size of the key only. */
#define WW_VERSION 4
#include "flow_table.h"
#undef WW_VERSION
#define WW_VERSION 6
#include "flow_table.h"
#undef WW_VERSION

/* Finds or makes the packet's flow and accounts the packet in it; version: 4 or 6; context gets the packet's place in the
 * flow. */
static __always_inline struct ww_flow ww_account(const struct ww_packet *p, struct ww_cpu *own, __u32 cpu,
						 const __u32 version, struct ww_context *context)
{
	struct ww_flow flow = {.lookup = WW_FLOW_HIT};
	struct ww_slot *slot;

	if (version == 4)
		ww_find4(&flow, p, &own->scratch.WW_SHELF, cpu, context->now_ns);
	else
		ww_find6(&flow, p, &own->scratch.WW_SHELF, cpu, context->now_ns);
	slot = flow.slot;
	if (!slot)
		return flow;
	if (ww_unlikely(flow.lookup != WW_FLOW_HIT)) {
#if WW_SHARED
		if (flow.lookup == WW_FLOW_MISSED)
			own->stats.flows_missed++;
		else
#endif
			(&own->stats.flows_new)[flow.lookup & (WW_LOOKUPS - 1)]++;
		__builtin_memset(flow.state, 0, WW_STATE_BYTES);
#if WW_SHARED
		slot->generation++;
#else
		slot->packets = 0;
#endif
		slot->class_id = 0;
		slot->flags = flow.swapped ? WW_SLOT_SWAPPED : 0;
		ww_begin(flow.state, context);
	}
	context->elapsed_ns = flow.elapsed_ns;
	context->iat_us = ww_microseconds(flow.elapsed_ns);
#if WW_SHARED
	/* What a new entry has for packets shows others that it is taken: no 0, not even for a moment. */
	context->packets = ww_increment(flow.lookup == WW_FLOW_HIT ? slot->packets : 0, 1);
#else
	context->packets = ww_increment(slot->packets, 1);
#endif
	__builtin_assume(context->packets > 0); /* a mean over the flow's packets needs no case for none */
	context->forward = (slot->flags & WW_SLOT_SWAPPED) == flow.swapped;
	slot->packets = context->packets;
#if WW_SHARED
	/* Of two CPUs' packets the later may come with the earlier time: the last seen is the latest. It is there already if the flow is
	 * new. */
	slot->last_seen_ns += flow.elapsed_ns;
#else
	slot->last_seen_ns = context->now_ns;
#endif
	return flow;
}

#endif
