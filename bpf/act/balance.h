/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A load balancer at layer 4: which server of a pool a packet goes to, and how it gets there. Reference: policy/act/backend.py.
 *
 * The pool's table says it of a new flow (Maglev: Eisenbud et al., NSDI 2016; the agent makes the table), ww_memory of one that was seen
 * before, so that it stays where it is when the table changes. Captured packets have no memory and nobody to send them to.
 */
#ifndef WW_BALANCE_H
#define WW_BALANCE_H

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "act/ends.h"
#include "act/maps.h"
#include "act/outer.h"
#include "act/way_out.h"
#include "frame/hook.h"

#define WW_HASH_STEP 0x9e3779b97f4a7c15ULL
#define WW_HASH_END 0x94d049bb133111ebULL

/* More fragments, or an offset. */
#define WW_FRAGMENT 0x3fff
/* TCP: the byte of flags, of which SYN alone begins a connection. */
#define WW_TCP_FLAGS 13
#define WW_TCP_SYN 0x02
#define WW_TCP_SYN_ACK 0x12

/* Generic UDP encapsulation, variant 0, without options: draft-ietf-intarea-gue. */
#define WW_GUE_PORT 6080
#define WW_GUE_BYTES 12 /* UDP, flags and lengths, protocol, flags */
#define WW_GUE_FIRST_SOURCE 0xc000

/* Of a packet that is to be carried inside another. */
struct ww_inner {
	__u32 length; /* with its IP header */
	__u8 dsfield;
	__u8 protocol; /* by which it is called inside of IP */
};

/* The same for all who have the same seed, so that any of several balancers sends a flow to the same backend. */
static __always_inline __u32 ww_hash_ends(const struct ww_ends_key *key, __u64 seed)
{
	const __u64 *word = (const void *)key;
	__u64 hash = seed;

#pragma unroll
	for (int i = 0; i < (int)sizeof(*key) / 8; i++) {
		hash = (hash ^ word[i]) * WW_HASH_STEP;
		hash ^= hash >> 32;
	}
	return hash * WW_HASH_END >> 32;
}

static __always_inline __u32 ww_choose(__u32 pool, __u32 which, __u32 hash)
{
	__u32 number = 2 * pool + (which & 1);
	__u64 place = (__u64)hash * WW_PLACES >> 32;
	struct ww_table *table = bpf_map_lookup_elem(&ww_tables, &number);

	/* The compiler knows that it is below, and would leave out what the verifier needs. */
	ww_hide(place);
	if (!table || place >= WW_PLACES)
		return 0;
	return table->backend[place];
}

/* The backend that a flow went to, if it may go on there; 0: none. */
static __always_inline __u32 ww_remembered(const struct ww_ends_key *key, __u32 pool, int begins)
{
	struct ww_memory *memory = bpf_map_lookup_elem(&ww_memory, key);
	struct ww_backend *backend;
	__u32 slot;

	if (!memory)
		return 0;
	slot = memory->backend & 0xffff;
	backend = bpf_map_lookup_elem(&ww_backends, &slot);
	if (!backend || !slot || backend->generation != memory->backend >> 16 || backend->pool != pool)
		return 0;
	/* A connection that takes the ports of an earlier one is new. */
	if (backend->flags & WW_BACKEND_DOWN || (begins && backend->flags & WW_BACKEND_DRAINS))
		return 0;
	return backend->flags & WW_BACKEND_THERE ? slot : 0;
}

static __always_inline void ww_remember(const struct ww_ends_key *key, __u32 backend)
{
	struct ww_memory *memory = bpf_map_lookup_elem(&ww_memory, key);

	if (memory) {
		memory->backend = backend;
	} else {
		struct ww_memory first = {.backend = backend};

		bpf_map_update_elem(&ww_memory, key, &first, BPF_ANY);
	}
}

/* Whether it is the first packet of a connection; -1: one of several fragments, whose ports not all of them have. */
static __always_inline int ww_begins(WW_HOOK_CTX *ctx, const struct ww_ends *ends)
{
	void *data = ww_data(ctx), *end = ww_data_end(ctx);
	__u32 network = ends->network & 63, transport = ends->transport & 127;
	struct iphdr *ip = data + network;
	__u8 *flags = data + transport + WW_TCP_FLAGS;

	if (!ends->transport)
		return -1;
	if (ends->key.reserved[0] == 4 && ((void *)(ip + 1) > end || ip->frag_off & bpf_htons(WW_FRAGMENT)))
		return -1;
	if (ends->key.protocol != IPPROTO_TCP || (void *)(flags + 1) > end)
		return 0;
	return (*flags & WW_TCP_SYN_ACK) == WW_TCP_SYN;
}

static __always_inline int ww_read_inner(WW_HOOK_CTX *ctx, const struct ww_ends *ends, struct ww_inner *inner)
{
	void *at = ww_data(ctx) + ETH_HLEN, *end = ww_data_end(ctx);

	/* The outer header goes where an untagged frame has it; a tag beside the frame stays there. */
	if (ends->network != ETH_HLEN)
		return 0;
	if (ends->key.reserved[0] == 4) {
		struct iphdr *ip = at;

		if ((void *)(ip + 1) > end)
			return 0;
		inner->length = bpf_ntohs(ip->tot_len);
		inner->dsfield = ip->tos;
		inner->protocol = IPPROTO_IPIP;
		return inner->length >= sizeof(*ip);
	} else {
		struct ipv6hdr *ip = at;

		if ((void *)(ip + 1) > end)
			return 0;
		inner->length = bpf_ntohs(ip->payload_len) + sizeof(*ip);
		inner->dsfield = bpf_ntohs(*(__be16 *)ip) >> 4;
		inner->protocol = IPPROTO_IPV6;
		return ip->payload_len != 0;
	}
}

/* Outer headers, and how the kernel is told of them at TC. */
static __always_inline __u32 ww_outer_bytes(__u32 ip_version, int gue)
{
	return (ip_version == 4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)) + (gue ? WW_GUE_BYTES : 0);
}

static __always_inline int ww_make_room(WW_HOOK_CTX *ctx, __u32 ip_version, int gue)
{
	__u32 bytes = ww_outer_bytes(ip_version, gue);
	__u64 flags = gue ? BPF_F_ADJ_ROOM_ENCAP_L4_UDP : 0;

	if (!ww_at_tc())
		return bpf_xdp_adjust_head(ctx, -(int)bytes) == 0;
	flags |= ip_version == 4 ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 : BPF_F_ADJ_ROOM_ENCAP_L3_IPV6;
	return bpf_skb_adjust_room(ctx, bytes, BPF_ADJ_ROOM_MAC, flags) == 0;
}

static __always_inline void ww_write_gue(void *at, const struct ww_inner *inner, __u32 hash)
{
	__be16 *word = at;

	word[0] = bpf_htons(WW_GUE_FIRST_SOURCE | (hash & 0x3fff));
	word[1] = bpf_htons(WW_GUE_PORT);
	word[2] = bpf_htons(WW_GUE_BYTES + inner->length);
	word[3] = 0; /* no checksum: the inner packet has its own; RFC 6935 of IPv6 */
	word[4] = bpf_htons(inner->protocol);
	word[5] = 0;
}

static __always_inline int ww_write_outer4(WW_HOOK_CTX *ctx, const struct ww_backend *backend,
					   const struct ww_inner *inner, int gue, __u32 hash)
{
	void *at = ww_data(ctx) + ETH_HLEN, *end = ww_data_end(ctx);

	if (at + sizeof(struct iphdr) + WW_GUE_BYTES > end)
		return 0;
	ww_write_ipv4(at, backend->source, backend->address, inner->dsfield,
		      gue ? IPPROTO_UDP : inner->protocol, (gue ? WW_GUE_BYTES : 0) + inner->length);
	if (gue)
		ww_write_gue(at + sizeof(struct iphdr), inner, hash);
	return 1;
}

static __always_inline int ww_write_outer6(WW_HOOK_CTX *ctx, const struct ww_backend *backend,
					   const struct ww_inner *inner, int gue, __u32 hash)
{
	void *at = ww_data(ctx) + ETH_HLEN, *end = ww_data_end(ctx);

	if (at + sizeof(struct ipv6hdr) + WW_GUE_BYTES > end)
		return 0;
	/* RFC 6438: the flow label tells routers flows apart that they cannot see. */
	ww_write_ipv6(at, backend->source, backend->address, inner->dsfield, hash,
		      gue ? IPPROTO_UDP : inner->protocol, (gue ? WW_GUE_BYTES : 0) + inner->length);
	if (gue)
		ww_write_gue(at + sizeof(struct ipv6hdr), inner, hash);
	return 1;
}

static __always_inline int ww_address_frame(WW_HOOK_CTX *ctx, const __u8 *destination, const __u8 *source)
{
	struct ethhdr *link = ww_data(ctx);

	if ((void *)(link + 1) > ww_data_end(ctx))
		return 0;
	__builtin_memcpy(link->h_dest, destination, ETH_ALEN);
	__builtin_memcpy(link->h_source, source, ETH_ALEN);
	return 1;
}

/* Has the packet leave by an interface, 0: the one it came by, `more` bytes longer. Returns a verdict. */
static __always_inline int ww_way_to_backend(WW_HOOK_CTX *ctx, __u32 ifindex, __u32 more)
{
	__u32 mtu = 0;

	if (ifindex)
		return ww_redirect(ctx, ifindex, more) ? WW_VERDICT_REDIRECT : WW_VERDICT_NOT_ACTED;
	if (more && bpf_check_mtu(ctx, 0, &mtu, (int)more, 0))
		return WW_VERDICT_NOT_ACTED;
	if (ww_at_tc())
		bpf_redirect(ww_field(ctx, struct __sk_buff, ifindex), 0);
	return WW_VERDICT_BOUNCE;
}

/* Carries the packet inside another. ends, hash: of ww_balance. */
static __always_inline int ww_encapsulate(WW_HOOK_CTX *ctx, const struct ww_pool *pool,
					  const struct ww_backend *backend, const struct ww_ends *ends,
					  __u32 hash)
{
	int gue = pool->method == WW_METHOD_GUE, verdict, written;
	struct ww_inner inner = {};
	struct ethhdr *link;

	if (!ww_read_inner(ctx, ends, &inner) ||
	    inner.length + ww_outer_bytes(backend->ip_version, gue) > 0xffff)
		return WW_VERDICT_NOT_ACTED;
	verdict = ww_way_to_backend(ctx, pool->ifindex, ww_outer_bytes(backend->ip_version, gue));
	if (verdict == WW_VERDICT_NOT_ACTED || !ww_make_room(ctx, backend->ip_version, gue))
		return WW_VERDICT_NOT_ACTED;
	if (backend->ip_version == 4)
		written = ww_write_outer4(ctx, backend, &inner, gue, hash);
	else
		written = ww_write_outer6(ctx, backend, &inner, gue, hash);
	link = ww_data(ctx);
	/* Cannot be: there was room made for all of it. */
	if (!written || (void *)(link + 1) > ww_data_end(ctx))
		return WW_VERDICT_DROP;
	link->h_proto = backend->ip_version == 4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	return ww_address_frame(ctx, backend->mac, pool->mac) ? verdict : WW_VERDICT_DROP;
}

static __always_inline int ww_rewrite_link(WW_HOOK_CTX *ctx, const struct ww_pool *pool,
					   const struct ww_backend *backend)
{
	int verdict = ww_way_to_backend(ctx, pool->ifindex, 0);

	if (verdict == WW_VERDICT_NOT_ACTED || !ww_address_frame(ctx, backend->mac, pool->mac))
		return WW_VERDICT_NOT_ACTED;
	return verdict;
}

/* What can be told of a captured packet: the backend's address, if the policy gives it. */
static __always_inline int ww_tell_backend(WW_HOOK_CTX *ctx, const struct ww_pool *pool,
					   const struct ww_backend *backend)
{
	struct ethhdr *link = ww_data(ctx);

	if (pool->method == WW_METHOD_DSR && backend->given) {
		if ((void *)(link + 1) > ww_data_end(ctx))
			return WW_VERDICT_NOT_ACTED;
		__builtin_memcpy(link->h_dest, backend->mac, ETH_ALEN);
	}
	return WW_VERDICT_REDIRECT;
}

/* Bytes of the frame. A function of its own, so that ww_balance has none of its variables on the stack. */
__noinline int ww_bytes_to_balance(WW_HOOK_ARG *ctx)
{
	return ww_input(ctx).length;
}

/* Sends the packet to a backend of a pool, and returns the verdict, or WW_VERDICT_NOT_ACTED. */
__noinline int ww_balance(WW_HOOK_ARG *ctx, __u32 number)
{
	struct ww_pool *pool;
	struct ww_backend *backend;
	struct ww_counter *counter;
	struct ww_ends ends;
	__u32 hash, place, slot = 0, frame_length = ww_bytes_to_balance(ctx);
	int begins, verdict, known;

	/* No backend knows a session of PPPoE of this host or of those behind it. */
	if (!(ww_act_config.acts & WW_STEER_BACKEND) || !ww_read_ends(ctx, &ends) || ends.link & WW_IN_PPPOE)
		return WW_VERDICT_NOT_ACTED;
	begins = ww_begins(ctx, &ends);
	pool = bpf_map_lookup_elem(&ww_pools, &number);
	if (begins < 0 || !pool)
		return WW_VERDICT_NOT_ACTED;
	hash = ww_hash_ends(&ends.key, pool->seed);
	if (!(ww_act_config.acts & WW_STEER_TOLD))
		slot = ww_remembered(&ends.key, number, begins);
	known = slot != 0;
	if (!known)
		slot = ww_choose(number, pool->table, hash);
	backend = bpf_map_lookup_elem(&ww_backends, &slot);
	if (!slot || !backend || !(backend->flags & WW_BACKEND_THERE))
		return WW_VERDICT_NOT_ACTED;
	if (ww_act_config.acts & WW_STEER_TOLD)
		verdict = ww_tell_backend(ctx, pool, backend);
	else if (pool->method == WW_METHOD_DSR)
		verdict = ww_rewrite_link(ctx, pool, backend);
	else
		verdict = ww_encapsulate(ctx, pool, backend, &ends, hash);
	if (verdict == WW_VERDICT_NOT_ACTED)
		return WW_VERDICT_NOT_ACTED;
	if (!(ww_act_config.acts & WW_STEER_TOLD) && !known)
		ww_remember(&ends.key, slot | (__u32)backend->generation << 16);
	place = bpf_get_smp_processor_id() * WW_BACKENDS + slot;
	counter = bpf_map_lookup_elem(&ww_backend_counts, &place);
	if (counter) {
		counter->packets++;
		counter->bytes += frame_length;
	}
	return verdict;
}

#endif
