/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Proves that the compiler lays out act_abi.h as user space reads it.
 *
 * Written by scripts/abi.py from act/act_abi.h: `make abi`.
 */
/* clang-format off */
#ifndef WW_ACT_ABI_LAYOUT_H
#define WW_ACT_ABI_LAYOUT_H

#include "act/act_abi.h"

#define WW_AT(type, field, place) \
	_Static_assert(__builtin_offsetof(struct type, field) == (place), "struct " #type ": " #field)
#define WW_SIZE(type, size) _Static_assert(sizeof(struct type) == (size), "struct " #type)

WW_SIZE(ww_metadata, 32);
WW_AT(ww_metadata, magic, 0);
WW_AT(ww_metadata, flow_hash, 4);
WW_AT(ww_metadata, time_ns, 8);
WW_AT(ww_metadata, score, 16);
WW_AT(ww_metadata, model, 24);
WW_AT(ww_metadata, class_id, 28);
WW_AT(ww_metadata, flags, 29);
WW_AT(ww_metadata, version, 30);

WW_SIZE(ww_five_tuple, 40);
WW_AT(ww_five_tuple, source, 0);
WW_AT(ww_five_tuple, destination, 16);
WW_AT(ww_five_tuple, source_port, 32);
WW_AT(ww_five_tuple, destination_port, 34);
WW_AT(ww_five_tuple, protocol, 36);
WW_AT(ww_five_tuple, ip_version, 37);
WW_AT(ww_five_tuple, reserved, 38);

WW_SIZE(ww_flow_verdict, 24);
WW_AT(ww_flow_verdict, time_ns, 0);
WW_AT(ww_flow_verdict, score, 8);
WW_AT(ww_flow_verdict, model, 16);
WW_AT(ww_flow_verdict, class_id, 20);
WW_AT(ww_flow_verdict, flags, 21);
WW_AT(ww_flow_verdict, version, 22);

WW_SIZE(ww_ends_key, 40);
WW_AT(ww_ends_key, source, 0);
WW_AT(ww_ends_key, destination, 16);
WW_AT(ww_ends_key, source_port, 32);
WW_AT(ww_ends_key, destination_port, 34);
WW_AT(ww_ends_key, protocol, 36);
WW_AT(ww_ends_key, reserved, 37);

WW_SIZE(ww_denied, 32);
WW_AT(ww_denied, until_s, 0);
WW_AT(ww_denied, length, 4);
WW_AT(ww_denied, origin_until_s, 8);

WW_SIZE(ww_deny_origin, 40);
WW_AT(ww_deny_origin, name, 0);
WW_AT(ww_deny_origin, before, 32);

WW_SIZE(ww_told_key, 56);
WW_AT(ww_told_key, key, 0);
WW_AT(ww_told_key, ip_version, 48);
WW_AT(ww_told_key, class_id, 49);
WW_AT(ww_told_key, outcome, 50);
WW_AT(ww_told_key, reserved, 51);

WW_SIZE(ww_told, 16);
WW_AT(ww_told, told_ns, 0);
WW_AT(ww_told, packets, 8);

WW_SIZE(ww_ban_kind, 4);
WW_AT(ww_ban_kind, there, 0);
WW_AT(ww_ban_kind, length4, 1);
WW_AT(ww_ban_kind, length6, 2);
WW_AT(ww_ban_kind, pair, 3);

WW_SIZE(ww_ban_key, 40);
WW_AT(ww_ban_key, source, 0);
WW_AT(ww_ban_key, destination, 16);
WW_AT(ww_ban_key, length, 32);
WW_AT(ww_ban_key, ip_version, 33);
WW_AT(ww_ban_key, pair, 34);
WW_AT(ww_ban_key, would, 35);
WW_AT(ww_ban_key, reserved, 36);

WW_SIZE(ww_ban_bucket, 256);
WW_AT(ww_ban_bucket, tag, 0);
WW_AT(ww_ban_bucket, until_ns, 16);
WW_AT(ww_ban_bucket, key, 48);
WW_AT(ww_ban_bucket, reserved, 208);

WW_SIZE(ww_handshake, 16);
WW_AT(ww_handshake, offered, 0);
WW_AT(ww_handshake, proven, 8);

WW_SIZE(ww_steer, 140);
WW_AT(ww_steer, kinds, 0);
WW_AT(ww_steer, ifindex, 4);
WW_AT(ww_steer, mark, 8);
WW_AT(ww_steer, priority, 12);
WW_AT(ww_steer, queue, 16);
WW_AT(ww_steer, dscp, 18);
WW_AT(ww_steer, cpus, 19);
WW_AT(ww_steer, socket, 20);
WW_AT(ww_steer, mirror_ifindex, 24);
WW_AT(ww_steer, mirror_every, 28);
WW_AT(ww_steer, mirror_snap, 32);
WW_AT(ww_steer, pool, 36);
WW_AT(ww_steer, address, 38);
WW_AT(ww_steer, cpu, 44);
WW_AT(ww_steer, qfi, 76);
WW_AT(ww_steer, inner_dscp, 77);
WW_AT(ww_steer, reserved, 78);
WW_AT(ww_steer, own4, 80);
WW_AT(ww_steer, own6, 84);
WW_AT(ww_steer, broadcast, 100);
WW_AT(ww_steer, ban_ms, 132);
WW_AT(ww_steer, ban_kind, 136);
WW_AT(ww_steer, spoofable, 137);
WW_AT(ww_steer, ban_reserved, 138);

WW_SIZE(ww_wish, 24);
WW_AT(ww_wish, magic, 0);
WW_AT(ww_wish, kinds, 4);
WW_AT(ww_wish, mark, 8);
WW_AT(ww_wish, priority, 12);
WW_AT(ww_wish, queue, 16);
WW_AT(ww_wish, mirror_ifindex, 20);

WW_SIZE(ww_memory, 8);
WW_AT(ww_memory, backend, 0);
WW_AT(ww_memory, proven, 4);

WW_SIZE(ww_station_key, 12);
WW_AT(ww_station_key, bridge, 0);
WW_AT(ww_station_key, address, 4);
WW_AT(ww_station_key, reserved, 10);

WW_SIZE(ww_station, 16);
WW_AT(ww_station, seen_ns, 0);
WW_AT(ww_station, ifindex, 8);
WW_AT(ww_station, reserved, 12);

WW_SIZE(ww_pool, 144);
WW_AT(ww_pool, seed, 0);
WW_AT(ww_pool, table, 8);
WW_AT(ww_pool, ifindex, 12);
WW_AT(ww_pool, method, 16);
WW_AT(ww_pool, check, 18);
WW_AT(ww_pool, port, 20);
WW_AT(ww_pool, mac, 22);
WW_AT(ww_pool, interval_ms, 28);
WW_AT(ww_pool, timeout_ms, 32);
WW_AT(ww_pool, fall, 36);
WW_AT(ww_pool, rise, 38);
WW_AT(ww_pool, reserved, 40);
WW_AT(ww_pool, name, 48);
WW_AT(ww_pool, path, 80);

WW_SIZE(ww_table, 131074);
WW_AT(ww_table, backend, 0);

WW_SIZE(ww_backend, 48);
WW_AT(ww_backend, address, 0);
WW_AT(ww_backend, source, 16);
WW_AT(ww_backend, mac, 32);
WW_AT(ww_backend, ip_version, 38);
WW_AT(ww_backend, given, 39);
WW_AT(ww_backend, flags, 40);
WW_AT(ww_backend, pool, 42);
WW_AT(ww_backend, weight, 44);
WW_AT(ww_backend, generation, 46);

WW_SIZE(ww_tunnel_end, 24);
WW_AT(ww_tunnel_end, address, 0);
WW_AT(ww_tunnel_end, teid, 16);
WW_AT(ww_tunnel_end, ip_version, 20);
WW_AT(ww_tunnel_end, side, 21);
WW_AT(ww_tunnel_end, reserved, 22);

WW_SIZE(ww_tunnel, 72);
WW_AT(ww_tunnel, local, 0);
WW_AT(ww_tunnel, peer, 16);
WW_AT(ww_tunnel, ue6, 32);
WW_AT(ww_tunnel, ue4, 40);
WW_AT(ww_tunnel, teid, 44);
WW_AT(ww_tunnel, peer_teid, 48);
WW_AT(ww_tunnel, ip_version, 52);
WW_AT(ww_tunnel, flags, 53);
WW_AT(ww_tunnel, qfi, 54);
WW_AT(ww_tunnel, reserved, 55);
WW_AT(ww_tunnel, packets, 56);
WW_AT(ww_tunnel, bytes, 64);

WW_SIZE(ww_act_config, 136);
WW_AT(ww_act_config, version, 0);
WW_AT(ww_act_config, acts, 4);
WW_AT(ww_act_config, hook, 8);
WW_AT(ww_act_config, trace, 12);
WW_AT(ww_act_config, shards, 16);
WW_AT(ww_act_config, model, 20);
WW_AT(ww_act_config, frags, 24);
WW_AT(ww_act_config, clock, 28);
WW_AT(ww_act_config, hash_seed, 32);

WW_SIZE(ww_evidence_rule, 24);
WW_AT(ww_evidence_rule, by, 0);
WW_AT(ww_evidence_rule, last, 4);
WW_AT(ww_evidence_rule, flows, 8);
WW_AT(ww_evidence_rule, threshold, 12);
WW_AT(ww_evidence_rule, within_ms, 16);
WW_AT(ww_evidence_rule, reserved, 20);

WW_SIZE(ww_sender_key, 36);
WW_AT(ww_sender_key, client, 0);
WW_AT(ww_sender_key, server, 16);
WW_AT(ww_sender_key, port, 32);
WW_AT(ww_sender_key, protocol, 34);
WW_AT(ww_sender_key, by_version, 35);

WW_SIZE(ww_sender, 8);
WW_AT(ww_sender, evidence, 0);

WW_SIZE(ww_act_policy, 9024);
WW_AT(ww_act_policy, metadata, 0);
WW_AT(ww_act_policy, verdicts, 4);
WW_AT(ww_act_policy, steer, 8);
WW_AT(ww_act_policy, tell_every_ns, 8968);
WW_AT(ww_act_policy, each, 8976);
WW_AT(ww_act_policy, inputs, 8978);
WW_AT(ww_act_policy, ban, 8980);
WW_AT(ww_act_policy, proofs, 8996);
WW_AT(ww_act_policy, wide_bans, 8997);
WW_AT(ww_act_policy, reserved, 8998);
WW_AT(ww_act_policy, evidence, 9000);

WW_SIZE(ww_asked, 120);
WW_AT(ww_asked, ends, 0);
WW_AT(ww_asked, ip_version, 32);
WW_AT(ww_asked, proven, 36);
WW_AT(ww_asked, ban, 40);
WW_AT(ww_asked, connection, 80);
WW_AT(ww_asked, ports, 112);
WW_AT(ww_asked, reserved, 116);

WW_SIZE(ww_act_cpu, 2264);
WW_AT(ww_act_cpu, answer_tat_ns, 0);
WW_AT(ww_act_cpu, bounce_tat_ns, 8);
WW_AT(ww_act_cpu, described, 16);
WW_AT(ww_act_cpu, undescribed, 24);
WW_AT(ww_act_cpu, room, 32);
WW_AT(ww_act_cpu, asked, 2080);
WW_AT(ww_act_cpu, list_tick, 2200);
WW_AT(ww_act_cpu, list_boot_s, 2208);
WW_AT(ww_act_cpu, denied, 2216);

#undef WW_AT
#undef WW_SIZE

#endif
