# SPDX-License-Identifier: Apache-2.0
"""Feature sets as published, each named after its source and tested on its own.

Where a paper's text and its published code differ, the text is the preset.
"""

from __future__ import annotations

from wirewise.features.feature_set import Feature, FeatureSet


def _preset(name: str, doc: str, **features: str) -> FeatureSet:
    return FeatureSet(name, tuple(Feature.parse({"name": n, "is": s}) for n, s in features.items()), doc=doc)


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

PRESETS: dict[str, FeatureSet] = {preset.name: preset for preset in (HARA2023, HARA2026)}
