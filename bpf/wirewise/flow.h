/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Flow keys and the flow table: the only place that builds a key. Reference: features/flow.py.
 *
 * Buckets of four entries in an array map, a shard for each CPU, so that nothing is shared and nothing locked. The hash names
 * the entry to try first: the usual packet touches one entry and nothing else of the table.
 */
#ifndef WW_FLOW_H
#define WW_FLOW_H

#include "arith.h"
#include "maps.h"
#include "packet.h"

/* A flow's entry, wherever it lies. slot NULL: there is none (a map look-up failed). */
struct ww_flow {
	struct ww_slot *slot;
	struct ww_state *state;
	__u32 lookup; /* enum ww_lookup */
	__u32 bucket; /* of this CPU's shard, as ww_flows4/6 are indexed */
	__u32 way;
	__u32 swapped; /* 1: this packet's source and destination changed places in the key */
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

/* Fill the parts the feature set's key has; the key is zeroed before. */
static __always_inline void ww_make_key4(struct ww_key4 *key, const struct ww_packet *p, __u32 swapped)
{
	if (WW_KEY_SOURCE)
		key->source = swapped ? p->destination4 : p->source4;
	if (WW_KEY_DESTINATION)
		key->destination = swapped ? p->source4 : p->destination4;
	if (WW_KEY_TRANSPORT) {
		key->source_port = swapped ? p->destination_port_be : p->source_port_be;
		key->destination_port = swapped ? p->source_port_be : p->destination_port_be;
		key->protocol = p->protocol;
	}
}

static __always_inline void ww_copy_address(__u8 *to, const __be32 *from)
{
	__be32 *words = (void *)to;

#pragma unroll
	for (int i = 0; i < 4; i++)
		words[i] = from[i];
}

static __always_inline void ww_make_key6(struct ww_key6 *key, const struct ww_packet *p, __u32 swapped)
{
	if (WW_KEY_SOURCE)
		ww_copy_address(key->source, p->addresses6 + (swapped ? 4 : 0));
	if (WW_KEY_DESTINATION)
		ww_copy_address(key->destination, p->addresses6 + (swapped ? 0 : 4));
	if (WW_KEY_TRANSPORT) {
		key->source_port = swapped ? p->destination_port_be : p->source_port_be;
		key->destination_port = swapped ? p->source_port_be : p->destination_port_be;
		key->protocol = p->protocol;
	}
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
		*to = *(const struct ww_key6 *)from;
	}
}

/* 32-bit hash, multilinear over pairs of words under the load's secret seed; the high half is the good one. */
static __always_inline __u32 ww_hash(const __u32 *words, int count)
{
	__u64 sum = 0;

#pragma unroll
	for (int i = 0; i < count; i += 2)
		sum += (ww_config.hash_seed[i] + words[i]) * (ww_config.hash_seed[i + 1] + words[i + 1]);
	return sum >> 32;
}

static __always_inline int ww_idle(const struct ww_slot *slot, __u64 now)
{
	return ww_elapsed(now, slot->last_seen_ns) > ww_config.idle_timeout_ns;
}

static __always_inline int ww_protected(const struct ww_slot *slot, __u64 now)
{
	return slot->packets >= ww_config.proven_packets && ww_elapsed(now, slot->last_seen_ns) <= ww_config.grace_ns;
}

/* Both IP versions from one text: their entries differ in the size of the key only. */
#define WW_VERSION 4
#include "flow_table.h"
#undef WW_VERSION
#define WW_VERSION 6
#include "flow_table.h"
#undef WW_VERSION

/* Finds or makes the packet's flow and accounts the packet in it; version: 4 or 6; context gets the packet's place in the
 * flow. IPv6 builds its key in ww_scratch, to spare the stack. */
static __always_inline struct ww_flow ww_account(const struct ww_packet *p, struct ww_scratch *scratch, __u32 cpu,
						 const __u32 version, struct ww_context *context)
{
	struct ww_flow flow = {.lookup = WW_FLOW_HIT};
	struct ww_slot *slot;

	if (version == 4) {
		struct ww_key4 key __attribute__((aligned(8))) = {};

		ww_find4(&flow, p, &key, cpu, context->now_ns);
	} else {
		__builtin_memset(&scratch->key, 0, sizeof(scratch->key));
		ww_find6(&flow, p, &scratch->key, cpu, context->now_ns);
	}
	slot = flow.slot;
	if (!slot)
		return flow;
	if (flow.lookup != WW_FLOW_HIT) {
		__builtin_memset(flow.state, 0, sizeof(*flow.state));
		slot->packets = 0;
		slot->class_id = 0;
		slot->flags = flow.swapped ? WW_SLOT_SWAPPED : 0;
		slot->last_seen_ns = context->now_ns;
		ww_begin(flow.state, context);
	}
	context->elapsed_ns = ww_elapsed(context->now_ns, slot->last_seen_ns);
	context->iat_us = ww_microseconds(context->elapsed_ns);
	context->packets = ww_increment(slot->packets, 1);
	context->forward = (slot->flags & WW_SLOT_SWAPPED) == flow.swapped;
	slot->packets = context->packets;
	slot->last_seen_ns = context->now_ns;
	return flow;
}

#endif
