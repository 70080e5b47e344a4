/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* XDP entry point: a packet's whole way, readable from top to bottom.
 *
 * parse -> allow list -> flow look-up -> accumulate -> trigger? -> features -> infer -> policy -> act -> count
 *
 * Generated for one feature set and model: ww_feature_set.h (key, flow state, accumulators, features) and ww_model.h (inference).
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "wirewise/abi.h"

#include "ww_feature_set.h"

#include "wirewise/bench.h"
#include "wirewise/clock.h"
#include "wirewise/flow.h"
#include "wirewise/gate.h"
#include "wirewise/parse.h"
#include "wirewise/shadow.h"
#include "wirewise/verdict.h"

#include "ww_model.h"

#include "wirewise/trace.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Beside the XDP codes: where ww_xdp goes on. */
#define WW_GO_IPV6 -1
#define WW_GO_MODEL -2

/* A fresh verdict: kept with the flow, and acted on. version: 4 or 6, a constant, or the verifier would not know the size of
 * the key behind slot. */
static __always_inline int ww_decided(struct ww_way *way, struct ww_slot *slot, __u32 class_id,
				      const __u32 version, __u32 length)
{
#if WW_SHARED
	__u32 before = WW_VERDICT_WORD(slot);
	__u32 after = (before & ~WW_VERDICT_MASK) | (class_id & 0xff) | ww_config.verdict << 8;

	if (ww_unlikely(after != before)) {
		__u32 bucket = way->own->scratch.bucket, place = way->own->scratch.way;

		WW_VERDICT_WORD(slot) = after;
		if (version == 4)
			ww_keep4(bucket, place, before, after);
		else
			ww_keep6(bucket, place, before, after);
	}
#else
	slot->class_id = class_id;
	slot->flags = (slot->flags & WW_SLOT_SWAPPED) | ww_config.verdict;
#endif
	way->own->stats.inferred++;
	/* Read back: an index that comes out of memory does not make the verifier tell apart all ways that lead to it. */
	return ww_act(way, slot, *(volatile __u8 *)&slot->class_id, version, length);
}

/* The packet is accounted and its features are made: others may have the entry. Returns what the rest of the way reads of it. */
static __always_inline struct ww_slot *ww_let_go(struct ww_scratch *scratch, const struct ww_flow *flow,
						 const struct ww_context *context, const __u32 version)
{
#if WW_SHARED
#if !WW_NO_MODEL
	/* Field by field: what was written so cannot be read back as one word without a stall. */
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

/* A parsed packet: allow list, flow, features, model, verdict. version: 4 or 6, a constant, so that each has code of its own. */
static __always_inline int ww_classify(struct ww_way *way, const struct ww_packet *p, __u32 cpu,
				       const __u32 version)
{
	struct ww_context context = {.now_ns = way->now_ns};
	struct ww_flow flow;
	struct ww_slot *slot;

	if (ww_unlikely(ww_policy.allow)) {
		int status = ww_policy.allow == WW_ALLOW_NO_POLICY ? WW_NO_POLICY
								   : ww_allowed(p, ww_policy.allow, version);

		if (ww_unlikely(status))
			return ww_unclassified(way, status);
	}
	flow = ww_account(p, way->own, cpu, version, &context);
	slot = flow.slot;
	if (ww_unlikely(!slot))
		return XDP_PASS;
	/* Before the state is read: its stores, though of no live program, would make the compiler read the state twice. */
	if (ww_unlikely(ww_config.trace))
		ww_trace_flow(&way->own->scratch, slot, version,
			      flow.lookup == WW_FLOW_REFUSED || (WW_SHARED && flow.lookup == WW_FLOW_MISSED));
	ww_accumulate(flow.state, p, &context);
#if WW_NO_MODEL
	ww_extract(way->own->scratch.feature, flow.state, p, &context);
	ww_let_go(&way->own->scratch, &flow, &context, version);
	if (ww_unlikely(ww_config.trace))
		ww_trace_features(&way->own->scratch);
	return ww_unclassified(way, WW_UNDECIDED);
#else
	if (ww_triggered(&context) || ww_unlikely(ww_outlived(slot))) {
		ww_extract(way->own->scratch.feature, flow.state, p, &context);
		slot = ww_let_go(&way->own->scratch, &flow, &context, version);
		if (ww_unlikely(ww_config.trace))
			ww_trace_features(&way->own->scratch);
#if WW_TAIL_CALLS
		ww_begin_inference(&way->own->scratch);
		way->own->scratch.ip_version = version;
		way->own->scratch.length = p->length;
		way->own->scratch.frame_length = way->frame_length;
#if !WW_SHARED
		way->own->scratch.bucket = flow.bucket;
		way->own->scratch.way = flow.way;
#endif
		way->own->scratch.now_ns = way->now_ns;
		return WW_GO_MODEL;
#else
		return ww_decided(way, slot, ww_infer(&way->own->scratch), version, p->length);
#endif
	}
	slot = ww_let_go(&way->own->scratch, &flow, &context, version);
	if (!(slot->flags & ww_config.verdict))
		return ww_unclassified(way, WW_UNDECIDED);
	return ww_act(way, slot, slot->class_id, version, p->length);
#endif
}

/* One packet. go_ipv6: leave IPv6 to ww_xdp_ipv6, so that its long addresses and chained headers cost IPv4 nothing. */
static __always_inline int ww_packet_way(struct xdp_md *ctx, const int go_ipv6)
{
	__u32 cpu;
	struct ww_cursor cursor;
	struct ww_packet p = {};
	struct ww_way way = {};
	__be16 type;
	int status;

	way.now_ns = ww_now(ctx);
	cpu = bpf_get_smp_processor_id();
	if (ww_unlikely(!ww_begin_way(&way, cpu)))
		return XDP_PASS;
	if (ww_unlikely(ww_config.trace)) {
		way.own->scratch.inferred = 0;
		if (ww_config.shadow)
			way.now_ns = ww_shadow_time(way.now_ns);
	}
	if (ww_unlikely(ww_config.bench_flows && go_ipv6))
		ww_bench_rewrite(ctx);
	cursor.at = (void *)(long)ctx->data;
	cursor.end = (void *)(long)ctx->data_end;
	way.frame_length = cursor.end - cursor.at;

	status = ww_parse_link(ctx, &cursor, &type, &p);
	if (ww_unlikely(status))
		return ww_unclassified(&way, status);
	if (ww_unlikely(type == bpf_htons(ETH_P_IPV6))) {
		if (go_ipv6)
			return WW_GO_IPV6;
	} else if (ww_unlikely(type != bpf_htons(ETH_P_IP))) {
		return ww_unclassified(&way, WW_NOT_IP);
	}
	status = ww_parse_network(ctx, &cursor, bpf_htons(go_ipv6 ? ETH_P_IP : ETH_P_IPV6), &p);
	if (ww_unlikely(status))
		return ww_unclassified(&way, p.tunnelled ? WW_MALFORMED_TUNNEL : status);
	return ww_classify(&way, &p, cpu, go_ipv6 ? 4 : 6);
}

__noinline int ww_xdp_ipv6(struct xdp_md *ctx)
{
	return ww_packet_way(ctx, 0);
}

/* A call costs several ns, so IPv4 stands in ww_xdp, unless its stack and IPv6's together would exceed 512 bytes. */
#if WW_SPLIT
__noinline int ww_xdp_ipv4(struct xdp_md *ctx)
{
	return ww_packet_way(ctx, 1);
}
#else
#define ww_xdp_ipv4(ctx) ww_packet_way(ctx, 1)
#endif

SEC("xdp")
int ww_xdp(struct xdp_md *ctx)
{
	/* On the stack, so that it takes no register from the packet's way. */
	struct xdp_md *volatile kept = ctx;
	int verdict = ww_xdp_ipv4(ctx);

	if (verdict == WW_GO_IPV6)
		verdict = ww_xdp_ipv6(ctx);
#if WW_TAIL_CALLS
	if (verdict == WW_GO_MODEL) {
		bpf_tail_call(ctx, &ww_progs, 1);
		/* Not reached once the loader has filled ww_progs. */
		return XDP_PASS;
	}
#endif
	return ww_hand_over(kept, verdict);
}

#if WW_TAIL_CALLS
#include "wirewise/tail.h"

#include "ww_tail_calls.h"
#endif
