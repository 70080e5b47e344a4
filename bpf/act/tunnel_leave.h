/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Out of a tunnel, and what is written on packets that stay in theirs. */
#ifndef WW_TUNNEL_LEAVE_H
#define WW_TUNNEL_LEAVE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "act/maps.h"
#include "act/tunnel_end.h"
#include "frame/checksum.h"
#include "frame/gtp.h"
#include "frame/hook.h"

#define WW_QFI 0x3f00 /* of the 16 bits from the container's third octet on */

/* Takes the packet out of its tunnel. Returns 0, with nothing changed, if it stays there. */
__noinline int ww_leave_tunnel(WW_HOOK_ARG *ctx)
{
	void *data = ww_data(ctx), *end = ww_data_end(ctx);
	__u32 length, why, congested;
	struct ww_passage *room;
	struct ww_tunnel *tunnel;
	struct ww_gtp *header;
	__u64 found;
	__u16 *inner;
	int is_ipv6;

	if (!(ww_act_config.acts & WW_STEER_DECAPSULATE) || ww_at_tc())
		return 0;
	room = ww_find_passage();
	if (!room)
		return 0;
	length = ww_input(ctx).length;
	found = ww_find_gtp(ctx);
	why = WW_WHY_NOT(found);
	if (!why && WW_AT_OUTER(found) != ETH_HLEN)
		why = WW_TUNNEL_OTHER; /* behind a tag */
	if (why) {
		ww_count_tunnel(why, length);
		return 0;
	}
	header = data + WW_AT_GTP(found);
	inner = data + WW_AT_INNER(found);
	is_ipv6 = (found & WW_INNER_IS_IPV6) != 0;
	/* Cannot be, as in the places below that say the same. */
	if (data + ETH_HLEN + sizeof(struct ipv6hdr) > end || (void *)(header + 1) > end ||
	    (void *)inner + (is_ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) > end)
		return 0;
	__builtin_memset(&room->end, 0, sizeof(room->end));
	room->end.teid = bpf_ntohl(header->teid);
	if (found & WW_OUTER_IS_IPV6) {
		struct ipv6hdr *ip = data + ETH_HLEN;

		room->end.ip_version = 6;
		__builtin_memcpy(room->end.address, &ip->daddr, 16);
	} else {
		struct iphdr *ip = data + ETH_HLEN;

		room->end.ip_version = 4;
		__builtin_memcpy(room->end.address, &ip->daddr, 4);
	}
	tunnel = bpf_map_lookup_elem(&ww_tunnels, &room->end);
	if (!tunnel || !ww_sends_by(tunnel, inner, is_ipv6)) {
		ww_count_tunnel(tunnel ? WW_TUNNEL_FOREIGN : WW_TUNNEL_UNKNOWN, length);
		return 0;
	}
	/* RFC 6040: a router on the way says that it is congested in the header that it sees. */
	congested =
		(ww_dsfield(data + ETH_HLEN, (found & WW_OUTER_IS_IPV6) != 0) & WW_ECN) == WW_ECN_CONGESTED;
	__builtin_memcpy(room->link, data, sizeof(room->link));
	if (bpf_xdp_adjust_head(ctx, WW_AT_INNER(found) - ETH_HLEN))
		return 0;
	data = ww_data(ctx);
	end = ww_data_end(ctx);
	inner = data + ETH_HLEN;
	if (data + ETH_HLEN + sizeof(struct iphdr) > end)
		return 0;
	__builtin_memcpy(data, room->link, sizeof(room->link));
	inner[-1] = is_ipv6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	length -= WW_AT_INNER(found);
	if (congested && ww_dsfield(inner, is_ipv6) & WW_ECN)
		ww_write_dsfield(inner, is_ipv6, WW_ECN, WW_ECN_CONGESTED);
	__sync_fetch_and_add(&tunnel->packets, 1);
	__sync_fetch_and_add(&tunnel->bytes, length);
	ww_count_tunnel(WW_TUNNEL_TAKEN_OUT, length);
	return 1;
}

/* Writes what a class asks for on a packet that stays in its tunnel. Returns 0, with nothing changed, if there is no such place. */
__noinline int ww_write_inside(WW_HOOK_ARG *ctx, __u32 class_id)
{
	struct ww_steer *what = &ww_act_policy.steer[class_id & (WW_MAX_CLASSES - 1)];
	__u32 asked = what->kinds & ww_act_config.acts, why, length = ww_input(ctx).length;
	void *data = ww_data(ctx), *end = ww_data_end(ctx);
	__u16 *sum, *word, *inner, before;
	__u64 found;
	__u8 *session;

	if (!(ww_act_config.acts & (WW_STEER_QFI | WW_STEER_INNER_DSCP)) || ww_at_tc())
		return 0;
	found = ww_find_gtp(ctx);
	why = WW_WHY_NOT(found);
	session = data + WW_AT_SESSION(found);
	inner = data + WW_AT_INNER(found);
	/* The last word of the UDP header. */
	sum = data + ((WW_AT_GTP(found) - sizeof(*sum)) & 0xff);
	if ((void *)(inner + WW_IPV4_CHECKSUM + 1) > end || (void *)(session + 4) > end ||
	    (void *)(sum + 1) > end)
		return 0;
	/* Only these types have a QFI, TS 38.415. */
	if (!why && asked & WW_STEER_QFI && (!WW_AT_SESSION(found) || session[1] >> 4 > 1))
		why = WW_TUNNEL_EXTENDED;
	if (why) {
		ww_count_tunnel(why, length);
		return 0;
	}
	if (asked & WW_STEER_QFI) {
		word = (void *)(session + 2);
		before = *word;
		*word = (before & ~bpf_htons(WW_QFI)) | bpf_htons((what->qfi & 63) << 8);
		if (*sum)
			*sum = ww_checksum_after(*sum, before, *word) ?: 0xffff;
	}
	if (asked & WW_STEER_INNER_DSCP) {
		int is_ipv6 = (found & WW_INNER_IS_IPV6) != 0;

		before = *inner;
		ww_write_dsfield(inner, is_ipv6, 0xfc, (what->inner_dscp & 63) << 2);
		/* A header of IPv4 adds up to the same as before. */
		if (is_ipv6 && *sum)
			*sum = ww_checksum_after(*sum, before, *inner) ?: 0xffff;
	}
	ww_count_tunnel(WW_TUNNEL_WRITTEN, length);
	return 1;
}

#endif
