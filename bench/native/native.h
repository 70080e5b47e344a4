/* SPDX-License-Identifier: Apache-2.0 */
/* What a program compiled for this processor offers to the measurement (crates/wirewised/examples/planes/native.rs). */
#ifndef NATIVE_H
#define NATIVE_H

#include <linux/types.h>
#include <stddef.h>

#include "abi.h"

/* A packet below 4 GB, where the 32-bit addresses of struct xdp_md reach. */
struct native_packet {
	__u32 meta; /* metadata begins */
	__u32 data; /* the frame begins */
	__u32 end;
};

/* What the program leaves behind; scratch is NULL if it is no data path of wirewise. */
struct native_maps {
	const struct ww_stats *stats;
	const struct ww_scratch *scratch;
};

#define NATIVE_EXPORT __attribute__((visibility("default")))

/* Once, before the first packet. */
NATIVE_EXPORT struct native_maps native_prepare(void);

/* Runs the program on each packet and notes what it returns. */
NATIVE_EXPORT void native_run(const struct native_packet *packets, size_t count, __u32 *codes);

#endif
