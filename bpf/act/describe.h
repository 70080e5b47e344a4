/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the classifier made of a packet, for programs of others: in front of the packet, and in a map. It holds in observe mode too, as it changes no
 * packet. What captured packets get is in ww_scratch, where a trace reads it.
 */
#ifndef WW_DESCRIBE_H
#define WW_DESCRIBE_H

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "act/act_abi.h"
#include "act/maps.h"
#include "frame/hook.h"

static __always_inline __u8 ww_metadata_flags(const struct ww_description *said)
{
	return said->flags & WW_DESCRIBED_SCORE ? WW_METADATA_SCORE : 0;
}

/* Writes the class of a flow to ww_verdicts, under each direction that its packets have. */
__noinline int ww_publish_verdict(const struct ww_description *said)
{
	struct ww_flow_verdict verdict = {};
	struct ww_five_tuple flow = {};

	/* Before Linux 6.8 a global function is verified even if nothing calls it. */
	if (!said || !(ww_act_config.acts & WW_STEER_VERDICTS) || ww_act_config.acts & WW_STEER_TOLD)
		return 0;
	verdict.time_ns = said->time_ns;
	verdict.score = said->flags & WW_DESCRIBED_SCORE ? said->score : 0;
	verdict.model = ww_act_config.model;
	verdict.class_id = said->class_id;
	verdict.flags = ww_metadata_flags(said);
	verdict.version = WW_METADATA_VERSION;
	__builtin_memcpy(flow.source, said->key.key.source, sizeof(flow.source));
	__builtin_memcpy(flow.destination, said->key.key.destination, sizeof(flow.destination));
	flow.source_port = said->key.key.source_port;
	flow.destination_port = said->key.key.destination_port;
	flow.protocol = said->key.key.protocol;
	flow.ip_version = said->ip_version;
	bpf_map_update_elem(&ww_verdicts, &flow, &verdict, BPF_ANY);
	if (!(said->flags & WW_DESCRIBED_BOTH_WAYS))
		return 0;
	__builtin_memcpy(flow.source, said->key.key.destination, sizeof(flow.source));
	__builtin_memcpy(flow.destination, said->key.key.source, sizeof(flow.destination));
	flow.source_port = said->key.key.destination_port;
	flow.destination_port = said->key.key.source_port;
	bpf_map_update_elem(&ww_verdicts, &flow, &verdict, BPF_ANY);
	return 0;
}

/* Whether somebody on this host gets the packet with what is in front of it. */
static __always_inline int ww_is_read(const struct ww_description *said, int verdict)
{
	const struct ww_steer *what = &ww_act_policy.steer[said->class_id & (WW_MAX_CLASSES - 1)];

	if (verdict == WW_VERDICT_REDIRECT)
		return what->kinds & (WW_STEER_CPU | WW_STEER_SOCKET);
	return verdict == WW_VERDICT_PASS || verdict == WW_VERDICT_PROVEN;
}

/* Puts a struct ww_metadata in front of the packet. Returns 0 if the driver has no room. */
static __always_inline int ww_write_metadata(WW_HOOK_CTX *ctx, const struct ww_description *said)
{
	struct ww_metadata *metadata;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*metadata)))
		return 0;
	metadata = (void *)ww_field(ctx, struct xdp_md, data_meta);
	if ((void *)(metadata + 1) > ww_data(ctx))
		return 0;
	metadata->magic = WW_METADATA;
	metadata->flow_hash = said->flow_hash;
	metadata->time_ns = said->time_ns;
	metadata->score = said->flags & WW_DESCRIBED_SCORE ? said->score : 0;
	metadata->model = ww_act_config.model;
	metadata->class_id = said->class_id;
	metadata->flags = ww_metadata_flags(said);
	metadata->version = WW_METADATA_VERSION;
	return 1;
}

/* The seam at the end of a packet's way. verdict: enum ww_verdict. */
__noinline int ww_describe(WW_HOOK_ARG *ctx, const struct ww_description *said, int verdict)
{
	struct ww_act_cpu *percpu;

	if (!said || !(said->flags & WW_DESCRIBED_CLASS))
		return 0;
	if (ww_act_config.acts & WW_STEER_VERDICTS && ww_act_policy.verdicts &&
	    said->flags & WW_DESCRIBED_CHANGED)
		ww_publish_verdict(said);
	if (!(ww_act_config.acts & WW_STEER_METADATA) || ww_at_tc() ||
	    ww_act_config.acts & (WW_STEER_TOLD | WW_STEER_CARRIED))
		return 0;
	if (!ww_act_policy.metadata || !ww_is_read(said, verdict))
		return 0;
	percpu = ww_this_cpu();
	if (!percpu)
		return 0;
	if (ww_write_metadata(ctx, said))
		percpu->described++;
	else
		percpu->undescribed++;
	return 0;
}

#endif
