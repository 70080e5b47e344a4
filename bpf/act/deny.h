/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The deny list. A bundle's ww_denied4 and ww_denied6 deny nobody; these are linked in their place where a policy has the list, or bans.
 *
 * They are called while all of the classifier is on the stack, so they take little of it.
 */
#ifndef WW_DENY_H
#define WW_DENY_H

#include <bpf/bpf_helpers.h>

#include "act/ban.h"
#include "act/maps.h"
#include "frame/arith.h"
#include "frame/hook.h"
#include "frame/prefixes.h"

/* What ww_listed4 and ww_listed6 say; counts for whose prefix it is. what: NULL if none. */
static __always_inline int ww_denied_by(const struct ww_denied *what)
{
	struct ww_act_cpu *percpu;

	if (!what)
		return 0;
	percpu = ww_this_cpu();
	if (!percpu)
		return WW_DENIED_PREFIX;
	_Pragma("clang loop unroll(full)") for (int i = 0; i < WW_DENY_ORIGINS; i++)
	{
		if (what->origin_until_s[i] == what->until_s) {
			percpu->denied[i]++;
			break;
		}
	}
	return WW_DENIED_PREFIX;
}

/* The clock of the list, read once a tick: most lists of addresses end at some time, and a flood from them meets no other clock. */
static __always_inline __u64 ww_list_clock(void)
{
	struct ww_act_cpu *percpu = ww_this_cpu();
	__u64 tick = bpf_jiffies64();

	if (!percpu)
		return ww_boot_s();
	if (percpu->list_tick != tick) {
		percpu->list_boot_s = ww_boot_s();
		percpu->list_tick = tick;
	}
	return percpu->list_boot_s;
}

/* Whether a prefix of the list is the packet's: WW_DENIED_PREFIX, or 0. Functions of their own, so that their stack is free again when bans are
 * looked up. */
__noinline int ww_listed4(__be32 peer)
{
	struct ww_prefix4 key = {.length = 32};

	/* Before Linux 6.8 a global function is verified even if nothing calls it. */
	if (!(ww_act_config.acts & WW_STEER_DENY))
		return 0;
	__builtin_memcpy(key.address, &peer, sizeof(key.address));
	return ww_denied_by(WW_LONGEST_PREFIX(ww_denied, ww_deny4, &key, 32, ww_list_clock));
}

__noinline int ww_listed6(const struct ww_ends6 *ends)
{
	/* Linux 6.1 accepts no map key in memory that was passed to a global function. */
	struct ww_prefix6 key = {.length = 128};

	if (!(ww_act_config.acts & WW_STEER_DENY) || !ends)
		return 0;
	__builtin_memcpy(key.address, ends->peer, sizeof(key.address));
	return ww_denied_by(WW_LONGEST_PREFIX(ww_denied, ww_deny6, &key, 128, ww_list_clock));
}

/* Whether a packet that no prefix denies has a denied port or a banned peer; if not, notes what the packet proves. */
static __always_inline int ww_denied_otherwise(WW_HOOK_CTX *ctx, __u64 transport)
{
	if (transport & WW_PORT_IS_DENIED)
		return WW_DENIED_PORT;
	if (!(ww_act_config.acts & WW_STEER_BAN))
		return 0;
	if (ww_may_be_banned() && ww_banned(ctx))
		return WW_BANNED;
	if (ww_act_policy.proofs)
		ww_prove(ctx, transport);
	return 0;
}

__noinline int ww_denied4(WW_HOOK_ARG *ctx, __be32 peer, __be32 own, __u64 transport)
{
	int status;

	if (ww_act_config.acts & WW_STEER_BAN)
		ww_note4(peer, own);
	status = ww_act_config.acts & WW_STEER_DENY ? ww_listed4(peer) : 0;
	return status ? status : ww_denied_otherwise(ctx, transport);
}

__noinline int ww_denied6(WW_HOOK_ARG *ctx, const struct ww_ends6 *ends, __u64 transport)
{
	int status;

	if (!ends)
		return 0;
	if (ww_act_config.acts & WW_STEER_BAN)
		ww_note6(ends);
	status = ww_act_config.acts & WW_STEER_DENY ? ww_listed6(ends) : 0;
	return status ? status : ww_denied_otherwise(ctx, transport);
}

#endif
