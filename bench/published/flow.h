/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Flow extraction in the published style, written after the text of
 *
 *     T. Hara, "On Practicality of Kernel Packet Processing Empowered by Lightweight Neural Network and Decision Tree" (2023), section IV
 *
 * and after nobody's code: what is kept of a flow stands in a BPF map under its 5-tuple, here an LRU hash; parameters
 * and weights stand in array maps and are looked up where they are needed, once for each node or weight. tree.bpf.c and int8.bpf.c do the rest.
 *
 * Compared with ours only the design shall differ. So the headers that parse a packet, read the clock and do the arithmetic
 * of the features are ours, and features and model are the same integers. Where the text leaves a choice, the quicker is taken:
 * one look-up for a node or a neuron, not one for each of its numbers; a hash of its own for IPv4, so that its keys are short; numbers of 64 bits
 * ("each variable"), which need no sign extension; a neuron's sum without a loop. What the text does not ask for is not done: no policy, allow list or
 * counters, no verdict kept with the flow, no idle timeout.
 *
 * The arrays get their contents in ww_main, at the first packet of the first flow: user space would write them in the paper, but so the
 * object is whole, and every command that loads one can run it. It costs a test for each new flow, which costs an insertion anyway.
 */
#ifndef PUBLISHED_FLOW_H
#define PUBLISHED_FLOW_H

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

/* What of our maps.h and config.h these programs have: what the agent sets, and where it reads traces. */
#define WW_MAPS_H
#define WW_CONFIG_H
#include "abi.h"

const volatile struct ww_config ww_config SEC(".rodata.ww_config") = {
	.abi_version = WW_ABI_VERSION,
	.clock = WW_CLOCK_FINE,
	.shards = 1,
};
struct ww_cpu ww_cpu[1] SEC(".data.ww_cpu");
struct ww_policy ww_policy SEC(".data.ww_policy"); /* written by the agent, read by nobody */
#define WW_LOAD ww_config

#include "frame/arith.h"
#include "classify/bench.h"
#include "classify/clock.h"
#include "classify/parse.h"

#include "sizes.h" /* generated, as values.h */

#define MAP(name, map_type, key_type, value_type, entries) \
	struct {                                           \
		__uint(type, map_type);                    \
		__uint(max_entries, entries);              \
		__type(key, key_type);                     \
		__type(value, value_type);                 \
	} name SEC(".maps")
#define ARRAY(name, value_type, entries) MAP(name, BPF_MAP_TYPE_ARRAY, __u32, value_type, entries)

/* Copies constants into their array map. Keys are copies of the index, here and elsewhere: the verifier forgets what lies on the stack as a
 * key, and then knows neither the index nor the end of the loop. */
#define FILL(map, value_type, values)                                    \
	for (__u32 i = 0; i < sizeof(values) / sizeof(values[0]); i++) { \
		__u32 key = i;                                           \
		value_type *place = bpf_map_lookup_elem(&(map), &key);   \
                                                                         \
		if (place)                                               \
			*place = values[i];                              \
	}

enum {
	SOURCE_PORT,
	DESTINATION_PORT,
	PROTOCOL,
	LENGTH,
	DIRECTION,
	INTERVAL,
	MEAN_LENGTH,
	MEAN_DIRECTION,
	MEAN_INTERVAL,
	DEVIATION_LENGTH,
	DEVIATION_DIRECTION,
	DEVIATION_INTERVAL,
	FEATURES
};

/* t_last, len, direction, interval and num of section IV-C. */
struct flow {
	__u64 last_ns;
	__u64 length;
	__u64 direction;
	__u64 interval;
	__u64 packets;
};

MAP(flows4, BPF_MAP_TYPE_LRU_HASH, struct ww_key4, struct flow, FLOWS);
MAP(flows6, BPF_MAP_TYPE_LRU_HASH, struct ww_key6, struct flow, FLOWS);

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __u32 filled;

/* Fills the parameters' maps; of each program its own. A global function: verified once, and not on the usual packet's way. */
__noinline int fill(void);

/* -- traces: what a packet left behind, for the agent to compare */

static __always_inline struct ww_scratch *traced(void)
{
	struct ww_cpu *all = ww_cpu;
	__u64 cpu = bpf_get_smp_processor_id();

	if (!ww_config.trace || cpu >= ww_config.shards)
		return NULL;
	ww_hide(all);
	ww_hide(cpu);
	return &all[cpu].scratch;
}

static __always_inline int unclassified(__u32 status)
{
	struct ww_scratch *scratch = traced();

	if (scratch)
		scratch->status = status;
	return XDP_PASS;
}

/* The end of a packet's way: class 0 passes, others do not. */
static __always_inline int classified(__u32 class_id)
{
	struct ww_scratch *scratch = traced();

	if (scratch) {
		scratch->status = WW_CLASSIFIED;
		scratch->class_id = class_id;
		scratch->action = WW_ACTION_PASS;
		scratch->outcome = WW_OUTCOME_PASS;
		scratch->refused = 0;
	}
	return class_id == 0 ? XDP_PASS : XDP_DROP;
}

/* -- features */

/* Accounts a packet in its flow and derives x6 to x12. v: a copy of the flow's entry. */
static __always_inline void derive(__s64 *x, struct flow *v, const struct ww_packet *p, __u64 now)
{
	x[SOURCE_PORT] = p->source_port;
	x[DESTINATION_PORT] = p->destination_port;
	x[PROTOCOL] = p->protocol;
	x[LENGTH] = p->length;
	x[DIRECTION] = 1; /* incoming */
	x[INTERVAL] = ww_microseconds(ww_elapsed(now, v->last_ns));
	v->length = ww_min(v->length + x[LENGTH], WW_SUM_MAX);
	v->direction += x[DIRECTION];
	v->interval = ww_min(v->interval + x[INTERVAL], WW_SUM_MAX);
	v->last_ns = now;
	v->packets = ww_increment(v->packets, 1);
	x[MEAN_LENGTH] = ww_mean(v->length, v->packets);
	x[MEAN_DIRECTION] = ww_mean(v->direction, v->packets);
	x[MEAN_INTERVAL] = ww_mean(v->interval, v->packets);
	x[DEVIATION_LENGTH] = ww_deviation(x[LENGTH], x[MEAN_LENGTH], v->packets);
	x[DEVIATION_DIRECTION] = ww_deviation(x[DIRECTION], x[MEAN_DIRECTION], v->packets);
	x[DEVIATION_INTERVAL] = ww_deviation(x[INTERVAL], x[MEAN_INTERVAL], v->packets);
}

static __always_inline void account(void *flows, const void *key, __s64 *x, const struct ww_packet *p,
				    __u64 now)
{
	struct flow *known = bpf_map_lookup_elem(flows, key), v = {.last_ns = now};
	struct ww_scratch *scratch = traced();

	if (ww_likely(known))
		v = *known;
	derive(x, &v, p, now);
	if (ww_likely(known)) {
		*known = v;
	} else {
		bpf_map_update_elem(flows, key, &v, BPF_ANY);
		if (!filled) {
			fill();
			filled = 1;
		}
	}
	if (scratch) {
		scratch->inferred = 1;
		scratch->packets = v.packets;
		for (int i = 0; i < FEATURES; i++)
			scratch->feature[i] = x[i];
	}
}

static __always_inline void account4(__s64 *x, const struct ww_packet *p, __u64 now)
{
	struct ww_key4 key = {
		.source = p->source4,
		.destination = p->destination4,
		.source_port = p->source_port_be,
		.destination_port = p->destination_port_be,
		.protocol = p->protocol,
	};

	account(&flows4, &key, x, p, now);
}

static __always_inline void account6(__s64 *x, const struct ww_packet *p, __u64 now)
{
	struct ww_key6 key = {
		.source_port = p->source_port_be,
		.destination_port = p->destination_port_be,
		.protocol = p->protocol,
	};

	__builtin_memcpy(key.source, p->addresses6, sizeof(key.source));
	__builtin_memcpy(key.destination, p->addresses6 + 4, sizeof(key.destination));
	account(&flows6, &key, x, p, now);
}

/* A packet's features. Returns enum ww_status, 0: x is filled. */
static __always_inline int extract(struct xdp_md *ctx, __s64 *x)
{
	__u64 now = ww_now(ctx);
	struct ww_cursor cursor;
	struct ww_packet p = {};
	__be16 type;
	int status;

	if (ww_unlikely(ww_config.bench_flows))
		ww_bench_rewrite(ctx);
	cursor.at = (void *)(long)ctx->data;
	cursor.end = (void *)(long)ctx->data_end;
	status = ww_parse_link(ctx, &cursor, 0, &type, &p);
	if (ww_unlikely(status))
		return status;
	if (ww_likely(type == bpf_htons(ETH_P_IP))) {
		status = ww_parse_network(ctx, &cursor, bpf_htons(ETH_P_IP), &p);
		if (ww_unlikely(status))
			return status;
		account4(x, &p, now);
		return 0;
	}
	if (type != bpf_htons(ETH_P_IPV6))
		return WW_NOT_IP;
	status = ww_parse_network(ctx, &cursor, bpf_htons(ETH_P_IPV6), &p);
	if (ww_unlikely(status))
		return status;
	account6(x, &p, now);
	return 0;
}

#endif
