/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Many flows from one test packet: BPF_PROG_TEST_RUN repeats a packet, this gives each repetition another source address.
 *
 * Off unless ww_config.bench_flows is set at load; the verifier then removes it.
 */
#ifndef WW_BENCH_H
#define WW_BENCH_H

#include "classify/config.h"
#include "classify/maps.h"
#include "classify/parse.h"
#include "frame/hook.h"

static __u32 ww_bench_counter, ww_bench_packets;

static __always_inline void ww_bench_rewrite(WW_HOOK_CTX *ctx)
{
	struct ethhdr *eth = ww_data(ctx);
	struct iphdr *ip = (void *)(eth + 1);

	if ((void *)(ip + 1) > ww_data_end(ctx))
		return;
#if WW_DECAPSULATE_GTP_U
	/* A flow is what is inside the tunnel: behind UDP and the bare header, or with a PDU session container too. */
	if (ip->protocol == IPPROTO_UDP) {
		__u8 *gtp = (void *)(ip + 1) + sizeof(struct udphdr);

		if ((void *)(gtp + 1) > ww_data_end(ctx))
			return;
		ip = (void *)gtp + (*gtp & 7 ? 16 : 8);
		if ((void *)(ip + 1) > ww_data_end(ctx))
			return;
	}
#endif
	if (ww_config.bench_spoof && ip->id != 0xffff)
		return;
	/* An odd factor permutes the 32-bit numbers: distinct addresses, in an order without a pattern for the caches. */
	ip->saddr = ww_bench_counter * 0x9e3779b1U;
	if (ww_config.bench_packets) {
		if (++ww_bench_packets < ww_config.bench_packets)
			return;
		ww_bench_packets = 0;
	}
	if (++ww_bench_counter >= ww_config.bench_flows)
		ww_bench_counter = 0;
}

#endif
