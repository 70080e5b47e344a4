/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a policy does with a class beside passing and dropping it: where its packets go, and what is written on them.
 *
 * All of it is behind ww_act_config.acts, kind by kind: a program that was loaded for a policy without such classes has none of it.
 */
#ifndef WW_STEER_H
#define WW_STEER_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "act/balance.h"
#include "act/bridge.h"
#include "act/challenge.h"
#include "act/companion.h"
#include "act/ends.h"
#include "act/forward.h"
#include "act/maps.h"
#include "act/tunnel_enter.h"
#include "act/tunnel_leave.h"
#include "act/way_out.h"
#include "frame/arith.h"
#include "frame/checksum.h"
#include "frame/hash.h"
#include "frame/hook.h"
#include "frame/link.h"

/* Bounces without loss of a hop: 1,000 per second and CPU, in bursts of as many. */
#define WW_BOUNCE_INTERVAL_NS 1000000ULL
#define WW_BOUNCE_BURST_NS (999 * WW_BOUNCE_INTERVAL_NS)

/* 16-bit words of IP headers. */
#define WW_IPV4_DSCP 0x00fc
#define WW_IPV6_DSCP 0x0fc0

/* Whether the class asks for it: a constant where the load rules it out. */
static __always_inline int ww_steers(const struct ww_steer *what, __u32 kind)
{
	__u32 kinds;

	if (!(ww_act_config.acts & kind))
		return 0;
	kinds = what->kinds;
	ww_hide(kinds); /* otherwise the compiler joins both tests, and the first is no constant any more */
	return kinds & kind;
}

/* Has the packet go up the stack of another CPU, the same one for all packets of its ends. Returns 0 if that one has no queue. */
__noinline int ww_send_to_cpu(WW_HOOK_ARG *ctx, __u32 class_id)
{
	struct ww_steer *what = &ww_act_policy.steer[class_id & (WW_MAX_CLASSES - 1)];
	struct ww_ends ends;
	__u32 place;

	/* Before Linux 6.8 a global function is verified even if nothing calls it. */
	if (!(ww_act_config.acts & WW_STEER_CPU) || ww_act_config.acts & WW_STEER_TOLD)
		return 0;
	if (!what->cpus || !ww_read_ends(ctx, &ends))
		return 0;
	place = ww_hash((const void *)&ends.key, sizeof(ends.key) / 8) % what->cpus;
	return bpf_redirect_map(&ww_cpus, what->cpu[place & (WW_MAX_SPREAD - 1)], XDP_PASS) == XDP_REDIRECT;
}

/* Has the packet go to the socket of its receive queue. Returns 0 if it came by another, or nobody has opened one. */
static __always_inline int ww_send_to_socket(WW_HOOK_CTX *ctx, __u32 queue)
{
	if (ww_field(ctx, struct xdp_md, rx_queue_index) != queue)
		return 0;
	return bpf_redirect_map(&ww_sockets, queue, XDP_PASS) == XDP_REDIRECT;
}

/* Sends a copy out of another interface, of one packet in so many. Where that one is gone, or too busy, there is no copy. In user space
 * it goes to who carries the packets, with the interface in front. */
static __always_inline void ww_mirror(WW_HOOK_CTX *ctx, struct ww_steer *what)
{
	__u64 length = ww_frame_length(ctx);

	if (!ww_draws(what))
		return;
	if (ww_at_tc()) {
		__u64 mark = ww_field(ctx, struct __sk_buff, tc_index), generation = mark - WW_COPY;

		if (generation == WW_COPIES)
			return;
		ww_set_field(ctx, struct __sk_buff, tc_index,
			     generation < WW_COPIES ? mark + 1 : WW_COPY + 1);
		bpf_clone_redirect(ctx, what->mirror_ifindex, 0);
		ww_set_field(ctx, struct __sk_buff, tc_index, mark);
		return;
	}
	if (what->mirror_snap)
		length = ww_min(length, what->mirror_snap);
	bpf_perf_event_output(ctx, &ww_copies, length << 32 | BPF_F_CURRENT_CPU, &what->mirror_ifindex,
			      sizeof(what->mirror_ifindex));
}

/* Writes the DSCP of the outermost IP header and leaves ECN as it is. Returns 0 if there is no such header. */
static __always_inline int ww_write_dscp(WW_HOOK_CTX *ctx, __u32 dscp)
{
	struct ww_cursor cursor = {.at = ww_data(ctx), .end = ww_data_end(ctx)};
	__u16 *word, before, after;
	__u32 link;
	__be16 type;

	if (ww_parse_outer(ctx, &cursor, ww_tag(ctx), &type, &link))
		return 0;
	word = cursor.at;
	if ((void *)(word + WW_IPV4_CHECKSUM + 1) > cursor.end)
		return 0;
	before = *word;
	if (type == bpf_htons(ETH_P_IP)) {
		after = (before & ~bpf_htons(WW_IPV4_DSCP)) | bpf_htons(dscp << 2);
		word[WW_IPV4_CHECKSUM] = ww_checksum_after(word[WW_IPV4_CHECKSUM], before, after);
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		after = (before & ~bpf_htons(WW_IPV6_DSCP)) | bpf_htons(dscp << 6);
		/* The sum that a card made of the whole packet; that of IPv4 is the same as before, as its header has one. */
		if (ww_at_tc())
			bpf_csum_update(ctx, (__u16)~before + after);
	} else {
		return 0;
	}
	*word = after;
	return 1;
}

/* Whether a packet may bounce. If the other end of the wire bounces too, the packet comes back for ever, as fast as the CPU allows. No mark
 * survives a wire, so each packet above a rate that such a loop exceeds at once loses a hop, and is dropped without one left. Below it, packets
 * bounce unchanged. A global function: the verifier forgets the branches of the parser at its end. */
__noinline int ww_may_bounce(WW_HOOK_ARG *ctx)
{
	struct ww_cursor cursor = {.at = ww_data(ctx), .end = ww_data_end(ctx)};
	struct ww_act_cpu *percpu;
	__u32 link, is_ipv4;
	__u16 *word;
	__be16 type;

	/* Before Linux 6.8 a global function is verified even if nothing calls it. */
	if (!(ww_act_config.acts & WW_STEER_BOUNCE))
		return 0;
	percpu = ww_this_cpu();
	if (!percpu)
		return 0;
	if (ww_within_rate(&percpu->bounce_tat_ns, bpf_ktime_get_ns(), WW_BOUNCE_INTERVAL_NS,
			   WW_BOUNCE_BURST_NS))
		return 1;
	if (ww_parse_outer(ctx, &cursor, ww_tag(ctx), &type, &link))
		return 0;
	word = cursor.at;
	is_ipv4 = type == bpf_htons(ETH_P_IP);
	if ((void *)(word + WW_IPV4_CHECKSUM + 1) > cursor.end || (!is_ipv4 && type != bpf_htons(ETH_P_IPV6)))
		return 0;
	if (((__u8 *)word)[is_ipv4 ? 2 * WW_IPV4_TTL : 2 * WW_IPV6_HOPS + 1] <= 1)
		return 0;
	ww_take_hop(ctx, word, is_ipv4);
	return 1;
}

/* Has the packet leave by the interface it came by, to who sent it. */
static __always_inline int ww_bounce(WW_HOOK_CTX *ctx)
{
	struct ethhdr *link = ww_data(ctx);
	__u8 destination[ETH_ALEN];

	if ((void *)(link + 1) > ww_data_end(ctx))
		return 0;
	__builtin_memcpy(destination, link->h_dest, ETH_ALEN);
	__builtin_memcpy(link->h_dest, link->h_source, ETH_ALEN);
	__builtin_memcpy(link->h_source, destination, ETH_ALEN);
	if (ww_at_tc() && !(ww_act_config.acts & WW_STEER_TOLD))
		bpf_redirect(ww_field(ctx, struct __sk_buff, ifindex), 0);
	return 1;
}

/* What is done with a packet that is in no tunnel, or stays there. What may fail comes first. left: it was taken out of one; the stack can send
 * it on, or look for who it goes to. */
static __always_inline int ww_steer_packet(WW_HOOK_CTX *ctx, struct ww_steer *what, __u32 class_id, int left)
{
	int verdict = WW_VERDICT_PASS;

	if (ww_steers(what, WW_STEER_CHALLENGE)) {
		verdict = ww_challenge(ctx, class_id);
		return verdict == WW_VERDICT_BOUNCE && !ww_bounce(ctx) ? WW_VERDICT_DROP : verdict;
	}
	/* The copy is of the packet as it came. Before all others: sending it may run programs that redirect, and the kernel remembers one
	 * redirect a CPU. */
	if ((ww_at_tc() || ww_act_config.acts & WW_STEER_CARRIED) && ww_steers(what, WW_STEER_MIRROR) &&
	    !(ww_act_config.acts & WW_STEER_TOLD))
		ww_mirror(ctx, what);
	if (ww_steers(what, WW_STEER_REDIRECT)) {
		if (!ww_redirect(ctx, what->ifindex, 0))
			return WW_VERDICT_NOT_ACTED;
		verdict = WW_VERDICT_REDIRECT;
	}
	/* What is captured stays on this CPU, and there is no socket. */
	if (ww_steers(what, WW_STEER_CPU) && !(ww_act_config.acts & WW_STEER_TOLD)) {
		if (!ww_send_to_cpu(ctx, class_id))
			return WW_VERDICT_NOT_ACTED;
		verdict = WW_VERDICT_REDIRECT;
	}
	if (ww_steers(what, WW_STEER_SOCKET)) {
		if (!(ww_act_config.acts & WW_STEER_TOLD) && !ww_send_to_socket(ctx, what->socket))
			return WW_VERDICT_NOT_ACTED;
		verdict = WW_VERDICT_REDIRECT;
	}
	if (ww_steers(what, WW_STEER_BRIDGE)) {
		__u32 port = ww_port_of(ctx, class_id);

		if (!port || !ww_redirect(ctx, port, 0))
			return WW_VERDICT_NOT_ACTED;
		verdict = WW_VERDICT_REDIRECT;
	} else if (ww_steers(what, WW_STEER_ENCAPSULATE)) {
		verdict = ww_enter_tunnel(ctx, class_id);
		if (verdict == WW_VERDICT_BOUNCE)
			return ww_bounce(ctx) ? verdict : WW_VERDICT_DROP;
		if (verdict == WW_VERDICT_NOT_ACTED || verdict == WW_VERDICT_DROP)
			return verdict;
	} else if (ww_steers(what, WW_STEER_FORWARD)) {
		if (ww_forward(ctx, class_id))
			verdict = WW_VERDICT_REDIRECT;
		else if (!left)
			return WW_VERDICT_NOT_ACTED;
	} else if (ww_steers(what, WW_STEER_BACKEND)) {
		verdict = ww_balance(ctx, what->pool);
		if (verdict == WW_VERDICT_NOT_ACTED)
			return WW_VERDICT_NOT_ACTED;
	}
	if (!ww_steers(what, WW_STEER_ENCAPSULATE) && ww_steers(what, WW_STEER_QFI | WW_STEER_INNER_DSCP) &&
	    !ww_write_inside(ctx, class_id))
		return WW_VERDICT_NOT_ACTED;
	if (!ww_at_tc() && !(ww_act_config.acts & WW_STEER_CARRIED) &&
	    ww_steers(what, WW_STEER_BY_COMPANION) && !ww_wish_for(ctx, class_id))
		return WW_VERDICT_NOT_ACTED;
	/* What is captured goes nowhere. */
	if (!(ww_act_config.acts & WW_STEER_TOLD) && ww_steers(what, WW_STEER_BOUNCE) && !ww_may_bounce(ctx))
		return WW_VERDICT_DROP;
	if (ww_steers(what, WW_STEER_DSCP) && !ww_write_dscp(ctx, what->dscp & 63))
		return WW_VERDICT_NOT_ACTED;
	if (ww_steers(what, WW_STEER_BOUNCE)) {
		if (!ww_bounce(ctx))
			return WW_VERDICT_NOT_ACTED;
		verdict = WW_VERDICT_BOUNCE;
	}
	if (ww_at_tc()) {
		if (ww_steers(what, WW_STEER_MARK))
			ww_set_field(ctx, struct __sk_buff, mark, what->mark);
		if (ww_steers(what, WW_STEER_PRIORITY))
			ww_set_field(ctx, struct __sk_buff, priority, what->priority);
		/* As the kernel notes the queue that a packet came by, which it leaves by too: from 1 on, as 0 is none. */
		if (ww_steers(what, WW_STEER_QUEUE))
			ww_set_field(ctx, struct __sk_buff, queue_mapping, what->queue + 1);
	}
	return verdict;
}

/* Does what the policy asks for a class, and returns the verdict, or WW_VERDICT_NOT_ACTED. */
__noinline int ww_act(WW_HOOK_ARG *ctx, __u32 class_id)
{
	struct ww_steer *what = &ww_act_policy.steer[class_id & (WW_MAX_CLASSES - 1)];
	int verdict, left;

	if (!ww_act_config.acts || what->kinds & ~ww_act_config.acts)
		return WW_VERDICT_NOT_ACTED;
	left = ww_steers(what, WW_STEER_DECAPSULATE) != 0;
	if (left && !ww_leave_tunnel(ctx))
		return WW_VERDICT_NOT_ACTED;
	verdict = ww_steer_packet(ctx, what, class_id, left);
	return left && verdict == WW_VERDICT_NOT_ACTED ? WW_VERDICT_PASS : verdict;
}

#endif
