/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the data path knows of one packet: its headers, and its place in its flow.
 *
 * Fields hold host byte order unless the type says __be. The generated accumulators read these two
 * structures; what no used feature reads, the compiler drops.
 */
#ifndef WW_PACKET_H
#define WW_PACKET_H

#include <linux/types.h>

#include "frame/tags.h"

/* How the path is cut to fit the kernel's stack, from 0 to 2 (ww_process_ipv4); the compiler's driver chooses. */
#ifndef WW_SPLIT
#define WW_SPLIT 0
#endif

/* The lower half of what ww_read_question returns; 0 without a question, since a name has one byte at least. */
#define WW_QUESTION_NAME_LENGTH(question) ((question) & 0xff)
#define WW_QUESTION_LABELS(question) ((question) >> 8 & 0xff)
#define WW_QUESTION_TYPE(question) ((question) >> 16 & 0xffff)

struct ww_packet {
	__be32 source4;
	__be32 destination4;
	const __be32 *addresses6; /* IPv6: source and destination in the packet, four words each */
	__u32 ip_version;
	__u32 tunnelled; /* 1: these are the headers inside a tunnel */
	__u32 protocol;
	__u32 length; /* IP length: header and payload */
	__u32 network_header_length;
	__u32 transport_length; /* behind the network header: by the IP length, or by UDP's if that is less */
	__u32 transport_header_length;
	__u32 payload_length;
	__u32 payload;	/* of ww_read_payload; 0 if no feature reads it */
	__u32 question; /* of ww_read_question, its lower half; and its upper */
	__u32 question_name;
	__u32 ttl;
	__u32 tos;
	__u32 fragment;	       /* 1: any fragment */
	__u32 fragment_offset; /* not 0: a fragment other than the first, without transport header */
	__be16 source_port_be;
	__be16 destination_port_be;
	__u32 source_port;
	__u32 destination_port;
	__u32 tcp_flags;
	__u32 tcp_window;
	__u32 tcp_sequence;
	__u32 icmp_type;
	__u32 icmp_code;
	__u32 link; /* of ww_parse_outer */
	__u32 teid;
	__u32 qfi;	     /* of the PDU session container; 0: there is none, as in the next two */
	__u32 pdu_type;	     /* 0 downlink, 1 uplink */
	__u32 pdu_direction; /* 1 downlink, 2 uplink */
	__u32 probe_round;
	__u32 probe_path;
	__u64 probe_sent_ns;
	__u32 probe_unit_ns; /* 0: this is no probe */
};

/* A packet between ww_process and ww_follow, where one function has no room on the stack for both (WW_SPLIT 2). The verifier loses track of
 * pointers into the packet that are kept in memory, so the addresses come along. */
struct ww_waiting {
	struct ww_packet packet;
	__be32 addresses6[8];
};

/* IPv6: source and destination, four words each. */
static __always_inline const __be32 *ww_addresses6(const struct ww_packet *p)
{
#if WW_SPLIT == 2
	return ((const struct ww_waiting *)p)->addresses6;
#else
	return p->addresses6;
#endif
}

/* The compiler must not keep what it read of the packet on the stack, where that is short. */
#if WW_SPLIT == 2
#define ww_read_again(p) ww_hide(p)
#else
#define ww_read_again(p) ((void)0)
#endif

/* In a flow, or in an aggregate of flows. */
struct ww_context {
	__u64 now_ns;
	__u64 elapsed_ns; /* since the previous packet; 0 for the first */
	__u32 packets;	  /* with this one */
	__u32 forward;	  /* 1: goes the way of its flow's first packet */
	__u32 iat_us;
	__u32 age_us;
	__u32 flow_packets; /* of the flow, with this one */
	__u32 flow_hash;
	__u32 is_gap; /* of an aggregate: 1 if this packet begins a flow, and not its first */
	__u32 gap_us; /* since the flow before began */
	__u32 is_own; /* 1 if this is not the first packet of its direction */
	__u32 own_us; /* since the previous packet of its direction */
	__u32 whole;  /* 1: a round of probes is, with this packet */
};

#endif
