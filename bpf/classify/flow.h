/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Keys, and the tables of flows and aggregates: the only place that builds a key. Reference: feature_sets/flow.py.
 *
 * Buckets of four entries in an array map. Either all CPUs share the table, and claim.h decides which one may touch an entry; or each has a
 * shard of its own, and there is nothing to claim. The hash names the entry to try first, so most packets touch one entry and
 * nothing else of the table.
 */
#ifndef WW_FLOW_H
#define WW_FLOW_H

#include "classify/claim.h"
#include "classify/clock.h"
#include "classify/config.h"
#include "classify/maps.h"
#include "classify/packet.h"
#include "frame/arith.h"
#include "frame/hash.h"

/* Whether the clock is read late: when the packet's entry is on its way from memory (ww_touch in flow_table.h), so that one wait covers both.
 * The coarse clock waits for nothing, captured times come with the packet, two programs that judge it take one time, and a row that is recorded may
 * be of a packet without an entry. */
static __always_inline int ww_reads_clock_late(void)
{
	return ww_config.clock == WW_CLOCK_FINE && !ww_config.shadow && !ww_config.record &&
	       !(WW_SHARED && WW_KEY_VLAN);
}

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
		__u32 source = bpf_ntohl(ww_addresses6(p)[i]);
		__u32 destination = bpf_ntohl(ww_addresses6(p)[i + 4]);

		if (source != destination)
			return source > destination;
	}
	return bpf_ntohs(p->source_port_be) > bpf_ntohs(p->destination_port_be);
}
#else
#define ww_swap4(p) 0U
#define ww_swap6(p) 0U
#endif

/* Keys are built, hashed and compared as the 64-bit words of struct ww_key4 and ww_key6, in registers. If they were written to memory
 * piece by piece and read back as words, the processor would stall (a load cannot be forwarded from several stores). */
/* What a key has of a packet. */
#define WW_PART_SOURCE 1
#define WW_PART_DESTINATION 2
#define WW_PART_TRANSPORT 4 /* both ports and the protocol */
#define WW_PART_SERVICE 8   /* the destination port and the protocol */
#define WW_PART_VLAN 16	    /* ids of the VLAN tags */
#define WW_PART_CLIENT \
	32 /* the source is the client, who sent the flow's first packet, whoever sent this one */
#define WW_VLAN_SHIFT 40 /* of the word that has the ports */

static __always_inline __u64 ww_transport_word(const struct ww_packet *p, __u32 swapped, const int parts)
{
	__u64 first = swapped ? p->destination_port_be : p->source_port_be;
	__u64 second = swapped ? p->source_port_be : p->destination_port_be;

	__u64 vlans = parts & WW_PART_VLAN ? (__u64)(p->link & WW_VLANS) << WW_VLAN_SHIFT : 0;

	if (parts & WW_PART_SERVICE)
		first = 0;
	if (!(parts & (WW_PART_TRANSPORT | WW_PART_SERVICE)))
		return vlans;
	return first | second << 16 | (__u64)p->protocol << 32 | vlans;
}

static __always_inline void ww_make_key4(__u64 *word, const struct ww_packet *p, __u32 swapped,
					 const int parts)
{
	__u64 first = swapped ? p->destination4 : p->source4;
	__u64 second = swapped ? p->source4 : p->destination4;

	word[0] = (parts & WW_PART_SOURCE ? first : 0) | (parts & WW_PART_DESTINATION ? second << 32 : 0);
	word[1] = ww_transport_word(p, swapped, parts);
}

static __always_inline void ww_make_key6(__u64 *word, const struct ww_packet *p, __u32 swapped,
					 const int parts)
{
	const __be32 *first = ww_addresses6(p) + (swapped ? 4 : 0);
	const __be32 *second = ww_addresses6(p) + (swapped ? 0 : 4);

	word[0] = parts & WW_PART_SOURCE ? first[0] | (__u64)first[1] << 32 : 0;
	word[1] = parts & WW_PART_SOURCE ? first[2] | (__u64)first[3] << 32 : 0;
	word[2] = parts & WW_PART_DESTINATION ? second[0] | (__u64)second[1] << 32 : 0;
	word[3] = parts & WW_PART_DESTINATION ? second[2] | (__u64)second[3] << 32 : 0;
	word[4] = ww_transport_word(p, swapped, parts);
}

/* A key in the form of events and traces: an IPv4 address lies in the first 4 bytes. version: 4 or 6, a constant. */
static __always_inline void ww_copy_key(struct ww_tunnel_key6 *to, const void *from, const __u32 version)
{
	__builtin_memset(to, 0, sizeof(*to));
	if (version == 4) {
		const struct ww_key4 *key = from;

		*(__be32 *)to->key.source = key->source;
		*(__be32 *)to->key.destination = key->destination;
		to->key.source_port = key->source_port;
		to->key.destination_port = key->destination_port;
		to->key.protocol = key->protocol;
		__builtin_memcpy(to->key.vlans, key->vlans, sizeof(key->vlans));
#if WW_KEY_TEID
		to->teid = ((const WW_FLOW_KEY4 *)from)->teid;
#endif
	} else {
		const __u64 *word = from;
		__u64 *copy = (void *)to;

#pragma unroll
		for (int i = 0; i < (int)sizeof(WW_FLOW_KEY6) / 8; i++)
			copy[i] = word[i];
	}
}

static __always_inline int ww_protected(const struct ww_slot *slot, __u64 now)
{
	return slot->packets >= ww_config.proven_packets &&
	       ww_elapsed(now, slot->last_seen_ns) <= ww_config.grace_ns;
}

#define WW_PASTE_(name, table, version) name##table##version
#define WW_PASTE(name, table, version) WW_PASTE_(name, table, version)

/* The tables: of flows, and, beside them, of the aggregates that features read. */
#define WW_TABLE
#define WW_TABLE_FLOWS 1
#define WW_TABLE_MAP ww_flows
#define WW_TABLE_KEY WW_KEY_PARTS
#define WW_TABLE_MASK ww_config.bucket_mask
#define WW_TABLE_IDLE_NS ww_config.idle_timeout_ns
#define WW_TABLE_SHARED WW_SHARED
#define WW_TABLE_BLANK(blank) (blank)
#define WW_TABLE_COUNTER(stats, what) (stats)->flows_##what
#include "classify/table.h"
#undef WW_TABLE_FLOWS
#undef WW_TABLE_MASK
#undef WW_TABLE_IDLE_NS
#undef WW_TABLE_SHARED
#undef WW_TABLE_COUNTER

#if WW_AGGREGATES
#define WW_TABLE_FLOWS 0
#define WW_TABLE_MASK ww_config.aggregate_mask
#define WW_TABLE_IDLE_NS WW_AGGREGATES_IDLE_NS
/* Packets of several flows are on several CPUs, whatever the flow key. */
#define WW_TABLE_SHARED 1
#define WW_TABLE_COUNTER(stats, what) (stats)->aggregates_##what
#if WW_BY_SOURCE
#define WW_TABLE _source
#define WW_TABLE_MAP ww_source
#define WW_TABLE_KEY WW_PART_SOURCE
#define WW_TABLE_BLANK(blank) (&(blank)->source)
#include "classify/table.h"
#endif
#if WW_BY_DESTINATION
#define WW_TABLE _destination
#define WW_TABLE_MAP ww_destination
#define WW_TABLE_KEY WW_PART_DESTINATION
#define WW_TABLE_BLANK(blank) (&(blank)->destination)
#include "classify/table.h"
#endif
#if WW_BY_SERVICE
#define WW_TABLE _service
#define WW_TABLE_MAP ww_service
#define WW_TABLE_KEY (WW_PART_DESTINATION | WW_PART_SERVICE)
#define WW_TABLE_BLANK(blank) (&(blank)->service)
#include "classify/table.h"
#endif
#if WW_BY_PAIR
#define WW_TABLE _pair
#define WW_TABLE_MAP ww_pair
#define WW_TABLE_KEY (WW_PART_SOURCE | WW_PART_DESTINATION | WW_PART_SERVICE | WW_PART_CLIENT)
#define WW_TABLE_BLANK(blank) (&(blank)->pair)
#include "classify/table.h"
#endif
#if WW_BY_CLIENT_PORT
#define WW_TABLE _client_port
#define WW_TABLE_MAP ww_client_port
#define WW_TABLE_KEY (WW_PART_SOURCE | WW_PART_SERVICE | WW_PART_CLIENT)
#define WW_TABLE_BLANK(blank) (&(blank)->client_port)
#include "classify/table.h"
#endif
#if WW_BY_HOSTS
#define WW_TABLE _hosts
#define WW_TABLE_MAP ww_hosts
#define WW_TABLE_KEY (WW_PART_SOURCE | WW_PART_DESTINATION | WW_PART_CLIENT)
#define WW_TABLE_BLANK(blank) (&(blank)->hosts)
#include "classify/table.h"
#endif
#undef WW_TABLE_FLOWS
#undef WW_TABLE_MASK
#undef WW_TABLE_IDLE_NS
#undef WW_TABLE_SHARED
#undef WW_TABLE_COUNTER

/* Whether tables of aggregates are larger than a processor's caches. */
#define WW_EXPECTS (WW_AGGREGATES_SIZE > 1 << 15)

/* Has the entries of a packet's aggregates fetched, while its flow is looked for. */
static __always_inline void ww_expect(const struct ww_packet *p, const __u32 version)
{
#if WW_BY_SOURCE
	ww_expect_source(p, version);
#endif
#if WW_BY_DESTINATION
	ww_expect_destination(p, version);
#endif
#if WW_BY_SERVICE
	ww_expect_service(p, version);
#endif
}

/* Accounts a packet in its aggregates. flow: its place in its flow. read: 1 if the model will read the features. */
static __always_inline void ww_aggregate(const struct ww_packet *p, struct ww_cpu *percpu,
					 const __u32 version, const struct ww_context *flow, __u32 read)
{
#if WW_BY_SOURCE
	ww_aggregate_source(p, percpu, version, flow, read);
#endif
#if WW_BY_DESTINATION
	ww_aggregate_destination(p, percpu, version, flow, read);
#endif
#if WW_BY_SERVICE
	ww_aggregate_service(p, percpu, version, flow, read);
#endif
#if WW_BY_PAIR
	ww_aggregate_pair(p, percpu, version, flow, read);
#endif
#if WW_BY_CLIENT_PORT
	ww_aggregate_client_port(p, percpu, version, flow, read);
#endif
#if WW_BY_HOSTS
	ww_aggregate_hosts(p, percpu, version, flow, read);
#endif
}
#endif

#endif
