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
#include "wirewise/verdict.h"

#include "ww_model.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The packet's verdict is in slot->class_id, fresh or kept. */
static __always_inline int ww_finish(struct ww_way *way, struct ww_slot *slot, __u32 ip_version, __u32 length)
{
	if (!(slot->flags & WW_SLOT_VERDICT))
		return ww_unclassified(way, WW_UNDECIDED);
	/* Constants, so that the verifier knows the size of the key behind slot. */
	return ip_version == 4 ? ww_act(way, slot, 4, length) : ww_act(way, slot, 6, length);
}

static __always_inline void ww_keep_verdict(struct ww_way *way, struct ww_slot *slot, __u32 class_id)
{
	slot->class_id = class_id;
	slot->flags |= WW_SLOT_VERDICT;
	way->stats->inferred++;
}

SEC("xdp")
int ww_xdp(struct xdp_md *ctx)
{
	void *data, *end;
	__u32 cpu = bpf_get_smp_processor_id(), zero = 0;
	struct ww_context context = {};
	struct ww_packet p = {};
	struct ww_way way;
	struct ww_flow flow;
	int status;

	way.stats = bpf_map_lookup_elem(&ww_stats, &cpu);
	way.scratch = bpf_map_lookup_elem(&ww_scratch, &cpu);
	way.policy = bpf_map_lookup_elem(&ww_policy, &zero);
	if (!way.stats || !way.scratch || !way.policy)
		return XDP_PASS;
	if (ww_config.bench_flows)
		ww_bench_rewrite(ctx);
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	way.frame_length = end - data;
	way.now_ns = ww_now(ctx);
	if (ww_config.trace)
		way.scratch->inferred = 0;

	status = ww_parse(data, end, &p);
	if (status)
		return ww_unclassified(&way, status);
	if (!way.policy->version)
		return ww_unclassified(&way, WW_NO_POLICY);
	if (way.policy->allow) {
		/* A copy: with its own address taken, p would live on the stack for every packet. */
		struct ww_packet copy = p;

		status = ww_allowed(&copy, way.policy->allow);
		if (status)
			return ww_unclassified(&way, status);
	}

	context.now_ns = way.now_ns;
	flow = ww_account(&p, cpu, &context);
	if (!flow.slot)
		return XDP_PASS;
	if (flow.lookup != WW_FLOW_HIT)
		(&way.stats->flows_new)[flow.lookup & (WW_LOOKUPS - 1)]++;
	ww_accumulate(flow.state, &p, &context);
	if (ww_config.trace) {
		way.scratch->packets = context.packets;
		way.scratch->refused = flow.lookup == WW_FLOW_REFUSED;
		way.scratch->ip_version = p.ip_version;
	}
	if (ww_triggered(way.policy, &context)) {
		ww_extract(way.scratch->feature, flow.state, &p, &context);
		if (ww_config.trace)
			way.scratch->inferred = 1;
#if WW_TAIL_CALLS
		way.scratch->ip_version = p.ip_version;
		way.scratch->length = p.length;
		way.scratch->bucket = flow.bucket;
		way.scratch->way = flow.way;
		way.scratch->now_ns = way.now_ns;
		way.scratch->frame_length = way.frame_length;
		ww_begin_inference(way.scratch);
		bpf_tail_call(ctx, &ww_progs, 1);
		/* Not reached once the loader has filled ww_progs. */
		return XDP_PASS;
#else
		ww_keep_verdict(&way, flow.slot, ww_infer(way.scratch));
#endif
	}
	return ww_finish(&way, flow.slot, p.ip_version, p.length);
}

#if WW_TAIL_CALLS
#include "wirewise/tail.h"

#include "ww_tail_calls.h"
#endif
