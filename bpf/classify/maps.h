/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The maps, all named ww_. Each has a row in the agent's table of maps (crates/wirewised/src/abi/maps.rs), by which the loader sets the sizes
 * that depend on the machine, and makes only those that a program needs.
 *
 * Arrays indexed by CPU instead of per-CPU maps: the verifier inlines their look-up on every kernel, and they can be
 * mapped into the agent, which then reads flows without system calls.
 */
#ifndef WW_MAPS_H
#define WW_MAPS_H

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "abi.h"
#include "classify/config.h"
#include "frame/arith.h"
#include "frame/map.h"

/* What ww_blank holds for a packet whose flow, or one of whose aggregates, got no entry. */
struct ww_blank_entry {
	struct ww_slot slot;
	WW_FLOW_KEY6 key;
	struct ww_state state;
#if WW_BY_SOURCE
	struct ww_entry_source6 source;
#endif
#if WW_BY_DESTINATION
	struct ww_entry_destination6 destination;
#endif
#if WW_BY_SERVICE
	struct ww_entry_service6 service;
#endif
#if WW_BY_PAIR
	struct ww_entry_pair6 pair;
#endif
#if WW_BY_CLIENT_PORT
	struct ww_entry_client_port6 client_port;
#endif
#if WW_BY_HOSTS
	struct ww_entry_hosts6 hosts;
#endif
};

WW_MAP(ww_flows4, BPF_MAP_TYPE_ARRAY, __u32, struct ww_bucket4, 1, BPF_F_MMAPABLE);
WW_MAP(ww_flows6, BPF_MAP_TYPE_ARRAY, __u32, struct ww_bucket6, 1, BPF_F_MMAPABLE);
#if WW_BY_SOURCE
WW_MAP(ww_source4, BPF_MAP_TYPE_ARRAY, __u32, struct ww_bucket_source4, 1, BPF_F_MMAPABLE);
WW_MAP(ww_source6, BPF_MAP_TYPE_ARRAY, __u32, struct ww_bucket_source6, 1, BPF_F_MMAPABLE);
#endif
#if WW_BY_DESTINATION
WW_MAP(ww_destination4, BPF_MAP_TYPE_ARRAY, __u32, struct ww_bucket_destination4, 1, BPF_F_MMAPABLE);
WW_MAP(ww_destination6, BPF_MAP_TYPE_ARRAY, __u32, struct ww_bucket_destination6, 1, BPF_F_MMAPABLE);
#endif
#if WW_BY_SERVICE
WW_MAP(ww_service4, BPF_MAP_TYPE_ARRAY, __u32, struct ww_bucket_service4, 1, BPF_F_MMAPABLE);
WW_MAP(ww_service6, BPF_MAP_TYPE_ARRAY, __u32, struct ww_bucket_service6, 1, BPF_F_MMAPABLE);
#endif
#if WW_BY_PAIR
WW_MAP(ww_pair4, BPF_MAP_TYPE_ARRAY, __u32, struct ww_bucket_pair4, 1, BPF_F_MMAPABLE);
WW_MAP(ww_pair6, BPF_MAP_TYPE_ARRAY, __u32, struct ww_bucket_pair6, 1, BPF_F_MMAPABLE);
#endif
#if WW_BY_CLIENT_PORT
WW_MAP(ww_client_port4, BPF_MAP_TYPE_ARRAY, __u32, struct ww_bucket_client_port4, 1, BPF_F_MMAPABLE);
WW_MAP(ww_client_port6, BPF_MAP_TYPE_ARRAY, __u32, struct ww_bucket_client_port6, 1, BPF_F_MMAPABLE);
#endif
#if WW_BY_HOSTS
WW_MAP(ww_hosts4, BPF_MAP_TYPE_ARRAY, __u32, struct ww_bucket_hosts4, 1, BPF_F_MMAPABLE);
WW_MAP(ww_hosts6, BPF_MAP_TYPE_ARRAY, __u32, struct ww_bucket_hosts6, 1, BPF_F_MMAPABLE);
#endif
WW_MAP(ww_limit, BPF_MAP_TYPE_ARRAY, __u32, __u64, WW_MAX_CLASSES, BPF_F_MMAPABLE);
WW_MAP(ww_allow4, BPF_MAP_TYPE_LPM_TRIE, struct ww_prefix4, struct ww_allowed, WW_ALLOW_PREFIXES,
       BPF_F_NO_PREALLOC);
WW_MAP(ww_allow6, BPF_MAP_TYPE_LPM_TRIE, struct ww_prefix6, struct ww_allowed, WW_ALLOW_PREFIXES,
       BPF_F_NO_PREALLOC);
WW_MAP(ww_allow_ports, BPF_MAP_TYPE_ARRAY, __u32, __u64, 4 * WW_ALLOW_PORT_WORDS, BPF_F_MMAPABLE);
/* The deny list's ports, and what tells most packets that none of its prefixes is theirs. The prefixes are the actor's. */
WW_MAP(ww_deny_ports, BPF_MAP_TYPE_ARRAY, __u32, __u64, 2 * WW_ALLOW_PORT_WORDS, BPF_F_MMAPABLE);
WW_MAP(ww_deny_filter, BPF_MAP_TYPE_ARRAY, __u32, __u64, WW_DENY_WORDS4 + WW_DENY_WORDS6, BPF_F_MMAPABLE);
WW_MAP(ww_blank, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct ww_blank_entry, 1, 0);
WW_MAP(ww_events, BPF_MAP_TYPE_ARRAY, __u32, struct ww_event, WW_EVENTS, BPF_F_MMAPABLE);
WW_MAP(ww_agreement, BPF_MAP_TYPE_ARRAY, __u32, struct ww_agreement, WW_AGREEMENT_ROWS, BPF_F_MMAPABLE);

/* The first model's entry, for a shadow. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} ww_first SEC(".maps");

/* Somebody else's program, to which what passes goes on. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} ww_next SEC(".maps");

/* A variable in a section of its own is an array map of one element whose address the loader writes into the program: no look-up. */
struct ww_policy ww_policy SEC(".data.ww_policy") = {.allow = WW_ALLOW_NO_POLICY};

/* Likewise, though it has an element for each CPU: finding one is a multiplication. (The flow tables may be too large for this: before Linux
 * 6.0 a variable has 4 MB at most.) */
struct ww_cpu ww_cpu[1] SEC(".data.ww_cpu");

/* What belongs to a CPU, or 0. */
static __always_inline struct ww_cpu *ww_this_cpu(__u32 cpu)
{
	struct ww_cpu *all = ww_cpu;
	__u64 index = cpu;

	/* Otherwise the compiler may compare the 32-bit number and take the index from its copy on the stack, where Linux 6.1 tracks no bounds
	 * of 32-bit values. */
	ww_hide(index);
	if (ww_unlikely(index >= ww_config.shards))
		return 0;
	ww_hide(all); /* the array is declared with one element */
	ww_hide(index); /* otherwise it may multiply before it compares, and the verifier would not know the bound of the product */
	return all + index;
}

/* Programs of a model that is split over tail calls; the loader fills it with ww_model_1, ww_model_2, ... */
#define WW_PROGS(count)                                \
	struct {                                       \
		__uint(type, BPF_MAP_TYPE_PROG_ARRAY); \
		__uint(max_entries, count);            \
		__uint(key_size, sizeof(__u32));       \
		__uint(value_size, sizeof(__u32));     \
	} ww_progs SEC(".maps")

#endif
