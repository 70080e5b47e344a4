/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The constants of a load; the feature set's options give their defaults. */
#ifndef WW_CONFIG_H
#define WW_CONFIG_H

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "abi.h"

/* volatile: or the compiler would take the values here for the ones of the run. */
#ifndef WW_LOADED
#define WW_LOADED const volatile
#endif

/* Designators with which a run that is compiled in overrides these. */
#ifndef WW_CONFIG_OF_RUN
#define WW_CONFIG_OF_RUN
#endif

/* Bytes of a digest, which only the compiler of a bundle knows. */
#ifndef WW_MEANING
#define WW_MEANING 0
#endif

/* The compiler's defaults; the loader overwrites what depends on the machine and the run. */
WW_LOADED struct ww_config ww_config SEC(".rodata.ww_config") = {
	.abi_version = WW_ABI_VERSION,
	.clock = WW_NEEDS_TIME ? WW_CLOCK_FINE : WW_CLOCK_COARSE,
	.bucket_mask = WW_TABLE_SIZE / WW_WAYS - 1,
	.shards = 1,
	.proven_packets = WW_PROVEN_PACKETS,
	.idle_timeout_ns = WW_IDLE_TIMEOUT_NS,
	.grace_ns = WW_GRACE_NS,
	.verdict = WW_SLOT_VERDICT,
	.shared = WW_SHARED,
	.key_teid = WW_KEY_TEID,
	.aggregate_mask = WW_AGGREGATES_SIZE / WW_WAYS - 1,
	.meaning = {WW_MEANING},
	WW_CONFIG_OF_RUN};

/* For frame/. */
#define WW_LOAD ww_config

#endif
