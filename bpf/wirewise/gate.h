/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What decides whether a packet is inferred at all: the allow list, and the trigger. */
#ifndef WW_GATE_H
#define WW_GATE_H

#include "flow.h"
#include "maps.h"
#include "packet.h"

/* WW_ALLOWED_PREFIX, WW_ALLOWED_PORT, or 0. Not inlined: with an empty allow list nobody comes here. */
static __noinline int ww_allowed(const struct ww_packet *p, __u32 allow)
{
	if (p->ip_version == 4 && allow & WW_ALLOW_IPV4) {
		struct ww_prefix4 prefix = {.length = 32};

		__builtin_memcpy(prefix.address, &p->source4, sizeof(prefix.address));
		if (bpf_map_lookup_elem(&ww_allow4, &prefix))
			return WW_ALLOWED_PREFIX;
	}
	if (p->ip_version == 6 && allow & WW_ALLOW_IPV6) {
		struct ww_prefix6 prefix = {.length = 128};

		__builtin_memcpy(prefix.address, p->source6, sizeof(prefix.address));
		if (bpf_map_lookup_elem(&ww_allow6, &prefix))
			return WW_ALLOWED_PREFIX;
	}
	if (allow & WW_ALLOW_PORTS && (p->protocol == IPPROTO_TCP || p->protocol == IPPROTO_UDP) &&
	    !p->fragment_offset) {
		__u32 word = (p->protocol == IPPROTO_UDP ? WW_ALLOW_PORT_WORDS : 0) + p->destination_port / 64;
		__u64 *ports = bpf_map_lookup_elem(&ww_allow_ports, &word);

		if (ports && *ports >> (p->destination_port & 63) & 1)
			return WW_ALLOWED_PORT;
	}
	return 0;
}

/* Whether the model runs on this packet. */
static __always_inline int ww_triggered(const struct ww_policy *policy, const struct ww_context *context)
{
	__u32 packets = context->packets;

	switch (policy->trigger) {
	case WW_TRIGGER_PACKETS:
		return packets < WW_TRIGGER_WORDS * 64 &&
		       policy->trigger_packets[packets / 64 & (WW_TRIGGER_WORDS - 1)] >> (packets & 63) & 1;
	case WW_TRIGGER_INTERVAL: {
		__u64 interval = policy->trigger_interval_ns, previous = context->now_ns - context->elapsed_ns;

		return packets == 1 || !interval || context->now_ns / interval != previous / interval;
	}
	case WW_TRIGGER_FIRST_N:
		return packets <= policy->trigger_first_n;
	}
	return 1;
}

#endif
