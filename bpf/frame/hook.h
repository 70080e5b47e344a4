/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The hook that the program is attached to: what it passes in, and what it expects back. Other headers ask ww_at_tc(), and read
 * fields of the context by ww_field(), for both types of it where they differ.
 *
 * Classifier and actor each have the constants of the load, and say so by WW_LOAD before they include this.
 *
 * The hook is a constant of the load, so one program is all of them: the verifier follows only the branches of its own hook and the kernel
 * removes the others, as it does for the clock.
 */
#ifndef WW_HOOK_H
#define WW_HOOK_H

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <linux/types.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "abi.h"
#include "frame/arith.h"

/* struct xdp_md or struct __sk_buff: no type of C is both. */
#define WW_HOOK_CTX void
/* Says to the verifier that a global function's argument is the context; libbpf says it in another way to kernels before 6.8. */
#if defined(__bpf__)
#define WW_HOOK_ARG __attribute__((btf_decl_tag("arg:ctx"))) WW_HOOK_CTX
#else
#define WW_HOOK_ARG WW_HOOK_CTX
#endif

/* A bit of the argument `transport` of ww_denied4 and ww_denied6: the port is on the deny list. */
#define WW_PORT_IS_DENIED (1ULL << 63)

/* Headers that a driver left outside the linear part of a socket buffer are copied to it up to here. */
#define WW_HEADERS 256

/* A field of the context. In assembler, because the verifier wants the offset in the load itself, and a compiler that sees the loads of two
 * hooks makes one load of them, at an address it chooses. */
#if defined(__bpf__)
#define ww_field_of(size, ctx, type, field)                                     \
	({                                                                      \
		__u64 value_;                                                   \
		asm volatile("%0 = *(" size " *)(%1 + %2)"                      \
			     : "=r"(value_)                                     \
			     : "r"(ctx), "i"(__builtin_offsetof(type, field))); \
		value_;                                                         \
	})
#define ww_field(ctx, type, field) ww_field_of("u32", ctx, type, field)
/* Likewise of a store. */
#define ww_set_field(ctx, type, field, value)                                              \
	asm volatile("*(u32 *)(%0 + %1) = %2"                                              \
		     :                                                                     \
		     : "r"(ctx), "i"(__builtin_offsetof(type, field)), "r"((__u64)(value)) \
		     : "memory")
#define ww_field64(ctx, type, field) ww_field_of("u64", ctx, type, field)
#else
#define ww_set_field(ctx, type, field, value) (((type *)(ctx))->field = (value))
#define ww_field(ctx, type, field) ((__u64)((const type *)(ctx))->field)
#define ww_field64(ctx, type, field) ww_field(ctx, type, field)
#endif

/* The frame as a hook has it. */
struct ww_input {
	void *data;
	void *end;    /* of what can be read */
	__u32 length; /* of the whole frame, with a tag that is beside it */
	__u32 tag;    /* 1 << 16 | TCI of a VLAN tag that the driver or the kernel took off; 0: none */
};

static __always_inline int ww_at_tc(void)
{
	return WW_LOAD.hook != WW_HOOK_XDP;
}

/* Packets of this host to others: its peer is the destination. */
static __always_inline int ww_outgoing(void)
{
	return WW_LOAD.hook == WW_HOOK_TC_EGRESS;
}

static __always_inline void *ww_data(const WW_HOOK_CTX *ctx)
{
	if (ww_at_tc())
		return (void *)ww_field(ctx, struct __sk_buff, data);
	return (void *)ww_field(ctx, struct xdp_md, data);
}

static __always_inline void *ww_data_end(const WW_HOOK_CTX *ctx)
{
	if (ww_at_tc())
		return (void *)ww_field(ctx, struct __sk_buff, data_end);
	return (void *)ww_field(ctx, struct xdp_md, data_end);
}

/* A VLAN tag beside the frame, as in struct ww_input. At XDP, one that the card took off is in its descriptor, which no program sees. */
static __always_inline __u32 ww_tag(const WW_HOOK_CTX *ctx)
{
	if (!ww_at_tc() || ww_likely(!ww_field(ctx, struct __sk_buff, vlan_present)))
		return 0;
	return 1 << 16 | (ww_field(ctx, struct __sk_buff, vlan_tci) & 0xffff);
}

/* Bytes of the frame without a tag that is beside it. A frame in several buffers has its headers in the first, and data_end is the end of that. */
static __always_inline __u32 ww_frame_length(WW_HOOK_CTX *ctx)
{
	if (ww_at_tc())
		return ww_field(ctx, struct __sk_buff, len);
	if (ww_unlikely(WW_LOAD.frags))
		return bpf_xdp_get_buff_len(ctx);
	return ww_data_end(ctx) - ww_data(ctx);
}

static __always_inline struct ww_input ww_input(WW_HOOK_CTX *ctx)
{
	/* First, so that no pointer has to be kept over a call. */
	struct ww_input input = {.length = ww_frame_length(ctx), .tag = ww_tag(ctx)};

	input.length += input.tag ? 4 : 0;
	input.data = ww_data(ctx);
	input.end = ww_data_end(ctx);
	return input;
}

/* Makes the headers readable. What points into the packet is not valid behind this, so it comes first. */
static __always_inline void ww_pull_headers(WW_HOOK_CTX *ctx)
{
	if (ww_at_tc()) {
		__u32 length = ww_field(ctx, struct __sk_buff, len);

		length = ww_min(length, WW_HEADERS);
		if (ww_unlikely(ww_data(ctx) + length > ww_data_end(ctx)))
			bpf_skb_pull_data(ctx, length);
	}
}

/* The time that a captured packet brings with it. */
static __always_inline __u64 ww_captured_time(const WW_HOOK_CTX *ctx)
{
	struct ww_captured *captured;

	if (ww_at_tc())
		return ww_field64(ctx, struct __sk_buff, tstamp);
	captured = (void *)ww_field(ctx, struct xdp_md, data_meta);
	return (void *)(captured + 1) > ww_data(ctx) ? 0 : captured->time_ns;
}

/* Bytes of the whole frame, without a tag that is beside it. A test run gets no more of a captured one than its headers. */
static __always_inline __u32 ww_whole_length(WW_HOOK_CTX *ctx)
{
	__u32 length;

	if (ww_at_tc()) {
		length = WW_LOAD.trace ? ww_field(ctx, struct __sk_buff, cb[0]) : 0;
		return length ?: ww_field(ctx, struct __sk_buff, len);
	}
	if (WW_LOAD.trace) {
		struct ww_captured *captured = (void *)ww_field(ctx, struct xdp_md, data_meta);

		if ((void *)(captured + 1) <= ww_data(ctx))
			return captured->length;
	}
	return ww_frame_length(ctx);
}

/* The hook's code for a verdict. At TC, what passes goes on to the next program, if there is one. */
static __always_inline int ww_leave(int verdict)
{
	if (WW_LOAD.acts && ww_unlikely(verdict == WW_VERDICT_BOUNCE || verdict == WW_VERDICT_REDIRECT)) {
		if (ww_at_tc())
			return TC_ACT_REDIRECT;
		return verdict == WW_VERDICT_BOUNCE ? XDP_TX : XDP_REDIRECT;
	}
	if (ww_at_tc())
		return verdict == WW_VERDICT_DROP ? TC_ACT_SHOT : TC_ACT_UNSPEC;
	return verdict == WW_VERDICT_DROP ? XDP_DROP : XDP_PASS;
}

#endif
