/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What every measurement is compared with: the least that a filter does. Counts packets and bytes, and drops. WITH_CLOCK: and reads the
 * fine clock, which flow extraction does too; how much of it that is differs between machines. */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "abi.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256); /* CPUs */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct ww_stats);
} ww_stats SEC(".maps");

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("xdp")
int ww_main(struct xdp_md *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct ww_stats *stats = bpf_map_lookup_elem(&ww_stats, &cpu);

	if (!stats)
		return XDP_PASS;
	stats->status[WW_UNDECIDED].packets++;
	stats->status[WW_UNDECIDED].bytes += ctx->data_end - ctx->data;
#ifdef WITH_CLOCK
	stats->event_tat_ns = bpf_ktime_get_ns();
#endif
	return XDP_DROP;
}
