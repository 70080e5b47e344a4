/* SPDX-License-Identifier: Apache-2.0 */
/* The generated sources of a program, unmodified, compiled for this processor: what the engine's code is compared with.
 *
 * native_config.h is the measurement's: NATIVE_ENTRIES, the elements of each map, and NATIVE_CONFIG, designators of struct ww_config
 * with what the loader sets in the other planes. They are constants here because the verifier and the engine make constants of
 * them as well.
 */
#include "native_config.h"

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <sys/mman.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "abi.h"

#include "native.h"

/* Constants of the run are compiled in. All else that is volatile stays so: it is the same C. */
#define WW_LOADED static const
#define WW_CONFIG_OF_RUN NATIVE_CONFIG

#if __has_include("ww_feature_set.h")
#define HAS_FLOWS 1
#else
#define HAS_FLOWS 0
#endif

#include "main.bpf.c"

#define ADVISE(map) madvise((map).value, sizeof((map).value), MADV_HUGEPAGE)

struct native_maps native_prepare(void)
{
#if HAS_FLOWS
	/* As in the engine: huge pages where the system has them, and a policy under which every class passes. */
	ADVISE(ww_flows4);
	ADVISE(ww_flows6);
	ww_policy = (struct ww_policy){0};
	return (struct native_maps){&ww_cpu[0].stats, &ww_cpu[0].scratch};
#else
	return (struct native_maps){&ww_stats.value[0], NULL};
#endif
}
