/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What decides whether a packet is inferred at all: the allow list, the deny list, and the trigger. */
#ifndef WW_GATE_H
#define WW_GATE_H

#include "classify/config.h"
#include "classify/flow.h"
#include "classify/maps.h"
#include "classify/packet.h"
#include "frame/hash.h"
#include "frame/hook.h"
#include "frame/prefixes.h"

/* Whether a list of ports has one: the word of the list that has its bit (first: where the list begins), and what is found there. The map itself
 * is not handed to a function: compiled for the processor, its type is what a look-up knows it by. */
static __always_inline __u32 ww_port_word(__u32 protocol, __u32 port, __u32 first)
{
	return first + (protocol == IPPROTO_UDP ? WW_ALLOW_PORT_WORDS : 0) + port / 64;
}

static __always_inline int ww_has_port(const __u64 *bits, __u32 protocol, __u32 port)
{
	return bits && (protocol == IPPROTO_TCP || protocol == IPPROTO_UDP) && *bits >> (port & 63) & 1;
}

/* The allow list; not called if it is empty. Global functions, so that they use none of ww_main's stack. */
__noinline int ww_allowed_prefix4(__be32 source)
{
	struct ww_prefix4 prefix = {.length = 32};

	__builtin_memcpy(prefix.address, &source, sizeof(prefix.address));
	return WW_LONGEST_PREFIX(ww_allowed, ww_allow4, &prefix, 32, ww_boot_s) ? WW_ALLOWED_PREFIX : 0;
}

__noinline int ww_allowed_prefix6(const struct ww_prefix6 *prefix)
{
	struct ww_prefix6 copy;

	if (!prefix)
		return 0;
	/* Linux 6.1 accepts no map key in memory that was passed to a global function. */
	copy = *prefix;
	return WW_LONGEST_PREFIX(ww_allowed, ww_allow6, &copy, 128, ww_boot_s) ? WW_ALLOWED_PREFIX : 0;
}

__noinline int ww_allowed_port(__u32 protocol, __u32 port, __u32 first)
{
	__u32 word = ww_port_word(protocol, port, first);

	return ww_has_port(bpf_map_lookup_elem(&ww_allow_ports, &word), protocol, port) ? WW_ALLOWED_PORT : 0;
}

/* Packets without which a host loses its network: path MTU discovery, neighbour discovery (from its own link: with a hop limit of 255, RFC 4861), DHCP.
 * ports: source << 16 | destination. icmp: version << 16 | type << 8 | code. */
__noinline int ww_essential(__u32 protocol, __u32 ports, __u32 icmp, __u32 ttl)
{
	__u32 type = icmp >> 8 & 0xff;
	int is = 0;

	if (protocol == IPPROTO_UDP && icmp >> 16 == 4)
		is = ports == (67 << 16 | 68) || ports == (68 << 16 | 67) || ports == (67 << 16 | 67);
	else if (protocol == IPPROTO_UDP)
		is = ports == (547 << 16 | 546) || ports == (546 << 16 | 547) || ports == (547 << 16 | 547);
	else if (icmp >> 16 == 4)
		is = protocol == IPPROTO_ICMP && (icmp & 0xffff) == (3 << 8 | 4);
	else if (protocol == IPPROTO_ICMPV6)
		is = type == 2 || (type >= 133 && type <= 137 && ttl == 255);
	return is ? WW_ALLOWED_ESSENTIAL : 0;
}

/* Spares most packets the call. version: 4 or 6, a constant. */
static __always_inline int ww_may_be_essential(const struct ww_packet *p, const __u32 version)
{
	if (p->protocol == IPPROTO_TCP)
		return 0;
	if (p->protocol == IPPROTO_UDP)
		return version == 4 ? p->destination_port == 67 || p->destination_port == 68
				    : p->destination_port == 546 || p->destination_port == 547;
	return 1;
}

/* WW_ALLOWED_PREFIX, WW_ALLOWED_PORT, WW_ALLOWED_ESSENTIAL, or 0. version: 4 or 6, a constant. allow: enum ww_allow bits. The list is about
 * incoming packets: of outgoing ones, their answers are looked for in it. */
static __always_inline int ww_allowed(const struct ww_packet *p, __u32 allow, const __u32 version)
{
	int status = 0;

	if (version == 4 && allow & WW_ALLOW_IPV4) {
		status = ww_allowed_prefix4(ww_outgoing() ? p->destination4 : p->source4);
	} else if (version == 6 && allow & WW_ALLOW_IPV6) {
		struct ww_prefix6 prefix = {.length = 128};

		__builtin_memcpy(prefix.address, p->addresses6 + (ww_outgoing() ? 4 : 0),
				 sizeof(prefix.address));
		status = ww_allowed_prefix6(&prefix);
	}
	/* A fragment other than the first has no ports to allow. */
	if (!status && allow & WW_ALLOW_PORTS && !p->fragment_offset)
		status =
			ww_allowed_port(p->protocol, ww_outgoing() ? p->source_port : p->destination_port, 0);
	if (!status && allow & WW_ALLOW_SOURCE_PORTS && !p->fragment_offset)
		status = ww_allowed_port(p->protocol, ww_outgoing() ? p->destination_port : p->source_port,
					 2 * WW_ALLOW_PORT_WORDS);
	/* What keeps a host's own network up does not come through a tunnel. */
	if (!status && allow & WW_ALLOW_ESSENTIAL && ww_may_be_essential(p, version) && !p->fragment_offset &&
	    !p->tunnelled)
		status = ww_essential(p->protocol, p->source_port << 16 | p->destination_port,
				      version << 16 | p->icmp_type << 8 | p->icmp_code, p->ttl);
	/* The verifier does not know what a global function returns, so the compiler must not assume it either. */
	ww_hide(status);
	return status & 15;
}

/* The other seam between classifier and actor, beside ww_act: WW_DENIED_PREFIX, WW_DENIED_PORT, WW_BANNED, or 0. A bundle's deny nobody; the
 * agent links its own (bpf/act/deny.h) where a policy has a deny list, or bans. peer: whom lists are about. own: the packet's other end.
 * transport: offset of the transport header in the frame << 32 | protocol << 16 | port at the own end; protocol 0 if the packet has no ports;
 * with WW_PORT_IS_DENIED if the deny list has that port. */
__weak __noinline int ww_denied4(WW_HOOK_ARG *ctx, __be32 peer, __be32 own, __u64 transport)
{
	int status = 0;

	ww_hide(status); /* no caller may know it */
	return status;
}

__weak __noinline int ww_denied6(WW_HOOK_ARG *ctx, const struct ww_ends6 *ends, __u64 transport)
{
	int status = 0;

	ww_hide(status);
	return status;
}

/* Whether a bit of the filter is set. Only then is the list itself looked at: that takes two calls and a longest-prefix match, and most packets
 * are of nobody who is on it. */
static __always_inline int ww_filtered(__u32 word, __u32 bit)
{
	__u64 *bits = bpf_map_lookup_elem(&ww_deny_filter, &word);

	return !bits || *bits >> (bit & 63) & 1;
}

static __always_inline int ww_may_be_denied4(__be32 peer)
{
	__u32 network = bpf_ntohl(peer) >> (32 - WW_DENY_BITS4);

	return ww_filtered(network / 64, network);
}

static __always_inline int ww_may_be_denied6(const __u32 *peer)
{
	__u64 network = (__u64)bpf_ntohl(peer[0]) << 8 | bpf_ntohl(peer[1]) >> 24;
	__u32 hash = ww_hash_network(network, WW_DENY_BITS6);

	return ww_filtered(WW_DENY_WORDS4 + hash / 64, hash);
}

/* Asked of packets that the allow list does not let through. As that, it is about peers. header: of the transport. allow: enum ww_allow bits.
 * version: 4 or 6, a constant. */
static __always_inline int ww_denied(WW_HOOK_CTX *ctx, struct ww_scratch *scratch, const struct ww_packet *p,
				     const void *header, __u32 allow, const __u32 version)
{
	__u32 port = ww_outgoing() ? p->source_port : p->destination_port;
	/* A fragment other than the first has no ports. */
	__u32 protocol = p->fragment_offset ? 0 : p->protocol;
	__u64 transport = protocol << 16 | port;
	int status;

	if (ww_config.denies) {
		int may_be = allow & WW_ALLOW_UNLESS_BANNED;

		if (allow & WW_ALLOW_UNLESS_PORT_DENIED) {
			__u32 word = ww_port_word(protocol, port, 0);

			if (ww_has_port(bpf_map_lookup_elem(&ww_deny_ports, &word), protocol, port))
				transport |= WW_PORT_IS_DENIED;
		}
		if (!may_be && !(transport & WW_PORT_IS_DENIED))
			may_be = version == 4
					 ? ww_may_be_denied4(ww_outgoing() ? p->destination4 : p->source4)
					 : ww_may_be_denied6(p->addresses6 + (ww_outgoing() ? 4 : 0));
		if (ww_likely(!may_be && !(transport & WW_PORT_IS_DENIED)))
			return 0;
	}
	transport |= (__u64)(header - ww_data(ctx)) << 32;
	if (version == 4) {
		status = ww_denied4(ctx, ww_outgoing() ? p->destination4 : p->source4,
				    ww_outgoing() ? p->source4 : p->destination4, transport);
	} else {
		/* Not on the stack, which is short: memory that a network's layers use later. */
		struct ww_ends6 *ends = (void *)scratch->activation;

		__builtin_memcpy(ends->peer, p->addresses6 + (ww_outgoing() ? 4 : 0), sizeof(ends->peer));
		__builtin_memcpy(ends->own, p->addresses6 + (ww_outgoing() ? 0 : 4), sizeof(ends->own));
		status = ww_denied6(ctx, ends, transport);
	}
	ww_hide(status);
	return status & 15;
}

/* Whether the flow's verdict is from a program with other classes, which this one replaced: then the flow is judged again. */
static __always_inline int ww_outlived(const struct ww_slot *slot)
{
	return slot->flags & WW_SLOT_VERDICTS & ~ww_config.verdict;
}

/* Whether a selector of the policy's trigger names a packet. header: protocol | TCP flags << 8 | whether the packet begins with its transport
 * header << 16; ports: source << 16 | destination. Without branches, whose paths the verifier would follow through all selectors. */
__noinline int ww_selected(__u32 header, __u32 ports)
{
	__u32 protocol = header & 0xff, flags = header >> 8 & 0xff, whole = header >> 16 & 1;
	__u32 is_tcp = whole & ww_equal(protocol, IPPROTO_TCP);
	__u32 has_ports = is_tcp | (whole & ww_equal(protocol, IPPROTO_UDP)), is_selected = 0;

#pragma unroll
	for (int i = 0; i < WW_SELECTORS; i++) {
		const struct ww_selector *selector = &ww_policy.selector[i];
		__u32 asks = selector->asks, port = selector->port, of_ports, has;

		has = WW_SELECT_PROTOCOL * ww_equal(selector->protocol, protocol) |
		      WW_SELECT_SOURCE_PORT * (has_ports & ww_equal(port, ports >> 16)) |
		      WW_SELECT_DESTINATION_PORT * (has_ports & ww_equal(port, ports & 0xffff)) |
		      WW_SELECT_TCP_FLAGS *
			      (is_tcp & ww_equal(flags & selector->flags_mask, selector->flags));
		/* One of both ports is enough. */
		of_ports = asks & (WW_SELECT_SOURCE_PORT | WW_SELECT_DESTINATION_PORT);
		has |= of_ports * ww_is_not_0(has & of_ports);
		is_selected |= ww_is_not_0(asks) & ww_equal(asks & ~has, 0);
	}
	return is_selected;
}

/* Asks before the flow is looked up, so that the packet's headers need no stack from there to the trigger. */
static __always_inline void ww_select(struct ww_scratch *scratch, const struct ww_packet *p)
{
	if (ww_unlikely(ww_policy.trigger == WW_TRIGGER_HEADERS))
		scratch->selected = ww_selected(p->protocol | p->tcp_flags << 8 | !p->fragment_offset << 16,
						p->source_port << 16 | p->destination_port);
}

/* Whether the flow's packet number or time, or the packet's headers, ask for the model. */
static __always_inline int ww_triggered(const struct ww_scratch *scratch, const struct ww_context *context)
{
	__u32 packets = context->packets, trigger = ww_policy.trigger;

	if (ww_likely(trigger == WW_TRIGGER_EVERY))
		return 1;
	ww_hide(trigger); /* otherwise the compiler puts the usual case last */
	switch (trigger) {
	case WW_TRIGGER_PACKETS: {
		__u32 word = packets / 64;

		ww_hide(word); /* otherwise the compiler drops the mask, which the verifier may need */
		return packets < WW_TRIGGER_WORDS * 64 &&
		       ww_policy.trigger_packets[word & (WW_TRIGGER_WORDS - 1)] >> (packets & 63) & 1;
	}
	case WW_TRIGGER_INTERVAL: {
		__u64 interval = ww_policy.trigger_interval_ns,
		      previous = context->now_ns - context->elapsed_ns;

		return packets == 1 || !interval || context->now_ns / interval != previous / interval;
	}
	case WW_TRIGGER_FIRST_N:
		return packets <= ww_policy.trigger_first_n;
	case WW_TRIGGER_HEADERS: {
		__u32 every = ww_policy.trigger_every;

		if (every && packets % every == 0)
			return 1;
		return scratch->selected != 0;
	}
	}
	return 1;
}

#endif
