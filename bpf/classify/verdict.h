/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* From a class to what happens to the packet: policy, rate limit, counters, event, trace.
 *
 * The policy is read from a map for every packet, so the agent changes it while traffic flows. In observe mode every packet
 * passes and the counters say what enforcement would have done.
 */
#ifndef WW_VERDICT_H
#define WW_VERDICT_H

#include "classify/config.h"
#include "classify/flow.h"
#include "classify/maps.h"
#include "classify/packet.h"
#include "classify/shadow.h"
#include "classify/sockets.h"
#include "frame/arith.h"
#include "frame/event.h"
#include "frame/hook.h"

#define WW_LIMIT_TRIES 4
#define WW_NEXT_ACT -3 /* beside the verdicts: the policy is to be applied again, by ww_act_ipv6 */

/* What the stages after parsing share. Only inlined code takes its address, so it stays in registers. */
struct ww_frame {
	struct ww_cpu *percpu;
	WW_HOOK_CTX *ctx;
	__u64 now_ns;
	__u32 length;
	__u32 answering;  /* 1: the model is a bank, a constant */
	__u32 acts_later; /* 1: the actor is called when this function has left the stack, a constant */
	__u64 changed;	  /* not 0: with this packet an answer of the bank is another */
};

/* Finds what belongs to this CPU. Returns 0 if nothing does. */
static __always_inline int ww_begin_frame(struct ww_frame *frame, __u32 cpu)
{
	frame->percpu = ww_this_cpu(cpu);
	return frame->percpu != 0;
}

static __always_inline void ww_count(struct ww_counter *counter, __u32 bytes)
{
	counter->packets++;
	counter->bytes += bytes;
}

/* The time that modes end by. The packet's clock stands still while the machine sleeps, so this reads another. Only packets about to be dropped
 * get here. */
static __always_inline __u64 ww_mode_time(__u64 now)
{
	return ww_config.clock == WW_CLOCK_METADATA ? now : bpf_ktime_get_boot_ns();
}

/* Whether the policy is enforced at this time, where it has times. Global, so that it uses none of ww_main's stack. */
__noinline int ww_in_time(__u64 now)
{
	__u64 until = ww_policy.enforce_until_ns;

	now = ww_mode_time(now);
	return now >= ww_policy.observe_until_ns && (!until || now < until);
}

/* Enforcement may begin and end at given times; the data path itself goes by them, whether or not the agent is alive. */
static __always_inline int ww_enforcing(__u64 now)
{
	if (ww_policy.mode != WW_MODE_ENFORCE)
		return 0;
	return ww_likely(!(ww_policy.observe_until_ns | ww_policy.enforce_until_ns)) || ww_in_time(now);
}

/* The same of a class, which may observe for a while where the policy is enforced. */
static __always_inline int ww_enforcing_class(const struct ww_class_policy *rule, __u64 now)
{
	__u64 until = rule->observe_until_ns;

	if (!ww_enforcing(now))
		return 0;
	if (ww_likely(!until))
		return 1;
	now = ww_mode_time(now);
	return now < rule->observe_from_ns || now >= until;
}

/* Generic cell rate algorithm for a class, over all CPUs. Returns 1 if the packet is beyond the rate. */
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

/* The last seam between classifier and actor, beside ww_act and ww_denied: of how many packets an event would tell, and what became of it
 * (enum ww_tell). A bundle's has one for each packet; the agent links its own (bpf/act/tell.h) where a policy wants one for each flow or source.
 * scratch: has the flow's key and its IP version. */
__weak __noinline __u64 ww_told(const struct ww_scratch *scratch, __u64 what, __u64 now, __u32 step)
{
	__u64 packets = 1;

	ww_hide(packets); /* no caller may know it */
	return packets;
}

/* An element of ww_event_inputs. */
struct ww_inputs {
	struct ww_event_inputs of;
	__s64 feature[WW_FEATURES];
};

WW_MAP(ww_event_inputs, BPF_MAP_TYPE_ARRAY, __u32, struct ww_inputs, WW_EVENTS, BPF_F_MMAPABLE);

/* What the event's packet was judged by. index: the event's place. sequence: its number. */
static __always_inline void ww_send_inputs(const struct ww_scratch *scratch, __u32 index, __u32 sequence)
{
	struct ww_inputs *inputs = bpf_map_lookup_elem(&ww_event_inputs, &index);

	if (!inputs)
		return;
	inputs->of.sequence = sequence;
	inputs->of.inferred = scratch->inferred;
#pragma unroll
	for (int i = 0; i < WW_FEATURES; i++)
		inputs->feature[i] = scratch->feature[i];
}

/* Writes an event over the oldest of this CPU, within the policy's event rate: without a reader the newest are kept. (A BPF ring buffer
 * that is full refuses what is new.) what: see frame/event.h. */
static __always_inline int ww_send_event(struct ww_stats *stats, struct ww_scratch *scratch,
					 const struct ww_slot *slot, const void *key, __u64 what,
					 const __u32 version)
{
	__u64 now = slot->last_seen_ns, count = 1;
	__u32 index = bpf_get_smp_processor_id() * WW_EVENTS + (stats->events_sent & (WW_EVENTS - 1));
	struct ww_event *event;

	if (slot->flags & WW_SLOT_SWAPPED)
		what |= WW_WHAT_SWAPPED;
	if (ww_config.acts) {
		ww_copy_key(&scratch->key, key, version);
		scratch->ip_version = version;
		count = ww_told(scratch, what, now, WW_TELL_ASK);
		if (!count)
			return 0;
	}
	if (!ww_within_rate(&stats->event_tat_ns, now, ww_policy.event_interval_ns,
			    ww_policy.event_burst_ns)) {
		stats->events_limited++;
		if (ww_config.acts)
			ww_told(scratch, what, now, WW_TELL_LIMITED);
		return 0;
	}
	event = bpf_map_lookup_elem(&ww_events, &index);
	if (!event)
		return 0;
	/* An exchange orders the stores before and after it, for the reader on another CPU. */
	__sync_lock_test_and_set(&event->sequence, 0);
	event->time_ns = now;
	ww_copy_key(&event->key, key, version);
	event->ip_version = version;
	event->class_id = what >> 16;
	event->action = what >> 8;
	event->outcome = what;
	event->packets = slot->packets;
	event->length = what >> 32;
	event->answers = what & WW_WHAT_ANSWERING ? scratch->answers : 0;
	event->changed = what & WW_WHAT_ANSWERING ? scratch->changed : 0;
	event->count = count;
	event->flags = what & WW_WHAT_SWAPPED ? WW_EVENT_SWAPPED : 0;
	stats->events_sent++;
	if (ww_config.inputs)
		ww_send_inputs(scratch, index, stats->events_sent);
	__sync_lock_test_and_set(&event->sequence, (__u32)stats->events_sent);
	if (ww_config.acts)
		ww_told(scratch, what, now, WW_TELL_SENT);
	return 0;
}

/* One for each size of key; global functions, so that they use none of ww_main's stack. */
__noinline int ww_send_event4(struct ww_stats *stats, struct ww_scratch *scratch, const struct ww_slot *slot,
			      const WW_FLOW_KEY4 *key, __u64 what)
{
	return stats && scratch && slot && key ? ww_send_event(stats, scratch, slot, key, what, 4) : 0;
}

__noinline int ww_send_event6(struct ww_stats *stats, struct ww_scratch *scratch, const struct ww_slot *slot,
			      const WW_FLOW_KEY6 *key, __u64 what)
{
	return stats && scratch && slot && key ? ww_send_event(stats, scratch, slot, key, what, 6) : 0;
}

/* Counts a packet that is not classified, and returns what happens to it: it passes, unless it is denied, or malformed and the policy drops such
 * packets. */
static __always_inline int ww_unclassified(struct ww_frame *frame, __u32 status)
{
	int malformed = status >= WW_MALFORMED_ETHERNET && status <= WW_TOO_MANY_EXTENSIONS;
	int denied = status == WW_DENIED_PREFIX || status == WW_DENIED_PORT || status == WW_BANNED;

	ww_count(&frame->percpu->stats.status[status], frame->length);
	if (ww_unlikely(ww_config.trace)) {
		frame->percpu->scratch.status = status;
		if (ww_config.shadow)
			ww_shadow_answer(WW_NO_CLASS);
	}
	if ((denied || (malformed && ww_policy.drop_malformed)) && ww_enforcing(frame->now_ns))
		return WW_VERDICT_DROP;
	return WW_VERDICT_PASS;
}

/* Counts a classified packet, and says what the outcome means for it. */
static __always_inline int ww_count_outcome(struct ww_frame *frame, __u32 class_id, __u32 action,
					    __u32 outcome)
{
	ww_count(&frame->percpu->stats.class_outcome[class_id][outcome], frame->length);
	if (ww_config.describes) {
		frame->percpu->scratch.described.class_id = class_id;
		frame->percpu->scratch.described.time_ns = frame->now_ns;
		frame->percpu->scratch.described.flags |= WW_DESCRIBED_CLASS;
	}
	if (ww_unlikely(ww_config.trace)) {
		frame->percpu->scratch.status = WW_CLASSIFIED;
		frame->percpu->scratch.class_id = class_id;
		frame->percpu->scratch.action = action;
		frame->percpu->scratch.outcome = outcome;
		if (ww_config.shadow)
			ww_shadow_answer(class_id);
	}
	return outcome == WW_OUTCOME_DROP || outcome == WW_OUTCOME_LIMITED || outcome == WW_OUTCOME_BAN
		       ? WW_VERDICT_DROP
		       : WW_VERDICT_PASS;
}

/* The flags of a new verdict beside the one that the slot holds, without those that stay. Unless the policy asks for streaks none is kept. */
static __always_inline __u32 ww_verdict_flags(const struct ww_slot *slot, __u32 class_id)
{
	__u32 streak = 0;

	/* A verdict of a program with other classes has another bit, and its class is no class of this one. */
	if (ww_unlikely(ww_policy.rules & WW_RULE_STREAKS) && slot->flags & ww_config.verdict &&
	    slot->class_id == (class_id & 0xff))
		streak = ww_min((slot->flags >> WW_SLOT_STREAK_SHIFT) + 1, WW_MAX_STREAK);
	return ww_config.verdict | streak << WW_SLOT_STREAK_SHIFT;
}

/* The third seam between classifier and actor: records verdicts of a sender's flows, and returns 1 if there are enough of them for the class
 * of one of them to count, else 0. A bundle's keeps nothing; the agent links its own (bpf/act/evidence.h) where a policy asks for
 * evidence. key: of the flow. what: enum ww_weigh bits. now: the packet's time. */
__weak __noinline int ww_weigh4(const struct ww_key4 *key, __u32 what, __u64 now)
{
	int enough = 1;

	ww_hide(enough); /* no caller may know it */
	return enough;
}

__weak __noinline int ww_weigh6(const struct ww_key6 *key, __u32 what, __u64 now)
{
	int enough = 1;

	ww_hide(enough);
	return enough;
}

/* version: 4 or 6, a constant. The key follows the slot. */
static __always_inline int ww_weigh(const struct ww_slot *slot, __u32 what, __u64 now, const __u32 version)
{
	int enough;

	if (slot->flags & WW_SLOT_SWAPPED)
		what |= WW_WEIGH_SWAPPED;
	if (version == 4)
		enough = ww_weigh4((const void *)(slot + 1), what, now);
	else
		enough = ww_weigh6((const void *)(slot + 1), what, now);
	ww_hide(enough);
	return enough;
}

static __always_inline int ww_weighs(void)
{
	return ww_config.acts && ww_unlikely(ww_policy.rules & WW_RULE_EVIDENCE);
}

/* Whether the policy does something with a class: its flows are evidence against their sender. */
static __always_inline int ww_is_evidence(__u32 class_id)
{
	ww_hide(class_id); /* otherwise the compiler drops the mask, which the verifier needs */
	return ww_policy.class_policy[class_id & (WW_MAX_CLASSES - 1)].action != WW_ACTION_PASS;
}

/* Replaces a flow's verdict in its sender's evidence. slot: still holds the previous one. */
static __always_inline void ww_weigh_verdict(const struct ww_slot *slot, __u32 class_id, __u64 now,
					     const __u32 version)
{
	__u32 what = WW_WEIGH_VERDICT;

	if (!(slot->flags & ww_config.verdict))
		what |= WW_WEIGH_FIRST;
	else if (ww_is_evidence(slot->class_id))
		what |= WW_WEIGH_BEFORE;
	if (ww_is_evidence(class_id))
		what |= WW_WEIGH_NOW;
	/* Repeated verdicts against the sender keep its evidence from expiring while the flow lasts. */
	if (what & (WW_WEIGH_FIRST | WW_WEIGH_BEFORE | WW_WEIGH_NOW))
		ww_weigh(slot, what, now, version);
}

/* What the slot's verdict counts as: its class, or class 0 before as many verdicts in a row as the policy asks for, or as much evidence against
 * its sender. version: 4 or 6, a constant. */
static __always_inline __u32 ww_counted_class(const struct ww_slot *slot, __u64 now, const __u32 version)
{
	/* Read back from memory: the verifier then does not follow each path that leads to this index separately. */
	__u32 class_id = *(const volatile __u8 *)&slot->class_id & (WW_MAX_CLASSES - 1);

	if (ww_unlikely(ww_policy.rules & WW_RULE_STREAKS) &&
	    (slot->flags >> WW_SLOT_STREAK_SHIFT) + 1 < ww_policy.class_policy[class_id].after)
		class_id = 0;
	if (ww_weighs() && ww_is_evidence(class_id) && !ww_weigh(slot, 0, now, version))
		class_id = 0;
	return class_id;
}

/* The class that the flow's packets count as, or WW_NO_CLASS before its first verdict. version: 4 or 6, a constant. */
static __always_inline __u32 ww_kept_class(const struct ww_slot *slot, __u64 now, const __u32 version)
{
	return slot->flags & ww_config.verdict ? ww_counted_class(slot, now, version) : WW_NO_CLASS;
}

/* The seam between classifier and actor: does what the policy asks for a class beside passing and dropping, and returns an enum ww_verdict.
 * A bundle has this one, which does nothing; the agent links its own (bpf/act/) in its place where a policy asks for such. */
__weak __noinline int ww_act(WW_HOOK_ARG *ctx, __u32 class_id)
{
	int verdict = WW_VERDICT_NOT_ACTED;

	ww_hide(verdict); /* no caller may know it */
	return verdict;
}

/* Told of each packet that a class's action drops or would drop, after ww_denied4 or ww_denied6 was asked about it: whether its sender is banned
 * from now on, and was not before. outcome: enum ww_outcome. A bundle's bans nobody; the agent links its own (bpf/act/ban.h) where a policy
 * bans. */
__weak __noinline int ww_ban(WW_HOOK_ARG *ctx, __u32 class_id, __u32 outcome)
{
	int banned = 0;

	ww_hide(banned); /* no caller may know it */
	return banned;
}

static __always_inline __u32 ww_outcome_of(int acted)
{
	if (acted == WW_VERDICT_NOT_ACTED)
		return WW_OUTCOME_NOT_ACTED;
	if (acted == WW_VERDICT_DROP)
		return WW_OUTCOME_DROP;
	return acted == WW_VERDICT_PROVEN ? WW_OUTCOME_PASS : WW_OUTCOME_ACTED;
}

/* The policy's answer to the slot's verdict. version: 4 or 6, a constant. */
static __always_inline int ww_apply_policy(struct ww_frame *frame, struct ww_slot *slot, const __u32 version,
					   __u32 length)
{
	__u32 action, class_id = ww_counted_class(slot, frame->now_ns, version), outcome = WW_OUTCOME_PASS;
	int verdict, acted = WW_VERDICT_NOT_ACTED;
	struct ww_class_policy *rule = &ww_policy.class_policy[class_id];

	action = rule->action;
	if (ww_likely(action == WW_ACTION_PASS) && !frame->changed)
		return ww_count_outcome(frame, class_id, action, outcome);
	if (ww_config.acts && frame->acts_later && action == WW_ACTION_ACT) {
		frame->percpu->scratch.changed = frame->changed;
		return WW_NEXT_ACT;
	}
	if (action == WW_ACTION_DROP)
		outcome = ww_enforcing_class(rule, frame->now_ns) ? WW_OUTCOME_DROP : WW_OUTCOME_WOULD_DROP;
	else if (action == WW_ACTION_RATE_LIMIT &&
		 ww_over_rate(class_id, rule->interval_ns, rule->burst_ns, frame->now_ns))
		outcome =
			ww_enforcing_class(rule, frame->now_ns) ? WW_OUTCOME_LIMITED : WW_OUTCOME_WOULD_LIMIT;
	if (outcome && ww_policy.allow & WW_ALLOW_ESTABLISHED && ww_established(frame->ctx))
		outcome = WW_OUTCOME_ESTABLISHED;
	else if (outcome && ww_config.acts && ww_policy.allow & WW_ALLOW_UNLESS_BANNED &&
		 ww_ban(frame->ctx, class_id, outcome))
		outcome = outcome == WW_OUTCOME_DROP || outcome == WW_OUTCOME_LIMITED ? WW_OUTCOME_BAN
										      : WW_OUTCOME_WOULD_BAN;
	/* Behind that: who is established is exempt from drops only. */
	if (action == WW_ACTION_ACT) {
		outcome = WW_OUTCOME_WOULD_ACT;
		if (ww_enforcing_class(rule, frame->now_ns)) {
			/* Calls that are never made count where the kernel adds up the stack. */
			if (ww_config.acts && !frame->acts_later)
				acted = ww_act(frame->ctx, class_id);
			outcome = ww_outcome_of(acted);
		}
	}
	/* A bank's class says that some network says yes: what is new is which. */
	if (ww_policy.event_interval_ns && (!frame->answering || frame->changed)) {
		__u64 what = outcome | action << 8 | class_id << 16 | (__u64)length << 32;

		if (frame->answering)
			what |= WW_WHAT_ANSWERING;
		/* The key follows the slot in every entry. */
		if (version == 4)
			ww_send_event4(&frame->percpu->stats, &frame->percpu->scratch, slot,
				       (const void *)(slot + 1), what);
		else
			ww_send_event6(&frame->percpu->stats, &frame->percpu->scratch, slot,
				       (const void *)(slot + 1), what);
	}
	verdict = ww_count_outcome(frame, class_id, action, outcome);
	return ww_config.acts && acted != WW_VERDICT_NOT_ACTED ? acted : verdict;
}

#endif
