/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* From a class to what happens to the packet: policy, rate limit, counters, event, trace.
 *
 * The policy is read from a map for every packet, so the agent changes it while traffic flows. In observe mode every packet
 * passes and the counters say what enforcement would have done.
 */
#ifndef WW_VERDICT_H
#define WW_VERDICT_H

#include "arith.h"
#include "maps.h"
#include "packet.h"

#define WW_LIMIT_TRIES 4

/* What the stages after parsing share; small enough to live in registers and on the stack. */
struct ww_way {
	struct ww_stats *stats;
	struct ww_scratch *scratch;
	struct ww_policy *policy;
	__u64 now_ns;
	__u32 frame_length;
};

static __always_inline void ww_count(struct ww_counter *counter, __u32 bytes)
{
	counter->packets++;
	counter->bytes += bytes;
}

/* Enforcement may be bounded in time; the data path itself falls back, whether or not the agent lives. */
static __always_inline int ww_enforcing(const struct ww_policy *policy, __u64 now)
{
	return policy->mode == WW_MODE_ENFORCE && (!policy->enforce_until_ns || now < policy->enforce_until_ns);
}

/* Generic cell rate algorithm on a class, all CPUs together. Returns 1 beyond the rate. */
static __noinline int ww_over_rate(__u32 class_id, __u64 interval, __u64 burst, __u64 now)
{
	__u64 *arrival = bpf_map_lookup_elem(&ww_limit, &class_id);

	if (!arrival)
		return 1;
	for (int i = 0; i < WW_LIMIT_TRIES; i++) {
		__u64 expected = *(volatile __u64 *)arrival;
		__u64 start = ww_max(now, expected);

		if (start - now > burst)
			return 1;
		if (__sync_val_compare_and_swap(arrival, expected, start + interval) == expected)
			return 0;
	}
	return 1;
}

/* Puts an event into the ring buffer, within the policy's event rate. key follows slot in every entry. */
static __noinline int ww_send_event(struct ww_way *way, const struct ww_slot *slot, __u32 ip_version, __u32 length,
				    __u32 action_outcome)
{
	struct ww_stats *stats = way->stats;
	__u64 now = way->now_ns, start = ww_max(now, stats->event_tat_ns);
	struct ww_event *event;

	if (start - now > way->policy->event_burst_ns) {
		stats->events_limited++;
		return 0;
	}
	stats->event_tat_ns = start + way->policy->event_interval_ns;
	event = bpf_ringbuf_reserve(&ww_events, sizeof(*event), 0);
	if (!event) {
		stats->events_lost++;
		return 0;
	}
	event->time_ns = now;
	__builtin_memset(&event->key, 0, sizeof(event->key));
	if (ip_version == 4) {
		const struct ww_key4 *key = (const void *)(slot + 1);

		*(__be32 *)event->key.source = key->source;
		*(__be32 *)event->key.destination = key->destination;
		event->key.source_port = key->source_port;
		event->key.destination_port = key->destination_port;
		event->key.protocol = key->protocol;
	} else {
		event->key = *(const struct ww_key6 *)(slot + 1);
	}
	event->ip_version = ip_version;
	event->class_id = slot->class_id;
	event->action = action_outcome & 0xff;
	event->outcome = action_outcome >> 8;
	event->packets = slot->packets;
	event->length = length;
	event->reserved = 0;
	bpf_ringbuf_submit(event, 0);
	stats->events_sent++;
	return 0;
}

/* Counts a packet that is not classified, and says what happens to it: it passes, but for malformed ones if the policy says so. */
static __always_inline int ww_unclassified(struct ww_way *way, __u32 status)
{
	int malformed = status >= WW_MALFORMED_ETHERNET && status <= WW_TOO_MANY_EXTENSIONS;

	ww_count(&way->stats->status[status], way->frame_length);
	if (ww_config.trace)
		way->scratch->status = status;
	if (malformed && way->policy->drop_malformed && ww_enforcing(way->policy, way->now_ns))
		return XDP_DROP;
	return XDP_PASS;
}

/* The policy's answer to the class in slot; ip_version must be a constant on each path for the verifier to know the key's size. */
static __always_inline int ww_act(struct ww_way *way, struct ww_slot *slot, __u32 ip_version, __u32 length)
{
	__u32 class_id = slot->class_id & (WW_MAX_CLASSES - 1);
	struct ww_class_policy *rule = &way->policy->class_policy[class_id];
	__u32 action = rule->action, outcome = WW_OUTCOME_PASS;

	if (action != WW_ACTION_PASS) {
		int enforcing = ww_enforcing(way->policy, way->now_ns);

		if (action == WW_ACTION_DROP)
			outcome = enforcing ? WW_OUTCOME_DROP : WW_OUTCOME_WOULD_DROP;
		else if (action == WW_ACTION_RATE_LIMIT &&
			 ww_over_rate(class_id, rule->interval_ns, rule->burst_ns, way->now_ns))
			outcome = enforcing ? WW_OUTCOME_LIMITED : WW_OUTCOME_WOULD_LIMIT;
		if (way->policy->event_interval_ns)
			ww_send_event(way, slot, ip_version, length, action | outcome << 8);
	}
	ww_count(&way->stats->status[WW_CLASSIFIED], way->frame_length);
	ww_count(&way->stats->class_outcome[class_id][outcome], way->frame_length);
	if (ww_config.trace) {
		way->scratch->status = WW_CLASSIFIED;
		way->scratch->class_id = class_id;
		way->scratch->action = action;
		way->scratch->outcome = outcome;
	}
	return outcome == WW_OUTCOME_DROP || outcome == WW_OUTCOME_LIMITED ? XDP_DROP : XDP_PASS;
}

#endif
