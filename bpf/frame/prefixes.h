/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Lists of prefixes that hold until a time, in LPM tries. */
#ifndef WW_PREFIXES_H
#define WW_PREFIXES_H

#include <bpf/bpf_helpers.h>

#include "abi.h"

/* until_s: seconds of CLOCK_BOOTTIME, or WW_LIST_FOREVER. */
static __always_inline int ww_holds_still(__u32 until_s)
{
	return until_s == WW_LIST_FOREVER || bpf_ktime_get_boot_ns() < until_s * 1000000000ULL;
}

/* The value (a struct `type`, with until_s and length) of the longest prefix that still holds, or NULL: one that has expired does not hide those
 * that contain it. key: of all the address's bits; its length is changed. */
#define WW_LONGEST_PREFIX(type, map, key, bits)                                         \
	({                                                                              \
		struct type *longest = NULL;                                            \
                                                                                        \
		_Pragma("clang loop unroll(disable)") for (int i = 0; i <= (bits); i++) \
		{                                                                       \
			struct type *found = bpf_map_lookup_elem(&(map), (key));        \
                                                                                        \
			if (!found)                                                     \
				break;                                                  \
			if (ww_holds_still(found->until_s)) {                           \
				longest = found;                                        \
				break;                                                  \
			}                                                               \
			if (!found->length)                                             \
				break;                                                  \
			(key)->length = found->length - 1;                              \
		}                                                                       \
		longest;                                                                \
	})

#endif
