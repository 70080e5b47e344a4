/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The end of GTP-U tunnels, as a user plane function is one: tunnel_leave.h takes packets out of tunnels, tunnel_enter.h puts them in, both by
 * ww_tunnels. Here is what they have in common: the tunnel of a packet, and its counts. 3GPP TS 29.281, TS 38.415. Reference: policy/act/tunnels.py.
 *
 * What is not understood in full passes as it came, and ww_tunnel_counts says why.
 */
#ifndef WW_TUNNEL_END_H
#define WW_TUNNEL_END_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "act/maps.h"
#include "frame/checksum.h"
#include "frame/gtp.h"
#include "frame/hook.h"
#include "frame/link.h"

#define WW_STEER_TUNNELS (WW_STEER_DECAPSULATE | WW_STEER_ENCAPSULATE | WW_STEER_QFI | WW_STEER_INNER_DSCP)

/* What ww_find_gtp returns: offsets in the frame, or why there is nothing to be done. */
#define WW_AT_INNER(found) ((__u32)(found) & 0x3fff)
#define WW_AT_SESSION(found) ((__u32)((found) >> 16) & 0x3fff) /* 0: no PDU session container */
#define WW_AT_GTP(found) ((__u32)((found) >> 32) & 0xff)
#define WW_AT_OUTER(found) ((__u32)((found) >> 40) & 0xff)
#define WW_WHY_NOT(found) ((__u32)((found) >> 48) & 0x0f) /* enum ww_tunnel_count; 0: all is well */
#define WW_OUTER_IS_IPV6 (1ULL << 56)
#define WW_INNER_IS_IPV6 (1ULL << 57)
#define WW_PASSES(why) ((__u64)(why) << 48)

#define WW_ECN 3
#define WW_ECN_CONGESTED 3

/* What the functions that put a packet in share, where challenge.h has its room for the same reason. */
struct ww_passage {
	struct bpf_fib_lookup route;
	struct ww_tunnel_end end; /* by which the tunnel was found */
	struct ww_tunnel tunnel;
	__u32 length; /* of the packet that goes in */
	__u32 more;   /* bytes in front of it */
	__u32 dsfield;
	__u32 qfi;
	__u32 hops;
	__u8 link[2 * ETH_ALEN];
};

_Static_assert(sizeof(struct ww_passage) <= sizeof(((struct ww_act_cpu *)0)->room), "no room");

static __always_inline struct ww_passage *ww_find_passage(void)
{
	struct ww_act_cpu *percpu = 0;

	if (ww_act_config.acts & WW_STEER_TUNNELS)
		percpu = ww_this_cpu();
	return percpu ? (void *)percpu->room : 0;
}

static __always_inline void ww_count_tunnel(__u32 what, __u32 bytes)
{
	struct ww_counter *counter = bpf_map_lookup_elem(&ww_tunnel_counts, &what);

	if (counter) {
		counter->packets++;
		counter->bytes += bytes;
	}
}

/* A packet that was to be put in: a global function, as its caller has no stack left for a key. */
__noinline int ww_count_passage(__u32 what)
{
	struct ww_passage *room = ww_find_passage();

	if (ww_act_config.acts & WW_STEER_ENCAPSULATE && room)
		ww_count_tunnel(what, room->length);
	return 0;
}

#define WW_MAX_IPV4_WORDS 30

/* Whether an IPv4 header of so many bytes adds up, as a router asks (RFC 1812, 5.2.2). The checksum of what is behind is for the receiver. */
static __always_inline int ww_adds_up(struct ww_cursor *cursor, __u32 header)
{
	__u16 *word = cursor->at;
	__u64 sum = 0;

	for (__u32 i = 0; i < WW_MAX_IPV4_WORDS; i++) {
		if (2 * i >= header)
			break;
		if ((void *)(word + i + 1) > cursor->end)
			return 0;
		sum += word[i];
	}
	return !ww_checksum(sum);
}

/* The IP packet at an offset in the frame: its length, 0: it is none. *tunnel: 1 if it is to the port of GTP-U. */
static __always_inline __u32 ww_measure(struct ww_cursor *cursor, int is_ipv6, int *tunnel)
{
	__u32 header = sizeof(struct ipv6hdr), protocol, length;
	struct udphdr *udp;

	*tunnel = 0;
	if (is_ipv6) {
		struct ipv6hdr *ip = cursor->at;

		if ((void *)(ip + 1) > cursor->end || *(__u8 *)ip >> 4 != 6)
			return 0;
		protocol = ip->nexthdr;
		length = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	} else {
		struct iphdr *ip = cursor->at;

		if ((void *)(ip + 1) > cursor->end || *(__u8 *)ip >> 4 != 4)
			return 0;
		header = (*(__u8 *)ip & 15) * 4;
		length = bpf_ntohs(ip->tot_len);
		if (header < sizeof(*ip) || length < header || !ww_adds_up(cursor, header))
			return 0;
		protocol = ip->frag_off & bpf_htons(WW_IPV4_OFFSET) ? 0 : ip->protocol;
	}
	udp = cursor->at + header;
	if (protocol == IPPROTO_UDP && (void *)(udp + 1) <= cursor->end && length >= header + sizeof(*udp))
		*tunnel = udp->dest == bpf_htons(WW_PORT_GTP_U);
	return length;
}

/* Finds the tunnel that the frame's own IP header announces. A global function: all the ways through extension headers are forgotten at its
 * end. */
__noinline __u64 ww_find_gtp(WW_HOOK_ARG *ctx)
{
	void *data = ww_data(ctx), *end = ww_data_end(ctx);
	struct ww_cursor cursor = {.at = data, .end = end};
	__u32 link, unused, outer, gtp, left, length;
	struct ww_gtp_extensions extensions = {};
	__u64 flags = 0;
	struct ww_gtp *header;
	struct udphdr *udp;
	__be16 type;
	int nested;

	if (!(ww_act_config.acts & WW_STEER_TUNNELS))
		return WW_PASSES(WW_TUNNEL_OTHER);
	if (ww_parse_outer(ctx, &cursor, ww_tag(ctx), &type, &link))
		return WW_PASSES(WW_TUNNEL_OTHER);
	outer = cursor.at - data;
	left = ww_input(ctx).length - outer;
	if (type == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = cursor.at;

		if ((void *)(ip + 1) > end)
			return WW_PASSES(WW_TUNNEL_MALFORMED);
		length = (*(__u8 *)ip & 15) * 4;
		if (*(__u8 *)ip >> 4 != 4 || length < sizeof(*ip) || bpf_ntohs(ip->tot_len) > left ||
		    bpf_ntohs(ip->tot_len) < length)
			return WW_PASSES(WW_TUNNEL_MALFORMED);
		if (ip->protocol != IPPROTO_UDP)
			return WW_PASSES(WW_TUNNEL_OTHER);
		if (ip->frag_off & bpf_htons(WW_IPV4_MORE | WW_IPV4_OFFSET))
			return WW_PASSES(WW_TUNNEL_FRAGMENTED);
		left = bpf_ntohs(ip->tot_len) - length;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = cursor.at;

		if ((void *)(ip + 1) > end)
			return WW_PASSES(WW_TUNNEL_MALFORMED);
		length = sizeof(*ip);
		if (*(__u8 *)ip >> 4 != 6 || bpf_ntohs(ip->payload_len) + length > left)
			return WW_PASSES(WW_TUNNEL_MALFORMED);
		if (ip->nexthdr == IPPROTO_FRAGMENT)
			return WW_PASSES(WW_TUNNEL_FRAGMENTED);
		if (ip->nexthdr != IPPROTO_UDP)
			return WW_PASSES(WW_TUNNEL_OTHER);
		left = bpf_ntohs(ip->payload_len);
		flags |= WW_OUTER_IS_IPV6;
	} else {
		return WW_PASSES(WW_TUNNEL_OTHER);
	}
	udp = cursor.at + length;
	if ((void *)(udp + 1) > end)
		return WW_PASSES(WW_TUNNEL_MALFORMED);
	if (udp->dest != bpf_htons(WW_PORT_GTP_U))
		return WW_PASSES(WW_TUNNEL_OTHER);
	if (bpf_ntohs(udp->len) > left || bpf_ntohs(udp->len) < sizeof(*udp) + sizeof(*header))
		return WW_PASSES(WW_TUNNEL_MALFORMED);
	left = bpf_ntohs(udp->len) - sizeof(*udp);
	header = (void *)(udp + 1);
	if ((void *)(header + 1) > end)
		return WW_PASSES(WW_TUNNEL_MALFORMED);
	if (bpf_ntohs(header->length) + sizeof(*header) > left)
		return WW_PASSES(WW_TUNNEL_MALFORMED);
	left = bpf_ntohs(header->length) + sizeof(*header);
	gtp = outer + length + sizeof(*udp);
	cursor.at = header;
	type = 0;
	if (ww_open_gtp(&cursor, &type, data, left, &unused, &extensions))
		return WW_PASSES(WW_TUNNEL_MALFORMED);
	if (type == bpf_htons(ETH_P_IPV6))
		flags |= WW_INNER_IS_IPV6;
	else if (type != bpf_htons(ETH_P_IP))
		return WW_PASSES(WW_TUNNEL_OTHER);
	if (extensions.unknown)
		return WW_PASSES(WW_TUNNEL_EXTENDED);
	length = ww_measure(&cursor, (flags & WW_INNER_IS_IPV6) != 0, &nested);
	if (!length || (__u32)(cursor.at - data) - gtp + length > left)
		return WW_PASSES(WW_TUNNEL_MALFORMED);
	return flags | (nested ? WW_PASSES(WW_TUNNEL_NESTED) : 0) | (__u64)(outer & 0xff) << 40 |
	       (__u64)(gtp & 0xff) << 32 | (extensions.session & 0x3fff) << 16 |
	       ((cursor.at - data) & 0x3fff);
}

/* Whether the packet inside comes from who the tunnel belongs to. */
static __always_inline int ww_sends_by(const struct ww_tunnel *tunnel, void *inner, int is_ipv6)
{
	const __be32 *ue6 = (const void *)tunnel->ue6;
	struct ipv6hdr *ip6 = inner;
	struct iphdr *ip = inner;

	if (!(tunnel->flags & (WW_TUNNEL_HAS_UE4 | WW_TUNNEL_HAS_UE6)))
		return 1;
	if (!is_ipv6)
		return tunnel->flags & WW_TUNNEL_HAS_UE4 && ip->saddr == *(const __be32 *)tunnel->ue4;
	return tunnel->flags & WW_TUNNEL_HAS_UE6 && ip6->saddr.in6_u.u6_addr32[0] == ue6[0] &&
	       ip6->saddr.in6_u.u6_addr32[1] == ue6[1];
}

/* The byte of an IP header that has DSCP and ECN. */
static __always_inline __u32 ww_dsfield(const __u16 *word, int is_ipv6)
{
	return (is_ipv6 ? bpf_ntohs(*word) >> 4 : bpf_ntohs(*word)) & 255;
}

/* Writes some bits of that byte, with the checksum of IPv4. */
static __always_inline void ww_write_dsfield(__u16 *word, int is_ipv6, __u32 mask, __u32 bits)
{
	__u16 before = *word, after;

	if (is_ipv6) {
		*word = (before & ~bpf_htons(mask << 4)) | bpf_htons(bits << 4);
		return;
	}
	after = (before & ~bpf_htons(mask)) | bpf_htons(bits);
	*word = after;
	word[WW_IPV4_CHECKSUM] = ww_checksum_after(word[WW_IPV4_CHECKSUM], before, after);
}

#endif
