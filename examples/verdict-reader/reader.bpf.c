/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A program at TC that reads the verdict of wirewise for each packet: it counts packets by class, and marks them by class for nftables. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

#include "act/metadata.h"

#define CLASSES 64
/* Marks begin here, so that class 0 has one too. */
#define MARK 0x100

struct seen {
	__u64 packets;
	struct ww_metadata last;
};

/* An element for each class, and one for packets without a verdict. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CLASSES + 1);
	__type(key, __u32);
	__type(value, struct seen);
} classes SEC(".maps");

SEC("tc")
int read_verdict(struct __sk_buff *skb)
{
	struct ww_metadata *metadata = (void *)(long)skb->data_meta;
	__u32 class_id = CLASSES;
	struct seen *seen;

	if ((void *)(metadata + 1) > (void *)(long)skb->data || metadata->magic != WW_METADATA)
		metadata = 0;
	if (metadata && metadata->class_id < CLASSES)
		class_id = metadata->class_id;
	seen = bpf_map_lookup_elem(&classes, &class_id);
	if (seen) {
		__sync_fetch_and_add(&seen->packets, 1);
		if (metadata)
			seen->last = *metadata;
	}
	if (class_id < CLASSES)
		skb->mark = MARK + class_id;
	return TC_ACT_UNSPEC; /* whoever else is there goes on */
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
