/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The frame's own IP header, for what rewrites packets: where it is, and who sends to whom. Features may be those of an inner packet, and a
 * flow's key may have its ends swapped, or only one; this is the packet as the next host sees it.
 */
#ifndef WW_ENDS_H
#define WW_ENDS_H

#include "act/maps.h"
#include "frame/hook.h"
#include "frame/link.h"

struct ww_ends {
	struct ww_ends_key key;
	__u32 network; /* offset of the IP header in the frame */
	__u32 transport; /* of the header behind; 0: a fragment other than the first, or behind an extension header of IPv6 */
	__u32 link; /* of struct ww_packet */
};

/* Returns 0 if there is no IP header. Ports are those of TCP and UDP, else 0. */
static __always_inline int ww_read_ends(WW_HOOK_CTX *ctx, struct ww_ends *ends)
{
	struct ww_cursor cursor = {.at = ww_data(ctx), .end = ww_data_end(ctx)};
	__be16 type, *ports;
	__u32 length;

	__builtin_memset(ends, 0, sizeof(*ends));
	if (ww_parse_outer(ctx, &cursor, ww_tag(ctx), &type, &ends->link))
		return 0;
	ends->network = cursor.at - ww_data(ctx);
	if (type == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = cursor.at;

		if ((void *)(ip + 1) > cursor.end)
			return 0;
		length = (*(__u8 *)ip & 15) * 4;
		if (length < sizeof(*ip))
			return 0;
		__builtin_memcpy(ends->key.source, &ip->saddr, 4);
		__builtin_memcpy(ends->key.destination, &ip->daddr, 4);
		ends->key.protocol = ip->protocol;
		ends->key.reserved[0] = 4;
		if (ip->frag_off & bpf_htons(0x1fff))
			return 1;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = cursor.at;

		if ((void *)(ip + 1) > cursor.end)
			return 0;
		length = sizeof(*ip);
		__builtin_memcpy(ends->key.source, &ip->saddr, 16);
		__builtin_memcpy(ends->key.destination, &ip->daddr, 16);
		ends->key.protocol = ip->nexthdr;
		ends->key.reserved[0] = 6;
		if (ww_is_extension(ip->nexthdr))
			return 1;
	} else {
		return 0;
	}
	ends->transport = ends->network + length;
	ports = cursor.at + length;
	if ((void *)(ports + 2) > cursor.end)
		return 1;
	if (ends->key.protocol == IPPROTO_TCP || ends->key.protocol == IPPROTO_UDP) {
		ends->key.source_port = ports[0];
		ends->key.destination_port = ports[1];
	}
	return 1;
}

#endif
