# SPDX-License-Identifier: Apache-2.0
"""How the demo counts connections: by the first SYN of each flow."""

from __future__ import annotations

from wirewise.demo import material
from wirewise.demo.results import connections
from wirewise.traffic import BENIGN, LABELS, generate

SYN, FLAGS = 0x02, 0x17
FLOW = ["version", "source", "destination", "source_port", "destination_port"]


def test_a_connection_is_the_first_syn_of_a_benign_flow_however_often_it_is_sent_again() -> None:
    sent = material.synthetic(1, duration_s=10.0, packets=80_000)
    rows = generate(1000, duration_s=10.0, packets=80_000).rows
    benign = [LABELS[sent.kinds[kind]] == BENIGN for kind in rows["kind"]]
    syns = rows[benign & (rows["protocol"] == 6) & (rows["tcp_flags"] & FLAGS == SYN)][FLOW]
    flows = set(syns.tolist())
    assert 0 < len(flows) < len(syns)  # some are sent again

    none, every = [0] * (2 * len(sent.kinds)), [10**6] * (2 * len(sent.kinds))
    assert connections(sent, none) == (len(flows), 0)
    firsts = sum(not sent.attacks(kind) for kind in sent.kinds)
    assert connections(sent, every) == (len(flows), firsts * 10**6)
    assert [tag // 2 for tag in sent.tags] == rows["kind"].tolist()
