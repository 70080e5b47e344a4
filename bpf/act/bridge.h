/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Forwarding between ports, as a switch does: a frame leaves by the port behind which its receiver was seen, or is said to be.
 *
 * What needs more than that is the stack's: receivers that nobody has seen, groups, this host's own addresses, VLAN tags.
 */
#ifndef WW_BRIDGE_H
#define WW_BRIDGE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_helpers.h>

#include "act/maps.h"
#include "frame/arith.h"
#include "frame/hook.h"

/* As a bridge of Linux has it: 300 s without a frame, and a station is forgotten. */
#define WW_STATION_AGE_NS 300000000000ULL
/* So often is it written down that it is there. */
#define WW_STATION_FRESH_NS 1000000000ULL

/* Notes that a station is behind a port. */
static __always_inline void ww_learn(const struct ww_station_key *key, __u32 port, __u64 now)
{
	struct ww_station *known = bpf_map_lookup_elem(&ww_stations, key);
	struct ww_station seen = {.seen_ns = now, .ifindex = port};

	if (known && known->ifindex == port && now - known->seen_ns < WW_STATION_FRESH_NS)
		return;
	bpf_map_update_elem(&ww_stations, key, &seen, BPF_ANY);
}

/* The port behind which the receiver of a frame is, by index; 0: the stack is to have it. A global function, for its stack. */
__noinline __u32 ww_port_of(WW_HOOK_ARG *ctx, __u32 class_id)
{
	struct ww_station_key key = {.bridge = ww_act_policy.steer[class_id & (WW_MAX_CLASSES - 1)].ifindex};
	__u8 *ethernet = ww_data(ctx);
	struct ww_station *station;
	__u64 now = bpf_ktime_get_boot_ns();
	__u32 port, *fixed;

	if (!(ww_act_config.acts & WW_STEER_BRIDGE) || ww_act_config.acts & WW_STEER_TOLD)
		return 0;
	if ((void *)(ethernet + ETH_HLEN) > ww_data_end(ctx) || ww_tag(ctx))
		return 0;
	if (*(__be16 *)(ethernet + 2 * ETH_ALEN) != bpf_htons(ETH_P_IP) &&
	    *(__be16 *)(ethernet + 2 * ETH_ALEN) != bpf_htons(ETH_P_IPV6))
		return 0;
	port = ww_at_tc() ? ww_field(ctx, struct __sk_buff, ifindex)
			  : ww_field(ctx, struct xdp_md, ingress_ifindex);
	__builtin_memcpy(key.address, ethernet + ETH_ALEN, ETH_ALEN);
	/* Nobody else is where the policy says that a station, or this host, is. */
	if (!(key.address[0] & 1) && !bpf_map_lookup_elem(&ww_fixed, &key))
		ww_learn(&key, port, now);
	__builtin_memcpy(key.address, ethernet, ETH_ALEN);
	if (key.address[0] & 1)
		return 0;
	fixed = bpf_map_lookup_elem(&ww_fixed, &key);
	if (fixed)
		return *fixed == port ? 0 : *fixed;
	station = bpf_map_lookup_elem(&ww_stations, &key);
	if (!station || station->ifindex == port || now - station->seen_ns > WW_STATION_AGE_NS)
		return 0;
	return station->ifindex;
}

#endif
