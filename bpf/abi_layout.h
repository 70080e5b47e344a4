/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Proves that the compiler lays out abi.h as user space reads it.
 *
 * Written by scripts/abi.py from abi.h: `make abi`.
 */
/* clang-format off */
#ifndef WW_ABI_LAYOUT_H
#define WW_ABI_LAYOUT_H

#include "abi.h"

#define WW_AT(type, field, place) \
	_Static_assert(__builtin_offsetof(struct type, field) == (place), "struct " #type ": " #field)
#define WW_SIZE(type, size) _Static_assert(sizeof(struct type) == (size), "struct " #type)

WW_SIZE(ww_config, 264);
WW_AT(ww_config, abi_version, 0);
WW_AT(ww_config, clock, 4);
WW_AT(ww_config, bucket_mask, 8);
WW_AT(ww_config, shards, 12);
WW_AT(ww_config, proven_packets, 16);
WW_AT(ww_config, trace, 20);
WW_AT(ww_config, bench_flows, 24);
WW_AT(ww_config, bench_spoof, 28);
WW_AT(ww_config, idle_timeout_ns, 32);
WW_AT(ww_config, grace_ns, 40);
WW_AT(ww_config, hash_seed, 48);
WW_AT(ww_config, jiffy_ns, 152);
WW_AT(ww_config, jiffy_zero_ns, 160);
WW_AT(ww_config, verdict, 168);
WW_AT(ww_config, bench_packets, 172);
WW_AT(ww_config, shadow, 176);
WW_AT(ww_config, shared, 180);
WW_AT(ww_config, ordered, 184);
WW_AT(ww_config, aggregate_mask, 188);
WW_AT(ww_config, hook, 192);
WW_AT(ww_config, acts, 196);
WW_AT(ww_config, key_teid, 200);
WW_AT(ww_config, model, 204);
WW_AT(ww_config, describes, 208);
WW_AT(ww_config, record, 212);
WW_AT(ww_config, next, 216);
WW_AT(ww_config, frags, 220);
WW_AT(ww_config, denies, 224);
WW_AT(ww_config, inputs, 228);
WW_AT(ww_config, meaning, 232);

WW_SIZE(ww_key4, 16);
WW_AT(ww_key4, source, 0);
WW_AT(ww_key4, destination, 4);
WW_AT(ww_key4, source_port, 8);
WW_AT(ww_key4, destination_port, 10);
WW_AT(ww_key4, protocol, 12);
WW_AT(ww_key4, vlans, 13);

WW_SIZE(ww_key6, 40);
WW_AT(ww_key6, source, 0);
WW_AT(ww_key6, destination, 16);
WW_AT(ww_key6, source_port, 32);
WW_AT(ww_key6, destination_port, 34);
WW_AT(ww_key6, protocol, 36);
WW_AT(ww_key6, vlans, 37);

WW_SIZE(ww_tunnel_key4, 24);
WW_AT(ww_tunnel_key4, key, 0);
WW_AT(ww_tunnel_key4, teid, 16);

WW_SIZE(ww_tunnel_key6, 48);
WW_AT(ww_tunnel_key6, key, 0);
WW_AT(ww_tunnel_key6, teid, 40);

WW_SIZE(ww_slot, 16);
WW_AT(ww_slot, last_seen_ns, 0);
WW_AT(ww_slot, packets, 8);
WW_AT(ww_slot, class_id, 12);
WW_AT(ww_slot, flags, 13);
WW_AT(ww_slot, generation, 14);

WW_SIZE(ww_class_policy, 48);
WW_AT(ww_class_policy, action, 0);
WW_AT(ww_class_policy, after, 4);
WW_AT(ww_class_policy, interval_ns, 8);
WW_AT(ww_class_policy, burst_ns, 16);
WW_AT(ww_class_policy, observe_from_ns, 24);
WW_AT(ww_class_policy, observe_until_ns, 32);
WW_AT(ww_class_policy, severity, 40);
WW_AT(ww_class_policy, reserved, 44);

WW_SIZE(ww_selector, 8);
WW_AT(ww_selector, port, 0);
WW_AT(ww_selector, protocol, 2);
WW_AT(ww_selector, asks, 3);
WW_AT(ww_selector, flags_mask, 4);
WW_AT(ww_selector, flags, 5);
WW_AT(ww_selector, reserved, 6);

WW_SIZE(ww_captured, 16);
WW_AT(ww_captured, time_ns, 0);
WW_AT(ww_captured, length, 8);
WW_AT(ww_captured, reserved, 12);

WW_SIZE(ww_policy, 3336);
WW_AT(ww_policy, allow, 0);
WW_AT(ww_policy, mode, 4);
WW_AT(ww_policy, enforce_until_ns, 8);
WW_AT(ww_policy, drop_malformed, 16);
WW_AT(ww_policy, trigger, 20);
WW_AT(ww_policy, trigger_first_n, 24);
WW_AT(ww_policy, rules, 28);
WW_AT(ww_policy, trigger_interval_ns, 32);
WW_AT(ww_policy, trigger_packets, 40);
WW_AT(ww_policy, event_interval_ns, 168);
WW_AT(ww_policy, event_burst_ns, 176);
WW_AT(ww_policy, class_policy, 184);
WW_AT(ww_policy, selector, 3256);
WW_AT(ww_policy, trigger_every, 3320);
WW_AT(ww_policy, reserved, 3324);
WW_AT(ww_policy, observe_until_ns, 3328);

WW_SIZE(ww_ends6, 32);
WW_AT(ww_ends6, peer, 0);
WW_AT(ww_ends6, own, 16);

WW_SIZE(ww_prefix4, 8);
WW_AT(ww_prefix4, length, 0);
WW_AT(ww_prefix4, address, 4);

WW_SIZE(ww_prefix6, 20);
WW_AT(ww_prefix6, length, 0);
WW_AT(ww_prefix6, address, 4);

WW_SIZE(ww_allowed, 16);
WW_AT(ww_allowed, until_s, 0);
WW_AT(ww_allowed, length, 4);
WW_AT(ww_allowed, policy_until_s, 8);
WW_AT(ww_allowed, hand_until_s, 12);

WW_SIZE(ww_counter, 16);
WW_AT(ww_counter, packets, 0);
WW_AT(ww_counter, bytes, 8);

WW_SIZE(ww_stats, 12128);
WW_AT(ww_stats, status, 0);
WW_AT(ww_stats, class_outcome, 240);
WW_AT(ww_stats, inferred, 11504);
WW_AT(ww_stats, flows_new, 11512);
WW_AT(ww_stats, flows_expired, 11520);
WW_AT(ww_stats, flows_evicted, 11528);
WW_AT(ww_stats, flows_refused, 11536);
WW_AT(ww_stats, events_sent, 11544);
WW_AT(ww_stats, events_limited, 11552);
WW_AT(ww_stats, event_tat_ns, 11560);
WW_AT(ww_stats, flows_missed, 11568);
WW_AT(ww_stats, aggregates_new, 11576);
WW_AT(ww_stats, aggregates_expired, 11584);
WW_AT(ww_stats, aggregates_evicted, 11592);
WW_AT(ww_stats, aggregates_refused, 11600);
WW_AT(ww_stats, aggregates_missed, 11608);
WW_AT(ww_stats, said_yes, 11616);

WW_SIZE(ww_event, 104);
WW_AT(ww_event, time_ns, 0);
WW_AT(ww_event, key, 8);
WW_AT(ww_event, ip_version, 56);
WW_AT(ww_event, class_id, 57);
WW_AT(ww_event, action, 58);
WW_AT(ww_event, outcome, 59);
WW_AT(ww_event, packets, 60);
WW_AT(ww_event, length, 64);
WW_AT(ww_event, sequence, 68);
WW_AT(ww_event, answers, 72);
WW_AT(ww_event, changed, 80);
WW_AT(ww_event, count, 88);
WW_AT(ww_event, flags, 96);
WW_AT(ww_event, reserved, 100);

WW_SIZE(ww_event_inputs, 8);
WW_AT(ww_event_inputs, sequence, 0);
WW_AT(ww_event_inputs, inferred, 4);

WW_SIZE(ww_record, 288);
WW_AT(ww_record, time_ns, 0);
WW_AT(ww_record, packet, 8);
WW_AT(ww_record, status, 16);
WW_AT(ww_record, inferred, 20);
WW_AT(ww_record, length, 24);
WW_AT(ww_record, headers_length, 28);
WW_AT(ww_record, headers, 32);

WW_SIZE(ww_record_ring, 128);
WW_AT(ww_record_ring, packets, 0);
WW_AT(ww_record_ring, written, 8);
WW_AT(ww_record_ring, lost, 16);
WW_AT(ww_record_ring, reserved, 24);
WW_AT(ww_record_ring, read, 64);
WW_AT(ww_record_ring, rest, 72);

WW_SIZE(ww_description, 72);
WW_AT(ww_description, key, 0);
WW_AT(ww_description, time_ns, 48);
WW_AT(ww_description, score, 56);
WW_AT(ww_description, flow_hash, 64);
WW_AT(ww_description, class_id, 68);
WW_AT(ww_description, flags, 69);
WW_AT(ww_description, ip_version, 70);
WW_AT(ww_description, reserved, 71);

WW_SIZE(ww_scratch, 4152);
WW_AT(ww_scratch, feature, 0);
WW_AT(ww_scratch, score, 1024);
WW_AT(ww_scratch, status, 1536);
WW_AT(ww_scratch, inferred, 1540);
WW_AT(ww_scratch, class_id, 1544);
WW_AT(ww_scratch, action, 1548);
WW_AT(ww_scratch, outcome, 1552);
WW_AT(ww_scratch, refused, 1556);
WW_AT(ww_scratch, packets, 1560);
WW_AT(ww_scratch, ip_version, 1564);
WW_AT(ww_scratch, key, 1568);
WW_AT(ww_scratch, length, 1616);
WW_AT(ww_scratch, frame_length, 1620);
WW_AT(ww_scratch, bucket, 1624);
WW_AT(ww_scratch, way, 1628);
WW_AT(ww_scratch, seen, 1632);
WW_AT(ww_scratch, seen_key, 1648);
WW_AT(ww_scratch, aggregate_key, 1696);
WW_AT(ww_scratch, sample, 1736);
WW_AT(ww_scratch, now_ns, 1992);
WW_AT(ww_scratch, leaf, 2000);
WW_AT(ww_scratch, answers, 2008);
WW_AT(ww_scratch, changed, 2016);
WW_AT(ww_scratch, selected, 2024);
WW_AT(ww_scratch, described, 2032);
WW_AT(ww_scratch, activation, 2104);

WW_SIZE(ww_agreement, 536);
WW_AT(ww_agreement, packets, 0);
WW_AT(ww_agreement, now_ns, 520);
WW_AT(ww_agreement, class_id, 528);
WW_AT(ww_agreement, reserved, 532);

WW_SIZE(ww_cpu, 16280);
WW_AT(ww_cpu, stats, 0);
WW_AT(ww_cpu, scratch, 12128);

#undef WW_AT
#undef WW_SIZE

#endif
