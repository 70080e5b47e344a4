/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A challenge to who opens a TCP connection to this host: its SYN is answered here, by a cookie of the kernel's in the sequence number, and nothing
 * is kept of it. Who returns the cookie was there, and is remembered; the listener takes the connection from that packet alone.
 *
 * The answer offers the MSS and no other option: windows scale, and SACK, only where the listener knows what was agreed, and a cookie has no
 * room for it. (Timestamps would have, but the kernel adds to them what only itself knows.)
 */
#ifndef WW_CHALLENGE_H
#define WW_CHALLENGE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "act/ends.h"
#include "act/forward.h"
#include "act/maps.h"
#include "frame/arith.h"
#include "frame/checksum.h"
#include "frame/hook.h"

#define WW_TCP_FLAGS 13 /* offset in the header */
#define WW_TCP_FIN 0x01
#define WW_TCP_SYN 0x02
#define WW_TCP_RST 0x04
#define WW_TCP_ACK 0x10
#define WW_TCP_OPTIONS 10 /* words, at most */
#define WW_OPTION_MSS 0x02040000
#define WW_ANSWER_BYTES 24 /* of TCP: its header and the MSS */
#define WW_ANSWER_TTL 64
#define WW_LEAST_FRAME 60
/* The window of the answer: what clients send at first. The listener's own comes with its first packet. */
#define WW_FIRST_SEGMENTS 10

#define WW_SUMMED 512
#define WW_SUMMED_BLOCKS 18 /* of the longest frames that there are */
#define WW_MAX_IPV4_HEADER 60

/* Headers as helpers want them: in memory of a known size. */
struct ww_headers {
	union {
		struct iphdr ip4;
		struct ipv6hdr ip6;
	};
	union {
		struct {
			struct tcphdr tcp;
			__be32 option[WW_TCP_OPTIONS];
		};
		__u8 bytes[sizeof(struct tcphdr) + 4 * WW_TCP_OPTIONS];
	};
};

/* What the functions below share. Their stack and that of their callers together would not fit, so it lies where layers of a network gave their
 * results, which nobody reads any more. */
struct ww_room {
	struct ww_ends ends;
	struct ww_headers headers;
	struct bpf_fib_lookup route;
	__u8 block[WW_SUMMED]; /* of the packet, as much as bpf_csum_diff takes at once */
};

_Static_assert(sizeof(struct ww_room) <= sizeof(((struct ww_act_cpu *)0)->room), "no room");

static __always_inline struct ww_room *ww_find_room(void)
{
	struct ww_act_cpu *percpu = 0;

	if (ww_act_config.acts & WW_STEER_CHALLENGE)
		percpu = ww_this_cpu();
	return percpu ? (void *)percpu->room : 0;
}

/* Reads the IP and the TCP header, and returns the length of the latter, or 0. */
static __always_inline __u32 ww_read_headers(WW_HOOK_CTX *ctx, struct ww_room *room)
{
	struct ww_headers *headers = &room->headers;
	__u32 at = room->ends.transport;
	__u32 size = room->ends.key.reserved[0] == 4 ? sizeof(headers->ip4) : sizeof(headers->ip6);

	if (bpf_xdp_load_bytes(ctx, room->ends.network, headers, size) ||
	    bpf_xdp_load_bytes(ctx, at, &headers->tcp, sizeof(headers->tcp)))
		return 0;
	size = (headers->bytes[WW_TCP_FLAGS - 1] >> 4) * 4;
	ww_hide(size); /* otherwise the compiler compares the bits it is made of, and the verifier knows no bounds of it */
	if (size < sizeof(headers->tcp) || bpf_xdp_load_bytes(ctx, at, headers->bytes, size))
		return 0;
	return size;
}

/* The sum of some bytes of the frame, on top of another, as ww_checksum takes it; negative if there are not so many. */
static __always_inline __s64 ww_sum_frame(WW_HOOK_CTX *ctx, struct ww_room *room, __u32 at, __u32 length,
					  __s64 sum)
{
	for (int i = 0; i < WW_SUMMED_BLOCKS && length; i++) {
		__u32 size = ww_min(length, WW_SUMMED), words;

		ww_hide(size); /* otherwise the compiler takes another register's bounds for it */
		/* The same number, but Linux 6.1 knows by it that there is a byte, which it does not by a comparison with 0. */
		size = ((size - 1) & (WW_SUMMED - 1)) + 1;
		/* What is behind the last byte counts as zeros. */
		words = (size + 3) & ~3;
		ww_hide(words);
		if (words < 4 || words > WW_SUMMED)
			return -1;
		*(__u32 *)(room->block + words - 4) = 0;
		if (bpf_xdp_load_bytes(ctx, at, room->block, size))
			return -1;
		sum = bpf_csum_diff(0, 0, (void *)room->block, words, sum);
		if (sum < 0)
			return -1;
		at += size;
		length -= size;
	}
	return length ? -1 : sum;
}

/* Whether the packet is one that this host's TCP would look at: addressed to one station here, from one elsewhere, and with right checksums. Who
 * sends others is not answered: with a sender's address in them, answers could be had from groups, or by everybody at once. */
__noinline int ww_is_sound(WW_HOOK_ARG *ctx, __u32 class_id)
{
	struct ww_steer *what = &ww_act_policy.steer[class_id & (WW_MAX_CLASSES - 1)];
	struct ww_room *room = ww_find_room();
	__u16 *ethernet = ww_data(ctx), check;
	const __be32 *source, *destination;
	__u32 size, segment, pseudo;
	struct ww_ends *ends;
	__s64 sum;

	if (!room || (void *)(ethernet + WW_ETH_WORDS) > ww_data_end(ctx) ||
	    !ww_is_for(ethernet, what->address))
		return 0;
	ends = &room->ends;
	source = (void *)ends->key.source;
	destination = (void *)ends->key.destination;
	__builtin_memset(&room->route, 0, sizeof(room->route));
	if (ends->key.reserved[0] == 4) {
		size = ends->transport - ends->network;
		if (!ww_is_routed4(*source) || !ww_is_routed4(*destination) || *source == *destination)
			return 0;
		for (int i = 0; i < WW_BROADCASTS; i++) {
			__be32 group = *(__be32 *)what->broadcast[i];

			if (group && (group == *source || group == *destination))
				return 0;
		}
		if (size < sizeof(struct iphdr) || size > WW_MAX_IPV4_HEADER)
			return 0;
		sum = ww_sum_frame(ctx, room, ends->network, size, 0);
		if (sum < 0 || ww_checksum(sum) ||
		    bpf_xdp_load_bytes(ctx, ends->network, &room->headers, sizeof(room->headers.ip4)))
			return 0;
		segment = bpf_ntohs(room->headers.ip4.tot_len);
		if (*(__u8 *)&room->headers >> 4 != 4 || segment < size)
			return 0;
		segment -= size;
		room->route.family = WW_AF_INET;
		room->route.ipv4_src = *source;
		room->route.ipv4_dst = *destination;
	} else {
		/* With 64 zeros begin ::, ::1 and those that carry one of IPv4. */
		if (!(source[0] | source[1]) || !(destination[0] | destination[1]) ||
		    ends->key.source[0] == 0xff || ends->key.destination[0] == 0xff ||
		    (source[0] == destination[0] && source[1] == destination[1] &&
		     source[2] == destination[2] && source[3] == destination[3]))
			return 0;
		if (bpf_xdp_load_bytes(ctx, ends->network, &room->headers, sizeof(room->headers.ip6)))
			return 0;
		segment = bpf_ntohs(room->headers.ip6.payload_len);
		room->route.family = WW_AF_INET6;
		__builtin_memcpy(room->route.ipv6_src, ends->key.source, 16);
		__builtin_memcpy(room->route.ipv6_dst, ends->key.destination, 16);
	}
	/* A router's listener is not asked about packets that only pass by. */
	room->route.ifindex = ww_field(ctx, struct xdp_md, ingress_ifindex);
	switch (bpf_fib_lookup(ctx, &room->route, sizeof(room->route), 0)) {
	case BPF_FIB_LKUP_RET_NOT_FWDED:
	case BPF_FIB_LKUP_RET_FWD_DISABLED:
		break;
	default:
		return 0;
	}
	/* The addresses lie behind each other in the key; of IPv4 they have zeros between them. */
	sum = bpf_csum_diff(0, 0, (void *)ends->key.source, 2 * sizeof(ends->key.source),
			    bpf_htons(IPPROTO_TCP) + bpf_htons(segment));
	if (sum < 0 || segment < sizeof(struct tcphdr) ||
	    bpf_xdp_load_bytes(ctx, ends->transport + __builtin_offsetof(struct tcphdr, check), &check,
			       sizeof(check)))
		return 0;
	pseudo = (__u16)~ww_checksum(sum);
	/* A veth pair's other end leaves the rest to a card that is not there. */
	if (check == pseudo)
		return 1;
	sum = ww_sum_frame(ctx, room, ends->transport, segment, sum);
	return sum >= 0 && !ww_checksum(sum);
}

/* What a TCP packet is to this host's sockets. */
enum ww_receiver {
	WW_NOBODY,   /* for none of them, or for a port that takes no cookies */
	WW_KNOWN,    /* of a connection, or of one that is being made */
	WW_LISTENER, /* for a port on which somebody listens */
};

/* opens: whether it is a SYN. Then its listener is asked whether it takes cookies, as it does where the sysctl tcp_syncookies is 2, and learns
 * that one is given out: without one of the last two minutes that it knows of, it would not look at what comes back. */
__noinline int ww_find_receiver(WW_HOOK_ARG *ctx, int opens)
{
	struct ww_room *room = ww_find_room();
	struct bpf_sock_tuple *tuple;
	const struct ww_ends_key *key;
	struct bpf_sock *socket;
	int found = WW_KNOWN;
	__s64 cookie = -1;
	__u32 size;

	if (!room)
		return WW_NOBODY;
	key = &room->ends.key;
	tuple = (void *)&room->headers;
	if (key->reserved[0] == 4) {
		__builtin_memcpy(&tuple->ipv4.saddr, key->source, 4);
		__builtin_memcpy(&tuple->ipv4.daddr, key->destination, 4);
		tuple->ipv4.sport = key->source_port;
		tuple->ipv4.dport = key->destination_port;
		size = sizeof(tuple->ipv4);
	} else {
		__builtin_memcpy(tuple->ipv6.saddr, key->source, 16);
		__builtin_memcpy(tuple->ipv6.daddr, key->destination, 16);
		tuple->ipv6.sport = key->source_port;
		tuple->ipv6.dport = key->destination_port;
		size = sizeof(tuple->ipv6);
	}
	socket = bpf_skc_lookup_tcp(ctx, tuple, size, BPF_F_CURRENT_NETNS, 0);
	if (!socket)
		return WW_NOBODY;
	if (socket->state == BPF_TCP_LISTEN) {
		found = WW_LISTENER;
		if (opens) {
			size = ww_read_headers(ctx, room);
			if (size)
				cookie = bpf_tcp_gen_syncookie(socket, &room->headers,
							       sizeof(room->headers.ip6), &room->headers.tcp,
							       size);
			if (cookie < 0)
				found = WW_NOBODY;
		}
	}
	bpf_sk_release(socket);
	return found;
}

/* Whether a packet acknowledges a cookie of the last two minutes. */
__noinline int ww_returns_cookie(WW_HOOK_ARG *ctx)
{
	struct ww_room *room = ww_find_room();

	if (!room || !ww_read_headers(ctx, room))
		return 0;
	if (room->ends.key.reserved[0] == 4)
		return !bpf_tcp_raw_check_syncookie_ipv4(&room->headers.ip4, &room->headers.tcp);
	return !bpf_tcp_raw_check_syncookie_ipv6(&room->headers.ip6, &room->headers.tcp);
}

/* Puts a SYN-ACK with a cookie in the place of a SYN, all but its Ethernet addresses. Returns the verdict. */
__noinline int ww_answer(WW_HOOK_ARG *ctx)
{
	struct ww_room *room = ww_find_room();
	struct ww_headers *headers;
	const struct ww_ends_key *key;
	__u32 network, size, segment, mtu = 0;
	__s64 cookie, sum;

	if (!room)
		return WW_VERDICT_NOT_ACTED;
	headers = &room->headers;
	key = &room->ends.key;
	network = room->ends.network;
	size = ww_read_headers(ctx, room);
	if (!size || bpf_check_mtu(ctx, 0, &mtu, 0, 0) < 0)
		return WW_VERDICT_NOT_ACTED;
	if (key->reserved[0] == 4)
		cookie = bpf_tcp_raw_gen_syncookie_ipv4(&headers->ip4, &headers->tcp, size);
	else
		cookie = bpf_tcp_raw_gen_syncookie_ipv6(&headers->ip6, &headers->tcp, size);
	if (cookie < 0)
		return WW_VERDICT_NOT_ACTED;
	size = key->reserved[0] == 4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	segment = mtu - size - sizeof(headers->tcp);
	segment = ww_min(segment, 0xffff);

	headers->tcp.ack_seq = bpf_htonl(bpf_ntohl(headers->tcp.seq) + 1);
	headers->tcp.seq = bpf_htonl(cookie);
	headers->tcp.source = key->destination_port;
	headers->tcp.dest = key->source_port;
	headers->bytes[WW_TCP_FLAGS - 1] = WW_ANSWER_BYTES / 4 << 4;
	headers->bytes[WW_TCP_FLAGS] = WW_TCP_SYN | WW_TCP_ACK;
	headers->tcp.window = bpf_htons(ww_min(segment * WW_FIRST_SEGMENTS, 0xffff));
	headers->tcp.urg_ptr = 0;
	headers->option[0] = bpf_htonl(WW_OPTION_MSS | segment);
	headers->tcp.check = 0;
	/* The addresses lie behind each other in the key; of IPv4 they have zeros between them. */
	sum = bpf_csum_diff(0, 0, (void *)key->source, 2 * sizeof(key->source),
			    bpf_htons(IPPROTO_TCP) + bpf_htons(WW_ANSWER_BYTES));
	if (sum >= 0)
		sum = bpf_csum_diff(0, 0, (void *)&headers->tcp, WW_ANSWER_BYTES, sum);
	if (sum < 0)
		return WW_VERDICT_NOT_ACTED;
	headers->tcp.check = ww_checksum(sum);

	if (key->reserved[0] == 4) {
		__builtin_memset(&headers->ip4, 0, sizeof(headers->ip4));
		*(__u8 *)&headers->ip4 = 0x45;
		headers->ip4.tot_len = bpf_htons(sizeof(headers->ip4) + WW_ANSWER_BYTES);
		headers->ip4.frag_off = bpf_htons(0x4000); /* not to be fragmented, so it needs no number */
		headers->ip4.ttl = WW_ANSWER_TTL;
		headers->ip4.protocol = IPPROTO_TCP;
		__builtin_memcpy(&headers->ip4.saddr, key->destination, 4);
		__builtin_memcpy(&headers->ip4.daddr, key->source, 4);
		sum = bpf_csum_diff(0, 0, (void *)&headers->ip4, sizeof(headers->ip4), 0);
		headers->ip4.check = ww_checksum(sum);
	} else {
		*(__be32 *)&headers->ip6 = bpf_htonl(6 << 28);
		headers->ip6.payload_len = bpf_htons(WW_ANSWER_BYTES);
		headers->ip6.hop_limit = WW_ANSWER_TTL;
		__builtin_memcpy(&headers->ip6.saddr, key->destination, 16);
		__builtin_memcpy(&headers->ip6.daddr, key->source, 16);
	}
	/* What may fail comes first. */
	if (bpf_xdp_adjust_tail(ctx, ww_max(network + size + WW_ANSWER_BYTES, WW_LEAST_FRAME) -
					     ww_frame_length(ctx)))
		return WW_VERDICT_NOT_ACTED;
	if (bpf_xdp_store_bytes(ctx, network, headers, size) ||
	    bpf_xdp_store_bytes(ctx, network + size, &headers->tcp, WW_ANSWER_BYTES))
		return WW_VERDICT_DROP;
	return WW_VERDICT_BOUNCE;
}

/* What becomes of a packet that has to prove its sender: the verdict, WW_VERDICT_PROVEN, or WW_VERDICT_NOT_ACTED of what no cookie is for. */
__noinline int ww_challenge(WW_HOOK_ARG *ctx, __u32 class_id)
{
	struct ww_memory proven = {.proven = 1}, *known = 0;
	__u8 flags;
	struct ww_room *room;
	struct ww_ends *ends;
	__be16 fragment = 0;
	int receiver;

	if ((ww_act_config.acts & (WW_STEER_CHALLENGE | WW_STEER_TOLD)) != WW_STEER_CHALLENGE || ww_at_tc())
		return WW_VERDICT_NOT_ACTED;
	room = ww_find_room();
	if (!room)
		return WW_VERDICT_NOT_ACTED;
	ends = &room->ends;
	if (!ww_read_ends(ctx, ends) || ends->key.protocol != IPPROTO_TCP || !ends->transport)
		return WW_VERDICT_NOT_ACTED;
	/* The answer would need another length there, and segments that fit a session. */
	if (ends->link & WW_IN_PPPOE)
		return WW_VERDICT_NOT_ACTED;
	if (ends->key.reserved[0] == 4 &&
	    bpf_xdp_load_bytes(ctx, ends->network + __builtin_offsetof(struct iphdr, frag_off), &fragment,
			       sizeof(fragment)))
		return WW_VERDICT_NOT_ACTED;
	if (fragment & bpf_htons(0x3fff) ||
	    bpf_xdp_load_bytes(ctx, ends->transport + WW_TCP_FLAGS, &flags, 1))
		return WW_VERDICT_NOT_ACTED;
	flags &= WW_TCP_FIN | WW_TCP_SYN | WW_TCP_RST | WW_TCP_ACK;
	/* A SYN begins another connection, whatever was proven of one between the same ends. */
	if (flags != WW_TCP_SYN) {
		known = bpf_map_lookup_elem(&ww_memory, &ends->key);
		if (known && known->proven)
			return WW_VERDICT_PROVEN;
	}
	if (!ww_is_sound(ctx, class_id))
		return WW_VERDICT_NOT_ACTED;
	receiver = ww_find_receiver(ctx, flags == WW_TCP_SYN);
	if (receiver == WW_NOBODY)
		return WW_VERDICT_NOT_ACTED;
	if (receiver == WW_LISTENER) {
		if (flags == WW_TCP_SYN)
			return ww_answer(ctx);
		if ((flags & (WW_TCP_SYN | WW_TCP_RST | WW_TCP_ACK)) != WW_TCP_ACK || !ww_returns_cookie(ctx))
			return WW_VERDICT_DROP;
	}
	if (known)
		known->proven = 1;
	else if (flags != WW_TCP_SYN)
		bpf_map_update_elem(&ww_memory, &ends->key, &proven, BPF_ANY);
	return WW_VERDICT_PROVEN;
}

#endif
