/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* From a class to what happens to the packet: policy, rate limit, counters, event, trace.
 *
 * The policy is read from a map for every packet, so the agent changes it while traffic flows. In observe mode every packet
 * passes and the counters say what enforcement would have done.
 */
#ifndef WW_VERDICT_H
#define WW_VERDICT_H

#include "arith.h"
#include "flow.h"
#include "maps.h"
#include "packet.h"
#include "shadow.h"

#define WW_LIMIT_TRIES 4

/* What the stages after parsing share. Never has its address taken outside inlined code, so it stays in registers. */
struct ww_way {
	struct ww_cpu *own;
	__u64 now_ns;
	__u32 frame_length;
};

/* Finds what belongs to this CPU. Returns 0 if nothing does. */
static __always_inline int ww_begin_way(struct ww_way *way, __u32 cpu)
{
	struct ww_cpu *all = ww_cpu;
	__u64 index = cpu;

	if (ww_unlikely(index >= ww_config.shards))
		return 0;
	ww_hide(all); /* the compiler knows of one element */
	ww_hide(index); /* or it may multiply before it compares, and the verifier not know the bound of the product */
	way->own = all + index;
	return 1;
}

static __always_inline void ww_count(struct ww_counter *counter, __u32 bytes)
{
	counter->packets++;
	counter->bytes += bytes;
}

/* Enforcement may be bounded in time; the data path itself falls back, whether or not the agent lives. */
static __always_inline int ww_enforcing(__u64 now)
{
	if (ww_policy.mode != WW_MODE_ENFORCE)
		return 0;
	if (!ww_policy.enforce_until_ns)
		return 1;
	/* The packet's clock stands still while the machine sleeps. Only what is about to be dropped comes here. */
	if (ww_config.clock != WW_CLOCK_METADATA)
		now = bpf_ktime_get_boot_ns();
	return now < ww_policy.enforce_until_ns;
}

/* Generic cell rate algorithm on a class, all CPUs together. Returns 1 beyond the rate. */
__noinline int ww_over_rate(__u32 class_id, __u64 interval, __u64 burst, __u64 now)
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

/* Writes an event over the oldest of this CPU, within the policy's event rate: without a reader the newest are kept. (A BPF ring buffer
 * that is full refuses what is new.) what: outcome | action << 8 | IP length << 32. */
static __always_inline int ww_send_event(struct ww_stats *stats, const struct ww_slot *slot, const void *key,
					 __u64 what, const __u32 version)
{
	__u64 now = slot->last_seen_ns, start = ww_max(now, stats->event_tat_ns);
	__u32 index = bpf_get_smp_processor_id() * WW_EVENTS + (stats->events_sent & (WW_EVENTS - 1));
	struct ww_event *event;

	if (start - now > ww_policy.event_burst_ns) {
		stats->events_limited++;
		return 0;
	}
	stats->event_tat_ns = start + ww_policy.event_interval_ns;
	event = bpf_map_lookup_elem(&ww_events, &index);
	if (!event)
		return 0;
	/* An exchange orders the stores before and after it, for the reader on another CPU. */
	__sync_lock_test_and_set(&event->sequence, 0);
	event->time_ns = now;
	ww_copy_key(&event->key, key, version);
	event->ip_version = version;
	event->class_id = slot->class_id;
	event->action = what >> 8;
	event->outcome = what;
	event->packets = slot->packets;
	event->length = what >> 32;
	stats->events_sent++;
	__sync_lock_test_and_set(&event->sequence, (__u32)stats->events_sent);
	return 0;
}

/* One for each size of key; global functions, so that they take nothing from ww_xdp's stack. */
__noinline int ww_send_event4(struct ww_stats *stats, const struct ww_slot *slot, const struct ww_key4 *key,
			      __u64 what)
{
	return stats && slot && key ? ww_send_event(stats, slot, key, what, 4) : 0;
}

__noinline int ww_send_event6(struct ww_stats *stats, const struct ww_slot *slot, const struct ww_key6 *key,
			      __u64 what)
{
	return stats && slot && key ? ww_send_event(stats, slot, key, what, 6) : 0;
}

/* Counts a packet that is not classified, and says what happens to it: it passes, but for malformed ones if the policy says so. */
static __always_inline int ww_unclassified(struct ww_way *way, __u32 status)
{
	int malformed = status >= WW_MALFORMED_ETHERNET && status <= WW_TOO_MANY_EXTENSIONS;

	ww_count(&way->own->stats.status[status], way->frame_length);
	if (ww_unlikely(ww_config.trace)) {
		way->own->scratch.status = status;
		if (ww_config.shadow)
			ww_shadow_answer(WW_NO_CLASS);
	}
	if (malformed && ww_policy.drop_malformed && ww_enforcing(way->now_ns))
		return XDP_DROP;
	return XDP_PASS;
}

/* Counts a classified packet, and says what the outcome means for it. */
static __always_inline int ww_settle(struct ww_way *way, __u32 class_id, __u32 action, __u32 outcome)
{
	ww_count(&way->own->stats.class_outcome[class_id][outcome], way->frame_length);
	if (ww_unlikely(ww_config.trace)) {
		way->own->scratch.status = WW_CLASSIFIED;
		way->own->scratch.class_id = class_id;
		way->own->scratch.action = action;
		way->own->scratch.outcome = outcome;
		if (ww_config.shadow)
			ww_shadow_answer(class_id);
	}
	return outcome == WW_OUTCOME_DROP || outcome == WW_OUTCOME_LIMITED ? XDP_DROP : XDP_PASS;
}

/* The policy's answer to a class. version: 4 or 6, a constant. */
static __always_inline int ww_act(struct ww_way *way, struct ww_slot *slot, __u32 class_id,
				  const __u32 version, __u32 length)
{
	__u32 action, outcome = WW_OUTCOME_PASS;
	struct ww_class_policy *rule;

	class_id &= WW_MAX_CLASSES - 1;
	rule = &ww_policy.class_policy[class_id];
	action = rule->action;
	if (ww_likely(action == WW_ACTION_PASS))
		return ww_settle(way, class_id, action, outcome);
	if (action == WW_ACTION_DROP)
		outcome = ww_enforcing(way->now_ns) ? WW_OUTCOME_DROP : WW_OUTCOME_WOULD_DROP;
	else if (action == WW_ACTION_RATE_LIMIT &&
		 ww_over_rate(class_id, rule->interval_ns, rule->burst_ns, way->now_ns))
		outcome = ww_enforcing(way->now_ns) ? WW_OUTCOME_LIMITED : WW_OUTCOME_WOULD_LIMIT;
	if (ww_policy.event_interval_ns) {
		__u64 what = outcome | action << 8 | (__u64)length << 32;

		/* The key follows the slot in every entry. */
		if (version == 4)
			ww_send_event4(&way->own->stats, slot, (const void *)(slot + 1), what);
		else
			ww_send_event6(&way->own->stats, slot, (const void *)(slot + 1), what);
	}
	return ww_settle(way, class_id, action, outcome);
}

#endif
