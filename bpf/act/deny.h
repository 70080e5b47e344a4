/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The deny list. A bundle's ww_denied4 and ww_denied6 deny nobody; these are linked in their place where a policy has the list, or bans.
 *
 * They are called while all of the classifier is on the stack, so they take little of it.
 */
#ifndef WW_DENY_H
#define WW_DENY_H

#include <linux/in.h>

#include <bpf/bpf_helpers.h>

#include "act/ban.h"
#include "act/maps.h"
#include "frame/arith.h"
#include "frame/hook.h"

static __always_inline int ww_still_denied(const struct ww_denied *what)
{
	__u32 until = what->until_s;

	return until == WW_DENY_FOREVER || bpf_ktime_get_boot_ns() < until * 1000000000ULL;
}

/* Looks for the longest prefix that is denied still: one that has expired does not shield the address from those that hold it. key: of all
 * the address's bits; the length is changed. */
#define WW_DENIED_BY(map, key, bits)                                                    \
	({                                                                              \
		int denied = 0;                                                         \
                                                                                        \
		_Pragma("clang loop unroll(disable)") for (int i = 0; i <= (bits); i++) \
		{                                                                       \
			struct ww_denied *found = bpf_map_lookup_elem(&(map), (key));   \
                                                                                        \
			if (!found)                                                     \
				break;                                                  \
			if (ww_still_denied(found)) {                                   \
				denied = 1;                                             \
				break;                                                  \
			}                                                               \
			if (!found->length)                                             \
				break;                                                  \
			(key)->length = found->length - 1;                              \
		}                                                                       \
		denied;                                                                 \
	})

/* protocol: 0 if there is no port. */
static __always_inline int ww_denied_port(__u32 protocol, __u32 port)
{
	__u32 word = (protocol == IPPROTO_UDP ? WW_ALLOW_PORT_WORDS : 0) + port / 64;
	__u64 *ports;

	if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP)
		return 0;
	ports = bpf_map_lookup_elem(&ww_deny_ports, &word);
	return ports && *ports >> (port & 63) & 1 ? WW_DENIED_PORT : 0;
}

/* Whether a list denies the packet: WW_DENIED_PREFIX, WW_DENIED_PORT, or 0. Functions of their own, so that their stack is free again when bans
 * are looked up. */
__noinline int ww_listed4(__be32 peer, __u32 protocol, __u32 port)
{
	struct ww_prefix4 key = {.length = 32};

	/* Before Linux 6.8 a global function is verified even if nothing calls it. */
	if (!(ww_act_config.acts & WW_STEER_DENY))
		return 0;
	__builtin_memcpy(key.address, &peer, sizeof(key.address));
	return WW_DENIED_BY(ww_deny4, &key, 32) ? WW_DENIED_PREFIX : ww_denied_port(protocol, port);
}

__noinline int ww_listed6(const struct ww_ends6 *ends, __u32 protocol, __u32 port)
{
	/* Linux 6.1 accepts no map key in memory that was passed to a global function. */
	struct ww_prefix6 key = {.length = 128};

	if (!(ww_act_config.acts & WW_STEER_DENY) || !ends)
		return 0;
	__builtin_memcpy(key.address, ends->peer, sizeof(key.address));
	return WW_DENIED_BY(ww_deny6, &key, 128) ? WW_DENIED_PREFIX : ww_denied_port(protocol, port);
}

/* Whether the peer of a packet that no list denies is banned; else what the packet proves is noted. */
static __always_inline int ww_denied_by_ban(WW_HOOK_CTX *ctx, __u64 transport)
{
	if (!(ww_act_config.acts & WW_STEER_BAN))
		return 0;
	if (ww_banned(ctx))
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
	status = ww_listed4(peer, transport >> 16 & 0xffff, transport & 0xffff);
	return status ? status : ww_denied_by_ban(ctx, transport);
}

__noinline int ww_denied6(WW_HOOK_ARG *ctx, const struct ww_ends6 *ends, __u64 transport)
{
	int status;

	if (!ends)
		return 0;
	if (ww_act_config.acts & WW_STEER_BAN)
		ww_note6(ends);
	status = ww_listed6(ends, transport >> 16 & 0xffff, transport & 0xffff);
	return status ? status : ww_denied_by_ban(ctx, transport);
}

#endif
