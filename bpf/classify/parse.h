/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Parsing: Ethernet, VLAN, PPPoE, IPv4, IPv6, transport, and one level of tunnel.
 *
 * Each parser takes a cursor, checks bounds before it reads, moves the cursor behind what it read and returns an enum ww_status (0: go on).
 * Two bounds hold: the frame's end, which the verifier wants, and the datagram's, by its length fields: behind that is padding.
 * Reference: feature_sets/packet.py. Tunnels cost nothing unless the feature set asks for them (WW_DECAPSULATE_*).
 */
#ifndef WW_PARSE_H
#define WW_PARSE_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/types.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "abi.h"
#include "classify/config.h"
#include "classify/packet.h"
#include "classify/payload.h"
#include "classify/probe.h"
#include "classify/question.h"
#include "frame/arith.h"
#include "frame/hook.h"
#include "frame/link.h"

#define WW_MAX_EXTENSIONS 8
#define WW_MAX_HOP_BY_HOP_OPTIONS 8 /* in front of and with the one that gives a jumbogram's length */
#define WW_MAX_FIELD 0xffff	    /* of a 16-bit length */
#define WW_MAX_LENGTH 0xfffff	    /* of an IP packet; longer ones count as this long */
#define WW_OPTION_PAD1 0
#define WW_OPTION_JUMBO 0xc2

#define WW_ETH_TRANSPARENT 0x6558 /* GRE: an Ethernet frame */
#define WW_PORT_VXLAN 4789
#define WW_DECAPSULATE \
	(WW_DECAPSULATE_GTP_U || WW_DECAPSULATE_VXLAN || WW_DECAPSULATE_GRE || WW_DECAPSULATE_IP_IN_IP)

/* Ethernet inside a tunnel. */
static __always_inline int ww_parse_ethernet(WW_HOOK_CTX *ctx, struct ww_cursor *cursor, __be16 *type)
{
	__u32 link = 0;

	return ww_parse_tagged(ctx, cursor, type, &link, 0);
}

/* Bytes of the frame from an offset on, if those are more than a 16-bit length can say; else 0. Packets that were merged, or are to be cut to segments,
 * have a length of 0 then. */
static __always_inline __u32 ww_long_rest(WW_HOOK_CTX *ctx, __u32 offset)
{
	__u32 rest = ww_whole_length(ctx) - offset;

	return rest > WW_MAX_FIELD ? rest : 0;
}

static __always_inline int ww_parse_ipv4(WW_HOOK_CTX *ctx, struct ww_cursor *cursor, struct ww_packet *p)
{
	struct iphdr *ip = cursor->at;
	__u32 header_length = sizeof(*ip), fragment;
	__u8 version_and_length;

	if (ww_unlikely((void *)(ip + 1) > cursor->end))
		return WW_MALFORMED_IP;
	version_and_length = *(__u8 *)ip;
	p->length = bpf_ntohs(ip->tot_len);
	cursor->at = ip + 1;
	/* Without options, which is usual, the address of the transport header does not wait for this byte. */
	if (ww_unlikely(version_and_length != 0x45)) {
		header_length = (version_and_length & 15) * 4;
		if (version_and_length >> 4 != 4 || header_length < sizeof(*ip))
			return WW_MALFORMED_IP;
		cursor->at = (void *)ip + header_length;
		if (cursor->at > cursor->end)
			return WW_MALFORMED_IP;
	}
	if (ww_unlikely(header_length > p->length)) {
		if (p->length || p->tunnelled)
			return WW_MALFORMED_IP;
		p->length = ww_long_rest(ctx, (void *)ip - ww_data(ctx));
		if (!p->length)
			return WW_MALFORMED_IP;
		p->length = ww_min(p->length, WW_MAX_LENGTH);
	}
	fragment = bpf_ntohs(ip->frag_off);
	p->ip_version = 4;
	p->source4 = ip->saddr;
	p->destination4 = ip->daddr;
	p->protocol = ip->protocol;
	p->network_header_length = header_length;
	p->transport_length = p->length - header_length;
	p->ttl = ip->ttl;
	p->tos = ip->tos;
	p->fragment = (fragment & 0x3fff) != 0;
	p->fragment_offset = fragment & 0x1fff;
	return 0;
}

/* The payload length that a hop-by-hop header gives (RFC 2675); 0 if it has no such option, or that says what a 16-bit length can say. offset: of the
 * header in the frame. A global function, as the next. */
__noinline __u32 ww_jumbo_payload(WW_HOOK_ARG *ctx, __u32 offset)
{
	void *data = ww_data(ctx), *end = ww_data_end(ctx);
	__u8 *option;
	__u32 behind, payload;

	if (offset > 0x7fff)
		return 0;
	option = data + offset;
	if ((void *)(option + 8) > end)
		return 0;
	behind = offset + (option[1] + 1) * 8;
	offset += 2;
#pragma clang loop unroll(disable)
	for (int i = 0; i < WW_MAX_HOP_BY_HOP_OPTIONS; i++) {
		option = data + offset;
		if (offset + 6 > behind || (void *)(option + 6) > end)
			break;
		if (option[0] == WW_OPTION_JUMBO) {
			payload = (__u32)option[2] << 24 | option[3] << 16 | option[4] << 8 | option[5];
			return option[1] == 4 && payload > WW_MAX_FIELD ? payload : 0;
		}
		offset += option[0] == WW_OPTION_PAD1 ? 1 : 2 + option[1];
	}
	return 0;
}

/* What ww_skip_extensions returns. */
#define WW_BEHIND_OFFSET(behind) ((behind) & 0x7fff) /* eight extensions end far below */
#define WW_BEHIND_PROTOCOL(behind) ((behind) >> 16 & 0xff)
#define WW_BEHIND_LATER(behind) ((behind) >> 24 & 1) /* a fragment other than the first */
#define WW_BEHIND_FRAGMENT(behind) ((behind) >> 25 & 1)
#define WW_BEHIND_STATUS(behind) ((behind) >> 28 & 15) /* enum ww_status; then all else is 0 */
#define WW_BEHIND_LENGTH(behind) ((behind) >> 32)      /* what the packet has left there */
#define WW_STOP(status) ((__u64)(status) << 28)

/* Reads one IPv6 extension header. offset: of it in the frame; protocol: what it is; limit: where the packet ends. Returns WW_STOP or, as
 * ww_skip_extensions, what is behind it; without a length. A global function: verified once, not once for each place in a chain. */
__noinline __u64 ww_skip_extension(WW_HOOK_ARG *ctx, __u32 offset, __u32 protocol, __u32 limit)
{
	void *data = ww_data(ctx), *end = ww_data_end(ctx);
	__u64 fragment = 0;
	__u8 *extension;
	__u32 size;

	/* A bound for the verifier; no frame reaches it. */
	if (offset > 0x7fff)
		return WW_STOP(WW_MALFORMED_IP);
	extension = data + offset;
	if (ww_unlikely((void *)(extension + 8) > end || offset + 8 > limit))
		return WW_STOP(WW_MALFORMED_IP);
	size = (extension[1] + 1) * 8;
	if (protocol == IPPROTO_AH) {
		size = (extension[1] + 2) * 4;
	} else if (protocol == IPPROTO_FRAGMENT) {
		size = 8;
		fragment = bpf_ntohs(*(__be16 *)(extension + 2)) >> 3 ? 3 << 24 : 2 << 24;
	}
	if (ww_unlikely((void *)extension + size > end || offset + size > limit))
		return WW_STOP(WW_MALFORMED_IP);
	return fragment | (__u32)extension[0] << 16 | (offset + size);
}

/* Walks a chain of IPv6 extension headers, and finds the payload's length where its own field is 0: an option gives that, or the frame, as newer kernels
 * leave the option out of what they merge. offset: behind the fixed header, from the start of the frame; protocol: of what is there; payload: as the field
 * has it; tunnelled: then 0 is 0. A global function: verified once, and out of the way of packets that have none. */
__noinline __u64 ww_skip_extensions(WW_HOOK_ARG *ctx, __u32 offset, __u32 protocol, __u32 payload,
				    __u32 tunnelled)
{
	__u64 fragment = 0;
	__u32 limit;

	/* A bound for the verifier, as above. */
	if (offset > 0x7fff)
		return WW_STOP(WW_MALFORMED_IP);
	if (!payload && !tunnelled) {
		if (protocol == IPPROTO_HOPOPTS)
			payload = ww_jumbo_payload(ctx, offset);
		ww_hide(payload);
		if (!payload)
			payload = ww_long_rest(ctx, offset);
		payload = ww_min(payload, WW_MAX_LENGTH - sizeof(struct ipv6hdr));
	}
	limit = offset + payload;
	for (int i = 0; ww_is_extension(protocol); i++) {
		__u64 behind;

		if (i == WW_MAX_EXTENSIONS)
			return WW_STOP(WW_TOO_MANY_EXTENSIONS);
		behind = ww_skip_extension(ctx, offset, protocol, limit);
		ww_hide(behind);
		if (WW_BEHIND_STATUS(behind))
			return behind;
		offset = WW_BEHIND_OFFSET(behind);
		protocol = WW_BEHIND_PROTOCOL(behind);
		fragment |= behind & 3 << 24;
		if (WW_BEHIND_LATER(behind))
			break;
	}
	return (__u64)(limit - offset) << 32 | fragment | protocol << 16 | offset;
}

static __always_inline int ww_parse_ipv6(WW_HOOK_CTX *ctx, struct ww_cursor *cursor, struct ww_packet *p)
{
	struct ipv6hdr *ip = cursor->at;
	__u32 first_word;

	if (ww_unlikely((void *)(ip + 1) > cursor->end))
		return WW_MALFORMED_IP;
	first_word = bpf_ntohl(*(__be32 *)ip);
	if (first_word >> 28 != 6)
		return WW_MALFORMED_IP;
	p->ip_version = 6;
	p->addresses6 = (const void *)&ip->saddr;
	p->protocol = ip->nexthdr;
	p->transport_length = bpf_ntohs(ip->payload_len);
	p->network_header_length = sizeof(*ip);
	p->ttl = ip->hop_limit;
	p->tos = first_word >> 20 & 255;
	p->fragment = 0;
	p->fragment_offset = 0;
	cursor->at = ip + 1;
	if (ww_unlikely(ww_is_extension(p->protocol) || !p->transport_length)) {
		void *data = ww_data(ctx);
		__u64 start = cursor->at - data,
		      behind = ww_skip_extensions(ctx, start, p->protocol, p->transport_length, p->tunnelled);
		__u32 offset;

		ww_hide(behind);
		if (WW_BEHIND_STATUS(behind))
			return WW_BEHIND_STATUS(behind);
		offset = WW_BEHIND_OFFSET(behind);
		p->protocol = WW_BEHIND_PROTOCOL(behind);
		p->fragment_offset = WW_BEHIND_LATER(behind);
		p->fragment = WW_BEHIND_FRAGMENT(behind);
		p->transport_length = WW_BEHIND_LENGTH(behind);
		p->network_header_length += offset - start;
		cursor->at = data + offset;
	}
	p->length = p->network_header_length + p->transport_length;
	return 0;
}

/* What UDP's own length leaves of the packet; of a fragment it is about all fragments, of a jumbogram 0. Returns an enum ww_status. */
static __always_inline int ww_bound_by_udp(struct ww_packet *p, __u32 length)
{
	if (ww_unlikely(length < sizeof(struct udphdr)))
		return length || p->transport_length <= WW_MAX_FIELD ? WW_MALFORMED_TRANSPORT : 0;
	if (ww_unlikely(length > p->transport_length))
		return p->fragment ? 0 : WW_MALFORMED_TRANSPORT;
	p->transport_length = length;
	return 0;
}

static __always_inline int ww_parse_transport(struct ww_cursor *cursor, struct ww_packet *p)
{
	void *at = cursor->at, *end = cursor->end;

	p->transport_header_length = 0;
	p->source_port_be = 0;
	p->destination_port_be = 0;
	p->tcp_flags = 0;
	p->tcp_window = 0;
	p->tcp_sequence = 0;
	p->icmp_type = 0;
	p->icmp_code = 0;
	if (ww_unlikely(p->fragment_offset))
		return 0;
	/* Most packets are TCP: one comparison finds them, and not the search that a switch becomes. */
	if (ww_likely(p->protocol == IPPROTO_TCP)) {
		struct tcphdr *tcp = at;

		if (ww_unlikely((void *)(tcp + 1) > end))
			return WW_MALFORMED_TRANSPORT;
		p->transport_header_length = (((__u8 *)at)[12] >> 4) * 4;
		if (ww_unlikely(p->transport_header_length < sizeof(*tcp) ||
				p->transport_header_length > p->transport_length))
			return WW_MALFORMED_TRANSPORT;
		p->source_port_be = tcp->source;
		p->destination_port_be = tcp->dest;
		p->tcp_flags = ((__u8 *)at)[13];
		p->tcp_window = bpf_ntohs(tcp->window);
		p->tcp_sequence = bpf_ntohl(tcp->seq);
		return 0;
	}
	switch (p->protocol) {
	case IPPROTO_UDP:
	case IPPROTO_UDPLITE: {
		struct udphdr *udp = at;

		if (ww_unlikely((void *)(udp + 1) > end))
			return WW_MALFORMED_TRANSPORT;
		p->transport_header_length = sizeof(*udp);
		p->source_port_be = udp->source;
		p->destination_port_be = udp->dest;
		if (p->protocol == IPPROTO_UDP) {
			if (ww_unlikely(ww_bound_by_udp(p, bpf_ntohs(udp->len))))
				return WW_MALFORMED_TRANSPORT;
#if WW_PROBES
			ww_parse_probe(udp, end, p);
#endif
		}
		break;
	}
	case IPPROTO_SCTP:
	case IPPROTO_DCCP:
		if (at + 12 > end)
			return WW_MALFORMED_TRANSPORT;
		p->transport_header_length = 12;
		p->source_port_be = ((__be16 *)at)[0];
		p->destination_port_be = ((__be16 *)at)[1];
		break;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		if (at + 8 > end)
			return WW_MALFORMED_TRANSPORT;
		p->transport_header_length = 8;
		p->icmp_type = ((__u8 *)at)[0];
		p->icmp_code = ((__u8 *)at)[1];
		break;
	}
	return ww_unlikely(p->transport_header_length > p->transport_length) ? WW_MALFORMED_TRANSPORT : 0;
}

/* An IP packet and its transport header; the cursor stays at the transport header. */
static __always_inline int ww_parse_ip(WW_HOOK_CTX *ctx, struct ww_cursor *cursor, __be16 type,
				       struct ww_packet *p)
{
	int status;

	if (type == bpf_htons(ETH_P_IP))
		status = ww_parse_ipv4(ctx, cursor, p);
	else
		status = ww_parse_ipv6(ctx, cursor, p);
	return status ? status : ww_parse_transport(cursor, p);
}

#if WW_DECAPSULATE
#include "classify/tunnel.h"
#else
/* Parses up to the IP header: *type gets the EtherType, the cursor stays at what is behind. */
static __always_inline int ww_parse_link(WW_HOOK_CTX *ctx, struct ww_cursor *cursor, __u32 tag, __be16 *type,
					 struct ww_packet *p)
{
	return ww_parse_outer(ctx, cursor, tag, type, &p->link);
}
#endif

/* Parses the packet at the cursor. Returns an enum ww_status; 0: p is filled. */
static __always_inline int ww_parse_network(WW_HOOK_CTX *ctx, struct ww_cursor *cursor, __be16 type,
					    struct ww_packet *p)
{
	int status = ww_parse_ip(ctx, cursor, type, p);

	if (status)
		return status;
	p->source_port = bpf_ntohs(p->source_port_be);
	p->destination_port = bpf_ntohs(p->destination_port_be);
	p->payload_length = p->transport_length - p->transport_header_length;
#if WW_PAYLOAD
	p->payload = ww_read_payload(ctx, cursor->at - ww_data(ctx) + p->transport_header_length,
				     p->payload_length);
#endif
#if WW_QUESTION
	ww_parse_question(ctx, cursor->at - ww_data(ctx) + p->transport_header_length, p);
#endif
	return 0;
}

#endif
