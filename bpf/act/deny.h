/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The deny list. A bundle's ww_denied4 and ww_denied6 deny nobody; these are linked in their place where a policy has the list.
 *
 * They are called while all of the classifier is on the stack, so they take little of it.
 */
#ifndef WW_DENY_H
#define WW_DENY_H

#include <linux/in.h>

#include <bpf/bpf_helpers.h>

#include "act/maps.h"
#include "frame/arith.h"

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

__noinline int ww_denied4(__be32 source, __u32 protocol, __u32 port)
{
	struct ww_prefix4 key = {.length = 32};

	/* Before Linux 6.8 a global function is verified even if nothing calls it. */
	if (!(ww_act_config.acts & WW_STEER_DENY))
		return 0;
	__builtin_memcpy(key.address, &source, sizeof(key.address));
	return WW_DENIED_BY(ww_deny4, &key, 32) ? WW_DENIED_PREFIX : ww_denied_port(protocol, port);
}

__noinline int ww_denied6(const struct ww_prefix6 *source, __u32 protocol, __u32 port)
{
	struct ww_prefix6 key;

	if (!(ww_act_config.acts & WW_STEER_DENY) || !source)
		return 0;
	/* Linux 6.1 accepts no map key in memory that was passed to a global function. */
	key = *source;
	return WW_DENIED_BY(ww_deny6, &key, 128) ? WW_DENIED_PREFIX : ww_denied_port(protocol, port);
}

#endif
