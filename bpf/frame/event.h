/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What an event is about, in one register, and the steps in which the actor is asked whether there is to be one.
 *
 * outcome | action << 8 | class << 16 | flags << 24 | IP length << 32
 */
#ifndef WW_EVENT_H
#define WW_EVENT_H

#define WW_WHAT_ANSWERING (1ULL << 24) /* there are answers of a bank */
#define WW_WHAT_SWAPPED (1ULL << 25)   /* the flow's first packet was swapped into canonical order */

enum ww_tell {
	WW_TELL_ASK =
		0, /* of how many packets an event would tell; 0: it is too early for one, and the packet is counted */
	WW_TELL_SENT,	 /* there was one */
	WW_TELL_LIMITED, /* there was none, as the rate is exceeded */
};

#endif
