/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Takes up a packet where another function left it in ww_scratch: behind a tail call, or to act on IPv6. */
#ifndef WW_RESUME_H
#define WW_RESUME_H

#include "classify/flow.h"
#include "classify/verdict.h"

/* Leaves what ww_resume and ww_resume_slot need. */
static __always_inline void ww_suspend(const struct ww_frame *frame, const struct ww_flow *flow,
				       const __u32 version, __u32 length)
{
	struct ww_scratch *scratch = &frame->percpu->scratch;

	scratch->ip_version = version;
	scratch->length = length;
	scratch->frame_length = frame->length;
#if !WW_SHARED
	scratch->bucket = flow->bucket;
	scratch->way = flow->way;
#endif
	scratch->now_ns = frame->now_ns;
}

/* Finds the maps' elements of this packet again. Returns 0, or -1 if a look-up failed. */
static __always_inline int ww_resume(struct ww_frame *frame, WW_HOOK_CTX *ctx)
{
	if (!ww_begin_frame(frame, bpf_get_smp_processor_id()))
		return -1;
	frame->ctx = ctx;
	frame->now_ns = frame->percpu->scratch.now_ns;
	frame->length = frame->percpu->scratch.frame_length;
	return 0;
}

/* The packet's slot, or what ww_release_entry copied of it; NULL if a look-up failed. version: 4 or 6, a constant, so that the verifier
 * knows whose entry it is. */
static __always_inline struct ww_slot *ww_resume_slot(struct ww_frame *frame, const __u32 version)
{
#if WW_SHARED
	return &frame->percpu->scratch.seen;
#else
	__u32 index = frame->percpu->scratch.bucket, place = frame->percpu->scratch.way, zero = 0;

	if (place >= WW_WAYS) {
		struct ww_blank_entry *blank = bpf_map_lookup_elem(&ww_blank, &zero);

		return blank ? &blank->slot : 0;
	}
	/* Hidden, or the compiler would compute the slot's address before it knows that there is a bucket. */
	if (version == 4) {
		struct ww_bucket4 *bucket = bpf_map_lookup_elem(&ww_flows4, &index);

		if (!bucket)
			return 0;
		ww_hide(bucket);
		return &bucket->entry[place].slot;
	} else {
		struct ww_bucket6 *bucket = bpf_map_lookup_elem(&ww_flows6, &index);

		if (!bucket)
			return 0;
		ww_hide(bucket);
		return &bucket->entry[place].slot;
	}
#endif
}

#endif
