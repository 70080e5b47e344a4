/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a DNS message asks for (RFC 1035, section 4.1). Only programs whose model reads such a field have this (WW_QUESTION).
 * Reference: feature_sets/dns.py.
 */
#ifndef WW_QUESTION_H
#define WW_QUESTION_H

#include <linux/in.h>
#include <linux/types.h>

#include <bpf/bpf_endian.h>

#include "classify/packet.h"
#include "frame/hook.h"

#define WW_PORT_DNS 53
#define WW_DNS_HEADER 12
#define WW_DNS_BEHIND 5 /* a name's last byte, type and class */
#define WW_DNS_MAX_LABEL 63
#define WW_DNS_MAX_NAME 255
#define WW_DNS_LOWER 0x20202020

#if WW_QUESTION
#include "classify/sketch.h"

/* A name as 32 bits, whatever the case of its letters. It is there, and some bytes behind it. A global function, as the next is: verified
 * once. */
__noinline __u32 ww_fold_name(WW_HOOK_ARG *ctx, __u32 offset, __u32 length)
{
	const void *end = ww_data_end(ctx);
	__u32 folded = 0;

	/* A bound for the verifier, as below. */
	if (offset > 0x7fff)
		return 0;
#pragma clang loop unroll(disable)
	for (__u32 at = 0; at <= WW_DNS_MAX_NAME - 3; at += 4) {
		const void *word = ww_data(ctx) + offset + at;
		__u32 letters, rest = length - at;

		ww_hide(word); /* or clang 14 reads by another register than it compares */
		if (word + 4 > end)
			break;
		letters = *(const __u32 *)word | WW_DNS_LOWER;
		if (rest < 4)
			letters &= (1U << 8 * rest) - 1;
		folded = (at ? ww_mix(folded) : 0) ^ letters;
		if (rest <= 4)
			break;
	}
	return folded;
}

/* The first question of a message that begins at an offset of the frame and has a length by its headers; above, its name as 32 bits. ports:
 * the source's above. */
__noinline __u64 ww_read_question(WW_HOOK_ARG *ctx, __u32 offset, __u32 length, __u32 protocol, __u32 ports)
{
	const void *end = ww_data_end(ctx);
	__u32 limit = offset + length, name, labels, type;
	const __u8 *at;

	if (protocol != IPPROTO_UDP || (ports >> 16 != WW_PORT_DNS && (ports & 0xffff) != WW_PORT_DNS))
		return 0;
	if (offset > 0x7fff || length < WW_DNS_HEADER)
		return 0;
	at = ww_data(ctx) + offset;
	if ((const void *)(at + WW_DNS_HEADER) > end || !(at[4] | at[5]))
		return 0;
	offset += WW_DNS_HEADER;
	name = offset;
#pragma clang loop unroll(disable)
	for (labels = 0; labels <= WW_DNS_MAX_NAME / 2; labels++) {
		__u32 size;

		if (offset > 0x7fff)
			return 0;
		at = ww_data(ctx) + offset;
		ww_hide(at);
		/* Whatever this label is, so much is behind its first byte. */
		if ((const void *)(at + WW_DNS_BEHIND) > end || offset + WW_DNS_BEHIND > limit)
			return 0;
		size = *at;
		offset += 1 + size;
		if (size > WW_DNS_MAX_LABEL || offset - name > WW_DNS_MAX_NAME)
			return 0;
		if (size)
			continue;
		type = bpf_ntohs(*(const __be16 *)(at + 1));
		return (__u64)ww_fold_name(ctx, name, offset - name) << 32 | type << 16 | labels << 8 |
		       (offset - name);
	}
	return 0;
}

/* The question of a packet whose headers were read and end at an offset of the frame. No branch is here: the verifier would follow what comes
 * behind once for each port. */
static __always_inline void ww_parse_question(WW_HOOK_CTX *ctx, __u32 offset, struct ww_packet *p)
{
	__u64 question = ww_read_question(ctx, offset, p->payload_length, p->protocol,
					  p->source_port << 16 | p->destination_port);

	p->question = question;
	p->question_name = question >> 32;
}
#endif

#endif
