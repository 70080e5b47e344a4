/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Looking into one level of tunnel: GTP-U, VXLAN, GRE, IP-in-IP; each by its header's own length fields.
 *
 * Included by parse.h where the feature set looks into a tunnel. What is not such a tunnel, or carries something else than IP, stays
 * judged by its outer headers; what breaks off is WW_MALFORMED_TUNNEL.
 */
#ifndef WW_TUNNEL_H
#define WW_TUNNEL_H

struct ww_gtp {
	__u8 flags; /* version (3 bits) 1, PT 1, spare, E, S, PN */
	__u8 message;
	__be16 length;
	__be32 teid;
};

/* Each opens one header at the cursor. Returns 0, or WW_MALFORMED_TUNNEL; *type: EtherType inside, 0: no tunnel for us. */
static __always_inline int ww_open_gtp(struct ww_cursor *cursor, __be16 *type, __u32 *teid)
{
	struct ww_gtp *gtp = cursor->at;
	__u8 *inner;

	if ((void *)(gtp + 1) > cursor->end)
		return WW_MALFORMED_TUNNEL;
	if (gtp->flags >> 4 != 3 || gtp->message != 255)
		return 0;
	*teid = bpf_ntohl(gtp->teid);
	cursor->at = gtp + 1;
	if (gtp->flags & 7) {
		__u8 *option = cursor->at, extension;

		if ((void *)(option + 4) > cursor->end)
			return WW_MALFORMED_TUNNEL;
		extension = gtp->flags & 4 ? option[3] : 0;
		cursor->at = option + 4;
		for (int i = 0; i < WW_MAX_GTP_EXTENSIONS && extension; i++) {
			__u8 *header = cursor->at, *last;
			__u32 size;

			if ((void *)(header + 4) > cursor->end)
				return WW_MALFORMED_TUNNEL;
			size = header[0] * 4;
			if (!size)
				return WW_MALFORMED_TUNNEL;
			/* The next extension's type is the last byte of this one. */
			last = header + (size - 1);
			if ((void *)(last + 1) > cursor->end)
				return WW_MALFORMED_TUNNEL;
			extension = *last;
			cursor->at = last + 1;
		}
		if (extension)
			return WW_MALFORMED_TUNNEL;
	}
	inner = cursor->at;
	if ((void *)(inner + 1) > cursor->end)
		return WW_MALFORMED_TUNNEL;
	if (*inner >> 4 == 4)
		*type = bpf_htons(ETH_P_IP);
	else if (*inner >> 4 == 6)
		*type = bpf_htons(ETH_P_IPV6);
	return 0;
}

static __always_inline int ww_open_vxlan(struct ww_cursor *cursor, __be16 *type)
{
	__u8 *vxlan = cursor->at;

	if ((void *)(vxlan + 8) > cursor->end)
		return WW_MALFORMED_TUNNEL;
	if (vxlan[0] & 0x08)
		*type = bpf_htons(WW_ETH_TRANSPARENT);
	cursor->at = vxlan + 8;
	return 0;
}

static __always_inline int ww_open_gre(struct ww_cursor *cursor, __be16 *type)
{
	struct {
		__be16 flags;
		__be16 type;
	} *gre = cursor->at;
	__u32 flags;

	if ((void *)(gre + 1) > cursor->end)
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

/* Opens the tunnel at offset (of the transport header, from the start of the frame).
 * Returns TEID << 32 | enum ww_status << 24 | IP version inside (0: no tunnel for us) << 20 | offset of the inner IP header.
 * A global function: all ways through it meet in one number, so the verifier walks what follows once. */
__noinline __u64 ww_open_tunnel(struct xdp_md *ctx, __u32 offset, __u32 protocol, __u32 port)
{
	void *data = (void *)(long)ctx->data;
	struct ww_cursor cursor = {data, (void *)(long)ctx->data_end};
	__u32 teid = 0, version = 0;
	__be16 type = 0;
	int status = 0;

	if (offset > 0x7fff)
		return 0;
	cursor.at = data + offset;
	if (protocol == IPPROTO_UDP)
		cursor.at += sizeof(struct udphdr);
	if (WW_DECAPSULATE_GTP_U && protocol == IPPROTO_UDP && port == WW_PORT_GTP_U)
		status = ww_open_gtp(&cursor, &type, &teid);
	else if (WW_DECAPSULATE_VXLAN && protocol == IPPROTO_UDP && port == WW_PORT_VXLAN)
		status = ww_open_vxlan(&cursor, &type);
	else if (WW_DECAPSULATE_GRE && protocol == IPPROTO_GRE)
		status = ww_open_gre(&cursor, &type);
	else if (WW_DECAPSULATE_IP_IN_IP && protocol == IPPROTO_IPIP)
		type = bpf_htons(ETH_P_IP);
	else if (WW_DECAPSULATE_IP_IN_IP && protocol == IPPROTO_IPV6)
		type = bpf_htons(ETH_P_IPV6);
	if (!status && type == bpf_htons(WW_ETH_TRANSPARENT)) {
		__u32 inner_vlan;

		status = ww_parse_ethernet(&cursor, &type, &inner_vlan) ? WW_MALFORMED_TUNNEL : 0;
	}
	if (type == bpf_htons(ETH_P_IP))
		version = 4;
	else if (type == bpf_htons(ETH_P_IPV6))
		version = 6;
	return (__u64)teid << 32 | status << 24 | version << 20 | ((__u64)(cursor.at - data) & 0x7fff);
}

/* Parses the packet inside into p, if p is a tunnel the feature set looks into. */
static __always_inline int ww_parse_tunnel(struct xdp_md *ctx, struct ww_cursor *cursor, struct ww_packet *p)
{
	void *data = (void *)(long)ctx->data;
	__u32 port = bpf_ntohs(p->destination_port_be), vlan_id = p->vlan_id;
	__u64 opened;
	int status;

	if (p->fragment)
		return 0;
	if (!(WW_DECAPSULATE_GTP_U && p->protocol == IPPROTO_UDP && port == WW_PORT_GTP_U) &&
	    !(WW_DECAPSULATE_VXLAN && p->protocol == IPPROTO_UDP && port == WW_PORT_VXLAN) &&
	    !(WW_DECAPSULATE_GRE && p->protocol == IPPROTO_GRE) &&
	    !(WW_DECAPSULATE_IP_IN_IP && (p->protocol == IPPROTO_IPIP || p->protocol == IPPROTO_IPV6)))
		return 0;
	opened = ww_open_tunnel(ctx, cursor->at - data, p->protocol, port);
	ww_hide(opened);
	status = opened >> 24 & 15;
	if (status)
		return status;
	if (!(opened >> 20 & 15))
		return 0;
	cursor->at = data + (opened & 0x7fff);
	__builtin_memset(p, 0, sizeof(*p));
	p->vlan_id = vlan_id;
	p->teid = opened >> 32;
	if (ww_parse_ip(ctx, cursor, (opened >> 20 & 15) == 4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6), p))
		return WW_MALFORMED_TUNNEL;
	return 0;
}

#endif
