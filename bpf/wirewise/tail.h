/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The end of a model that is split over tail calls: takes up the packet where ww_xdp left it in ww_scratch. */
#ifndef WW_TAIL_H
#define WW_TAIL_H

/* Finds the maps' elements of this packet again. Returns 0, or -1 if a look-up failed. */
static __always_inline int ww_resume(struct ww_way *way, struct ww_slot **slot)
{
	__u32 cpu = bpf_get_smp_processor_id(), zero = 0, index;

	way->stats = bpf_map_lookup_elem(&ww_stats, &cpu);
	way->policy = bpf_map_lookup_elem(&ww_policy, &zero);
	way->scratch = bpf_map_lookup_elem(&ww_scratch, &cpu);
	if (!way->stats || !way->policy || !way->scratch)
		return -1;
	way->now_ns = way->scratch->now_ns;
	way->frame_length = way->scratch->frame_length;
	index = way->scratch->bucket;
	if (way->scratch->way >= WW_WAYS) {
		struct ww_blank_entry *blank = bpf_map_lookup_elem(&ww_blank, &zero);

		*slot = blank ? &blank->slot : 0;
	} else if (way->scratch->ip_version == 4) {
		struct ww_bucket4 *bucket = bpf_map_lookup_elem(&ww_flows4, &index);

		*slot = bucket ? &bucket->entry[way->scratch->way & (WW_WAYS - 1)].slot : 0;
	} else {
		struct ww_bucket6 *bucket = bpf_map_lookup_elem(&ww_flows6, &index);

		*slot = bucket ? &bucket->entry[way->scratch->way & (WW_WAYS - 1)].slot : 0;
	}
	return *slot ? 0 : -1;
}

#endif
