/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Into a tunnel, or an answer to who sends more than fits. */
#ifndef WW_TUNNEL_ENTER_H
#define WW_TUNNEL_ENTER_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "act/forward.h"
#include "act/maps.h"
#include "act/outer.h"
#include "act/tunnel_end.h"
#include "frame/arith.h"
#include "frame/checksum.h"
#include "frame/gtp.h"
#include "frame/hook.h"

/* The header that is put in front: with and without the PDU session container. */
#define WW_GTP_BYTES 8
#define WW_GTP_SESSION_BYTES 8 /* sequence number and the like, and the container */
#define WW_GTP_MESSAGE 0x30ff  /* version 1, user data */
#define WW_GTP_EXTENDED 0x0400 /* extension headers follow */
#define WW_NO_QFI 64

/* Of the packet that was too long, what goes into the answer: as much as bpf_csum_diff takes at once, with ICMP's header. */
#define WW_ICMP_BYTES 8
#define WW_QUOTE 504
#define WW_LEAST_MTU6 1280

#define WW_SUM_BLOCK 16
#define WW_SUM_BLOCKS 578 /* of the longest frames that there are, of 9,216 bytes */

/* The sum of the frame's last bytes, fewer than a block, from an offset on. A global function: the verifier would follow it from each block after
 * which it may come. */
__noinline __u32 ww_sum_rest(WW_HOOK_ARG *ctx, __u32 at, __u32 length)
{
	void *data = ww_data(ctx), *end = ww_data_end(ctx);
	__u32 sum = 0;

	if (!(ww_act_config.acts & WW_STEER_ENCAPSULATE) || at > 0x7fff)
		return 0;
	for (__u32 i = 0; i < WW_SUM_BLOCK - 1; i++) {
		__u8 *byte = data + at + i;

		if (i >= length || (void *)(byte + 1) > end)
			break;
		sum += bpf_htons(i & 1 ? *byte : *byte << 8);
	}
	return sum;
}

/* The checksum of UDP behind an IPv6 header without extension headers in an untagged frame, whose own field is 0. Returns 0 if the packet is too
 * long for it. */
__noinline __u32 ww_sum_udp6(WW_HOOK_ARG *ctx)
{
	void *data = ww_data(ctx), *end = ww_data_end(ctx);
	struct ipv6hdr *ip = data + ETH_HLEN;
	__u32 length, at = 0;
	__u64 sum;

	if (!(ww_act_config.acts & WW_STEER_ENCAPSULATE) || ww_at_tc() || (void *)(ip + 1) > end)
		return 0;
	length = bpf_ntohs(ip->payload_len);
	sum = bpf_htons(IPPROTO_UDP) + bpf_htons(length);
	/* From the addresses on. */
	length += 2 * sizeof(ip->saddr);
	for (int i = 0; i < WW_SUM_BLOCKS; i++) {
		__u32 *word = (void *)&ip->saddr + i * WW_SUM_BLOCK;

		if ((void *)(word + WW_SUM_BLOCK / 4) > end || (i + 1) * WW_SUM_BLOCK > length)
			break;
		sum += (__u64)word[0] + word[1] + word[2] + word[3];
		at += WW_SUM_BLOCK;
	}
	/* The verifier would follow the rest from each of them. */
	ww_hide(at);
	if (length < at || length - at >= WW_SUM_BLOCK)
		return 0;
	sum += ww_sum_rest(ctx, ETH_HLEN + __builtin_offsetof(struct ipv6hdr, saddr) + at, length - at);
	return ww_checksum(sum) ?: 0xffff;
}

/* ICMP answers: 1,000 per second and CPU, in bursts of 50, as the kernel's icmp_msgs_per_sec and icmp_msgs_burst. */
#define WW_ANSWER_INTERVAL_NS 1000000ULL
#define WW_ANSWER_BURST_NS (49 * WW_ANSWER_INTERVAL_NS)

/* Results of ww_answer_too_long. */
#define WW_ANSWERED 1
#define WW_ANSWERED_ENOUGH 2 /* the rate of answers is exceeded; the packet is unchanged */

/* Replaces a packet that is too long by an answer to its sender. Returns 0, with nothing changed, if there is to be none. */
__noinline int ww_answer_too_long(WW_HOOK_ARG *ctx, __u32 class_id)
{
	struct ww_steer *what = &ww_act_policy.steer[class_id & (WW_MAX_CLASSES - 1)];
	void *data = ww_data(ctx), *end = ww_data_end(ctx);
	__u32 size = sizeof(struct iphdr), mtu, more;
	__u16 *ethernet = data, *icmp;
	struct ww_passage *room;
	struct ww_act_cpu *percpu;
	int is_ipv6, protocol = IPPROTO_ICMP;
	__s64 sum;

	if (!(ww_act_config.acts & WW_STEER_ENCAPSULATE) || ww_act_config.acts & WW_STEER_TOLD || ww_at_tc())
		return 0;
	room = ww_find_passage();
	if (!room || data + ETH_HLEN + WW_QUOTE > end)
		return 0;
	/* What may go in: that of the route, which the FIB says, without what comes in front. */
	mtu = room->route.mtu_result;
	if (room->length + room->more > 0xffff || mtu <= room->more)
		return 0;
	mtu -= room->more;
	is_ipv6 = ethernet[WW_ETH_TYPE] == bpf_htons(ETH_P_IPV6);
	/* Never to an error, and of fragments to the first only: RFC 1122, 3.2.2; RFC 4443, 2.4. */
	if (is_ipv6) {
		struct ipv6hdr *ip = data + ETH_HLEN;
		const __be32 *own = (const void *)what->own6;

		if (!(own[0] | own[1] | own[2] | own[3]) ||
		    bpf_ntohs(ip->payload_len) + sizeof(*ip) <= WW_LEAST_MTU6 ||
		    !ww_is_routed6(ip->saddr.in6_u.u6_addr32) || ip->nexthdr == IPPROTO_ICMPV6)
			return 0;
		size = sizeof(*ip);
		protocol = IPPROTO_ICMPV6;
		mtu = ww_max(mtu, WW_LEAST_MTU6);
		__builtin_memcpy(room->end.address, &ip->saddr, 16);
	} else {
		struct iphdr *ip = data + ETH_HLEN;

		if (!*(__be32 *)what->own4 || !ww_is_routed4(ip->saddr) || ip->protocol == IPPROTO_ICMP ||
		    !(ip->frag_off & bpf_htons(WW_WHOLE)) || ip->frag_off & bpf_htons(WW_IPV4_OFFSET))
			return 0;
		__builtin_memcpy(room->end.address, &ip->saddr, 4);
	}
	more = size + WW_ICMP_BYTES;
	percpu = ww_this_cpu();
	if (!percpu || !ww_within_rate(&percpu->answer_tat_ns, bpf_ktime_get_ns(), WW_ANSWER_INTERVAL_NS,
				       WW_ANSWER_BURST_NS))
		return WW_ANSWERED_ENOUGH;
	if (bpf_xdp_adjust_head(ctx, -(int)more))
		return 0;
	/* Shorter than it was: that cannot fail. */
	bpf_xdp_adjust_tail(ctx, (int)(ETH_HLEN + more + WW_QUOTE) - (int)ww_input(ctx).length);
	ethernet = data = ww_data(ctx);
	end = ww_data_end(ctx);
	icmp = data + ETH_HLEN + size;
	if (data + ETH_HLEN + sizeof(struct ipv6hdr) + WW_ICMP_BYTES > end ||
	    (void *)icmp + WW_ICMP_BYTES + WW_QUOTE > end)
		return 0;
	__builtin_memcpy(data, room->link, sizeof(room->link));
	icmp[0] = is_ipv6 ? bpf_htons(2 << 8) : bpf_htons(3 << 8 | 4);
	icmp[1] = 0;
	icmp[2] = 0;
	icmp[3] = bpf_htons(mtu);
	sum = 0;
	if (is_ipv6) {
		ethernet[WW_ETH_TYPE] = bpf_htons(ETH_P_IPV6);
		ww_write_ipv6(data + ETH_HLEN, what->own6, room->end.address, 0, 0, protocol,
			      WW_ICMP_BYTES + WW_QUOTE);
		sum = bpf_csum_diff(0, 0, data + ETH_HLEN + __builtin_offsetof(struct ipv6hdr, saddr), 32,
				    bpf_htons(protocol) + bpf_htons(WW_ICMP_BYTES + WW_QUOTE));
	} else {
		ethernet[WW_ETH_TYPE] = bpf_htons(ETH_P_IP);
		ww_write_ipv4(data + ETH_HLEN, what->own4, room->end.address, 0, protocol,
			      WW_ICMP_BYTES + WW_QUOTE);
	}
	sum = bpf_csum_diff(0, 0, (void *)icmp, WW_ICMP_BYTES + WW_QUOTE, sum);
	icmp[1] = ww_checksum(sum);
	return WW_ANSWERED;
}

/* Where the packet that is put in goes, by the outer header that it gets. Returns 0 and the way in room->route, or an enum ww_tunnel_count. */
static __always_inline __u32 ww_way_of_tunnel(WW_HOOK_CTX *ctx, struct ww_passage *room)
{
	const struct ww_tunnel *tunnel = &room->tunnel;
	struct bpf_fib_lookup *route = &room->route;
	int found;

	__builtin_memset(route, 0, sizeof(*route));
	route->l4_protocol = IPPROTO_UDP;
	route->sport = bpf_htons(WW_PORT_GTP_U);
	route->dport = bpf_htons(WW_PORT_GTP_U);
	route->tot_len = room->length + room->more;
	route->ifindex = ww_field(ctx, struct xdp_md, ingress_ifindex);
	if (tunnel->ip_version == 4) {
		route->family = WW_AF_INET;
		route->tos = room->dsfield;
		__builtin_memcpy(&route->ipv4_src, tunnel->local, 4);
		__builtin_memcpy(&route->ipv4_dst, tunnel->peer, 4);
	} else {
		route->family = WW_AF_INET6;
		route->flowinfo = bpf_htonl(room->dsfield << 20);
		__builtin_memcpy(route->ipv6_src, tunnel->local, 16);
		__builtin_memcpy(route->ipv6_dst, tunnel->peer, 16);
	}
	found = bpf_fib_lookup(ctx, route, sizeof(*route), 0);
	if (found == BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return WW_TUNNEL_TOO_LONG;
	if (found != BPF_FIB_LKUP_RET_SUCCESS ||
	    bpf_redirect_map(&ww_interfaces, route->ifindex, XDP_PASS) != XDP_REDIRECT)
		return WW_TUNNEL_NO_WAY;
	return 0;
}

/* Reads what is to be put in: who it is for, to room->end, and its length. Returns 0, or an enum ww_tunnel_count. */
static __always_inline __u32 ww_read_receiver(WW_HOOK_CTX *ctx, struct ww_passage *room)
{
	void *data = ww_data(ctx), *end = ww_data_end(ctx);
	__u16 *ethernet = data;

	if (data + ETH_HLEN + sizeof(struct iphdr) > end)
		return WW_TUNNEL_OTHER;
	__builtin_memset(&room->end, 0, sizeof(room->end));
	room->end.side = WW_TUNNEL_OUT;
	if (ethernet[WW_ETH_TYPE] == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = data + ETH_HLEN;

		/* Of a payload without a length the link says how long it is: not here. */
		if ((void *)(ip + 1) > end || !ip->payload_len)
			return WW_TUNNEL_OTHER;
		room->end.ip_version = 6;
		__builtin_memcpy(room->end.address, &ip->daddr, 8);
		room->length = bpf_ntohs(ip->payload_len) + sizeof(*ip);
		room->hops = ip->hop_limit;
	} else {
		struct iphdr *ip = data + ETH_HLEN;

		if (ethernet[WW_ETH_TYPE] != bpf_htons(ETH_P_IP))
			return WW_TUNNEL_OTHER;
		room->end.ip_version = 4;
		__builtin_memcpy(room->end.address, &ip->daddr, 4);
		room->length = bpf_ntohs(ip->tot_len);
		room->hops = ip->ttl;
		if (room->length < sizeof(*ip))
			return WW_TUNNEL_MALFORMED;
	}
	room->dsfield = ww_dsfield(ethernet + WW_ETH_WORDS, room->end.ip_version == 6);
	if (room->length > ww_input(ctx).length - ETH_HLEN)
		return WW_TUNNEL_MALFORMED;
	return 0;
}

/* Finds the tunnel that a packet is to be put into, and how it gets there, and makes room in front of it. Returns 0 and all of it in the passage; or,
 * with nothing changed, an enum ww_tunnel_count. */
__noinline __u32 ww_open_tunnel_to(WW_HOOK_ARG *ctx, __u32 class_id)
{
	struct ww_steer *what = &ww_act_policy.steer[class_id & (WW_MAX_CLASSES - 1)];
	__u32 why, asked = what->kinds & ww_act_config.acts;
	struct ww_passage *room;
	struct ww_tunnel *tunnel;
	__u8 *link = ww_data(ctx);

	if (!(ww_act_config.acts & WW_STEER_ENCAPSULATE) || ww_at_tc())
		return WW_TUNNEL_OTHER;
	room = ww_find_passage();
	if (!room || (void *)(link + ETH_HLEN) > ww_data_end(ctx))
		return WW_TUNNEL_OTHER;
	room->length = 0;
	if (!(ww_act_config.acts & WW_STEER_TOLD) && !ww_is_for((void *)link, what->address))
		return WW_TUNNEL_OTHER;
	__builtin_memcpy(room->link, link, sizeof(room->link));
	why = ww_read_receiver(ctx, room);
	if (why)
		return why;
	tunnel = bpf_map_lookup_elem(&ww_tunnels, &room->end);
	if (!tunnel)
		return WW_TUNNEL_UNKNOWN;
	room->tunnel = *tunnel;
	room->qfi = tunnel->flags & WW_TUNNEL_HAS_QFI ? tunnel->qfi : WW_NO_QFI;
	if (asked & WW_STEER_QFI)
		room->qfi = what->qfi & 63;
	if (asked & WW_STEER_INNER_DSCP)
		room->dsfield = (room->dsfield & WW_ECN) | (what->inner_dscp & 63) << 2;
	room->more = (room->tunnel.ip_version == 4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)) +
		     sizeof(struct udphdr) + WW_GTP_BYTES +
		     (room->qfi == WW_NO_QFI ? 0 : WW_GTP_SESSION_BYTES);
	if (room->length + room->more > 0xffff)
		return WW_TUNNEL_TOO_LONG;
	if (!(ww_act_config.acts & WW_STEER_TOLD)) {
		why = room->hops <= 1 ? WW_TUNNEL_NO_WAY : ww_way_of_tunnel(ctx, room);
		if (why)
			return why;
		__builtin_memcpy(room->link, room->route.dmac, ETH_ALEN);
		__builtin_memcpy(room->link + ETH_ALEN, room->route.smac, ETH_ALEN);
	}
	if (bpf_xdp_adjust_head(ctx, -(int)room->more))
		return WW_TUNNEL_NO_WAY;
	__sync_fetch_and_add(&tunnel->packets, 1);
	__sync_fetch_and_add(&tunnel->bytes, room->length);
	return 0;
}

/* The UDP and GTP-U headers of a packet that is put in: 16 or 24 bytes. qfi: WW_NO_QFI: without a PDU session container. */
static __always_inline void ww_write_gtp(__be16 *word, __u32 teid, __u32 qfi, __u32 length)
{
	int extended = qfi != WW_NO_QFI;

	length += extended ? WW_GTP_SESSION_BYTES : 0;
	word[0] = bpf_htons(WW_PORT_GTP_U);
	word[1] = bpf_htons(WW_PORT_GTP_U);
	word[2] = bpf_htons(sizeof(struct udphdr) + WW_GTP_BYTES + length);
	word[3] = 0;
	word[4] = bpf_htons(WW_GTP_MESSAGE | (extended ? WW_GTP_EXTENDED : 0));
	word[5] = bpf_htons(length);
	word[6] = bpf_htons(teid >> 16);
	word[7] = bpf_htons(teid);
	if (extended) {
		word[8] = 0;
		word[9] = bpf_htons(WW_GTP_PDU_SESSION);
		word[10] = bpf_htons(1 << 8); /* one unit of four bytes; downlink */
		word[11] = bpf_htons(qfi << 8);
	}
}

/* Writes the headers for which there is room. Returns 0 if there is none, which cannot be. */
__noinline int ww_write_tunnel(WW_HOOK_ARG *ctx, __u32 class_id)
{
	struct ww_steer *what = &ww_act_policy.steer[class_id & (WW_MAX_CLASSES - 1)];
	void *data = ww_data(ctx), *end = ww_data_end(ctx);
	__u16 *ethernet = data, *inner, *udp;
	struct ww_passage *room;
	__u32 more, behind;
	int is_ipv6;

	if (!(ww_act_config.acts & WW_STEER_ENCAPSULATE) || ww_at_tc())
		return 0;
	room = ww_find_passage();
	if (!room)
		return 0;
	more = room->more;
	ww_hide(more);
	inner = data + ETH_HLEN + (more & 127);
	if ((void *)(inner + WW_IPV4_CHECKSUM + 1) > end ||
	    data + ETH_HLEN + sizeof(struct ipv6hdr) + 3 * WW_GTP_BYTES > end)
		return 0;
	is_ipv6 = room->end.ip_version == 6;
	if (!(ww_act_config.acts & WW_STEER_TOLD))
		ww_take_hop(ctx, inner, !is_ipv6);
	if (what->kinds & ww_act_config.acts & WW_STEER_INNER_DSCP)
		ww_write_dsfield(inner, is_ipv6, 0xfc, (what->inner_dscp & 63) << 2);
	__builtin_memcpy(data, room->link, sizeof(room->link));
	if (room->tunnel.ip_version == 4) {
		behind = room->length + room->more - sizeof(struct iphdr);
		ethernet[WW_ETH_TYPE] = bpf_htons(ETH_P_IP);
		ww_write_ipv4(data + ETH_HLEN, room->tunnel.local, room->tunnel.peer, room->dsfield,
			      IPPROTO_UDP, behind);
		ww_write_gtp(data + ETH_HLEN + sizeof(struct iphdr), room->tunnel.peer_teid, room->qfi,
			     room->length);
		return 1;
	}
	behind = room->length + room->more - sizeof(struct ipv6hdr);
	udp = data + ETH_HLEN + sizeof(struct ipv6hdr);
	ethernet[WW_ETH_TYPE] = bpf_htons(ETH_P_IPV6);
	ww_write_ipv6(data + ETH_HLEN, room->tunnel.local, room->tunnel.peer, room->dsfield, 0, IPPROTO_UDP,
		      behind);
	ww_write_gtp(udp, room->tunnel.peer_teid, room->qfi, room->length);
	/* RFC 8200: not left out of IPv6. */
	udp[3] = ww_sum_udp6(ctx);
	return 1;
}

/* Puts the packet into the tunnel of who it is for. Returns the verdict; WW_VERDICT_NOT_ACTED, with nothing changed, if it passes. */
static __always_inline int ww_enter_tunnel(WW_HOOK_CTX *ctx, __u32 class_id)
{
	__u32 why = ww_open_tunnel_to(ctx, class_id);
	int verdict = WW_VERDICT_NOT_ACTED;

	if (!why) {
		why = WW_TUNNEL_PUT_IN;
		verdict = ww_write_tunnel(ctx, class_id) ? WW_VERDICT_REDIRECT : WW_VERDICT_DROP;
	} else if (why == WW_TUNNEL_TOO_LONG) {
		int answered = ww_answer_too_long(ctx, class_id);

		if (answered == WW_ANSWERED) {
			why = WW_TUNNEL_ANSWERED;
			verdict = WW_VERDICT_BOUNCE;
		} else if (answered == WW_ANSWERED_ENOUGH) {
			why = WW_TUNNEL_UNANSWERED;
			verdict = WW_VERDICT_DROP;
		}
	}
	ww_count_passage(why);
	return verdict;
}

#endif
