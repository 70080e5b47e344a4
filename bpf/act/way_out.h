/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How a packet leaves by another interface than it was meant for. */
#ifndef WW_WAY_OUT_H
#define WW_WAY_OUT_H

#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

#include "act/maps.h"
#include "frame/hook.h"

/* Bytes that a frame with a VLAN tag may be longer than others. */
#define WW_TAG_BYTES 4

/* Has the packet leave by an interface when the program ends. Returns 0 if there is none of this index any more, or the packet is
 * too long for it. more: bytes that it is to grow by. */
static __always_inline int ww_redirect(WW_HOOK_CTX *ctx, __u32 ifindex, __u32 more)
{
	__u32 mtu = 0;

	if (ww_act_config.acts & WW_STEER_TOLD)
		return 1;
	if (bpf_check_mtu(ctx, ifindex, &mtu, more ? (int)more : -WW_TAG_BYTES, 0))
		return 0;
	if (ww_at_tc())
		return bpf_redirect(ifindex, 0) == TC_ACT_REDIRECT;
	if (ww_act_config.acts & WW_STEER_CARRIED)
		return bpf_redirect(ifindex, 0) == XDP_REDIRECT;
	return bpf_redirect_map(&ww_interfaces, ifindex, XDP_PASS) == XDP_REDIRECT;
}

#endif
