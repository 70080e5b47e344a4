/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Lists of prefixes that hold until a time, in LPM tries. */
#ifndef WW_PREFIXES_H
#define WW_PREFIXES_H

#include <bpf/bpf_helpers.h>

#include "abi.h"

/* Seconds of CLOCK_BOOTTIME. The clock has a fence: it is read for a prefix that does not hold for ever, only. */
static __always_inline __u64 ww_boot_s(void)
{
	return bpf_ktime_get_boot_ns() / 1000000000;
}

/* The value (a struct `type`, with until_s, WW_LIST_FOREVER or a time of clock(), and length) of the longest prefix that still holds, or NULL: one
 * that has expired does not hide those that contain it. key: of all the address's bits; its length is changed. */
#define WW_LONGEST_PREFIX(type, map, key, bits, clock)                                       \
	({                                                                                   \
		struct type *longest = NULL;                                                 \
                                                                                             \
		_Pragma("clang loop unroll(disable)") for (int i = 0; i <= (bits); i++)      \
		{                                                                            \
			struct type *found = bpf_map_lookup_elem(&(map), (key));             \
                                                                                             \
			if (!found)                                                          \
				break;                                                       \
			if (found->until_s == WW_LIST_FOREVER || clock() < found->until_s) { \
				longest = found;                                             \
				break;                                                       \
			}                                                                    \
			if (!found->length)                                                  \
				break;                                                       \
			(key)->length = found->length - 1;                                   \
		}                                                                            \
		longest;                                                                     \
	})

#endif
