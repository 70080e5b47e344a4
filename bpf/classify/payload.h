/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What kinds of bytes a payload begins with. Only programs whose model reads such a field have this (WW_PAYLOAD). */
#ifndef WW_PAYLOAD_H
#define WW_PAYLOAD_H

#include <linux/types.h>

#include "frame/arith.h"
#include "frame/bytes.h"
#include "frame/hook.h"

#define WW_PAYLOAD_HEAD 16 /* bytes looked at */

#if WW_PAYLOAD
/* The counts, of a payload that begins at an offset of the frame and has a length by its headers. A global function: verified once, and
 * the many places where a frame may end are not the caller's. */
__noinline __u32 ww_read_payload(WW_HOOK_ARG *ctx, __u32 offset, __u32 length)
{
	const void *end = ww_data_end(ctx);
	const __u8 *payload;
	__u64 low = 0, high = 0;
	__u32 bytes = 0;

	/* The first is a bound for the verifier; no frame reaches it. */
	if (offset > 0x7fff || !length)
		return 0;
	payload = ww_data(ctx) + offset;
	if (ww_likely((const void *)(payload + WW_PAYLOAD_HEAD) <= end)) {
		low = *(const __u64 *)payload;
		high = *(const __u64 *)(payload + 8);
		bytes = WW_PAYLOAD_HEAD;
	} else {
#pragma unroll
		for (int i = 0; i < WW_PAYLOAD_HEAD - 1; i++) {
			__u64 byte;

			if ((const void *)(payload + i + 1) > end)
				break;
			byte = payload[i];
			if (i < 8)
				low |= byte << 8 * i;
			else
				high |= byte << 8 * (i - 8);
			bytes = i + 1;
		}
	}
	return ww_count_bytes(low, high, ww_min(bytes, length));
}
#endif

#endif
