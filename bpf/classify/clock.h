/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The one place that reads a clock, once a packet.
 *
 * The fine clock costs more than all features together (41 of 87 ns measured on an AMD EPYC, 28 of 46 on an Intel Xeon), so it is
 * read only where a feature needs microseconds. Replay and tests give the captured time with the packet.
 */
#ifndef WW_CLOCK_H
#define WW_CLOCK_H

#include "classify/config.h"
#include "classify/maps.h"
#include "frame/hook.h"

static __always_inline __u64 ww_now(WW_HOOK_CTX *ctx)
{
	const __u32 clock = ww_config.clock;

	if (ww_unlikely(clock == WW_CLOCK_METADATA))
		return ww_captured_time(ctx);
	if (clock == WW_CLOCK_FINE)
		return bpf_ktime_get_ns();
	/* The verifier turns bpf_jiffies64 into one load, where the other clock takes two calls. */
	return ww_config.jiffy_ns ? bpf_jiffies64() * ww_config.jiffy_ns + ww_config.jiffy_zero_ns
				  : bpf_ktime_get_coarse_ns();
}

#endif
