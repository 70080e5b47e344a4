/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The IP header of a packet that carries another. */
#ifndef WW_OUTER_H
#define WW_OUTER_H

#include <linux/ip.h>
#include <linux/types.h>

#include <bpf/bpf_endian.h>

#include "frame/checksum.h"

/* Of IPv4: not to be fragmented. */
#define WW_WHOLE 0x4000
#define WW_OUTER_HOPS 64

/* One word after the other: a copy in one piece takes all of them to registers first, of which there are not enough. */
static __always_inline void ww_copy_words(__be16 *to, const void *from, int bytes)
{
#pragma unroll
	for (int i = 0; i < bytes / 2; i++)
		to[i] = ((const __be16 *)from)[i];
}

/* length: of what is behind the header. Addresses: in the first bytes of these, which lie at even places. */
static __always_inline void ww_write_ipv4(__be16 *word, const __u8 *source, const __u8 *destination,
					  __u32 dsfield, __u32 protocol, __u32 length)
{
	__u32 sum = 0;

	word[0] = bpf_htons(0x4500 | dsfield);
	word[1] = bpf_htons(sizeof(struct iphdr) + length);
	word[2] = 0; /* of a packet that is not to be fragmented it means nothing: RFC 6864 */
	word[3] = bpf_htons(WW_WHOLE);
	word[4] = bpf_htons(WW_OUTER_HOPS << 8 | protocol);
	word[WW_IPV4_CHECKSUM] = 0;
	ww_copy_words(word + 6, source, 4);
	ww_copy_words(word + 8, destination, 4);
#pragma unroll
	for (int i = 0; i < (int)sizeof(struct iphdr) / 2; i++)
		sum += word[i];
	sum = (sum >> 16) + (sum & 0xffff);
	word[WW_IPV4_CHECKSUM] = ~((sum >> 16) + sum);
}

/* label: its lower 20 bits are the flow label. */
static __always_inline void ww_write_ipv6(__be16 *word, const __u8 *source, const __u8 *destination,
					  __u32 dsfield, __u32 label, __u32 protocol, __u32 length)
{
	word[0] = bpf_htons(0x6000 | dsfield << 4 | (label >> 16 & 15));
	word[1] = bpf_htons(label);
	word[2] = bpf_htons(length);
	word[3] = bpf_htons(protocol << 8 | WW_OUTER_HOPS);
	ww_copy_words(word + 4, source, 16);
	ww_copy_words(word + 12, destination, 16);
}

#endif
