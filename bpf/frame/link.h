/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The link layer in front of an IP header: Ethernet, VLAN tags, PPPoE.
 *
 * A parser takes a cursor, checks bounds before it reads, moves the cursor behind what it read and returns an enum ww_status (0: go on).
 */
#ifndef WW_LINK_H
#define WW_LINK_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ipv6.h>
#include <linux/types.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "abi.h"
#include "frame/arith.h"
#include "frame/hook.h"
#include "frame/tags.h"

#define WW_MAX_VLAN_TAGS 2
#define WW_ETH_QINQ_OLD 0x9100
#define WW_PPP_IPV4 0x0021
#define WW_PPP_IPV6 0x0057

struct ww_cursor {
	void *at;
	void *end;
};

struct ww_vlan {
	__be16 tci;
	__be16 type;
};

/* PPPoE in the session stage, and the protocol of PPP behind it: RFC 2516, section 4 and 6. */
struct ww_pppoe {
	__u8 version_and_type;
	__u8 code;
	__be16 session;
	__be16 length; /* of what follows */
	__be16 protocol;
};

/* Reads the headers of a PPPoE session. offset: of the first, from the start of the frame.
 * Returns enum ww_status << 32 | EtherType of what is behind << 16 | offset behind; not IP has the EtherType of the session.
 * A global function: verified once, whatever number of tags was in front. */
__noinline __u64 ww_skip_pppoe(WW_HOOK_ARG *ctx, __u32 offset)
{
	void *data = ww_data(ctx), *end = ww_data_end(ctx);
	struct ww_pppoe *pppoe;
	__u32 left, datagram;
	__be16 *word;

	/* A bound for the verifier; no frame reaches it. */
	if (offset > 0x7fff)
		return (__u64)WW_MALFORMED_ETHERNET << 32;
	pppoe = data + offset;
	if ((void *)&pppoe->protocol > end)
		return (__u64)WW_MALFORMED_ETHERNET << 32;
	if (pppoe->version_and_type != 0x11 || pppoe->code)
		return (__u64)ETH_P_PPP_SES << 16 | (offset + __builtin_offsetof(struct ww_pppoe, protocol));
	left = bpf_ntohs(pppoe->length);
	word = (void *)(pppoe + 1);
	if ((void *)word > end || left < sizeof(pppoe->protocol))
		return (__u64)WW_MALFORMED_ETHERNET << 32;
	left -= sizeof(pppoe->protocol);
	offset += sizeof(*pppoe);
	/* The packet may not be longer than the session says. Where the frame ends before its length, that is seen behind this. */
	if (pppoe->protocol == bpf_htons(WW_PPP_IPV4)) {
		if ((void *)(word + 2) <= end && bpf_ntohs(word[1]) > left)
			return (__u64)WW_MALFORMED_ETHERNET << 32;
		return (__u64)ETH_P_IP << 16 | offset;
	}
	if (pppoe->protocol == bpf_htons(WW_PPP_IPV6)) {
		datagram = (void *)(word + 3) <= end ? bpf_ntohs(word[2]) + sizeof(struct ipv6hdr) : 0;
		if (datagram > left)
			return (__u64)WW_MALFORMED_ETHERNET << 32;
		return (__u64)ETH_P_IPV6 << 16 | offset;
	}
	return (__u64)ETH_P_PPP_SES << 16 | offset;
}

/* Reads the Ethernet, VLAN and PPPoE headers; *type gets the EtherType behind them, *link what they are, as above. beside: 1 if a tag was
 * taken off, which counts as the first. */
static __always_inline int ww_parse_tagged(WW_HOOK_CTX *ctx, struct ww_cursor *cursor, __be16 *type,
					   __u32 *link, int beside)
{
	/* Not struct ethhdr: that is packed, so its EtherType would be read byte by byte. */
	__be16 *eth = cursor->at;

	cursor->at += ETH_HLEN;
	if (ww_unlikely(cursor->at > cursor->end))
		return WW_MALFORMED_ETHERNET;
	*type = eth[ETH_HLEN / 2 - 1];
	if (ww_likely(*type == bpf_htons(ETH_P_IP)))
		return 0;
#pragma unroll
	for (int tag = 0; tag < WW_MAX_VLAN_TAGS; tag++) {
		struct ww_vlan *vlan = cursor->at;

		if (ww_likely(*type != bpf_htons(ETH_P_8021Q) && *type != bpf_htons(ETH_P_8021AD) &&
			      *type != bpf_htons(WW_ETH_QINQ_OLD)))
			break;
		if (tag == 1 && ww_unlikely(beside))
			break;
		if (ww_unlikely((void *)(vlan + 1) > cursor->end))
			return WW_MALFORMED_ETHERNET;
		if (tag == 0 && ww_likely(!beside))
			*link = bpf_ntohs(vlan->tci) & WW_VLAN_ID;
		else
			*link |= WW_INNER_VLAN(bpf_ntohs(vlan->tci) & WW_VLAN_ID);
		*type = vlan->type;
		cursor->at = vlan + 1;
	}
	if (ww_unlikely(*type == bpf_htons(ETH_P_PPP_SES))) {
		void *data = ww_data(ctx);
		__u64 behind = ww_skip_pppoe(ctx, cursor->at - data);

		ww_hide(behind);
		if (behind >> 32)
			return behind >> 32 & 15;
		*type = bpf_htons(behind >> 16);
		*link |= WW_IN_PPPOE;
		cursor->at = data + (behind & 0x7fff);
	}
	return 0;
}

/* The frame's own Ethernet header. tag: beside the frame. */
static __always_inline int ww_parse_outer(WW_HOOK_CTX *ctx, struct ww_cursor *cursor, __u32 tag, __be16 *type,
					  __u32 *link)
{
	*link = ww_unlikely(tag) ? tag & WW_VLAN_ID : 0;
	return ww_parse_tagged(ctx, cursor, type, link, tag != 0);
}

static __always_inline int ww_is_extension(__u32 protocol)
{
	return protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING || protocol == IPPROTO_FRAGMENT ||
	       protocol == IPPROTO_AH || protocol == IPPROTO_DSTOPTS || protocol == IPPROTO_MH ||
	       protocol == 139 || protocol == 140;
}

#endif
