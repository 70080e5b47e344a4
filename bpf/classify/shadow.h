/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A second model beside the first, on the same packets, that changes no verdict. Compiled out unless ww_config.shadow is set;
 * on the usual packet's path ww_config.trace is tested first, which a shadow sets too.
 *
 * The second sees the packet first: it does everything that is done with a packet, with its own flow tables and a policy under which
 * everything passes, and leaves its class in ww_agreement. Then it passes the packet to the first by a tail call. The first uses the time that
 * the second has read, gives the verdict, and counts the pair of both classes. Either may be split over
 * tail calls.
 */
#ifndef WW_SHADOW_H
#define WW_SHADOW_H

#include "classify/config.h"
#include "classify/describe.h"
#include "classify/maps.h"
#include "frame/arith.h"
#include "frame/hook.h"

/* No class: the packet was not classified. */
#define WW_NO_CLASS WW_MAX_CLASSES
/* No answer yet. */
#define WW_NO_ANSWER (WW_MAX_CLASSES + 1)

/* This CPU's row for a class of the first; row 0 also has what the two programs tell each other. */
static __always_inline struct ww_agreement *ww_agreement_row(__u32 class_id)
{
	__u32 index = bpf_get_smp_processor_id() * WW_AGREEMENT_ROWS + class_id;

	return bpf_map_lookup_elem(&ww_agreement, &index);
}

/* The packet's time, the same for both programs: the second's, which begins with this. now: the caller's. */
__noinline __u64 ww_shadow_time(__u64 now)
{
	struct ww_agreement *own;

	if (!ww_config.shadow)
		return now;
	own = ww_agreement_row(0);
	if (!own)
		return now;
	if (ww_config.shadow == WW_SHADOW_SECOND) {
		own->now_ns = now;
		own->class_id = WW_NO_ANSWER;
	}
	return own->now_ns;
}

/* The end of a packet's way, with the hook's code: the second gives it to the first, and what passes goes on to the next program, if the policy
 * names one. Where there is neither, the loader takes the calls out of programs that have no other tail call, for it makes their calls of
 * functions cost more. */
static __always_inline int ww_hand_over(WW_HOOK_CTX *ctx, int verdict)
{
	if (ww_unlikely(ww_config.shadow == WW_SHADOW_SECOND))
		bpf_tail_call(ctx, &ww_first, 0);
	ww_tell(ctx, verdict);
	if (ww_unlikely(ww_config.next) && verdict == WW_VERDICT_PASS)
		bpf_tail_call(ctx, &ww_next, 0);
	return ww_leave(verdict);
}

/* What a program makes of the packet: a class, or WW_NO_CLASS. */
__noinline int ww_shadow_answer(__u32 class_id)
{
	struct ww_agreement *own, *row;
	__u32 answer;

	if (!ww_config.shadow)
		return 0;
	own = ww_agreement_row(0);
	if (!own)
		return 0;
	if (ww_config.shadow == WW_SHADOW_SECOND) {
		own->class_id = class_id;
		return 0;
	}
	answer = own->class_id;
	row = ww_agreement_row(class_id);
	if (row && answer <= WW_NO_CLASS)
		row->packets[answer]++;
	return 0;
}

#endif
