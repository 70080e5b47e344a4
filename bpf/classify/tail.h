/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a model that is split over tail calls adds. */
#ifndef WW_TAIL_H
#define WW_TAIL_H

#include "classify/resume.h"

/* The end of the last program: the verdict, kept with the packet's flow. version: 4 or 6, a constant. */
static __always_inline int ww_finish(struct ww_frame *frame, const __u32 version)
{
	struct ww_slot *slot = ww_resume_slot(frame, version);

	if (!slot)
		return WW_VERDICT_PASS;
	return ww_conclude(frame, slot, ww_decide(&frame->percpu->scratch), version,
			   frame->percpu->scratch.length);
}

#endif
