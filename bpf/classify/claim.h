/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which CPU may touch an entry of a shared flow table.
 *
 * The last word of each entry's state, `claim`, is WW_CLAIMED while a CPU reads or changes the entry, and an even number otherwise. It rises
 * with each release, so a reader that takes no claim (the agent) has read a consistent entry if it sees the same even number before and after.
 *
 * A claim is never held across a call of the model or a tail call, and no CPU waits for ever: if a packet cannot get its entry in time, it
 * is judged without it (WW_FLOW_MISSED). With bpf_spin_lock, the table could not be mapped into user space, and no helper or function could be
 * called while the lock is held; it takes 11 ns where this takes one or none.
 */
#ifndef WW_CLAIM_H
#define WW_CLAIM_H

#include <stddef.h>

#include "classify/maps.h"
#include "frame/arith.h"

#if WW_SHARED || WW_AGGREGATES

/* Tests release as machines of other architectures do. */
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

/* Takes an entry, and returns the word to release it with, or WW_CLAIMED if another CPU kept it. */
static __always_inline __u32 ww_claim(__u32 *claim)
{
	__u32 seen = __sync_lock_test_and_set(claim, WW_CLAIMED);

	if (ww_unlikely(seen == WW_CLAIMED)) {
		seen = ww_wait(claim);
		ww_hide(seen);
	}
	return seen;
}

/* Releases an entry. word: what ww_claim returned, plus 2 if the entry was changed. */
static __always_inline void ww_release(__u32 *claim, __u32 word)
{
	asm volatile("" ::: "memory");
	/* eBPF before -mcpu=v4 has no store-release instruction. */
	if (ww_config.ordered && !WW_RELEASE_BY_EXCHANGE)
		*(volatile __u32 *)claim = word;
	else
		__sync_lock_test_and_set(claim, word);
}

#endif

#if WW_SHARED
/* Class, flags and generation of an entry, as a single word. */
typedef __u32 __attribute__((may_alias)) ww_verdict_word;
#define WW_VERDICT_WORD(slot) (*(ww_verdict_word *)&(slot)->class_id)
/* The part that a new verdict changes. */
#define WW_VERDICT_MASK (0xffU | (WW_SLOT_VERDICTS | WW_MAX_STREAK << WW_SLOT_STREAK_SHIFT) << 8)
#endif

#endif
