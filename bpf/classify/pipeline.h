/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A packet's path through the data path, to be read from top to bottom; the same at every hook.
 *
 * parse -> allow list -> deny list -> flow look-up -> accumulate -> trigger? -> features -> infer -> policy -> count
 *
 * Generated for one feature set and model: ww_feature_set.h (key, flow state, accumulators, features) and ww_model.h (inference).
 */
#ifndef WW_PIPELINE_H
#define WW_PIPELINE_H

#include "abi.h"

#include "ww_feature_set.h"

#include "classify/config.h"

#include "classify/bench.h"
#include "classify/clock.h"
#include "classify/flow.h"
#include "classify/gate.h"
#include "classify/parse.h"
#include "classify/resume.h"
#include "classify/shadow.h"
#include "classify/verdict.h"

#include "ww_model.h"

#ifdef WW_BANK
#include "classify/answers.h"
#endif
#include "classify/trace.h"

#if WW_NO_MODEL
#include "classify/record.h"
#endif

/* Besides the verdicts: where the entry point continues. */
#define WW_NEXT_IPV6 -1
#define WW_NEXT_MODEL -2
/* And WW_NEXT_ACT of verdict.h. */
#define WW_NEXT_FOLLOW4 -4
#define WW_NEXT_FOLLOW6 -5

/* Notes what is new with a verdict. The flow's class until then is in the description. version: 4 or 6, a constant. */
static __always_inline void ww_describe_verdict(struct ww_frame *frame, const struct ww_slot *slot,
						const __u32 version)
{
	struct ww_description *described = &frame->percpu->scratch.described;
	__u32 class_id = ww_counted_class(slot, frame->now_ns, version);

#if WW_SCORES
	/* How many the model gives: one, positive for class 1, or one for each class. That of unknown packets has none. */
	if (WW_SCORES == 1 || class_id < WW_SCORES) {
		described->score = frame->percpu->scratch.score[WW_SCORES > 1 ? class_id : 0];
		described->flags |= WW_DESCRIBED_SCORE;
	}
#endif
	if (class_id == described->class_id)
		return;
	described->flags |= WW_DESCRIBED_CHANGED | (WW_KEY_BIDIRECTIONAL ? WW_DESCRIBED_BOTH_WAYS : 0);
	described->ip_version = version;
	ww_copy_key(&described->key, slot + 1, version);
}

/* Keeps a new verdict with the flow, and acts on it. version: 4 or 6. Must be a compile-time constant: the verifier derives from it the size
 * of the key behind slot. */
static __always_inline int ww_conclude(struct ww_frame *frame, struct ww_slot *slot, __u32 class_id,
				       const __u32 version, __u32 length)
{
	/* There, not on the stack, which is short. */
	if (ww_config.describes)
		frame->percpu->scratch.described.class_id = ww_kept_class(slot, frame->now_ns, version);
#if WW_BOUNDED
	class_id = ww_bound(frame->percpu->scratch.feature, class_id);
#endif
#if WW_SHARED
	__u32 before = WW_VERDICT_WORD(slot);
	int kept = 1;
	__u32 after = (before & ~WW_VERDICT_MASK) | (class_id & 0xff) | ww_verdict_flags(slot, class_id) << 8;

	if (ww_unlikely(after != before)) {
		__u32 bucket = frame->percpu->scratch.bucket, place = frame->percpu->scratch.way;

		if (version == 4)
			kept = ww_keep4(bucket, place, before, after);
		else
			kept = ww_keep6(bucket, place, before, after);
	}
	/* If two CPUs judge the same flow, only the verdict that is kept counts. */
	if (ww_weighs() && kept)
		ww_weigh_verdict(slot, class_id, frame->now_ns, version);
	WW_VERDICT_WORD(slot) = after;
#else
	if (ww_weighs())
		ww_weigh_verdict(slot, class_id, frame->now_ns, version);
	slot->flags = (slot->flags & WW_SLOT_SWAPPED) | ww_verdict_flags(slot, class_id);
	slot->class_id = class_id;
#endif
	if (ww_config.describes)
		ww_describe_verdict(frame, slot, version);
#ifdef WW_BANK
	if (version == 4)
		frame->changed = ww_compare4(frame->percpu, (const void *)(slot + 1));
	else
		frame->changed = ww_compare6(frame->percpu, (const void *)(slot + 1));
#endif
	frame->percpu->stats.inferred++;
	return ww_apply_policy(frame, slot, version, length);
}

/* The packet is accounted for and its features are computed, so other CPUs may have the entry. Returns a copy of what the rest of the
 * path reads of it. */
static __always_inline struct ww_slot *ww_release_entry(struct ww_scratch *scratch,
							const struct ww_flow *flow,
							const struct ww_context *context, const __u32 version)
{
#if WW_SHARED
#if !WW_NO_MODEL
	/* Field by field: reading as one word what was written in pieces would stall the processor. */
	scratch->seen.last_seen_ns = context->now_ns;
	scratch->seen.packets = context->packets;
	WW_VERDICT_WORD(&scratch->seen) = WW_VERDICT_WORD(flow->slot);
	if (version == 4)
		ww_copy_words4((void *)&scratch->seen_key, (const void *)(flow->slot + 1));
	else
		ww_copy_words6((void *)&scratch->seen_key, (const void *)(flow->slot + 1));
	scratch->bucket = flow->bucket;
	scratch->way = flow->way;
#endif
	ww_release(&flow->state->claim, flow->claim + 2);
	return &scratch->seen;
#else
	return flow->slot;
#endif
}

/* The class of the features. A model that is in place is so for IPv4 only: a second copy would crowd the instruction cache. (Where the stack is
 * short it is a function for both.) version: 4 or 6, a constant. */
#if WW_MODEL_IN_PLACE
__noinline int ww_call_model(struct ww_scratch *scratch)
{
	return scratch ? ww_infer(scratch) : 0;
}
#define ww_infer_at(scratch, version) \
	((version) == 4 && WW_SPLIT < 2 ? ww_infer(scratch) : (__u32)ww_call_model(scratch))
#else
#define ww_infer_at(scratch, version) ww_infer(scratch)
#endif

/* A packet that the lists leave to the model: flow, features, model, verdict. version: 4 or 6, a constant, so that each version has its own
 * code. */
static __always_inline int ww_follow(struct ww_frame *frame, const struct ww_packet *p, __u32 cpu,
				     const __u32 version)
{
	struct ww_context context = {.now_ns = frame->now_ns};
	struct ww_flow flow;
	struct ww_slot *slot;
#if !WW_NO_MODEL
	__u32 length = p->length; /* the model may take the memory in which the packet waited */
#endif
	int infer;

#if WW_AGGREGATES
	if (WW_EXPECTS)
		ww_expect(p, version);
#endif
#if !WW_PATHS
	ww_select(&frame->percpu->scratch, p);
#endif
	flow = ww_account(p, &frame->percpu->scratch, &frame->percpu->stats, cpu, version, &context,
			  frame->ctx);
	frame->now_ns = context.now_ns;
	slot = flow.slot;
	if (ww_unlikely(!slot))
		return WW_VERDICT_PASS;
	if (ww_config.describes)
		frame->percpu->scratch.described.flow_hash = flow.hash;
	/* Before the state is read: no live program has these stores, but they would make the compiler read the state twice. */
	if (ww_unlikely(ww_config.trace)) {
		frame->percpu->scratch.now_ns = frame->now_ns;
		ww_trace_flow(&frame->percpu->scratch, slot, version,
			      flow.lookup == WW_FLOW_REFUSED || (WW_SHARED && flow.lookup == WW_FLOW_MISSED));
	}
	ww_accumulate(flow.state, p, &context);
	ww_read_again(p);
	/* Asked once: the policy may change meanwhile, and the features of flow and aggregates must be of the same packet. */
#if WW_PATHS
	infer = (WW_NO_MODEL && !ww_config.record) || context.whole;
#else
	infer = (WW_NO_MODEL && !ww_config.record) || ww_triggered(&frame->percpu->scratch, &context) ||
		ww_unlikely(ww_outlived(slot));
#endif
#if WW_AGGREGATES
	ww_aggregate(p, frame->percpu, version, &context, infer);
	ww_read_again(p);
#endif
#if WW_NO_MODEL
	if (infer)
		ww_extract(frame->percpu->scratch.feature, flow.state, p, &context);
	ww_release_entry(&frame->percpu->scratch, &flow, &context, version);
	if (infer && ww_unlikely(ww_config.trace))
		ww_trace_features(&frame->percpu->scratch);
	return ww_unclassified(frame, WW_UNDECIDED);
#else
	if (ww_config.acts && frame->acts_later)
		ww_suspend(frame, &flow, version, length);
	if (infer) {
		ww_extract(frame->percpu->scratch.feature, flow.state, p, &context);
		slot = ww_release_entry(&frame->percpu->scratch, &flow, &context, version);
		if (ww_unlikely(ww_config.trace || ww_config.inputs))
			ww_trace_features(&frame->percpu->scratch);
#if WW_TAIL_CALLS
		ww_begin_inference(&frame->percpu->scratch);
		ww_suspend(frame, &flow, version, length);
		return WW_NEXT_MODEL;
#else
		return ww_conclude(frame, slot, ww_infer_at(&frame->percpu->scratch, version), version,
				   length);
#endif
	}
	slot = ww_release_entry(&frame->percpu->scratch, &flow, &context, version);
	if (!(slot->flags & ww_config.verdict))
		return ww_unclassified(frame, WW_UNDECIDED);
	return ww_apply_policy(frame, slot, version, length);
#endif
}

#if WW_SPLIT == 2
_Static_assert(sizeof(struct ww_waiting) <= sizeof(((struct ww_scratch *)0)->activation),
	       "a packet waits where a network later has its layers");
#endif

/* A parsed packet: allow list, deny list, and the rest of its path. header: of the transport. version: 4 or 6, a constant. */
static __always_inline int ww_classify(struct ww_frame *frame, const struct ww_packet *p, const void *header,
				       __u32 cpu, const __u32 version)
{
	if (ww_unlikely(ww_policy.allow)) {
		int status = ww_policy.allow == WW_ALLOW_NO_POLICY ? WW_NO_POLICY
								   : ww_allowed(p, ww_policy.allow, version);

		if (!status && ww_config.acts &&
		    ww_policy.allow & (WW_ALLOW_UNLESS_DENIED | WW_ALLOW_UNLESS_BANNED)) {
			status = ww_denied(frame->ctx, &frame->percpu->scratch, p, header, ww_policy.allow,
					   version);
			if (status && ww_policy.allow & WW_ALLOW_ESTABLISHED && ww_established(frame->ctx))
				status = 0;
		}
		if (ww_unlikely(status))
			return ww_unclassified(frame, status);
	}
#if WW_SPLIT == 2
	{
		struct ww_waiting *waiting = (void *)frame->percpu->scratch.activation;

		waiting->packet = *p;
		waiting->packet.addresses6 = 0;
		if (version == 6)
			__builtin_memcpy(waiting->addresses6, p->addresses6, sizeof(waiting->addresses6));
		frame->percpu->scratch.now_ns = frame->now_ns;
		frame->percpu->scratch.frame_length = frame->length;
		return version == 4 ? WW_NEXT_FOLLOW4 : WW_NEXT_FOLLOW6;
	}
#else
	return ww_follow(frame, p, cpu, version);
#endif
}

/* One packet. go_ipv6: leave IPv6 to ww_process_ipv6, so that its long addresses and chained headers cost IPv4 nothing. */
static __always_inline int ww_process(WW_HOOK_CTX *ctx, const int go_ipv6)
{
	__u32 cpu;
	struct ww_cursor cursor;
	struct ww_packet p = {};
	struct ww_frame frame = {};
	struct ww_input input;
	__be16 type;
	int status;

	frame.ctx = ctx;
	frame.acts_later = !go_ipv6;
#ifdef WW_BANK
	frame.answering = 1;
#endif
	if (!ww_reads_clock_late())
		frame.now_ns = ww_now(ctx);
	cpu = bpf_get_smp_processor_id();
	if (ww_unlikely(!ww_begin_frame(&frame, cpu)))
		return WW_VERDICT_PASS;
	if (ww_config.inputs)
		frame.percpu->scratch.inferred = 0;
	if (ww_unlikely(ww_config.trace)) {
		frame.percpu->scratch.inferred = 0;
		frame.percpu->scratch.now_ns = frame.now_ns;
		if (ww_config.shadow)
			frame.now_ns = ww_shadow_time(frame.now_ns);
	}
	if (ww_config.describes)
		frame.percpu->scratch.described.flags = 0;
	if (ww_unlikely(ww_config.bench_flows && go_ipv6))
		ww_bench_rewrite(ctx);
	input = ww_input(ctx);
	cursor.at = input.data;
	cursor.end = input.end;
	frame.length = input.length;

	status = ww_parse_link(ctx, &cursor, input.tag, &type, &p);
	if (ww_unlikely(status))
		return ww_unclassified(&frame, status);
	if (ww_unlikely(type == bpf_htons(ETH_P_IPV6))) {
		if (go_ipv6)
			return WW_NEXT_IPV6;
	} else if (ww_unlikely(type != bpf_htons(ETH_P_IP))) {
		return ww_unclassified(&frame, WW_NOT_IP);
	}
	status = ww_parse_network(ctx, &cursor, bpf_htons(go_ipv6 ? ETH_P_IP : ETH_P_IPV6), &p);
	if (ww_unlikely(status))
		return ww_unclassified(&frame, p.tunnelled ? WW_MALFORMED_TUNNEL : status);
	return ww_classify(&frame, &p, cursor.at, cpu, go_ipv6 ? 4 : 6);
}

__noinline int ww_process_ipv6(WW_HOOK_ARG *ctx)
{
	return ww_process(ctx, 0);
}

#if !WW_NO_MODEL
/* Acts on what ww_process_ipv6 left. That has returned, so the actor has its stack. */
__noinline int ww_act_ipv6(WW_HOOK_ARG *ctx)
{
	struct ww_frame frame = {};
	struct ww_slot *slot;

	if (ww_resume(&frame, ctx))
		return WW_VERDICT_PASS;
#ifdef WW_BANK
	frame.answering = 1;
	frame.changed = frame.percpu->scratch.changed;
#endif
	slot = ww_resume_slot(&frame, 6);
	if (!slot)
		return WW_VERDICT_PASS;
	return ww_apply_policy(&frame, slot, 6, frame.percpu->scratch.length);
}
#endif

#if WW_SPLIT == 2
/* Goes on where ww_process has left the packet and the stack. */
static __always_inline int ww_take_up(WW_HOOK_CTX *ctx, const __u32 version)
{
	struct ww_frame frame = {.acts_later = version == 6};
	struct ww_waiting *waiting;

	if (ww_resume(&frame, ctx))
		return WW_VERDICT_PASS;
#ifdef WW_BANK
	frame.answering = 1;
#endif
	waiting = (void *)frame.percpu->scratch.activation;
	return ww_follow(&frame, &waiting->packet, bpf_get_smp_processor_id(), version);
}

__noinline int ww_follow4(WW_HOOK_ARG *ctx)
{
	return ww_take_up(ctx, 4);
}

__noinline int ww_follow6(WW_HOOK_ARG *ctx)
{
	return ww_take_up(ctx, 6);
}
#endif

/* A call costs several ns, so IPv4 is inlined in ww_main, unless its stack and that of IPv6 together would exceed 512 bytes (WW_SPLIT 1). Where
 * even a function for each has too little stack below it, parsing returns before the flow is looked for (WW_SPLIT 2). */
#if WW_SPLIT
__noinline int ww_process_ipv4(WW_HOOK_ARG *ctx)
{
	return ww_process(ctx, 1);
}
#else
#define ww_process_ipv4(ctx) ww_process(ctx, 1)
#endif

/* From a frame at the hook to the hook's code. */
static __always_inline int ww_run(WW_HOOK_CTX *ctx)
{
	/* On the stack, so that it occupies no register on the packet's path. */
	WW_HOOK_CTX *volatile kept = ctx;
	int verdict;

	ww_pull_headers(ctx);
	verdict = ww_process_ipv4(ctx);
	if (verdict == WW_NEXT_IPV6)
		verdict = ww_process_ipv6(ctx);
#if WW_SPLIT == 2
	if (ww_likely(verdict == WW_NEXT_FOLLOW4))
		verdict = ww_follow4(ctx);
	else if (verdict == WW_NEXT_FOLLOW6)
		verdict = ww_follow6(ctx);
#endif
#if !WW_NO_MODEL
	if (ww_config.acts && ww_unlikely(verdict == WW_NEXT_ACT))
		verdict = ww_act_ipv6(ctx);
#endif
#if WW_NO_MODEL
	if (ww_config.record)
		ww_record(kept);
#endif
#if WW_TAIL_CALLS
	if (verdict == WW_NEXT_MODEL) {
		bpf_tail_call(ctx, &ww_progs, 1);
		/* Not reached once the loader has filled ww_progs. */
		return ww_leave(WW_VERDICT_PASS);
	}
#endif
	return ww_hand_over(kept, verdict);
}

#endif
