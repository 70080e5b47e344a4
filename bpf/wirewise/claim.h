/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Who may touch an entry of a flow table that CPUs share.
 *
 * The last word of each entry's state, `claim`, is WW_CLAIMED while a CPU reads or changes the entry, and even otherwise. It rises with each
 * release, so a reader that takes no claim (the agent) knows a whole entry by the same even word before and after.
 *
 * A claim is never held across a call of the model or a tail call, and nobody waits for ever: a packet whose entry cannot be had in time is
 * judged without (WW_FLOW_MISSED). bpf_spin_lock would forbid to map the table, and every helper and function call while it is held; it
 * takes 11 ns where this takes one or none.
 */
#ifndef WW_CLAIM_H
#define WW_CLAIM_H

#include <stddef.h>

#include "arith.h"
#include "maps.h"

#if WW_SHARED

/* Tests release as other machines do. */
#ifndef WW_RELEASE_BY_EXCHANGE
#define WW_RELEASE_BY_EXCHANGE 0
#endif

#define WW_CLAIMED 0xffffffffU
#define WW_CLAIM_TRIES 16

/* Waits for an entry that another CPU holds; reading the clock is the delay. Returns what ww_claim does. */
__noinline __u32 ww_wait(__u32 *claim)
{
	__u32 seen = WW_CLAIMED;

	if (!claim)
		return WW_CLAIMED;
	for (int i = 0; i < WW_CLAIM_TRIES && seen == WW_CLAIMED; i++) {
		bpf_ktime_get_ns();
		if (*(volatile __u32 *)claim != WW_CLAIMED)
			seen = __sync_lock_test_and_set(claim, WW_CLAIMED);
	}
	return seen;
}

/* Takes an entry, and returns the word to release it with; WW_CLAIMED: it was not to be had. */
static __always_inline __u32 ww_claim(__u32 *claim)
{
	__u32 seen = __sync_lock_test_and_set(claim, WW_CLAIMED);

	if (ww_unlikely(seen == WW_CLAIMED)) {
		seen = ww_wait(claim);
		ww_hide(seen);
	}
	return seen;
}

/* Gives an entry back as word: what ww_claim returned if nothing was changed, else 2 more. */
static __always_inline void ww_release(__u32 *claim, __u32 word)
{
	asm volatile("" ::: "memory");
	/* eBPF before -mcpu=v4 has no store that orders those before it. */
	if (ww_config.ordered && !WW_RELEASE_BY_EXCHANGE)
		*(volatile __u32 *)claim = word;
	else
		__sync_lock_test_and_set(claim, word);
}

/* Class, flags and generation of an entry, as the one word they are. */
typedef __u32 __attribute__((may_alias)) ww_verdict_word;
#define WW_VERDICT_WORD(slot) (*(ww_verdict_word *)&(slot)->class_id)
#define WW_VERDICT_MASK (0xffU | WW_SLOT_VERDICTS << 8) /* what a new verdict changes of it */

#define WW_SHELF seen_key
#define WW_STATE_BYTES offsetof(struct ww_state, claim)
#else
#define WW_SHELF key
#define WW_STATE_BYTES sizeof(struct ww_state)
#endif
#endif
