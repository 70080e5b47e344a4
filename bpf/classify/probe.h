/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Probes of network paths: what one says, and the rounds that they come in (docs/feature-sets.md).
 *
 * Probes of all paths with the same number are a round. What each took is kept by path until the round is whole: all paths were seen, or a
 * probe of a later round came, so that what is missing is lost. Reference: feature_sets/probes.py.
 */
#ifndef WW_PROBE_H
#define WW_PROBE_H

#include <linux/types.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>

#include "classify/packet.h"
#include "frame/arith.h"

#define WW_PORT_PROBE 49200
#define WW_PROBE_MAGIC 0x77775052 /* wwPR */
#define WW_PROBE_LOST 255
#define WW_PROBES_LATE 1024 /* what is further behind is of a sender that began anew */

/* The payload of a UDP packet to WW_PORT_PROBE. */
struct ww_probe {
	__be32 magic;
	__be32 round;
	__be32 unit_ns; /* that the time under way is counted in */
	__be16 path;
	__be16 reserved;
	__be32 sent[2]; /* ns of the clock that the receiver has too */
};

/* A probe behind a UDP header, if it is one. */
static __always_inline void ww_parse_probe(const struct udphdr *udp, const void *end, struct ww_packet *p)
{
	const struct ww_probe *probe = (const void *)(udp + 1);

	if (ww_likely(udp->dest != bpf_htons(WW_PORT_PROBE)) || p->fragment ||
	    p->transport_length < sizeof(*udp) + sizeof(*probe) || (const void *)(probe + 1) > end ||
	    probe->magic != bpf_htonl(WW_PROBE_MAGIC))
		return;
	p->probe_round = bpf_ntohl(probe->round);
	p->probe_unit_ns = bpf_ntohl(probe->unit_ns);
	p->probe_path = bpf_ntohs(probe->path);
	p->probe_sent_ns = (__u64)bpf_ntohl(probe->sent[0]) << 32 | bpf_ntohl(probe->sent[1]);
}

/* How long a probe was under way, in its own units; 0 of other packets. */
static __always_inline __u32 ww_probe_delay(const struct ww_packet *p, const struct ww_context *c)
{
	__u64 delay = ww_ratio(ww_elapsed(c->now_ns, p->probe_sent_ns), p->probe_unit_ns);

	return ww_min(delay, (__u64)WW_PROBE_LOST);
}

/* Puts a probe into its round. delays, whole: so many words with a byte for each path, of the round and of the last whole one. paths: a bit
 * for each that a feature reads. Returns 1 if a round is whole with it. */
static __always_inline __u32 ww_take_probe(__u64 *delays, __u64 *whole, const int words, const __u64 paths,
					   __u64 *seen, __u32 *round, const struct ww_packet *p,
					   const struct ww_context *c)
{
	__u64 path = p->probe_path, delay, bit;
	__u32 behind = *round - p->probe_round, became_whole = 0;

	ww_hide(path);
	if (!p->probe_unit_ns || path >= 8 * words)
		return 0;
	bit = 1ULL << path;
	if (!(paths & bit))
		return 0;
	if (!*seen || behind) {
		if (*seen && behind - 1 < WW_PROBES_LATE)
			return 0;
		became_whole = *seen && *seen != paths;
#pragma unroll
		for (int i = 0; i < words; i++) {
			whole[i] = became_whole ? delays[i] : whole[i];
			delays[i] = ~0ULL;
		}
		*seen = 0;
		*round = p->probe_round;
	}
	if (*seen & bit)
		return 0;
	delay = ww_probe_delay(p, c);
	*seen |= bit;
#pragma unroll
	for (int i = 0; i < words; i++) {
		/* The byte of this word, if it is in this word. */
		__u64 here = path >> 3 == i ? 255ULL << (path & 7) * 8 : 0;

		ww_hide(here);
		delays[i] &= ~here | delay * 0x0101010101010101ULL;
	}
	if (*seen == paths) {
		became_whole = 1;
#pragma unroll
		for (int i = 0; i < words; i++)
			whole[i] = delays[i];
	}
	return became_whole;
}

#endif
