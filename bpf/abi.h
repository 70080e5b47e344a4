/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the data path and user space share: map values, codes and limits.
 *
 * The only place where these are defined. scripts/abi.py (`make abi`) writes the agent's types, the toolkit's enums, abi_layout.h and
 * docs/abi.md from it, and reads plain C only: no holes, no bit fields. Raise WW_ABI_VERSION with any change. Integers are in host byte
 * order unless the type says __be.
 */
#ifndef WW_ABI_H
#define WW_ABI_H

#include <linux/types.h>

#define WW_ABI_VERSION 17

#define WW_MAX_FEATURES 128 /* of a feature set */
#define WW_MAX_CLASSES 64   /* of a model; bounds ww_stats and ww_policy */
#define WW_MAX_WIDTH 128    /* words of a layer of a network */
#define WW_WAYS 4	    /* entries of a flow-table bucket */
#define WW_HASH_WORDS 12    /* 32-bit words of the largest flow key (IPv6, with its tunnel) */
#define WW_HASH_SEEDS 13    /* one for each word, and one to finish with */
#define WW_MAX_SAMPLES 64   /* fields that aggregates accumulate */
#define WW_TRIGGER_WORDS 16 /* trigger `packets` can name packets 1..1023 of a flow */
#define WW_SELECTORS 8	    /* of a trigger by headers */
#define WW_MEANING_BYTES 32 /* SHA-256 */
#define WW_ACT_STACK 224 /* bytes that the actor takes, with all it calls: a classifier leaves it as much */
#define WW_DENY_STACK 96 /* and ww_denied4, ww_denied6 or ww_ban, which are called from ww_process_ipv6 */
#define WW_TELL_STACK 64 /* and ww_told, which is called from ww_send_event6 */

#define WW_ALLOW_PREFIXES 262144 /* more than two policy files can name; a trie grows with what it holds */
/* Why a packet was or was not classified. Order is the order of ww_stats.status. */
enum ww_status {
	WW_CLASSIFIED = 0,
	WW_NOT_IP,	       /* ARP, 802.3, MPLS, a third VLAN tag, PPP's own protocols, ... */
	WW_MALFORMED_ETHERNET, /* ends inside the Ethernet, VLAN or PPPoE header, or is longer than that one says */
	WW_MALFORMED_IP,       /* version, header length, total length; or ends inside the header */
	WW_MALFORMED_TRANSPORT, /* ends inside the TCP, UDP, ... header; TCP data offset below 5 */
	WW_MALFORMED_TUNNEL,	/* a tunnel the feature set looks into holds something broken */
	WW_TOO_MANY_EXTENSIONS, /* more IPv6 extension headers than WW_MAX_EXTENSIONS */
	WW_ALLOWED_PREFIX,	/* allow list, source address */
	WW_ALLOWED_PORT,	/* allow list, destination or source port */
	WW_NO_POLICY,		/* no policy was written: the packet passes unclassified */
	WW_UNDECIDED,		/* no verdict yet: the trigger has not fired for this flow */
	WW_ALLOWED_ESSENTIAL,	/* without which a host loses its network: gate.h */
	WW_DENIED_PREFIX,	/* deny list, source address: dropped in enforce mode */
	WW_DENIED_PORT,		/* deny list, destination port: dropped in enforce mode */
	WW_BANNED,		/* the sender is banned for what it sent before: dropped in enforce mode */
	WW_STATUSES
};

/* What becomes of a packet, whatever the hook calls it. ww_act returns one of these. */
enum ww_verdict {
	WW_VERDICT_NOT_ACTED = 0, /* of the actor: nothing was done, because not all could be */
	WW_VERDICT_DROP,
	WW_VERDICT_PASS,
	WW_VERDICT_BOUNCE,   /* back out of the interface it came by */
	WW_VERDICT_REDIRECT, /* to where the actor has said to the kernel */
	WW_VERDICT_PROVEN,   /* of the actor: passes, as one that has answered */
};

/* What the policy asks for a class. */
enum ww_action {
	WW_ACTION_PASS = 0,
	WW_ACTION_DROP,
	WW_ACTION_COUNT,      /* pass, and show in events */
	WW_ACTION_RATE_LIMIT, /* pass up to a rate, drop beyond it */
	WW_ACTION_ACT,	      /* what the actor has been told: ww_act */
	WW_ACTIONS
};

/* What became of a classified packet. The would_ outcomes are those of observe mode: the packet passed. */
enum ww_outcome {
	WW_OUTCOME_PASS = 0,
	WW_OUTCOME_DROP,
	WW_OUTCOME_LIMITED, /* dropped by a rate limit */
	WW_OUTCOME_WOULD_DROP,
	WW_OUTCOME_WOULD_LIMIT,
	WW_OUTCOME_ESTABLISHED, /* passed in either mode, where it would be dropped: of a connection of this host */
	WW_OUTCOME_ACTED,	/* the policy's action was done: a challenge, a redirect, a mark and so on */
	WW_OUTCOME_WOULD_ACT,
	WW_OUTCOME_NOT_ACTED, /* could not be done, as when an interface is gone: passed, unchanged */
	WW_OUTCOME_BAN,	      /* dropped, and its sender is banned from then on */
	WW_OUTCOME_WOULD_BAN,
	WW_OUTCOMES
};

enum ww_mode { WW_MODE_OBSERVE = 0, WW_MODE_ENFORCE = 1 };

/* When a flow's packet is inferred; between, the verdict kept with the flow holds. */
enum ww_trigger {
	WW_TRIGGER_EVERY = 0,
	WW_TRIGGER_PACKETS,  /* packet numbers in trigger_packets */
	WW_TRIGGER_INTERVAL, /* first packet in each trigger_interval_ns of the clock */
	WW_TRIGGER_FIRST_N,  /* packets 1..trigger_first_n */
	WW_TRIGGER_HEADERS,  /* packets that a selector names, and every trigger_every-th of a flow */
};

/* What the program is attached to; set at load. */
enum ww_hook { WW_HOOK_XDP = 0, WW_HOOK_TC_INGRESS, WW_HOOK_TC_EGRESS };

/* Where the time comes from; set at load, so that one object serves live traffic and captures. */
enum ww_clock {
	WW_CLOCK_COARSE =
		0, /* some milliseconds, a few ns to read: jiffies, or bpf_ktime_get_coarse_ns if jiffy_ns is 0 */
	WW_CLOCK_FINE,	   /* bpf_ktime_get_ns */
	WW_CLOCK_METADATA, /* comes with the packet (struct ww_captured): replay and tests */
};

/* Where a flow's entry came from; the order of ww_stats.flows_*. */
enum ww_lookup {
	WW_FLOW_NEW = 0, /* an empty place */
	WW_FLOW_EXPIRED, /* the place of a flow idle for longer than the timeout, perhaps its own */
	WW_FLOW_EVICTED, /* the place of a live flow */
	WW_FLOW_REFUSED, /* none, every entry was protected: judged as the first packet of its flow */
	WW_LOOKUPS,
	WW_FLOW_HIT = WW_LOOKUPS, /* the flow was known; not counted */
	WW_FLOW_MISSED, /* shared tables: none in time, another CPU held it: judged likewise; ww_stats.flows_missed */
};

/* Two models on the same packets: shadow.h. */
enum ww_shadow {
	WW_SHADOW_NONE = 0,
	WW_SHADOW_FIRST,  /* its verdicts hold; counts the second's classes beside its own */
	WW_SHADOW_SECOND, /* gives classes only, and has each packet first */
};

/* What a verdict takes beside a class before the class counts; bits. */
enum ww_rule {
	WW_RULE_STREAKS = 1,  /* the `after` of some class is more than 1 */
	WW_RULE_EVIDENCE = 2, /* enough of the sender's flows too: ww_weigh4 in verdict.h */
};

/* Arguments of ww_weigh4 and ww_weigh6; bits. */
enum ww_weigh {
	WW_WEIGH_SWAPPED = 1, /* the destination in its key is the client, who sent its first packet */
	WW_WEIGH_VERDICT = 2, /* there is a new verdict; else it is only asked for the sender's evidence */
	WW_WEIGH_FIRST = 4,   /* it is the flow's first */
	WW_WEIGH_BEFORE = 8,  /* the policy does something with the class of the one before */
	WW_WEIGH_NOW = 16,    /* and with the class of the new one */
};

enum ww_allow {
	WW_ALLOW_IPV4 = 1,
	WW_ALLOW_IPV6 = 2,
	WW_ALLOW_PORTS = 4,
	WW_ALLOW_SOURCE_PORTS = 16,
	WW_ALLOW_ESSENTIAL = 32,
	WW_ALLOW_ESTABLISHED = 64,	   /* asked only before a drop: sockets.h */
	WW_ALLOW_UNLESS_DENIED = 128,	   /* the deny list is checked, after those above */
	WW_ALLOW_UNLESS_BANNED = 256,	   /* and then bans */
	WW_ALLOW_UNLESS_PORT_DENIED = 512, /* the deny list has ports */
	WW_ALLOW_NO_POLICY = 8, /* only before a policy is written: one test tells the usual packet both */
};

/* Map .rodata.ww_config: constants of one load. The kernel verifier drops the branches they rule out. */
struct ww_config {
	__u32 abi_version;    /* WW_ABI_VERSION; written by the compiler, read by the agent */
	__u32 clock;	      /* enum ww_clock; the compiler writes what the features need */
	__u32 bucket_mask;    /* buckets of a shared table or of a shard, - 1; a power of two of buckets */
	__u32 shards;	      /* CPUs; of flow tables that are not shared, each CPU has a shard */
	__u32 proven_packets; /* an entry with so many packets is protected while grace_ns lasts */
	__u32 trace;	      /* 1: leave the packet's way through the program in ww_scratch */
	__u32 bench_flows; /* >0: rewrite the IPv4 source address to cycle over so many flows (bench, tests) */
	__u32 bench_spoof; /* 1: rewrite only frames with IPv4 identification 0xffff */
	__u64 idle_timeout_ns;
	__u64 grace_ns;
	__u64 hash_seed[WW_HASH_SEEDS]; /* random for each load */
	__u64 jiffy_ns;	     /* length of a tick (10^9 / HZ) as the loader measured it; 0: not known */
	__u64 jiffy_zero_ns; /* CLOCK_MONOTONIC at jiffy 0, modulo 2^64 */
	__u32 verdict; /* WW_SLOT_VERDICT or WW_SLOT_VERDICT_2: which of them marks this program's verdicts */
	__u32 bench_packets;  /* >0: packets of a flow in a row, before those of the next of bench_flows */
	__u32 shadow;	      /* enum ww_shadow; with one, trace is 1 */
	__u32 shared;	      /* 1: CPUs share the flow tables; written by the compiler, read by the agent */
	__u32 ordered;	      /* 1: stores of this machine are seen in their order, as on x86 */
	__u32 aggregate_mask; /* buckets of each aggregate's table, - 1; a power of two of buckets */
	__u32 hook;	      /* enum ww_hook */
	__u32 acts;	      /* not 0: an actor is linked to the program; bits of its own */
	__u32 key_teid; /* 1: the flow key has the tunnel (struct ww_tunnel_key4); written by the compiler, read by the agent */
	__u32 model;	 /* names the program's object: the first four bytes of its digest */
	__u32 describes; /* 1: the actor gets a struct ww_description of each packet */
	__u32 record; /* >0: packets that the policy's trigger picks leave a row in ww_records, which has so many for each CPU, a power of two */
	__u32 next;   /* 1: what passes goes on to the program in ww_next, if there is one */
	__u32 frags;  /* 1: at XDP, frames may lie in several buffers (xdp.frags) */
	__u32 denies; /* 1: the policy has a deny list */
	__u32 inputs; /* 1: events have the features of their packet, in ww_event_inputs */
	__u8 meaning
		[WW_MEANING_BYTES]; /* digest of the names in the manifest; written by the compiler, read by the agent */
};

/* Map ww_deny_filter: a bit for each network of IPv4 of WW_DENY_BITS4 bits, then one for each hash of the first WW_DENY_NETWORK6 bits of an
 * IPv6 address (ww_may_be_denied6): 1 if the deny list may hold a prefix of the network, or one that the network is part of. */
#define WW_DENY_BITS4 24
#define WW_DENY_WORDS4 262144
#define WW_DENY_NETWORK6 40
#define WW_DENY_BITS6 23
#define WW_DENY_WORDS6 131072
#define WW_NETWORK_FACTOR 0x9e3779b1 /* of the hash of networks: the first bits of a 32-bit product */

/* Flow keys: as in the packet, network byte order; zero where the feature set's key has no such part. vlans: the outermost tag's id, and that
 * of the tag behind it << 12, as a little-endian number; 0: no tag, or one of priority only. */
struct ww_key4 {
	__be32 source;
	__be32 destination;
	__be16 source_port;
	__be16 destination_port;
	__u8 protocol;
	__u8 vlans[3];
};

struct ww_key6 {
	__u8 source[16];
	__u8 destination[16];
	__be16 source_port;
	__be16 destination_port;
	__u8 protocol;
	__u8 vlans[3];
};

/* Where the feature set's key has the tunnel (WW_KEY_TEID), for flows, not for aggregates. */
struct ww_tunnel_key4 {
	struct ww_key4 key;
	__u64 teid; /* of GTP-U; 0: no such tunnel */
};

struct ww_tunnel_key6 {
	struct ww_key6 key;
	__u64 teid;
};

#define WW_SLOT_SWAPPED 1 /* the flow's first packet was swapped into canonical order */
/* class_id holds a verdict. Programs with other classes that follow each other on one flow table mark theirs by different bits,
 * so that none takes another's number for its own class. */
#define WW_SLOT_VERDICT 2
#define WW_SLOT_VERDICT_2 4
#define WW_SLOT_VERDICT_PAST 8 /* of a program before those two */
#define WW_SLOT_VERDICTS (WW_SLOT_VERDICT | WW_SLOT_VERDICT_2 | WW_SLOT_VERDICT_PAST)
/* The upper bits: how many verdicts before the last one were for the same class, in a row; saturates. 0 without
 * WW_RULE_STREAKS. */
#define WW_SLOT_STREAK_SHIFT 4
#define WW_MAX_STREAK 15
#define WW_MAX_AFTER 15 /* of a class's policy */

/* Head of every flow-table entry; a key and the generated state follow (struct ww_entry4, ww_entry6 in
 * the generated ww_state.h; offsets in the bundle's manifest). packets == 0: the entry is empty. */
struct ww_slot {
	__u64 last_seen_ns;
	__u32 packets; /* saturates */
	__u8 class_id;
	__u8 flags;	  /* WW_SLOT_* */
	__u16 generation; /* of a shared table's entry: rises with each flow that gets it */
};

struct ww_class_policy {
	__u32 action; /* enum ww_action */
	__u32 after; /* a flow's verdicts in a row that this class needs, else it counts as class 0; 0 is 1 */
	__u64 interval_ns; /* rate limit: time a packet costs (GCRA) ... */
	__u64 burst_ns;	   /* ... and how far ahead of the clock a class may get */
	__u64 observe_from_ns; /* from then on the class observes, whatever the mode; clock as of enforce_until_ns */
	__u64 observe_until_ns; /* and before then; all ones: for ever; 0: it does not */
	__u32 severity;		/* of its events, 1 to 3; 0: none; for readers of events alone */
	__u32 reserved;
};

/* What a packet must have for a selector; bits of ww_selector.asks. */
#define WW_SELECT_PROTOCOL 1
#define WW_SELECT_SOURCE_PORT 2 /* with the next: either of them */
#define WW_SELECT_DESTINATION_PORT 4
#define WW_SELECT_TCP_FLAGS 8

/* Packets by their headers. Fragments but the first have neither ports nor flags. */
struct ww_selector {
	__u16 port; /* of TCP or UDP */
	__u8 protocol;
	__u8 asks;	 /* WW_SELECT_* bits; 0: selects nothing */
	__u8 flags_mask; /* of TCP: those that are looked at ... */
	__u8 flags;	 /* ... and which of them are set */
	__u16 reserved;
};

/* What comes with a captured frame: at XDP in front of it; at TC its time is the receive time, and its length in cb[0]. */
struct ww_captured {
	__u64 time_ns;
	__u32 length; /* of the frame, which may be cut */
	__u32 reserved;
};

/* Map .data.ww_policy, one element. */
struct ww_policy {
	__u32 allow;		/* enum ww_allow bits: which parts of the allow list hold something */
	__u32 mode;		/* enum ww_mode */
	__u64 enforce_until_ns; /* CLOCK_BOOTTIME; enforcement falls back to observe after; 0: never */
	__u32 drop_malformed;	/* 1: drop what is WW_MALFORMED_* in enforce mode, instead of passing it */
	__u32 trigger;		/* enum ww_trigger */
	__u32 trigger_first_n;
	__u32 rules; /* enum ww_rule bits */
	__u64 trigger_interval_ns;
	__u64 trigger_packets[WW_TRIGGER_WORDS]; /* bit n of word n / 64: packet n of a flow is inferred */
	__u64 event_interval_ns;		 /* events of one CPU: time one costs; 0: no events */
	__u64 event_burst_ns;
	struct ww_class_policy class_policy[WW_MAX_CLASSES];
	struct ww_selector selector[WW_SELECTORS];
	__u32 trigger_every; /* 0: no packet by its number */
	__u32 reserved;
	__u64 observe_until_ns; /* clock as of enforce_until_ns; enforcement begins only then; 0: at once */
};

/* The two ends of an IPv6 packet, as ww_denied6 is given them: the peer's address, which lists are about, and the other one. */
struct ww_ends6 {
	__u64 peer[2]; /* as in the packet */
	__u64 own[2];
};

/* Key of the LPM tries ww_allow4 (4 address bytes) and ww_allow6 (16); the value is a struct ww_allowed. */
struct ww_prefix4 {
	__u32 length;
	__u8 address[4];
};

struct ww_prefix6 {
	__u32 length;
	__u8 address[16];
};

#define WW_LIST_FOREVER 0xffffffff

/* Times are seconds of CLOCK_BOOTTIME, or WW_LIST_FOREVER. */
struct ww_allowed {
	__u32 until_s;	      /* the later of those that allow it */
	__u32 length;	      /* of the prefix: once it has expired, one that holds it may still be allowed */
	__u32 policy_until_s; /* WW_LIST_FOREVER: the policy allows it; 0: not. For agents, as the next */
	__u32 hand_until_s;   /* `wirewised allow` does; 0: not */
};

/* Map ww_allow_ports: bit p % 64 of element p / 64 allows destination port p of TCP; elements from 1024 on: of UDP; from 2048 and 3072 on:
 * source ports. */
#define WW_ALLOW_PORT_WORDS 1024

struct ww_counter {
	__u64 packets;
	__u64 bytes; /* frame length */
};

/* What one CPU counts. */
struct ww_stats {
	struct ww_counter status[WW_STATUSES]; /* but WW_CLASSIFIED: that is the sum of class_outcome */
	struct ww_counter class_outcome[WW_MAX_CLASSES][WW_OUTCOMES];
	__u64 inferred;	 /* packets on which the model ran */
	__u64 flows_new; /* flows begun, by where the entry came from, in the order of enum ww_lookup */
	__u64 flows_expired;
	__u64 flows_evicted;
	__u64 flows_refused;
	__u64 events_sent;    /* also where in this CPU's part of ww_events the next one goes */
	__u64 events_limited; /* not sent: over the event rate */
	__u64 event_tat_ns;   /* event rate limit, theoretical arrival time */
	__u64 flows_missed;   /* packets whose entry another CPU held for too long */
	__u64 aggregates_new; /* entries of aggregates, likewise, all tables together */
	__u64 aggregates_expired;
	__u64 aggregates_evicted;
	__u64 aggregates_refused;
	__u64 aggregates_missed;
	__u64 said_yes[WW_MAX_CLASSES]; /* of a bank: packets to which each network did */
};

/* Events of a CPU in ww_events, a power of two; the newest takes the place of the oldest. */
#define WW_EVENTS 2048

/* Map ww_events, WW_EVENTS elements a CPU: event n of a CPU (from 1 on) lies in place (n - 1) % WW_EVENTS of its part. */
struct ww_event {
	__u64 time_ns;
	struct ww_tunnel_key6 key; /* IPv4: address in the first 4 bytes */
	__u8 ip_version;
	__u8 class_id;
	__u8 action;	/* enum ww_action */
	__u8 outcome;	/* enum ww_outcome */
	__u32 packets;	/* of the flow so far */
	__u32 length;	/* IP length of this packet */
	__u32 sequence; /* n, modulo 2^32, when all else is written; 0 while it is being written */
	__u64 answers;	/* of a bank: a bit for each network, 1: yes */
	__u64 changed;	/* and for each whose answer was another before */
	__u64 count; /* packets that it reports: this one, and those of its flow or source since the last event */
	__u32 flags; /* WW_EVENT_* */
	__u32 reserved;
};

#define WW_EVENT_SWAPPED 1 /* the flow's first packet went from the key's destination to its source */

/* Map ww_event_inputs, an element for each of ww_events: what the model computed an event's class from. Its features follow. */
struct ww_event_inputs {
	__u32 sequence; /* of the event that they are of; others have none */
	__u32 inferred; /* 0: the model did not run on this packet, so its features mean nothing */
};

/* What a row has of the packet's headers, and memory for it, a power of two. */
#define WW_RECORD_HEADERS 192
#define WW_RECORD_ROOM 256

/* Of a packet, in map ww_records; its features follow. */
struct ww_record {
	__u64 time_ns;
	__u64 packet;	/* of those that this CPU saw, from 1 on */
	__u32 status;	/* enum ww_status */
	__u32 inferred; /* 1: its features were computed */
	__u32 length;	/* of the frame */
	__u32 headers_length;
	__u8 headers[WW_RECORD_ROOM]; /* the frame's first bytes */
};

/* Map ww_record_rings, one element a CPU. Row n (from 0 on) lies in place n % ww_config.record of the CPU's part of ww_records. */
struct ww_record_ring {
	__u64 packets;
	__u64 written;
	__u64 lost; /* rows that found no room */
	__u64 reserved[5];
	__u64 read; /* by the agent, so many rows; in a cache line of its own */
	__u64 rest[7];
};

/* What struct ww_description has; bits. */
enum ww_described {
	WW_DESCRIBED_CLASS = 1,	    /* the packet was classified */
	WW_DESCRIBED_SCORE = 2,	    /* the model ran on this packet, and gives scores */
	WW_DESCRIBED_CHANGED = 4,   /* with this packet the class of the flow is another, or its first */
	WW_DESCRIBED_BOTH_WAYS = 8, /* packets of both directions belong to the flow */
};

/* The result of a packet, which the actor gets last (ww_describe). */
struct ww_description {
	struct ww_tunnel_key6 key; /* if changed; as in an event */
	__u64 time_ns;
	__s64 score; /* of a model with one output its value, which is positive for class 1; else that of the class */
	__u32 flow_hash;
	__u8 class_id;	 /* that the packet counts as */
	__u8 flags;	 /* enum ww_described */
	__u8 ip_version; /* of the key */
	__u8 reserved;
};

/* Features and, when ww_config.trace is set, what happened to the last packet of one CPU. */
struct ww_scratch {
	__s64 feature[WW_MAX_FEATURES];
	__s64 score
		[WW_MAX_CLASSES]; /* votes or summed leaf scores; [0] alone where the model has one output */
	__u32 status;		  /* enum ww_status */
	__u32 inferred;		  /* 1: the model ran on this packet */
	__u32 class_id;
	__u32 action;
	__u32 outcome;
	__u32 refused;	  /* 1: no flow entry was free; judged as the first packet of its flow */
	__u32 packets;	  /* of the flow, with this one */
	__u32 ip_version; /* 4 or 6 */
	struct ww_tunnel_key6 key;
	/* Carried over a tail call from the feature stage to the model and on to the verdict. */
	__u32 length;
	__u32 frame_length;
	__u32 bucket;
	__u32 way; /* WW_WAYS: the flow has no entry */
	/* Shared tables: what the entry held when this packet was accounted, for what comes after its claim. */
	struct ww_slot seen;
	struct ww_tunnel_key6 seen_key; /* as in the entry */
	/* Of the packet, for an aggregate: its key, as in the entry, and what the packet's fields say. */
	struct ww_key6 aggregate_key;
	__u32 sample[WW_MAX_SAMPLES];
	__u64 now_ns;
	__u64 leaf; /* passes a number through memory, so that the verifier forgets it */
	/* Of a bank, as in an event. */
	__u64 answers;
	__u64 changed;
	__u64 selected; /* by the trigger, for its headers */
	struct ww_description described;
	/* Of a network: what a layer gives, packed as the next one reads it; layers read and write by turns. */
	__u64 activation[2][WW_MAX_WIDTH];
};

/* Map ww_agreement, WW_AGREEMENT_ROWS elements a CPU, one for each class of the first and one for none: packets to which the second
 * gave each class, or none. */
#define WW_AGREEMENT_ROWS (WW_MAX_CLASSES + 1)

struct ww_agreement {
	__u64 packets[WW_AGREEMENT_ROWS];
	__u64 now_ns;	/* in a CPU's first element only: time of the packet */
	__u32 class_id; /* and the second's class */
	__u32 reserved;
};

/* Map ww_cpu, one element a CPU. */
struct ww_cpu {
	struct ww_stats stats;
	struct ww_scratch scratch;
};

#endif
