/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Bans: who sends a packet of a class that bans is dropped from then on, until the ban expires, before a flow is looked up or the model runs.
 *
 * An address that is made up must not have its owner banned. So a class bans only who has proved its address, unless the policy says otherwise:
 * this side answered a SYN by a SYN-ACK, which went out by a hook that only packets of this side pass (or, in a challenge, was made here); a
 * segment came back that acknowledges just that SYN-ACK; and the segment that leads to the ban has numbers within the first WW_PROOF_BYTES
 * of both directions. Who does not see the SYN-ACK has to guess 32 bits for the first, and for the second as many.
 *
 * These functions are called while all of the classifier is on the stack, so what they need is in struct ww_asked.
 */
#ifndef WW_BAN_H
#define WW_BAN_H

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/tcp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "act/maps.h"
#include "frame/arith.h"
#include "frame/hash.h"
#include "frame/hook.h"

#define WW_OFFSET_MASK 0x7fff
#define WW_SEGMENT_FLAGS 13 /* offset in the header */
#define WW_SEGMENT_SYN 0x02
#define WW_SEGMENT_RST 0x04
#define WW_SEGMENT_ACK 0x10

/* A ban's time is read only where there is one. Coarse, so that a banned packet costs no clock with a fence. */
static __always_inline __u64 ww_ban_clock(WW_HOOK_CTX *ctx)
{
	return ww_act_config.clock == WW_CLOCK_METADATA ? ww_captured_time(ctx) : bpf_ktime_get_coarse_ns();
}

static __always_inline struct ww_asked *ww_find_asked(void)
{
	struct ww_act_cpu *percpu = 0;

	if (ww_act_config.acts & WW_STEER_BAN)
		percpu = ww_this_cpu();
	return percpu ? &percpu->asked : 0;
}

/* Notes whom a packet is from and to. */
static __always_inline void ww_note4(__be32 peer, __be32 own)
{
	struct ww_asked *asked = ww_find_asked();

	if (!asked)
		return;
	asked->ends.peer[0] = peer;
	asked->ends.peer[1] = 0;
	asked->ends.own[0] = own;
	asked->ends.own[1] = 0;
	asked->ip_version = 4;
	asked->proven = 0;
}

static __always_inline void ww_note6(const struct ww_ends6 *ends)
{
	struct ww_asked *asked = ww_find_asked();

	if (!asked)
		return;
	asked->ends = *ends;
	asked->ip_version = 6;
	asked->proven = 0;
}

/* The mask of one 64-bit half of an address: its first bits, of bits in all. */
static __always_inline __u64 ww_prefix_mask(__u32 bits)
{
	if (!bits)
		return 0;
	return bpf_cpu_to_be64(~0ULL << ((64 - bits) & 63));
}

/* Writes the key that a ban of a kind has for the packet that was noted last, and returns its hash. place: that of the kind in ww_act_policy.ban. A
 * global function, as those below: what it needs is registers again at its end. */
__noinline __u32 ww_key_of_ban(__u32 place, __u32 would)
{
	const struct ww_ban_kind *kind = &ww_act_policy.ban[place & (WW_BAN_KINDS - 1)];
	struct ww_asked *asked = ww_find_asked();
	struct ww_ban_key *key;
	__u32 length, high;

	/* Before Linux 6.8 a global function is verified even if nothing calls it. */
	if (!asked)
		return 0;
	key = &asked->ban;
	length = asked->ip_version == 4 ? kind->length4 : kind->length6;
	high = length < 64 ? length : 64;
	key->source[0] = asked->ends.peer[0] & ww_prefix_mask(high);
	key->source[1] = asked->ends.peer[1] & ww_prefix_mask(length - high);
	key->destination[0] = kind->pair ? asked->ends.own[0] : 0;
	key->destination[1] = kind->pair ? asked->ends.own[1] : 0;
	key->length = length;
	key->ip_version = asked->ip_version;
	key->pair = kind->pair;
	key->would = would;
	return ww_hash((const void *)key, sizeof(*key) / 8);
}

static __always_inline int ww_same_ban(const struct ww_ban_key *one, const struct ww_ban_key *other)
{
	const __u64 *a = (const void *)one, *b = (const void *)other;

	return !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) | (a[4] ^ b[4]));
}

static __always_inline struct ww_ban_bucket *ww_bucket_of_ban(__u32 hash)
{
	__u32 index = hash & (WW_BAN_BUCKETS - 1);

	return bpf_map_lookup_elem(&ww_bans, &index);
}

/* Never WW_BAN_FREE or WW_BAN_BUSY. */
static __always_inline __u32 ww_tag_of_ban(__u32 hash)
{
	return hash | 2;
}

/* The word of ww_ban_filter that has the bit of the packet's peer; and which bit of it that is. The bit spares most packets the look-up of each kind of
 * ban. It is never cleared: one that is set too often costs only that look-up. */
static __always_inline __u64 *ww_find_ban_bit(const struct ww_asked *asked, __u32 *bit)
{
	__u64 half = bpf_be64_to_cpu(asked->ends.peer[0]);
	__u64 network =
		asked->ip_version == 4 ? half >> (64 - WW_BAN_NETWORK4) : half >> (64 - WW_BAN_NETWORK6);
	__u32 hash = ww_hash_network(network, WW_BAN_FILTER_BITS);
	__u32 word = hash / 64;

	*bit = hash & 63;
	return bpf_map_lookup_elem(&ww_ban_filter, &word);
}

static __always_inline int ww_may_be_banned(void)
{
	struct ww_asked *asked = ww_find_asked();
	__u64 *word;
	__u32 bit;

	if (!asked)
		return 0;
	word = ww_find_ban_bit(asked, &bit);
	return ww_act_policy.wide_bans || !word || *word >> bit & 1;
}

/* When the ban whose key was written last ends; 0: there is none. */
static __always_inline __u64 ww_find_ban(const struct ww_asked *asked, struct ww_ban_bucket *bucket,
					 __u32 tag)
{
	__u64 last = 0;

	for (int way = 0; way < WW_BAN_WAYS; way++) {
		__u64 until;

		if (*(volatile __u32 *)&bucket->tag[way] != tag)
			continue;
		until = *(volatile __u64 *)&bucket->until_ns[way];
		/* Another CPU may have given the place to another ban meanwhile. One that has expired may be there beside its successor. */
		if (until > last && ww_same_ban(&bucket->key[way], &asked->ban) &&
		    *(volatile __u32 *)&bucket->tag[way] == tag)
			last = until;
	}
	return last;
}

/* The place of a connection in ww_handshakes. ports: at the peer << 16 | at the own end, as in the packet. swapped: the own end has begun it. */
__noinline __u32 ww_key_of_handshake(__u32 ports, __u32 swapped)
{
	struct ww_asked *asked = ww_find_asked();

	if (!asked)
		return 0;
	for (int half = 0; half < 2; half++) {
		asked->connection.peer[half] = swapped ? asked->ends.own[half] : asked->ends.peer[half];
		asked->connection.own[half] = swapped ? asked->ends.peer[half] : asked->ends.own[half];
	}
	asked->ports[0] = swapped ? ports : ports >> 16;
	asked->ports[1] = swapped ? ports >> 16 : ports;
	return ww_hash((const void *)&asked->connection, 5) & (WW_HANDSHAKES - 1);
}

/* Follows handshakes, and notes whether a segment's numbers prove the address of its sender. transport: as of ww_denied4. */
__noinline int ww_prove(WW_HOOK_ARG *ctx, __u64 transport)
{
	struct ww_asked *asked = ww_find_asked();
	struct ww_handshake *handshake;
	const struct tcphdr *tcp;
	__u32 flags, ports, place, swapped = 0;
	__u64 numbers;

	if (!asked || (transport >> 16 & 0xffff) != IPPROTO_TCP)
		return 0;
	/* The verifier follows offsets of 16 bits, the header's end included; no chain of headers is so long. */
	tcp = ww_data(ctx) + (transport >> 32 & WW_OFFSET_MASK);
	if ((void *)(tcp + 1) > ww_data_end(ctx))
		return 0;
	flags = ((const __u8 *)tcp)[WW_SEGMENT_FLAGS] & (WW_SEGMENT_SYN | WW_SEGMENT_RST | WW_SEGMENT_ACK);
	numbers = (__u64)bpf_ntohl(tcp->ack_seq) << 32 | bpf_ntohl(tcp->seq);
	ports = ww_outgoing() ? tcp->dest << 16 | tcp->source : tcp->source << 16 | tcp->dest;
	if (flags == (WW_SEGMENT_SYN | WW_SEGMENT_ACK)) {
		/* What comes from outside proves nothing. What is captured has no direction. */
		if (!ww_outgoing() && !(ww_act_config.acts & WW_STEER_TOLD))
			return 0;
		swapped = !ww_outgoing();
	} else if (flags != WW_SEGMENT_ACK || ww_outgoing()) {
		return 0;
	}
	place = ww_key_of_handshake(ports, swapped);
	handshake = bpf_map_lookup_elem(&ww_handshakes, &place);
	if (!handshake)
		return 0;
	if (flags != WW_SEGMENT_ACK) {
		handshake->offered = (numbers + 1) << 32 | numbers >> 32;
		return 0;
	}
	if (numbers && handshake->offered == numbers && handshake->proven != numbers)
		handshake->proven = numbers;
	asked->proven = handshake->proven &&
			(__u32)(numbers >> 32) - (__u32)(handshake->proven >> 32) < WW_PROOF_BYTES &&
			(__u32)numbers - (__u32)handshake->proven < WW_PROOF_BYTES;
	return 0;
}

/* Whether the peer of the packet that was noted last is banned. */
__noinline int ww_banned(WW_HOOK_ARG *ctx)
{
	struct ww_asked *asked = ww_find_asked();

	if (!asked)
		return 0;
	_Pragma("clang loop unroll(disable)") for (int i = 0; i < WW_BAN_KINDS; i++)
	{
		struct ww_ban_bucket *bucket;
		__u64 until;
		__u32 hash;

		if (!ww_act_policy.ban[i].there)
			break;
		hash = ww_key_of_ban(i, 0);
		bucket = ww_bucket_of_ban(hash);
		if (!bucket)
			break;
		until = ww_find_ban(asked, bucket, ww_tag_of_ban(hash));
		if (until && ww_ban_clock(ctx) < until)
			return 1;
	}
	return 0;
}

/* Whether the sender of the packet that was noted last is banned from now on, and was not before. */
__noinline int ww_ban(WW_HOOK_ARG *ctx, __u32 class_id, __u32 outcome)
{
	struct ww_steer *what = &ww_act_policy.steer[class_id & (WW_MAX_CLASSES - 1)];
	struct ww_asked *asked = ww_find_asked();
	struct ww_ban_bucket *bucket;
	__u64 now, until, least = ~0ULL, *word;
	__u32 hash, tag, before, bit, place = 0;

	/* What this side sends has nobody banned. */
	if (!asked || ww_outgoing() || !what->ban_ms || !(what->spoofable || asked->proven))
		return 0;
	hash = ww_key_of_ban(what->ban_kind,
			     outcome == WW_OUTCOME_WOULD_DROP || outcome == WW_OUTCOME_WOULD_LIMIT);
	bucket = ww_bucket_of_ban(hash);
	if (!bucket)
		return 0;
	now = ww_ban_clock(ctx);
	until = now + what->ban_ms * 1000000ULL;
	tag = ww_tag_of_ban(hash);
	if (ww_find_ban(asked, bucket, tag) > now)
		return 0;
	/* The place that is free, or whose ban ends first. */
	for (int way = 0; way < WW_BAN_WAYS; way++) {
		__u64 end = bucket->tag[way] == WW_BAN_FREE ? 0 : bucket->until_ns[way];

		if (end < least) {
			least = end;
			place = way;
		}
	}
	place &= WW_BAN_WAYS - 1;
	ww_hide(place); /* otherwise the compiler may know it another way than the verifier does */
	place &= WW_BAN_WAYS - 1;
	before = bucket->tag[place];
	/* One CPU gets the place; another's next packet tries again. */
	if (before == WW_BAN_BUSY ||
	    __sync_val_compare_and_swap(&bucket->tag[place], before, WW_BAN_BUSY) != before)
		return 0;
	word = ww_find_ban_bit(asked, &bit);
	if (word)
		__sync_fetch_and_or(word, 1ULL << bit);
	bucket->key[place] = asked->ban;
	bucket->until_ns[place] = until;
	/* An exchange orders the stores before it. */
	__sync_lock_test_and_set(&bucket->tag[place], tag);
	return 1;
}

#endif
