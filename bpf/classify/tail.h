/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a model that is split over tail calls adds: takes up the packet where ww_main left it in ww_scratch. */
#ifndef WW_TAIL_H
#define WW_TAIL_H

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

/* The end of the last program: the verdict, kept with the packet's flow. version: 4 or 6, a constant, so that the verifier
 * knows whose entry it is. */
static __always_inline int ww_finish(struct ww_frame *frame, const __u32 version)
{
#if WW_SHARED
	struct ww_slot *slot = &frame->percpu->scratch.seen;
#else
	__u32 index = frame->percpu->scratch.bucket, place = frame->percpu->scratch.way, zero = 0;
	struct ww_slot *slot;

	if (place >= WW_WAYS) {
		struct ww_blank_entry *blank = bpf_map_lookup_elem(&ww_blank, &zero);

		if (!blank)
			return WW_VERDICT_PASS;
		slot = &blank->slot;
	} else if (version == 4) {
		struct ww_bucket4 *bucket = bpf_map_lookup_elem(&ww_flows4, &index);

		if (!bucket)
			return WW_VERDICT_PASS;
		slot = &bucket->entry[place].slot;
	} else {
		struct ww_bucket6 *bucket = bpf_map_lookup_elem(&ww_flows6, &index);

		if (!bucket)
			return WW_VERDICT_PASS;
		slot = &bucket->entry[place].slot;
	}
#endif
	return ww_conclude(frame, slot, ww_decide(&frame->percpu->scratch), version,
			   frame->percpu->scratch.length);
}

#endif
