/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Forwarding: a packet leaves by where the kernel's routes and neighbours say, as a router would send it on.
 *
 * What takes more than that is the stack's, and comes to it unchanged: what is for this host, what has no neighbour yet, is too long, has
 * come to the end of its hops, or has options that a router reads. Nothing is changed before all of it is known to go.
 */
#ifndef WW_FORWARD_H
#define WW_FORWARD_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "act/maps.h"
#include "frame/checksum.h"
#include "frame/hook.h"

/* Of linux/socket.h, which has them for the kernel only. */
#define WW_AF_INET 2
#define WW_AF_INET6 10

/* 16-bit words of a frame without a VLAN tag: of Ethernet, then of the IP header. */
#define WW_ETH_TYPE 6
#define WW_ETH_WORDS 7
#define WW_IPV4_TTL 4
#define WW_IPV6_HOPS 3
#define WW_IPV4_MORE 0x2000
#define WW_IPV4_OFFSET 0x1fff
#define WW_IPV6_FLOW 0x0fffffff

/* Whether the address is one of a host, and of no network but this link: none but such is forwarded. */
static __always_inline int ww_is_routed4(__be32 address)
{
	__u32 first = bpf_ntohl(address) >> 24;

	return first != 0 && first != 127 && first < 224;
}

static __always_inline int ww_is_routed6(const __be32 *address)
{
	__u32 first = bpf_ntohl(address[0]);

	return (address[0] || address[1]) && first >> 24 != 0xff && first >> 22 != 0xfe80 >> 6;
}

/* Bytes of the IP packet that the FIB compares with the route's MTU; 0: it asks the device instead, of a packet that was merged. */
static __always_inline __u32 ww_length_on_wire(WW_HOOK_CTX *ctx, __u32 length)
{
	return ww_at_tc() && ww_field(ctx, struct __sk_buff, gso_size) ? 0 : length;
}

/* What the packet asks of the FIB. Returns 0 if the packet is not for a router to forward. */
static __always_inline int ww_ask4(WW_HOOK_CTX *ctx, struct iphdr *ip, void *end, __u32 left,
				   struct bpf_fib_lookup *route)
{
	__be16 *ports = (void *)(ip + 1);
	__u32 length;

	if ((void *)(ip + 1) > end)
		return 0;
	length = bpf_ntohs(ip->tot_len);
	if (*(__u8 *)ip != 0x45 || ip->ttl <= 1 || length > left)
		return 0;
	if (!ww_is_routed4(ip->saddr) || !ww_is_routed4(ip->daddr))
		return 0;
	route->family = WW_AF_INET;
	route->l4_protocol = ip->protocol;
	route->tos = ip->tos;
	route->ipv4_src = ip->saddr;
	route->ipv4_dst = ip->daddr;
	route->tot_len = ww_length_on_wire(ctx, length);
	if (!(ip->frag_off & bpf_htons(WW_IPV4_MORE | WW_IPV4_OFFSET)) && (void *)(ports + 2) <= end &&
	    (ip->protocol == IPPROTO_TCP || ip->protocol == IPPROTO_UDP)) {
		route->sport = ports[0];
		route->dport = ports[1];
	}
	return 1;
}

static __always_inline int ww_ask6(WW_HOOK_CTX *ctx, struct ipv6hdr *ip, void *end, __u32 left,
				   struct bpf_fib_lookup *route)
{
	__be16 *ports = (void *)(ip + 1);
	__u32 length;

	if ((void *)(ip + 1) > end)
		return 0;
	length = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	if (ip->hop_limit <= 1 || ip->nexthdr == IPPROTO_HOPOPTS || length > left || length > 0xffff)
		return 0;
	__builtin_memcpy(route->ipv6_src, &ip->saddr, 16);
	__builtin_memcpy(route->ipv6_dst, &ip->daddr, 16);
	if (!ww_is_routed6(route->ipv6_src) || !ww_is_routed6(route->ipv6_dst))
		return 0;
	route->family = WW_AF_INET6;
	route->l4_protocol = ip->nexthdr;
	route->flowinfo = *(__be32 *)ip & bpf_htonl(WW_IPV6_FLOW);
	route->tot_len = ww_length_on_wire(ctx, length);
	if ((void *)(ports + 2) <= end && (ip->nexthdr == IPPROTO_TCP || ip->nexthdr == IPPROTO_UDP)) {
		route->sport = ports[0];
		route->dport = ports[1];
	}
	return 1;
}

/* One hop less, with the checksum of IPv4, or the sum that a card made of the whole packet. */
static __always_inline void ww_take_hop(WW_HOOK_CTX *ctx, __u16 *ip, int is_ipv4)
{
	__u16 before = ip[is_ipv4 ? WW_IPV4_TTL : WW_IPV6_HOPS], after;

	if (is_ipv4) {
		after = before - bpf_htons(0x0100);
		ip[WW_IPV4_TTL] = after;
		ip[WW_IPV4_CHECKSUM] = ww_checksum_after(ip[WW_IPV4_CHECKSUM], before, after);
		return;
	}
	after = before - bpf_htons(0x0001);
	ip[WW_IPV6_HOPS] = after;
	if (ww_at_tc())
		bpf_csum_update(ctx, (__u16)~before + after);
}

/* Whether a frame is for the interface it came by: others only pass by, as where that takes all of them. */
static __always_inline int ww_is_for(const __u16 *ethernet, const __u8 *address)
{
	const __u16 *own = (const void *)address;

	return ethernet[0] == own[0] && ethernet[1] == own[1] && ethernet[2] == own[2];
}

/* Sends a packet on, when the program ends. Returns 0 if that is for the stack to do. A global function: the routes' answer would take too
 * much of its caller's stack. */
__noinline int ww_forward(WW_HOOK_ARG *ctx, __u32 class_id)
{
	struct ww_steer *what = &ww_act_policy.steer[class_id & (WW_MAX_CLASSES - 1)];
	struct bpf_fib_lookup route = {};
	__u16 *ethernet = ww_data(ctx);
	void *end = ww_data_end(ctx);
	int is_ipv4;

	/* What is captured has no routes. */
	if (!(ww_act_config.acts & WW_STEER_FORWARD) || ww_act_config.acts & WW_STEER_TOLD)
		return 0;
	if ((void *)(ethernet + WW_ETH_WORDS) > end || ww_tag(ctx) || !ww_is_for(ethernet, what->address))
		return 0;
	is_ipv4 = ethernet[WW_ETH_TYPE] == bpf_htons(ETH_P_IP);
	if (is_ipv4) {
		if (!ww_ask4(ctx, (void *)(ethernet + WW_ETH_WORDS), end, ww_input(ctx).length - ETH_HLEN,
			     &route))
			return 0;
	} else if (ethernet[WW_ETH_TYPE] != bpf_htons(ETH_P_IPV6) ||
		   !ww_ask6(ctx, (void *)(ethernet + WW_ETH_WORDS), end, ww_input(ctx).length - ETH_HLEN,
			    &route)) {
		return 0;
	}
	route.ifindex = ww_at_tc() ? ww_field(ctx, struct __sk_buff, ifindex)
				   : ww_field(ctx, struct xdp_md, ingress_ifindex);
	if (bpf_fib_lookup(ctx, &route, sizeof(route), 0) != BPF_FIB_LKUP_RET_SUCCESS)
		return 0;
	if (ww_at_tc()) {
		if (bpf_redirect(route.ifindex, 0) != TC_ACT_REDIRECT)
			return 0;
	} else if (bpf_redirect_map(&ww_interfaces, route.ifindex, XDP_PASS) != XDP_REDIRECT) {
		return 0;
	}
	ww_take_hop(ctx, ethernet + WW_ETH_WORDS, is_ipv4);
	__builtin_memcpy(ethernet, route.dmac, ETH_ALEN);
	__builtin_memcpy(ethernet + ETH_ALEN / 2, route.smac, ETH_ALEN);
	return 1;
}

#endif
