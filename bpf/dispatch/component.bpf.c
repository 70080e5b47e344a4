/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The component of a dispatcher that calls the data path: an extension, which can be in slots of several dispatchers at a time. The data path stays
 * an ordinary program that it calls, so another one takes over by one write to the map, whoever has changed the dispatcher since.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} ww_calls SEC(".maps");

SEC("xdp")
int ww_component(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &ww_calls, 0);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
