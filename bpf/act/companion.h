/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a class asks for that only a socket buffer has, which at XDP there is none of: it is put in front of the packet, as metadata, and a
 * program of the agent's at TC does it (crates/wirewised/src/attachment/companion.rs).
 */
#ifndef WW_COMPANION_H
#define WW_COMPANION_H

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "act/act_abi.h"
#include "act/maps.h"
#include "frame/hook.h"

/* Whether the packet is one of those of which a copy leaves. */
static __always_inline int ww_draws(const struct ww_steer *what)
{
	return what->mirror_every <= 1 || bpf_get_prandom_u32() % what->mirror_every == 0;
}

/* Hands what the class asks for over to the companion. Returns 0 if the driver has no room for metadata. */
__noinline int ww_wish_for(WW_HOOK_ARG *ctx, __u32 class_id)
{
	struct ww_steer *what = &ww_act_policy.steer[class_id & (WW_MAX_CLASSES - 1)];
	struct ww_wish *wish;
	__u32 kinds;

	/* Before Linux 6.8 a global function is verified even if nothing calls it. */
	if (ww_at_tc() || !(ww_act_config.acts & WW_STEER_BY_COMPANION) ||
	    ww_act_config.acts & (WW_STEER_TOLD | WW_STEER_CARRIED))
		return 1;
	kinds = what->kinds & WW_STEER_BY_COMPANION;
	if (ww_act_config.acts & WW_STEER_MIRROR && kinds & WW_STEER_MIRROR && !ww_draws(what))
		kinds &= ~WW_STEER_MIRROR;
	if (!kinds)
		return 1;
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*wish)))
		return 0;
	wish = (void *)ww_field(ctx, struct xdp_md, data_meta);
	if ((void *)(wish + 1) > ww_data(ctx))
		return 0;
	wish->magic = WW_WISH;
	wish->kinds = kinds;
	wish->mark = what->mark;
	wish->priority = what->priority;
	wish->queue = what->queue;
	wish->mirror_ifindex = what->mirror_ifindex;
	return 1;
}

#endif
