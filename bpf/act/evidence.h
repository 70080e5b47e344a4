/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Evidence against senders: the mean score of their last flows. A bundle's ww_weigh4 and ww_weigh6 say that there is enough; these are linked in
 * their place where a policy asks for evidence. The reference is policy/evidence.py.
 *
 * They are called while all of the classifier is on the stack, so they take little of it.
 */
#ifndef WW_EVIDENCE_H
#define WW_EVIDENCE_H

#include <bpf/bpf_helpers.h>

#include "act/maps.h"
#include "frame/arith.h"

#define WW_WEIGH_TRIES 8
#define WW_MS_NS 1000000

/* Parts of the word in struct ww_sender. */
#define WW_EVIDENCE_TIME 24
#define WW_EVIDENCE_FLOWS 16
#define ww_evidence_flows(evidence) ((__u32)((evidence) >> WW_EVIDENCE_FLOWS & 0xff))
#define ww_evidence_sum(evidence) ((__u32)((evidence) & 0xffff))

/* Where the key of a sender and its first evidence are built. */
struct ww_sender_room {
	struct ww_sender_key key;
	__u32 reserved;
	struct ww_sender sender;
};

/* Another CPU may have had the later time. now, within: ms. */
static __always_inline int ww_is_forgotten(__u64 evidence, __u64 now, __u32 within)
{
	/* Signed, and the time's 40 bits on top, so that both wrap at once. */
	__s64 elapsed = (now - (evidence >> WW_EVIDENCE_TIME)) << WW_EVIDENCE_TIME;

	return !ww_evidence_flows(evidence) || elapsed > (__s64)within << WW_EVIDENCE_TIME;
}

/* The evidence with a flow's verdict in it. */
static __always_inline __u64 ww_weighed(__u64 evidence, __u32 what, __u64 now,
					const struct ww_evidence_rule *rule)
{
	__u32 flows = ww_evidence_flows(evidence), sum = ww_evidence_sum(evidence);
	__u32 score = what & WW_WEIGH_NOW ? WW_SCORE_MAX : 0;

	if (ww_is_forgotten(evidence, now, rule->within_ms)) {
		flows = 1;
		sum = score;
	} else if (what & WW_WEIGH_FIRST) {
		/* Beyond `last`, each flow replaces the mean of the earlier ones. */
		if (flows < rule->last)
			flows++;
		else
			sum -= sum / ww_max(flows, 1U);
		sum += score;
	} else {
		sum += score;
		if (what & WW_WEIGH_BEFORE)
			sum -= ww_min(sum, (__u32)WW_SCORE_MAX);
	}
	sum = ww_min(sum, flows * WW_SCORE_MAX);
	return now << WW_EVIDENCE_TIME | flows << WW_EVIDENCE_FLOWS | sum;
}

static __always_inline int ww_weigh_sender(struct ww_sender_room *room, __u32 what, __u64 now_ns)
{
	const struct ww_evidence_rule *rule = &ww_act_policy.evidence;
	struct ww_sender *sender = bpf_map_lookup_elem(&ww_senders, &room->key);
	__u64 now = now_ns / WW_MS_NS, evidence;

	if (!(what & WW_WEIGH_VERDICT)) {
		evidence = sender ? *(volatile __u64 *)&sender->evidence : 0;
		if (ww_is_forgotten(evidence, now, rule->within_ms))
			return 0;
		return ww_evidence_sum(evidence) >=
		       rule->threshold * ww_max(ww_evidence_flows(evidence), rule->flows);
	}
	if (!sender) {
		room->sender.evidence = 0;
		/* It may be there by now, from another CPU. */
		bpf_map_update_elem(&ww_senders, &room->key, &room->sender, BPF_NOEXIST);
		sender = bpf_map_lookup_elem(&ww_senders, &room->key);
		if (!sender)
			return 0;
	}
	for (int i = 0; i < WW_WEIGH_TRIES; i++) {
		evidence = *(volatile __u64 *)&sender->evidence;
		if (__sync_val_compare_and_swap(&sender->evidence, evidence,
						ww_weighed(evidence, what, now, rule)) == evidence)
			break;
	}
	return 0;
}

/* Begins the key; 0 if there is nothing to weigh. */
static __always_inline struct ww_sender_room *ww_sender_room(__u32 version)
{
	struct ww_act_cpu *cpu = ww_this_cpu();
	struct ww_sender_room *room;

	if (!cpu || !ww_act_policy.evidence.by)
		return 0;
	room = (void *)cpu->room;
	__builtin_memset(room, 0, sizeof(*room));
	room->key.by_version = ww_act_policy.evidence.by << 4 | version;
	return room;
}

__noinline int ww_weigh4(const struct ww_key4 *key, __u32 what, __u64 now)
{
	struct ww_sender_room *room;
	__u32 by, swapped = what & WW_WEIGH_SWAPPED;

	/* Before Linux 6.8 a global function is verified even if nothing calls it. */
	if (!(ww_act_config.acts & WW_STEER_EVIDENCE) || !key)
		return 1;
	room = ww_sender_room(4);
	if (!room)
		return 1;
	by = ww_act_policy.evidence.by;
	if (by != WW_EVIDENCE_SERVICE)
		*(__be32 *)room->key.client = swapped ? key->destination : key->source;
	if (by != WW_EVIDENCE_SOURCE)
		*(__be32 *)room->key.server = swapped ? key->source : key->destination;
	if (by == WW_EVIDENCE_SERVICE) {
		room->key.port = swapped ? key->source_port : key->destination_port;
		room->key.protocol = key->protocol;
	}
	return ww_weigh_sender(room, what, now);
}

__noinline int ww_weigh6(const struct ww_key6 *key, __u32 what, __u64 now)
{
	struct ww_sender_room *room;
	__u32 by, swapped = what & WW_WEIGH_SWAPPED;

	if (!(ww_act_config.acts & WW_STEER_EVIDENCE) || !key)
		return 1;
	room = ww_sender_room(6);
	if (!room)
		return 1;
	by = ww_act_policy.evidence.by;
	if (by != WW_EVIDENCE_SERVICE)
		__builtin_memcpy(room->key.client, swapped ? key->destination : key->source, 16);
	if (by != WW_EVIDENCE_SOURCE)
		__builtin_memcpy(room->key.server, swapped ? key->source : key->destination, 16);
	if (by == WW_EVIDENCE_SERVICE) {
		room->key.port = swapped ? key->source_port : key->destination_port;
		room->key.protocol = key->protocol;
	}
	return ww_weigh_sender(room, what, now);
}

#endif
