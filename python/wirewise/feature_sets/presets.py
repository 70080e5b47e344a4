# SPDX-License-Identifier: Apache-2.0
"""Feature sets as published, each named after its source and tested on its own.

Where a paper's text and its published code differ, the text is the preset. CPUs share the flow tables of
every preset, so that flows are whole on any interface, also a virtual one. No preset's packets cost 5 % more
for that (`python -m bench.sharing`; docs/cpus.md).
"""

from __future__ import annotations

from wirewise.feature_sets.feature_set import PRESETS, Feature, FeatureSet


def _preset(
    name: str,
    doc: str,
    key: str = "five-tuple",
    decapsulate: tuple[str, ...] = (),
    sharing: str = "shared",
    beside: FeatureSet | None = None,
    **features: str,
) -> FeatureSet:
    """A preset of the features of `beside` and of these."""
    parsed = tuple(Feature.parse({"name": n, "is": s}) for n, s in features.items())
    parsed = (beside.features if beside else ()) + parsed
    return PRESETS.add(FeatureSet(name, parsed, key=key, decapsulate=decapsulate, sharing=sharing, doc=doc))


HARA2023 = _preset(
    "hara2023",
    """T. Hara, "On Practicality of Kernel Packet Processing Empowered by Lightweight Neural Network and
    Decision Tree" (2023), section IV-C: five values of the packet (x1 to x5), seven of the flow (x6 to
    x12), over the directional five-tuple. The flow's totals are divided by its packets, the first included
    with an interval of 0, hence iat_or_zero. x5, the direction, is 1 for incoming packets, so at an
    ingress hook always. The published code scales times to other units than it names; the text's meaning is
    kept: microseconds.""",
    source_port="source_port",
    destination_port="destination_port",
    protocol="protocol",
    length="length",
    direction="direction",
    iat="iat_or_zero",
    mean_length="mean(length)",
    mean_direction="mean(direction)",
    mean_iat="mean(iat_or_zero)",
    deviation_length="deviation_from_mean(length)",
    deviation_direction="deviation_from_mean(direction)",
    deviation_iat="deviation_from_mean(iat_or_zero)",
)

FLOOD = _preset(
    "flood",
    """What a packet is, and what its destination has gone through in the current second: packets, bytes, new
    flows, SYNs that nobody answered, how many sources and source ports. A flood, or a reflection from many
    hosts, is many flows of a few packets each; one flow shows nothing of it.""",
    protocol="protocol",
    source_port="source_port",
    destination_port="destination_port",
    length="length",
    tcp_flags="tcp_flags",
    packets="count",
    mean_length="mean(length)",
    packets_to="count(by=destination, window=1s)",
    bytes_to="sum(length, by=destination, window=1s)",
    mean_length_to="mean(length, by=destination, window=1s)",
    new_flows_to="sum(new_flow, by=destination, window=1s)",
    unanswered_to="pending(handshake, by=destination, window=1s)",
    sources_to="distinct(source, by=destination, window=1s)",
    source_ports_to="distinct(source_port, by=destination, window=1s)",
)

INTRUSION = _preset(
    "intrusion",
    """What a packet is, what its conversation has been so far, in both directions, and what its destination
    has gone through in the current second and its source in the current ten. For an interface that sees both
    directions, such as a router's or a mirror port. Of the sets tried on real captures that training had not
    seen, the one with the best F1 (docs/training.md).""",
    key="five-tuple-bidirectional",
    protocol="protocol",
    source_port="source_port",
    destination_port="destination_port",
    length="length",
    payload_length="payload_length",
    tcp_flags="tcp_flags",
    tcp_window="tcp_window",
    ttl="ttl",
    direction="direction",
    iat="iat",
    packets="count",
    mean_length="mean(length)",
    variance_length="variance(length)",
    max_length="max(length)",
    min_length="min(length)",
    mean_iat="mean(iat)",
    variance_iat="variance(iat)",
    max_iat="max(iat)",
    payload="sum(payload_length)",
    syns="sum(tcp_syn)",
    acks="sum(tcp_ack)",
    resets="sum(tcp_rst)",
    pushes="sum(tcp_psh)",
    mean_direction="mean(direction)",
    packets_to="count(by=destination, window=1s)",
    bytes_to="sum(length, by=destination, window=1s)",
    mean_length_to="mean(length, by=destination, window=1s)",
    new_flows_to="sum(new_flow, by=destination, window=1s)",
    unanswered_to="pending(handshake, by=destination, window=1s)",
    sources_to="distinct(source, by=destination, window=1s)",
    source_ports_to="distinct(source_port, by=destination, window=1s)",
    packets_from="count(by=source, window=10s)",
    new_flows_from="sum(new_flow, by=source, window=10s)",
    unanswered_from="pending(handshake, by=source, window=10s)",
    destinations_from="distinct(destination, by=source, window=10s)",
    ports_from="distinct(destination_port, by=source, window=10s)",
)

PAIRS = _preset(
    "pairs",
    """The preset `intrusion`, with how the payloads of both directions begin, what DNS asks for, and what
    client and server did in the current minute: flows of the pair, gaps between them, packets, payload
    and names asked for; how many servers the client asked for this port, how many ports of this server.
    Many attacks are sessions that look like any other, one by one; what is odd is how often they come,
    and how alike. On sources that training had not seen, it found more than the other sets tried
    (docs/training.md). It has three tables more than `intrusion`.""",
    key="five-tuple-bidirectional",
    beside=INTRUSION,
    head="mean(payload_head, direction=forward)",
    printable="mean(payload_printable, direction=forward)",
    zeros="mean(payload_zero, direction=forward)",
    high="mean(payload_high, direction=forward)",
    head_back="mean(payload_head, direction=backward)",
    printable_back="mean(payload_printable, direction=backward)",
    zeros_back="mean(payload_zero, direction=backward)",
    high_back="mean(payload_high, direction=backward)",
    name_length="first(dns_name_length)",
    name_labels="first(dns_labels)",
    question_type="first(dns_type)",
    pair_names="distinct(dns_name, by=pair, window=1m)",
    pair_name_length="mean(dns_name_length, by=pair, window=1m)",
    pair_flows="sum(new_flow, by=pair, window=1m)",
    pair_gap="latest(flow_gap, by=pair, window=1m)",
    pair_mean_gap="mean(flow_gap, by=pair, window=1m)",
    pair_gap_deviation="mean_abs_deviation(flow_gap, by=pair, window=1m)",
    pair_packets="count(by=pair, window=1m)",
    pair_payload="sum(payload_length, by=pair, window=1m)",
    servers="distinct(server, by=client-port, window=1m)",
    service_flows="sum(new_flow, by=client-port, window=1m)",
    server_ports="distinct(server_port, by=hosts, window=1m)",
    hosts_flows="sum(new_flow, by=hosts, window=1m)",
    hosts_packets="count(by=hosts, window=1m)",
)

UNSW2015 = _preset(
    "unsw2015",
    """N. Moustafa and J. Slay, "UNSW-NB15: a comprehensive data set for network intrusion detection systems"
    (2015): those of its 49 features that arriving packets have, with their names there. The counts `ct_*` are
    there among the last 100 connections, which takes a list of them; here they are the flows that began in
    the current ten seconds. What needs the answers (dbytes, dttl, tcprtt, ...), the payload (service,
    trans_depth, ...) or the addresses themselves is left out.""",
    proto="protocol",
    sport="source_port",
    dsport="destination_port",
    dur="duration",
    sbytes="sum(length)",
    sttl="ttl",
    spkts="count",
    swin="tcp_window",
    smeansz="mean(length)",
    sintpkt="mean(iat)",
    ct_dst_ltm="sum(new_flow, by=destination, window=10s)",
    ct_src_ltm="sum(new_flow, by=source, window=10s)",
    ct_srv_dst="sum(new_flow, by=service, window=10s)",
    ct_dst_sport_ltm="distinct(source_port, by=destination, window=10s)",
    ct_src_dport_ltm="distinct(destination_port, by=source, window=10s)",
)

HARA2026 = _preset(
    "hara2026",
    """T. Hara and S. Kasahara, "Practicality Analysis of eBPF/uBPF-based Network Intrusion Detection and
    Prevention Systems for Distributed Denial of Service Attacks" (2026), Table I: twelve statistics of a
    flow's incoming packets over the directional five-tuple. Inter-arrival times have one sample fewer than
    the flow has packets; the variance is Welford's (section IV-A), of the population.""",
    max_length="max(length)",
    mean_length="mean(length)",
    min_length="min(length)",
    initial_window="first(tcp_window)",
    ack_count="count(tcp_ack)",
    sum_length="sum(length)",
    fin_count="count(tcp_fin)",
    mean_iat="mean(iat)",
    sum_iat="sum(iat)",
    variance_length="variance(length)",
    syn_count="count(tcp_syn)",
    max_iat="max(iat)",
)

SIRACUSANO2022 = _preset(
    "siracusano2022",
    """G. Siracusano et al., "Re-architecting Traffic Analysis with Neural Network Interface Cards" (2022),
    appendix B: the 16 features of UNSW-NB15 by which a binary network of 256 inputs (16 bits each) finds
    attacks. The paper does not list them; its published tools name dur, sbytes, dbytes, sttl, dttl, sload,
    dload, spkts, dpkts, smean, dmean, sinpkt, dinpkt, tcprtt, synack and ackdat. Six of them can be computed
    of a flow's incoming packets. Left out: the six of the other direction (dbytes, dttl, dload, dpkts, dmean,
    dinpkt) and the three of a handshake's round trip (tcprtt, synack, ackdat), as an ingress hook sees one
    direction, and sload, a quotient of sbytes and dur. Bytes are those of IP, where argus counts Ethernet
    headers too; times are in microseconds.""",
    duration="duration",
    sum_length="sum(length)",
    ttl="ttl",
    count="count",
    mean_length="mean(length)",
    mean_iat="mean(iat)",
)

GALVAO2026 = _preset(
    "galvao2026",
    """J. S. da S. Galvão et al., "Leveraging eBPF/XDP for Real-Time Machine Learning Traffic Classification
    in 5G User Plane Networks" (2026), section 3: mean and variance of the inter-arrival time in the current
    and in the preceding 500 ms of a flow, over the directional five-tuple inside GTP-U. The text names no
    unit: microseconds here; the variance is of the population. A flow's first packet opens its first
    window, and the first inter-arrival time is its second packet's. The published code differs: it divides
    nanoseconds by 10^6, so it has whole milliseconds under the name iat_us; the variance is the mean of the
    squares of those, rounded down, without the square of the rounded mean; a window begins with the packet
    that finds the last one over, and the preceding one stays, however long ago it was; a flow's first
    packet is not judged; the inner header is guessed at five distances instead of read.""",
    decapsulate=("gtp-u",),
    mean_iat="mean(iat, window=500ms)",
    variance_iat="variance(iat, window=500ms)",
    previous_mean_iat="mean(iat, window=500ms, previous)",
    previous_variance_iat="variance(iat, window=500ms, previous)",
)
