/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The entry point at XDP; the packet's path is in wirewise/pipeline.h. */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "wirewise/abi_layout.h"
#include "wirewise/pipeline.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("xdp")
int ww_xdp(struct xdp_md *ctx)
{
	return ww_run(ctx);
}

#if WW_TAIL_CALLS
#include "wirewise/tail.h"

#include "ww_tail_calls.h"
#endif
