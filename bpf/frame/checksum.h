/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Checksums in ones' complement, made and changed. */
#ifndef WW_CHECKSUM_H
#define WW_CHECKSUM_H

#include <linux/types.h>

/* The 16-bit word of an IPv4 header that is its checksum. */
#define WW_IPV4_CHECKSUM 5

/* A word of a sum in ones' complement, after another took its place: RFC 1624, equation 3, in any byte order. */
static __always_inline __u16 ww_checksum_after(__u16 checksum, __u16 before, __u16 after)
{
	__u32 sum = (__u16)~checksum + (__u16)~before + after;

	sum = (sum >> 16) + (sum & 0xffff);
	return ~((sum >> 16) + sum);
}

/* The checksum of a sum that bpf_csum_diff made. */
static __always_inline __u16 ww_checksum(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~((sum & 0xffff) + (sum >> 16));
}

#endif
