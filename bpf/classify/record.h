/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Rows to train on, from live traffic: what a packet's features are, and its headers, for the agent to name its flow and label it.
 *
 * Each CPU has a ring in ww_records that only it writes and only the agent reads, so nobody waits; a full ring refuses rows, and counts them.
 * Only in programs without a model; only if ww_config.record is set, else the verifier removes it.
 */
#ifndef WW_RECORD_H
#define WW_RECORD_H

#include "classify/config.h"
#include "classify/maps.h"
#include "classify/verdict.h"
#include "frame/hook.h"

/* An element of ww_records. */
struct ww_row {
	struct ww_record record;
	__s64 feature[WW_FEATURES];
};

/* For each CPU ww_config.record rows, and where it stands. */
WW_MAP(ww_records, BPF_MAP_TYPE_ARRAY, __u32, struct ww_row, 1, BPF_F_MMAPABLE);
WW_MAP(ww_record_rings, BPF_MAP_TYPE_ARRAY, __u32, struct ww_record_ring, 1, BPF_F_MMAPABLE);

static __always_inline void ww_copy_headers(struct ww_record *record, void *data, void *end)
{
	__u32 words = 0, at;

#pragma unroll
	for (int i = 0; i < WW_RECORD_HEADERS / 8; i++) {
		__u64 *word = data + 8 * i;

		if ((void *)(word + 1) > end)
			break;
		((__u64 *)record->headers)[i] = *word;
		words = i + 1;
	}
	ww_hide(words);
	at = words * 8;
	if (words < WW_RECORD_HEADERS / 8) {
		for (int i = 0; i < 7; i++) {
			__u8 *byte = data + at;

			if ((void *)(byte + 1) > end)
				break;
			record->headers[at & (WW_RECORD_ROOM - 1)] = *byte;
			at++;
		}
	}
	record->headers_length = at;
}

/* A packet that was parsed and accounted, and left its trace in ww_scratch. */
__noinline int ww_record(WW_HOOK_ARG *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id(), index, rows = ww_config.record;
	struct ww_frame frame = {};
	struct ww_scratch *scratch;
	struct ww_record_ring *ring;
	struct ww_row *row;
	__u64 written;

	if (!rows)
		return 0;
	ring = bpf_map_lookup_elem(&ww_record_rings, &cpu);
	if (!ring || !ww_begin_frame(&frame, cpu))
		return 0;
	scratch = &frame.percpu->scratch;
	ring->packets++;
	/* Under a trigger only what it picks; else what cannot be parsed too. */
	if (!scratch->inferred && ww_policy.trigger != WW_TRIGGER_EVERY)
		return 0;
	written = ring->written;
	if (written - *(volatile __u64 *)&ring->read >= rows) {
		ring->lost++;
		return 0;
	}
	index = cpu * rows + (written & (rows - 1));
	row = bpf_map_lookup_elem(&ww_records, &index);
	if (!row)
		return 0;
	row->record.time_ns = scratch->now_ns;
	row->record.packet = ring->packets;
	row->record.status = scratch->inferred ? WW_CLASSIFIED : scratch->status;
	row->record.inferred = scratch->inferred;
	row->record.length = ww_input(ctx).length;
#pragma unroll
	for (int i = 0; i < WW_FEATURES; i++)
		row->feature[i] = scratch->feature[i];
	ww_copy_headers(&row->record, ww_data(ctx), ww_data_end(ctx));
	/* An exchange orders the stores before it, for the reader on another CPU. */
	__sync_lock_test_and_set(&ring->written, written + 1);
	return 0;
}

#endif
