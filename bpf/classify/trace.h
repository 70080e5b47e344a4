/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What tests and `explain` see of a packet's way, behind ww_config.trace, and events of its features, behind ww_config.inputs; so other live
 * traffic pays nothing. */
#ifndef WW_TRACE_H
#define WW_TRACE_H

#include "classify/flow.h"
#include "classify/maps.h"

static __always_inline void ww_trace_flow(struct ww_scratch *scratch, const struct ww_slot *slot,
					  __u32 ip_version, __u32 refused)
{
	scratch->packets = slot->packets;
	scratch->ip_version = ip_version;
	scratch->refused = refused;
	ww_copy_key(&scratch->key, slot + 1, ip_version);
}

static __always_inline void ww_trace_features(struct ww_scratch *scratch)
{
	ww_extract_constants(scratch->feature);
	scratch->inferred = 1;
}

#endif
