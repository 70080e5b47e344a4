/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Whether a packet belongs to a connection that this host has begun or accepted: what the policy's `allow: {established: true}` asks, only
 * before a packet is dropped. Anyone who knows the addresses and ports of such a connection gets through.
 */
#ifndef WW_SOCKETS_H
#define WW_SOCKETS_H

#include <linux/bpf.h>
#include <linux/in.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "classify/config.h"
#include "classify/maps.h"
#include "classify/packet.h"
#include "classify/parse.h"
#include "frame/hook.h"

/* TCP states in which the host knows its peer. A listener accepts a SYN from anybody, and a request or SYN_RECV is the result of one. */
#define WW_CONNECTED_STATES                                                                                  \
	(1 << BPF_TCP_ESTABLISHED | 1 << BPF_TCP_SYN_SENT | 1 << BPF_TCP_FIN_WAIT1 |                         \
	 1 << BPF_TCP_FIN_WAIT2 | 1 << BPF_TCP_TIME_WAIT | 1 << BPF_TCP_CLOSE_WAIT | 1 << BPF_TCP_LAST_ACK | \
	 1 << BPF_TCP_CLOSING)

/* bpf_skc_lookup_tcp finds requests and TIME_WAIT as what they are; bpf_sk_lookup_tcp gives the listener for a request. */
static __always_inline int ww_connected_tcp(WW_HOOK_CTX *ctx, struct bpf_sock_tuple *tuple, __u32 size)
{
	struct bpf_sock *socket = bpf_skc_lookup_tcp(ctx, tuple, size, BPF_F_CURRENT_NETNS, 0);
	__u32 state;

	if (!socket)
		return 0;
	state = socket->state;
	bpf_sk_release(socket);
	return WW_CONNECTED_STATES >> (state & 31) & 1;
}

/* A UDP socket has a peer's port if it is connected; else it takes packets of everybody. */
static __always_inline int ww_connected_udp(WW_HOOK_CTX *ctx, struct bpf_sock_tuple *tuple, __u32 size)
{
	struct bpf_sock *socket = bpf_sk_lookup_udp(ctx, tuple, size, BPF_F_CURRENT_NETNS, 0);
	int connected;

	if (!socket)
		return 0;
	connected = socket->dst_port != 0;
	bpf_sk_release(socket);
	return connected;
}

/* The packet as the host gets it, so without a look into tunnels. Read again, as what was parsed is long forgotten here (a key may lack
 * addresses, and a model be a program of its own); its transport header is known to be there. A global function, so that it takes nothing from
 * the usual packet's registers. */
__noinline int ww_established(WW_HOOK_ARG *ctx)
{
	struct ww_cursor cursor = {.at = ww_data(ctx), .end = ww_data_end(ctx)};
	struct bpf_sock_tuple tuple;
	struct ww_packet p = {};
	__u32 size = sizeof(tuple.ipv4);
	__be16 type, *ports;

	/* Captured packets belong to no socket of this host: the kernel answers as user space does, which has none. */
	if (ww_config.clock == WW_CLOCK_METADATA)
		return 0;
	if (ww_parse_outer(ctx, &cursor, ww_tag(ctx), &type, &p.link) ||
	    (type != bpf_htons(ETH_P_IP) && type != bpf_htons(ETH_P_IPV6)) ||
	    (type == bpf_htons(ETH_P_IP) ? ww_parse_ipv4(ctx, &cursor, &p)
					 : ww_parse_ipv6(ctx, &cursor, &p)) ||
	    p.fragment_offset)
		return 0;
	ports = cursor.at;
	if ((void *)(ports + 2) > cursor.end)
		return 0;
	/* Sockets are found by the packets that come to them. */
	if (p.ip_version == 4) {
		tuple.ipv4.saddr = ww_outgoing() ? p.destination4 : p.source4;
		tuple.ipv4.daddr = ww_outgoing() ? p.source4 : p.destination4;
		tuple.ipv4.sport = ww_outgoing() ? ports[1] : ports[0];
		tuple.ipv4.dport = ww_outgoing() ? ports[0] : ports[1];
	} else {
		const __be32 *peer = p.addresses6 + (ww_outgoing() ? 4 : 0);
		const __be32 *own = p.addresses6 + (ww_outgoing() ? 0 : 4);

		size = sizeof(tuple.ipv6);
		__builtin_memcpy(tuple.ipv6.saddr, peer, sizeof(tuple.ipv6.saddr));
		__builtin_memcpy(tuple.ipv6.daddr, own, sizeof(tuple.ipv6.daddr));
		tuple.ipv6.sport = ww_outgoing() ? ports[1] : ports[0];
		tuple.ipv6.dport = ww_outgoing() ? ports[0] : ports[1];
	}
	if (p.protocol == IPPROTO_TCP)
		return ww_connected_tcp(ctx, &tuple, size);
	return p.protocol == IPPROTO_UDP ? ww_connected_udp(ctx, &tuple, size) : 0;
}

#endif
