/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the actor and the agent share. The agent carries the actor, so both change together, and bundles know nothing of it.
 *
 * Read by scripts/abi.py as abi.h is: plain C, no holes.
 */
#ifndef WW_ACT_ABI_H
#define WW_ACT_ABI_H

#include "abi.h"
#include "act/metadata.h"

#define WW_ACT_VERSION 5 /* of the layout of the actor's maps, which outlive an agent */

#define WW_INTERFACES 1024 /* that packets may leave by, of both files; for forwarding, all that there are */
#define WW_STATIONS 16384  /* seen behind the ports of a bridge */
#define WW_FIXED 4096	   /* stations that both files name */
#define WW_MEMORY 65536	   /* flows that are remembered for steering */

/* What a class asks for beside passing and dropping; bits, of ww_steer.kinds and of ww_act_config.acts. */
enum ww_steer_kind {
	WW_STEER_REDIRECT = 1, /* out of another interface */
	WW_STEER_BOUNCE = 2,   /* back out of the one it came by, addresses of Ethernet swapped */
	WW_STEER_DSCP = 4,     /* in the outermost IP header */
	WW_STEER_MARK = 8,     /* of the socket buffer, as the next two */
	WW_STEER_PRIORITY = 16,
	WW_STEER_QUEUE = 32,
	WW_STEER_CPU = 64,     /* to another CPU's stack */
	WW_STEER_SOCKET = 128, /* to a socket of AF_XDP */
	WW_STEER_MIRROR = 256, /* a copy of some out of another interface */
	WW_STEER_FORWARD =
		512, /* as the kernel's routes and neighbours say, or a table of Ethernet addresses */
	WW_STEER_BACKEND = 1024,   /* to one of a pool of servers */
	WW_STEER_CHALLENGE = 2048, /* a SYN is answered by a cookie; who returns it passes */
	WW_STEER_BRIDGE = 4096,	   /* with WW_STEER_FORWARD: between ports, by Ethernet addresses */
	WW_STEER_DENY = 8192,	   /* not of a class: the policy has a deny list */
	WW_STEER_CARRIED =
		16384, /* not in policies: a plane in user space sends what goes elsewhere; its engine has the helpers for it */
	WW_STEER_TOLD =
		32768, /* in ww_act_config.acts only: packets are captured ones, so they are changed, but go nowhere */
	WW_STEER_DECAPSULATE = 65536,  /* out of its GTP-U tunnel, if ww_tunnels knows that */
	WW_STEER_ENCAPSULATE = 131072, /* into the tunnel that ww_tunnels has for its receiver */
	WW_STEER_QFI = 262144,	       /* in the PDU session container of its tunnel */
	WW_STEER_INNER_DSCP = 524288,  /* in the IP header inside of its tunnel */
	WW_STEER_TELL = 1048576,       /* not of a class: events are of flows or sources, not of packets */
	WW_STEER_METADATA = 2097152, /* not of a class: a struct ww_metadata in front of packets that pass */
	WW_STEER_VERDICTS = 4194304, /* not of a class: flows and their classes in ww_verdicts */
	WW_STEER_BAN = 8388608, /* not in ww_steer.kinds: the policy bans who sends packets of some class */
	WW_STEER_EVIDENCE = 16777216, /* not of a class: the policy asks for evidence against senders */
	WW_STEER_INPUTS = 33554432,   /* not of a class: events have the features of their packet */
};

/* What only a socket buffer has: XDP hands it over to a program at TC. */
#define WW_STEER_BY_COMPANION (WW_STEER_MARK | WW_STEER_PRIORITY | WW_STEER_QUEUE | WW_STEER_MIRROR)

/* Who sends to whom by a packet's outermost headers: struct ww_key6 of one without tags. */
struct ww_ends_key {
	__u8 source[16];
	__u8 destination[16];
	__be16 source_port;
	__be16 destination_port;
	__u8 protocol;
	__u8 reserved[3]; /* the first: the IP version */
};

#define WW_DENY_PREFIXES 4194304 /* of one IP version; a trie grows with what it holds */
#define WW_DENY_ORIGINS 6	 /* who may deny prefixes; the first is the policy */
#define WW_DENY_NAME 32		 /* bytes of an origin's name, with a zero at its end */

/* Value of the tries ww_deny4 and ww_deny6. Times are seconds of CLOCK_BOOTTIME, or WW_LIST_FOREVER; 0: not denied. */
struct ww_denied {
	__u32 until_s; /* the last of those below */
	__u32 length;  /* of the prefix: once it has expired, what holds it may still be denied */
	__u32 origin_until_s[WW_DENY_ORIGINS];
};

/* Map ww_deny_origins: what an origin is called; empty: its place is free. For agents; the data path does not read it. */
struct ww_deny_origin {
	__u8 name[WW_DENY_NAME];
	__u64 before; /* packets that ww_act_cpu.denied counted at its place before it had that */
};

/* What an event is of. */
enum ww_each { WW_EACH_PACKET = 0, WW_EACH_FLOW, WW_EACH_SOURCE };

#define WW_TOLD 65536	  /* flows or sources whose last event is remembered */
#define WW_TOLD_PROVEN 63 /* bit of an event's count: its packet proves the flow's first sender */

/* Key of the map ww_told_of. The key of a source has only its address. */
struct ww_told_key {
	struct ww_tunnel_key6 key;
	__u8 ip_version;
	__u8 class_id;
	__u8 outcome; /* enum ww_outcome */
	__u8 reserved[5];
};

struct ww_told {
	__u64 told_ns; /* time of the last event; 0: there was none */
	__u64 packets; /* since then */
};

/* Ways to ban that the classes of a policy may have, each looked up for every packet. */
#define WW_BAN_KINDS 4

/* Who else is banned together with a packet's sender. */
struct ww_ban_kind {
	__u8 there;   /* 1: the policy has it; those that it has come first */
	__u8 length4; /* bits of the sender's address that count */
	__u8 length6;
	__u8 pair; /* 1: only its packets to the same receiver */
};

struct ww_ban_key {
	__u64 source[2];      /* as in the packet, IPv4 in the first 4 bytes; zeros behind the prefix */
	__u64 destination[2]; /* of a pair; else zeros */
	__u8 length;	      /* of the prefix, in bits */
	__u8 ip_version;
	__u8 pair;  /* as in struct ww_ban_kind */
	__u8 would; /* 1: made in observe mode: remembered, so that it is counted once, and never looked up */
	__u8 reserved[4];
};

#define WW_BAN_WAYS 4
#define WW_BAN_BUCKETS 16384 /* of map ww_bans, a power of two */
#define WW_BAN_FREE 0
#define WW_BAN_BUSY 1 /* being written */

/* Element of the array ww_bans. Not a hash map of the kernel's: engines in user space can share arrays only. A ban's
 * tag is erased before its key and time change, and written after them. */
struct ww_ban_bucket {
	__u32 tag[WW_BAN_WAYS];	     /* of the hash of its key, or WW_BAN_FREE or WW_BAN_BUSY */
	__u64 until_ns[WW_BAN_WAYS]; /* CLOCK_MONOTONIC */
	struct ww_ban_key key[WW_BAN_WAYS];
	__u64 reserved[6];
};

/* Map ww_ban_filter: a bit for each hash of the first WW_BAN_NETWORK4 or WW_BAN_NETWORK6 bits of an address: 1 if somebody there was banned. */
#define WW_BAN_NETWORK4 24
#define WW_BAN_NETWORK6 40
#define WW_BAN_FILTER_BITS 23
#define WW_BAN_FILTER_WORDS 131072

/* Element of the array ww_handshakes, found by the hash of a connection's ends; connections may share one, and then the last counts. Numbers are
 * acknowledgement << 32 | sequence of the segment with which the peer completes the handshake. */
#define WW_HANDSHAKES 65536 /* a power of two */

struct ww_handshake {
	__u64 offered; /* by a SYN-ACK of this side */
	__u64 proven;  /* by the peer's ACK; 0: by none */
};

/* Bytes of each direction, from the handshake on, in which a segment's numbers prove that its sender is the one of the handshake. */
#define WW_PROOF_BYTES 65536

/* CPUs that a class's packets go to, at most. */
#define WW_MAX_SPREAD 16
/* Broadcast addresses of the host that a challenge compares with. */
#define WW_BROADCASTS 8

struct ww_steer {
	__u32 kinds;   /* enum ww_steer_kind bits; of the rest, what they name means something */
	__u32 ifindex; /* of a bridge: that of one of its ports, which names it */
	__u32 mark;
	__u32 priority;
	__u16 queue; /* that the packet leaves by, from 0 on */
	__u8 dscp;
	__u8 cpus;    /* how many there are of cpu[] */
	__u32 socket; /* the receive queue whose packets go to a socket */
	__u32 mirror_ifindex;
	__u32 mirror_every; /* one packet in so many, at random */
	__u32 mirror_snap;  /* bytes of it, where the plane can cut; 0: all */
	__u16 pool;	    /* of servers, from 0 on */
	__u8 address
		[6]; /* of Ethernet: that of the judged interface, to whose frames forwarding is limited */
	__u16 cpu[WW_MAX_SPREAD];
	__u8 qfi;
	__u8 inner_dscp;
	__u16 reserved;
	__u8 own4[4]; /* the judged interface's IP addresses, by which it answers; zeros: it has none */
	__u8 own6[16];
	/* For challenges: the broadcast addresses of this host's IPv4 networks; zeros: no more. */
	__u8 broadcast[WW_BROADCASTS][4];
	/* For a class that is dropped or limited. */
	__u32 ban_ms;	/* how long a ban lasts; 0: nobody is banned */
	__u8 ban_kind;	/* its place in ww_act_policy.ban */
	__u8 spoofable; /* 1: also those who have not proved their address */
	__u8 ban_reserved[2];
};

/* The tc_index of a copy counts copies of copies: WW_COPY plus 1 to WW_COPIES. The last is not copied again. Veth pairs, bridges and network
 * namespaces leave this field of a socket buffer alone, and little else uses it. */
#define WW_COPY 0x7e50
#define WW_COPIES 4

/* Begins a struct ww_wish, so that metadata of others is not taken for one. */
#define WW_WISH 0x3157ecab

/* In front of a packet, from XDP to the companion at TC; behind a struct ww_metadata, if there is one. Linux < 6.8 has room for 32 bytes of both. */
struct ww_wish {
	__u32 magic; /* WW_WISH */
	__u32 kinds; /* enum ww_steer_kind bits of WW_STEER_BY_COMPANION; of the rest, what they name means something */
	__u32 mark;
	__u32 priority;
	__u32 queue;
	__u32 mirror_ifindex;
};

/* Map ww_sockets: receive queues of an interface whose packets can go to a socket. */
#define WW_SOCKETS 256

/* Map ww_memory: what a class's steering remembers of a flow. The key is struct ww_ends_key (ww_read_ends). */
struct ww_memory {
	__u32 backend; /* that it goes to: its place in ww_backends, and its generation << 16; 0: none */
	__u32 proven;  /* 1: its sender returned a cookie */
};

/* Key of the maps ww_stations, of what was seen, and ww_fixed, whose value is the index of the port, 0: this host. */
struct ww_station_key {
	__u32 bridge; /* ww_steer.ifindex */
	__u8 address[6];
	__u16 reserved;
};

struct ww_station {
	__u64 seen_ns; /* CLOCK_BOOTTIME */
	__u32 ifindex; /* of the port */
	__u32 reserved;
};

#define WW_POOLS 16	 /* of the old and of the new policy */
#define WW_BACKENDS 2048 /* likewise, of all pools; place 0 stays empty */
#define WW_PLACES 65537	 /* of a pool's table, a prime: Eisenbud et al., NSDI 2016, section 3.4 */
#define WW_POOL_NAME 32
#define WW_CHECK_PATH 64

/* How a packet gets to a backend. */
enum ww_method {
	WW_METHOD_DSR = 0, /* its Ethernet addresses are rewritten, and nothing else */
	WW_METHOD_IP_IN_IP,
	WW_METHOD_GUE,
};

enum ww_check { WW_CHECK_NONE = 0, WW_CHECK_TCP, WW_CHECK_HTTP };

/* What is so of a backend; bits. */
enum ww_backend_flag {
	WW_BACKEND_THERE = 1,
	WW_BACKEND_DRAINS = 2, /* keeps its flows and gets no new ones */
	WW_BACKEND_DOWN = 4,   /* failed its checks: its flows go to others */
};

/* Map ww_pools. Health checks are the agent's: it reads here what to check. */
struct ww_pool {
	__u64 seed;    /* of the hash that chooses */
	__u32 table;   /* which of its two elements of ww_tables holds: 0 or 1 */
	__u32 ifindex; /* where packets leave; 0: by the interface they came by */
	__u16 method;  /* enum ww_method */
	__u16 check;   /* enum ww_check */
	__u16 port;
	__u8 mac[6]; /* of the interface they leave by */
	__u32 interval_ms;
	__u32 timeout_ms;
	__u16 fall; /* so many failures in a row take a backend out ... */
	__u16 rise; /* ... and so many successes put it back */
	__u8 reserved[8];
	__u8 name[WW_POOL_NAME]; /* ends with a zero; empty: no pool */
	__u8 path[WW_CHECK_PATH];
};

/* Map ww_tables, two elements a pool: numbers in ww_backends; 0: none. */
struct ww_table {
	__u16 backend[WW_PLACES];
};

/* Map ww_backends. IPv4 addresses lie in the first 4 bytes. */
struct ww_backend {
	__u8 address[16];
	__u8 source[16]; /* of the outer header */
	__u8 mac[6];	 /* its own, or that of the router to it; zeros: not known, as of captures */
	__u8 ip_version;
	__u8 given;  /* 1: the policy gives its mac */
	__u16 flags; /* enum ww_backend_flag */
	__u16 pool;
	__u16 weight;
	__u16 generation; /* another for each backend that gets this place */
};

#define WW_TUNNELS 65536 /* of GTP-U */

/* Which packets are meant, by their direction. */
enum ww_tunnel_side {
	WW_TUNNEL_IN = 0, /* to be taken out: those to an address of this host and a TEID */
	WW_TUNNEL_OUT,	  /* to be put in: those to an address, of IPv6 a network of 64 bits */
};

/* Key of the map ww_tunnels. An IPv4 address lies in the first 4 bytes; of a network the rest is zeros. */
struct ww_tunnel_end {
	__u8 address[16];
	__u32 teid;	 /* of WW_TUNNEL_IN */
	__u8 ip_version; /* of the address */
	__u8 side;	 /* enum ww_tunnel_side */
	__u16 reserved;
};

/* What is so of a tunnel; bits. */
enum ww_tunnel_flag {
	WW_TUNNEL_HAS_IN = 1,
	WW_TUNNEL_HAS_OUT = 2,
	WW_TUNNEL_HAS_UE4 = 4, /* the addresses behind it, of one version or both; else any may send by it */
	WW_TUNNEL_HAS_UE6 = 8,
	WW_TUNNEL_HAS_QFI = 16, /* packets get a PDU session container */
};

/* Value of the map ww_tunnels: the same of all ends of a tunnel, but the counters. */
struct ww_tunnel {
	__u8 local[16]; /* this host's address at the tunnel, and that of who is at its other end */
	__u8 peer[16];
	__u8 ue6[8]; /* the network behind it */
	__u8 ue4[4];
	__u32 teid; /* of what comes */
	__u32 peer_teid;
	__u8 ip_version; /* of local and peer */
	__u8 flags;	 /* enum ww_tunnel_flag */
	__u8 qfi;
	__u8 reserved;
	__u64 packets;
	__u64 bytes; /* of IP packets inside */
};

/* Map ww_tunnel_counts: what became of the packets of classes that go into or out of tunnels, or are written on there. */
enum ww_tunnel_count {
	WW_TUNNEL_TAKEN_OUT = 0,
	WW_TUNNEL_PUT_IN,
	WW_TUNNEL_WRITTEN,  /* QFI or DSCP, of a packet that stays in its tunnel */
	WW_TUNNEL_ANSWERED, /* too long for the way: the sender was told */
	/* Those that pass as they came. */
	WW_TUNNEL_OTHER, /* not IP in GTP-U; of what goes in, not IP, with a VLAN tag, or for another station */
	WW_TUNNEL_UNKNOWN,    /* no such tunnel */
	WW_TUNNEL_MALFORMED,  /* a header is broken, or more is announced than there is */
	WW_TUNNEL_FRAGMENTED, /* of the outer packet */
	WW_TUNNEL_EXTENDED, /* an extension header is to be understood, and is not known; or there is no PDU session container to write in */
	WW_TUNNEL_NESTED,   /* another tunnel of GTP-U inside */
	WW_TUNNEL_FOREIGN,  /* its sender is not who the tunnel belongs to */
	WW_TUNNEL_TOO_LONG,
	WW_TUNNEL_NO_WAY, /* no route, no neighbour, no hops left */
	/* Dropped: too long for the route, and the rate of answers is exceeded. */
	WW_TUNNEL_UNANSWERED,
	WW_TUNNEL_COUNTS
};

/* Map .rodata.ww_act_config: constants of one load, beside struct ww_config. */
struct ww_act_config {
	__u32 version; /* WW_ACT_VERSION */
	__u32 acts;    /* enum ww_steer_kind bits: what the policy may ask for */
	__u32 hook;    /* enum ww_hook */
	__u32 trace;   /* as in struct ww_config, as are the next three */
	__u32 shards;
	__u32 model;
	__u32 frags;
	__u32 clock; /* enum ww_clock */
	__u64 hash_seed[WW_HASH_SEEDS];
};

#define WW_SENDERS 65536 /* that evidence is kept of */
#define WW_SCORE_MAX 255 /* of a flow whose class the policy does something with; of others it is 0 */
#define WW_MAX_LAST 255	 /* flows of a sender that count */

/* Whose flows are evidence against each other. */
enum ww_evidence {
	WW_EVIDENCE_NONE = 0, /* the policy asks for none */
	WW_EVIDENCE_SOURCE,   /* the client's address */
	WW_EVIDENCE_PAIR,     /* and the server's */
	WW_EVIDENCE_SERVICE,  /* the server's address and port, and the protocol */
};

/* When a sender's flows are evidence enough. */
struct ww_evidence_rule {
	__u32 by;	 /* enum ww_evidence */
	__u32 last;	 /* flows that count, 1 to WW_MAX_LAST */
	__u32 flows;	 /* least number that the mean is taken over; 1 to last */
	__u32 threshold; /* the mean score from which on a class counts, 1 to WW_SCORE_MAX */
	__u32 within_ms; /* after so long without another flow, or a change of one, evidence is forgotten */
	__u32 reserved;
};

/* Key of the map ww_senders. Parts that `by` does not use are zero; an IPv4 address occupies the first 4 bytes. */
struct ww_sender_key {
	__u8 client[16];
	__u8 server[16];
	__be16 port; /* the server's */
	__u8 protocol;
	__u8 by_version; /* enum ww_evidence << 4 | IP version */
};

/* Map ww_senders. One word, so that CPUs change it without waiting: time in ms << 24 | flows << 16 | sum of their
 * scores. (With 32 bits, evidence would return after 25 days in which it was forgotten.) */
struct ww_sender {
	__u64 evidence;
};

/* Map .data.ww_act_policy, one element: switches for all classes, what classes ask for whose action is WW_ACTION_ACT, bans of those that are
 * dropped or limited, and the rule for evidence. */
struct ww_act_policy {
	__u32 metadata; /* 1: in front of packets that pass */
	__u32 verdicts; /* 1: ww_verdicts is kept */
	struct ww_steer steer[WW_MAX_CLASSES];
	__u64 tell_every_ns; /* while a flow or source goes on, it has an event so often */
	__u16 each;	     /* enum ww_each */
	__u16 inputs;	     /* 1: events have the features of their packet */
	struct ww_ban_kind ban[WW_BAN_KINDS];
	__u8 proofs; /* 1: some class bans only who has proved its address */
	__u8 wide_bans; /* 1: some ban is of more addresses than those that have a bit of ww_ban_filter in common */
	__u8 reserved[2];
	struct ww_evidence_rule evidence;
};

#define WW_ROOM 256

/* The packet that ww_denied4 or ww_denied6 was asked about last, for ww_ban; and the keys that they look for. */
struct ww_asked {
	struct ww_ends6 ends; /* IPv4: in the first 4 bytes of each */
	__u32 ip_version;
	__u32 proven; /* 1: its numbers prove that the peer's address is its own */
	struct ww_ban_key ban;
	struct ww_ends6 connection;
	__be16 ports[2]; /* hashed together with the member before and the one behind */
	__u32 reserved;
};

/* Map .data.ww_act_cpu, one element a CPU. */
struct ww_act_cpu {
	__u64 answer_tat_ns; /* of ICMP answers to packets that are too long for their tunnel */
	__u64 bounce_tat_ns; /* of bounces that cost no hop */
	__u64 described;     /* packets that got a struct ww_metadata */
	__u64 undescribed;   /* and that got none: the driver has no room for it */
	__u64 room[WW_ROOM]; /* of the action at work, for what its stack has no room for */
	struct ww_asked asked;
	__u64 list_tick;   /* when list_boot_s was read, in jiffies */
	__u64 list_boot_s; /* for the times of the deny list, in seconds of CLOCK_BOOTTIME */
	__u64 denied
		[WW_DENY_ORIGINS]; /* packets that the deny list kept out, by the origin that denies their prefix longest, the first of several */
};

#endif
