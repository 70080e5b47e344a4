/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which packets have an event. A bundle's ww_told gives each packet one; this one is linked in its place where a policy asks for an event for each
 * flow or source.
 *
 * A flow or source has an event with its first packet of a class and outcome, and then one every ww_act_policy.tell_every_ns while it goes on,
 * which counts the packets in between. Those after its last event are in the counters alone. Two CPUs may report the same flow at once.
 *
 * Where the policy bans, the count also has bit WW_TOLD_PROVEN if the packet proves that the flow's first sender has its address.
 */
#ifndef WW_TELL_H
#define WW_TELL_H

#include <bpf/bpf_helpers.h>

#include "act/maps.h"
#include "frame/arith.h"
#include "frame/event.h"

static __always_inline void ww_make_told_key(struct ww_told_key *key, const struct ww_scratch *scratch,
					     __u64 what)
{
	const __u64 *from = (const __u64 *)&scratch->key;
	__u64 *to = (__u64 *)key;
	int of_source = ww_act_policy.each == WW_EACH_SOURCE;
	/* Who sent the flow's first packet is the second address of a key that was swapped. */
	int at = of_source && what & WW_WHAT_SWAPPED ? 2 : 0;

#pragma unroll
	for (int i = 0; i < (int)sizeof(*key) / 8; i++)
		to[i] = 0;
	if (of_source) {
		to[0] = at ? from[2] : from[0];
		to[1] = at ? from[3] : from[1];
	} else {
#pragma unroll
		for (int i = 0; i < (int)sizeof(key->key) / 8; i++)
			to[i] = from[i];
	}
	key->ip_version = scratch->ip_version;
	key->class_id = what >> 16;
	key->outcome = what;
}

/* Whether the packet's numbers prove its sender's address (act/ban.h), and that is who sent the flow's first packet. */
static __always_inline __u64 ww_proof_told(const struct ww_act_cpu *own, const struct ww_scratch *scratch,
					   __u64 what)
{
	const __u64 *key = (const __u64 *)&scratch->key, *peer = own->asked.ends.peer;
	int at = what & WW_WHAT_SWAPPED ? 2 : 0;

	if (!(ww_act_config.acts & WW_STEER_BAN) || !own->asked.proven)
		return 0;
	return (at ? key[2] : key[0]) == peer[0] && (at ? key[3] : key[1]) == peer[1] ? 1ULL << WW_TOLD_PROVEN
										      : 0;
}

__noinline __u64 ww_told(const struct ww_scratch *scratch, __u64 what, __u64 now, __u32 step)
{
	struct ww_told fresh = {};
	struct ww_told_key *key;
	struct ww_act_cpu *own;
	struct ww_told *told;

	/* Before Linux 6.8 a global function is verified even if nothing calls it. */
	if (!(ww_act_config.acts & WW_STEER_TELL) || !scratch)
		return 1;
	/* A program that was loaded for another policy. */
	if (ww_act_policy.each == WW_EACH_PACKET)
		return 1;
	own = ww_this_cpu();
	if (!own)
		return 1;
	key = (void *)own->room;
	ww_make_told_key(key, scratch, what);
	told = bpf_map_lookup_elem(&ww_told_of, key);
	if (step == WW_TELL_ASK) {
		if (!told || !told->told_ns)
			return (told ? told->packets + 1 : 1) | ww_proof_told(own, scratch, what);
		/* Clocks of CPUs may differ a little: time that ran backwards is none. */
		if (now < told->told_ns || now - told->told_ns < ww_act_policy.tell_every_ns) {
			__sync_fetch_and_add(&told->packets, 1);
			return 0;
		}
		return (told->packets + 1) | ww_proof_told(own, scratch, what);
	}
	if (!told) {
		fresh.told_ns = step == WW_TELL_SENT ? ww_max(now, 1ULL) : 0;
		fresh.packets = step == WW_TELL_LIMITED;
		bpf_map_update_elem(&ww_told_of, key, &fresh, BPF_ANY);
	} else if (step == WW_TELL_SENT) {
		told->told_ns = ww_max(now, 1ULL);
		told->packets = 0;
	} else {
		__sync_fetch_and_add(&told->packets, 1);
	}
	return 0;
}

#endif
