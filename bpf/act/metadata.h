/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The verdict as data: what programs beside wirewise read. Stands alone: include it, or copy it.
 *
 * With `metadata: true` in the policy, packets that were classified at XDP and pass have a struct ww_metadata in front: at data_meta for programs at
 * TC, and just before the packet for sockets of AF_XDP and behind a cpumap. With `verdicts: true` the pinned map ww_verdicts has the class of
 * each flow. Fields are only ever added at the end, with another WW_METADATA_VERSION. Read by scripts/abi.py as abi.h is: plain C, no holes.
 */
#ifndef WW_METADATA_H
#define WW_METADATA_H

#include <linux/types.h>

#define WW_METADATA 0x31d7a2c5 /* begins a struct ww_metadata */
#define WW_METADATA_VERSION 1
#define WW_METADATA_SCORE 1 /* of flags: score holds something */
#define WW_VERDICTS 65536   /* flows in ww_verdicts; the least recently used goes first */

/* Integers are in host byte order. */
struct ww_metadata {
	__u32 magic; /* WW_METADATA */
	__u32 flow_hash; /* of the flow's key, under a secret of the load; the same for both directions if they are one flow */
	__u64 time_ns; /* when the packet was judged: CLOCK_MONOTONIC, exact to the bundle's clock */
	__s64 score; /* of a model with one output its value, which is positive for class 1; else that of the class */
	__u32 model;   /* which model: the first four bytes of the digest of the bundle's program */
	__u8 class_id; /* that the packet counts as; its place in the bundle's list of classes */
	__u8 flags;    /* WW_METADATA_SCORE */
	__u16 version; /* WW_METADATA_VERSION */
};

/* Key of the map ww_verdicts: a flow as its packets have it. IPv4 addresses are in the first 4 bytes. Zeros where the feature set's key has no such
 * part. Flows that go both ways have an element for each direction. */
struct ww_five_tuple {
	__u8 source[16];
	__u8 destination[16];
	__be16 source_port;
	__be16 destination_port;
	__u8 protocol;
	__u8 ip_version; /* 4 or 6 */
	__u16 reserved;	 /* 0 */
};

/* Value of the map ww_verdicts: as in struct ww_metadata, of the packet that changed the flow's class. */
struct ww_flow_verdict {
	__u64 time_ns;
	__s64 score;
	__u32 model;
	__u8 class_id;
	__u8 flags;
	__u16 version;
};

#endif
