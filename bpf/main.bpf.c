/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The program of every hook; the packet's path is in classify/pipeline.h. */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "abi_layout.h"
#include "classify/pipeline.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("xdp")
int ww_main(struct xdp_md *ctx)
{
	return ww_run(ctx);
}

#if WW_TAIL_CALLS
#include "classify/tail.h"

#include "ww_tail_calls.h"
#endif
