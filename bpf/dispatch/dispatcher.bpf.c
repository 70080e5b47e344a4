/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A dispatcher as libxdp's protocol defines it (lib/libxdp/protocol.org of xdp-tools; WW_DISPATCHER_VERSION 2, or 3 since libxdp 1.6), so that
 * libxdp can take over what wirewise made, and wirewise what libxdp made. An extension takes the place of each slot.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#define WW_DISPATCHER_SLOTS 10
/* What an empty slot gives: not a verdict of XDP, so the next slot has its turn. */
#define WW_DISPATCHER_EMPTY 31

/* struct Config of the agent (plane/dispatcher/mod.rs). */
struct ww_dispatcher_config {
	__u8 magic;
	__u8 version;
	__u8 enabled;
	__u8 frags;
	__u32 chain_call_actions[WW_DISPATCHER_SLOTS];
	__u32 run_priorities[WW_DISPATCHER_SLOTS];
	__u32 program_flags[WW_DISPATCHER_SLOTS];
#if WW_DISPATCHER_VERSION > 2
	__u8 devbound;
#endif
};

static volatile const struct ww_dispatcher_config conf = {};

/* A slot changes the packet by nothing: since Linux 6.13 an extension may only call what may change packet data, as tail calls do, if the
 * function it replaces does so too. */
#define WW_SLOT(number)                                                \
	__attribute__((noinline)) int prog##number(struct xdp_md *ctx) \
	{                                                              \
		volatile int verdict = WW_DISPATCHER_EMPTY;            \
                                                                       \
		if (!ctx)                                              \
			return XDP_ABORTED;                            \
		bpf_xdp_adjust_tail(ctx, 0);                           \
		return verdict;                                        \
	}
#define WW_CALL(number)                                                 \
	do {                                                            \
		if (conf.enabled <= number)                             \
			return XDP_PASS;                                \
		verdict = prog##number(ctx);                            \
		if (!(1U << verdict & conf.chain_call_actions[number])) \
			return verdict;                                 \
	} while (0)

WW_SLOT(0)
WW_SLOT(1)
WW_SLOT(2)
WW_SLOT(3)
WW_SLOT(4)
WW_SLOT(5)
WW_SLOT(6)
WW_SLOT(7)
WW_SLOT(8)
WW_SLOT(9)

SEC("xdp")
int xdp_dispatcher(struct xdp_md *ctx)
{
	int verdict;

	WW_CALL(0);
	WW_CALL(1);
	WW_CALL(2);
	WW_CALL(3);
	WW_CALL(4);
	WW_CALL(5);
	WW_CALL(6);
	WW_CALL(7);
	WW_CALL(8);
	WW_CALL(9);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
/* By this libxdp knows a dispatcher. */
__uint(dispatcher_version, WW_DISPATCHER_VERSION) SEC("xdp_metadata");
