/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Looking into one level of tunnel: GTP-U, VXLAN, GRE, IP-in-IP; each by its header's own length fields.
 *
 * Included by parse.h where the feature set looks into a tunnel. What is not such a tunnel, or carries something else than IP, stays
 * judged by its outer headers; what breaks off is WW_MALFORMED_TUNNEL.
 */
#ifndef WW_TUNNEL_H
#define WW_TUNNEL_H

#include "classify/config.h"
#include "frame/gtp.h"

/* Each opens one header at the cursor. Returns 0, or WW_MALFORMED_TUNNEL; *type: EtherType inside, 0: no tunnel for us. room: bytes from the
 * header on, in the packet around it. */
static __always_inline int ww_open_vxlan(struct ww_cursor *cursor, __u32 room, __be16 *type)
{
	__u8 *vxlan = cursor->at;

	if ((void *)(vxlan + 8) > cursor->end || room < 8)
		return WW_MALFORMED_TUNNEL;
	if (vxlan[0] & 0x08)
		*type = bpf_htons(WW_ETH_TRANSPARENT);
	cursor->at = vxlan + 8;
	return 0;
}

static __always_inline int ww_open_gre(struct ww_cursor *cursor, __u32 room, __be16 *type)
{
	struct {
		__be16 flags;
		__be16 type;
	} *gre = cursor->at;
	__u32 flags;

	if ((void *)(gre + 1) > cursor->end || room < sizeof(*gre))
		return WW_MALFORMED_TUNNEL;
	flags = bpf_ntohs(gre->flags);
	if (flags & 0x4007) /* source routing, or another version */
		return 0;
	if (gre->type != bpf_htons(ETH_P_IP) && gre->type != bpf_htons(ETH_P_IPV6) &&
	    gre->type != bpf_htons(WW_ETH_TRANSPARENT))
		return 0;
	*type = gre->type;
	/* checksum, key, sequence number: four bytes each */
	cursor->at = (void *)(gre + 1) + 4 * ((flags >> 15) + (flags >> 13 & 1) + (flags >> 12 & 1));
	return 0;
}

/* Opens the tunnel at the cursor that outer's headers announce, as above. */
static __always_inline int ww_open_tunnel(struct ww_cursor *cursor, const struct ww_packet *outer,
					  __be16 *type, void *start, __u32 *gtp)
{
	__be16 port = outer->destination_port_be;
	__u32 room = outer->transport_length;

	if (outer->protocol == IPPROTO_UDP && WW_DECAPSULATE_GTP_U && port == bpf_htons(WW_PORT_GTP_U)) {
		struct ww_gtp_extensions unused;

		cursor->at += sizeof(struct udphdr);
		return ww_open_gtp(cursor, type, start, room - sizeof(struct udphdr), gtp, &unused);
	}
	if (outer->protocol == IPPROTO_UDP && WW_DECAPSULATE_VXLAN && port == bpf_htons(WW_PORT_VXLAN)) {
		cursor->at += sizeof(struct udphdr);
		return ww_open_vxlan(cursor, room - sizeof(struct udphdr), type);
	}
	if (outer->protocol == IPPROTO_GRE && WW_DECAPSULATE_GRE)
		return ww_open_gre(cursor, room, type);
	if (outer->protocol == IPPROTO_IPIP && WW_DECAPSULATE_IP_IN_IP)
		*type = bpf_htons(ETH_P_IP);
	if (outer->protocol == IPPROTO_IPV6 && WW_DECAPSULATE_IP_IN_IP)
		*type = bpf_htons(ETH_P_IPV6);
	return 0;
}

/* Whether the IP packet at the cursor ends, by its own length, in the packet around it, which ends `behind` bytes from the start of the frame.
 * Headers that end behind the inner packet are its parser's to find. */
static __always_inline int ww_fits_inside(struct ww_cursor *cursor, __be16 type, void *start, __u32 behind)
{
	/* Total length of IPv4, payload length of IPv6. */
	__be16 *word = cursor->at;
	__u32 length;

	if ((void *)(word + 3) > cursor->end)
		return 0;
	length = type == bpf_htons(ETH_P_IP) ? bpf_ntohs(word[1])
					     : bpf_ntohs(word[2]) + sizeof(struct ipv6hdr);
	return (__u32)(cursor->at - start) + length <= behind;
}

/* What ww_find_network returns. */
#define WW_FOUND_OFFSET \
	0x7fffULL /* of the IP header; 0: there is none, and the next bits hold an enum ww_status */
#define WW_FOUND_NEXT(found) ((found) >> 15 & 0xfff) /* outermost VLAN, or status */
#define WW_FOUND_IPV6 (1ULL << 27)
#define WW_FOUND_INNER (1ULL << 28) /* it is inside a tunnel */
#define WW_FOUND_GTP(found) ((__u32)((found) >> 32))

/* Finds the IP header to judge a frame by: the one inside a tunnel, or the only one. A global function, verified once: all the
 * ways to the header are forgotten at its end, and the packet is parsed behind it as if there were no tunnels. */
__noinline __u64 ww_find_network(WW_HOOK_ARG *ctx)
{
	void *data = ww_data(ctx), *end = ww_data_end(ctx);
	struct ww_cursor cursor = {data, end}, network;
	__u32 link, gtp = 0, behind = 0;
	__u64 inner = WW_FOUND_INNER;
	struct ww_packet outer = {};
	__be16 type, inner_type = 0;
	int status;

	status = ww_parse_outer(ctx, &cursor, ww_tag(ctx), &type, &link);
	if (status)
		return (__u64)status << 15;
	if (type != bpf_htons(ETH_P_IP) && type != bpf_htons(ETH_P_IPV6))
		return (__u64)WW_NOT_IP << 15;
	network = cursor;
	/* What is malformed outside is parsed again, and refused, where there are no tunnels. */
	if (!ww_parse_ip(ctx, &cursor, type, &outer) && !outer.fragment) {
		/* Where what it carries ends at the latest. */
		behind = cursor.at - data + outer.transport_length;
		status = ww_open_tunnel(&cursor, &outer, &inner_type, data, &gtp);
		if (!status && inner_type == bpf_htons(WW_ETH_TRANSPARENT)) {
			status = ww_parse_ethernet(ctx, &cursor, &inner_type);
			if ((__u32)(cursor.at - data) > behind)
				status = WW_MALFORMED_TUNNEL;
		}
		if (!status && (inner_type == bpf_htons(ETH_P_IP) || inner_type == bpf_htons(ETH_P_IPV6)) &&
		    !ww_fits_inside(&cursor, inner_type, data, behind))
			status = WW_MALFORMED_TUNNEL;
		if (status)
			return (__u64)WW_MALFORMED_TUNNEL << 15;
	}
	if (inner_type != bpf_htons(ETH_P_IP) && inner_type != bpf_htons(ETH_P_IPV6)) {
		cursor = network;
		inner_type = type;
		inner = gtp = 0;
	}
	if (inner_type == bpf_htons(ETH_P_IPV6))
		inner |= WW_FOUND_IPV6;
	return (__u64)gtp << 32 | inner | (link & WW_VLAN_ID) << 15 | ((cursor.at - data) & WW_FOUND_OFFSET);
}

#if WW_DECAPSULATE_GTP_U
/* Headers of the common tunnel, in their order. */
struct ww_common_tunnel {
	struct iphdr ip;
	struct udphdr udp;
	struct ww_gtp gtp;
	union {
		struct iphdr inner;
		struct {
			__be16 sequence;
			__u8 n_pdu;
			__u8 extension;
			__u8 size; /* in words of four bytes */
			__u8 pdu_type;
			__u8 qfi;
			__u8 next_extension;
			struct iphdr inner;
		} session;
	};
};

/* The straight path: ww_find_network of IPv4 in GTP-U over UDP and IPv4, without tags, options and fragments, the GTP-U header bare or
 * with a PDU session container alone. Returns the same, or 0: look again, the long way. */
static __always_inline __u64 ww_find_common_tunnel(WW_HOOK_CTX *ctx, __u32 tag)
{
	void *data = ww_data(ctx);
	struct ww_common_tunnel *outer = data + ETH_HLEN;
	struct iphdr *inner;
	__u32 at, udp_length, gtp;

	if (ww_unlikely((void *)(outer + 1) > ww_data_end(ctx)) || tag)
		return 0;
	if (((__be16 *)outer)[-1] != bpf_htons(ETH_P_IP) || *(__u8 *)&outer->ip != 0x45 ||
	    outer->ip.frag_off & bpf_htons(0x3fff) || outer->ip.protocol != IPPROTO_UDP ||
	    outer->udp.dest != bpf_htons(WW_PORT_GTP_U) || outer->gtp.message != 255)
		return 0;
	gtp = WW_PDU_SESSION ? ETH_HLEN + __builtin_offsetof(struct ww_common_tunnel, gtp)
			     : bpf_ntohl(outer->gtp.teid);
	if (outer->gtp.flags == 0x30) {
		inner = &outer->inner;
		at = ETH_HLEN + __builtin_offsetof(struct ww_common_tunnel, inner);
	} else if (outer->gtp.flags == 0x34 && outer->session.extension == WW_GTP_PDU_SESSION &&
		   outer->session.size == 1 && !outer->session.next_extension) {
		inner = &outer->session.inner;
		at = ETH_HLEN + __builtin_offsetof(struct ww_common_tunnel, session.inner);
		if (WW_PDU_SESSION)
			gtp |= WW_GTP_SESSION | (__u32)outer->session.pdu_type << 16 |
			       (__u32)outer->session.qfi << 24;
	} else {
		return 0;
	}
	/* Each packet ends in the one around it. */
	udp_length = bpf_ntohs(outer->udp.len);
	if (*(__u8 *)inner >> 4 != 4 || sizeof(struct iphdr) + udp_length > bpf_ntohs(outer->ip.tot_len) ||
	    at + bpf_ntohs(inner->tot_len) > ETH_HLEN + sizeof(struct iphdr) + udp_length)
		return 0;
	return (__u64)gtp << 32 | WW_FOUND_INNER | at;
}
#else
#define ww_find_common_tunnel(ctx, tag) 0ULL
#endif

#if WW_PDU_SESSION
/* What the GTP-U header in front of the packet says of it. */
static __always_inline void ww_read_gtp(struct ww_cursor *cursor, void *data, __u32 found,
					struct ww_packet *p)
{
	struct ww_gtp *gtp = data + (found & WW_GTP_OFFSET);

	if (!found || ww_unlikely((void *)(gtp + 1) > cursor->end))
		return;
	p->teid = bpf_ntohl(gtp->teid);
	if (found & WW_GTP_SESSION) {
		p->pdu_type = WW_GTP_TYPE(found);
		/* Of other types we know no QoS flow. */
		if (p->pdu_type <= 1) {
			p->pdu_direction = 1 + p->pdu_type;
			p->qfi = WW_GTP_QFI(found);
		}
	}
}
#endif

/* As without tunnels, but the type and the cursor may be those inside. */
static __always_inline int ww_parse_link(WW_HOOK_CTX *ctx, struct ww_cursor *cursor, __u32 tag, __be16 *type,
					 struct ww_packet *p)
{
	__u64 found = ww_find_common_tunnel(ctx, tag);

	if (!WW_DECAPSULATE_GTP_U || ww_unlikely(!found))
		found = ww_find_network(ctx);
	ww_hide(found);
	if (!(found & WW_FOUND_OFFSET))
		return WW_FOUND_NEXT(found) & 15;
	cursor->at = ww_data(ctx) + (found & WW_FOUND_OFFSET);
	*type = bpf_htons(found & WW_FOUND_IPV6 ? ETH_P_IPV6 : ETH_P_IP);
	p->link = WW_FOUND_NEXT(found);
	/* What was found has no room for the second tag. */
	if (WW_KEY_VLAN) {
		struct ww_cursor again = {.at = ww_data(ctx), .end = cursor->end};
		__be16 unused;

		ww_parse_outer(ctx, &again, tag, &unused, &p->link);
	}
#if WW_PDU_SESSION
	ww_read_gtp(cursor, ww_data(ctx), WW_FOUND_GTP(found), p);
#else
	p->teid = WW_FOUND_GTP(found);
#endif
	p->tunnelled = (found & WW_FOUND_INNER) != 0;
	return 0;
}

#endif
