/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The actor's constants, variables and maps. */
#ifndef WW_ACT_MAPS_H
#define WW_ACT_MAPS_H

#include "act/act_abi.h"
#include "frame/arith.h"
#include "frame/map.h"

/* The loader writes them all. volatile: or the compiler would take what stands here for them. */
const volatile struct ww_act_config ww_act_config SEC(".rodata.ww_act_config") = {.version = WW_ACT_VERSION};

/* For frame/. */
#define WW_LOAD ww_act_config

struct ww_act_policy ww_act_policy SEC(".data.ww_act_policy") = {};

/* It has an element for each CPU, as ww_cpu of the classifier. */
struct ww_act_cpu ww_act_cpu[1] SEC(".data.ww_act_cpu") = {};

/* Where packets may be redirected to at XDP, each interface under its index. */
WW_MAP(ww_interfaces, BPF_MAP_TYPE_DEVMAP_HASH, __u32, __u32, WW_INTERFACES, 0);
/* Where else packets may go at XDP. */
WW_MAP(ww_cpus, BPF_MAP_TYPE_CPUMAP, __u32, __u32, 1, 0); /* a CPU's number: packets that its queue holds */
WW_MAP(ww_sockets, BPF_MAP_TYPE_XSKMAP, __u32, __u32, WW_SOCKETS,
       0); /* a receive queue: whoever opened a socket */
/* Flows that were given a backend or answered a challenge. Not in the flow table: its entries have no room to spare, and would cost all packets
 * more; and who floods it would have these forgotten. */
WW_MAP(ww_memory, BPF_MAP_TYPE_LRU_HASH, struct ww_ends_key, struct ww_memory, WW_MEMORY, 0);
/* Who was seen behind which port. All attachments of a network namespace share it: each learns what is behind its own. */
WW_MAP(ww_stations, BPF_MAP_TYPE_LRU_HASH, struct ww_station_key, struct ww_station, WW_STATIONS, 0);
/* Who is behind a port whatever was seen. */
WW_MAP(ww_fixed, BPF_MAP_TYPE_HASH, struct ww_station_key, __u32, WW_FIXED, BPF_F_NO_PREALLOC);
/* Pools of servers; a packet's hash is a place in a pool's table. */
WW_MAP(ww_pools, BPF_MAP_TYPE_ARRAY, __u32, struct ww_pool, WW_POOLS, BPF_F_MMAPABLE);
WW_MAP(ww_tables, BPF_MAP_TYPE_ARRAY, __u32, struct ww_table, 2 * WW_POOLS, BPF_F_MMAPABLE);
WW_MAP(ww_backends, BPF_MAP_TYPE_ARRAY, __u32, struct ww_backend, WW_BACKENDS, BPF_F_MMAPABLE);
WW_MAP(ww_backend_counts, BPF_MAP_TYPE_ARRAY, __u32, struct ww_counter, WW_BACKENDS, BPF_F_MMAPABLE);
/* The class of each flow, for programs of others. */
WW_MAP(ww_verdicts, BPF_MAP_TYPE_LRU_HASH, struct ww_five_tuple, struct ww_flow_verdict, WW_VERDICTS, 0);
/* Copies on their way to who carries packets in user space. */
WW_MAP(ww_copies, BPF_MAP_TYPE_PERF_EVENT_ARRAY, __u32, __u32, 1, 0);
/* Tunnels of GTP-U, by each of their ends, and what became of packets. An element is replaced as a whole, so none is seen half written. */
WW_MAP(ww_tunnels, BPF_MAP_TYPE_HASH, struct ww_tunnel_end, struct ww_tunnel, 3 * WW_TUNNELS,
       BPF_F_NO_PREALLOC);
WW_MAP(ww_tunnel_counts, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct ww_counter, WW_TUNNEL_COUNTS, 0);

/* What became of the flows of senders. Not in the flow table: they outlive their flows. */
WW_MAP(ww_senders, BPF_MAP_TYPE_LRU_HASH, struct ww_sender_key, struct ww_sender, WW_SENDERS, 0);

/* The deny list's prefixes. Its ports are the classifier's. */
WW_MAP(ww_deny4, BPF_MAP_TYPE_LPM_TRIE, struct ww_prefix4, struct ww_denied, WW_DENY_PREFIXES,
       BPF_F_NO_PREALLOC);
WW_MAP(ww_deny6, BPF_MAP_TYPE_LPM_TRIE, struct ww_prefix6, struct ww_denied, WW_DENY_PREFIXES,
       BPF_F_NO_PREALLOC);
WW_MAP(ww_deny_origins, BPF_MAP_TYPE_ARRAY, __u32, struct ww_deny_origin, WW_DENY_ORIGINS, BPF_F_MMAPABLE);

/* Flows or sources that events were about. */
WW_MAP(ww_told_of, BPF_MAP_TYPE_LRU_HASH, struct ww_told_key, struct ww_told, WW_TOLD, 0);
/* Who is banned, and for how long; and who has proved its address. */
WW_MAP(ww_bans, BPF_MAP_TYPE_ARRAY, __u32, struct ww_ban_bucket, WW_BAN_BUCKETS, BPF_F_MMAPABLE);
WW_MAP(ww_ban_filter, BPF_MAP_TYPE_ARRAY, __u32, __u64, WW_BAN_FILTER_WORDS, BPF_F_MMAPABLE);
WW_MAP(ww_handshakes, BPF_MAP_TYPE_ARRAY, __u32, struct ww_handshake, WW_HANDSHAKES, BPF_F_MMAPABLE);

/* What belongs to a CPU, or 0. */
static __always_inline struct ww_act_cpu *ww_this_cpu(void)
{
	struct ww_act_cpu *all = ww_act_cpu;
	__u64 index = bpf_get_smp_processor_id();

	ww_hide(index);
	if (ww_unlikely(index >= ww_act_config.shards))
		return 0;
	ww_hide(all); /* the array is declared with one element */
	ww_hide(index); /* otherwise it may multiply before it compares, and the verifier would not know the bound of the product */
	return all + index;
}

#endif
