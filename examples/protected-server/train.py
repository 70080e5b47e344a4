# SPDX-License-Identifier: Apache-2.0
"""A small model of packets: SYNs are a flood, all else is benign. Writes model.wirewise.

    python examples/protected-server/train.py

The rows are made up here: during a flood nearly all SYNs are the flood's, and those of clients look the same.
So the tree learns that every SYN is one, as any model of single packets must.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.tree import DecisionTreeClassifier

import wirewise as ww

FEATURES = {
    "name": "syns",
    "key": "five-tuple",
    "features": ["tcp_flags", "payload_length"],
    "flow_table": {"sharing": "shared"},  # a veth pair's packets meet the CPU that sends them
}
SYN, ACK, DATA, END = 0x02, 0x10, 0x18, 0x11
FLOOD, CLIENTS = 20_000, 500


def rows(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Packets that come to the server, and whether they are of the flood."""
    clients = [[SYN, 0], [ACK, 0], [DATA, 0], [END, 0]] * CLIENTS
    benign = np.array(clients)
    benign[benign[:, 0] == DATA, 1] = rng.integers(16, 1400, CLIENTS)
    flood = np.tile([SYN, 0], (FLOOD, 1))
    return np.concatenate([benign, flood]), np.repeat([0, 1], [len(benign), len(flood)])


def main() -> None:
    packets, classes = rows(np.random.default_rng(1))
    tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(packets, classes)
    bundle = Path(__file__).parent / "model.wirewise"
    ww.compile(tree, ww.FeatureSet.from_dict(FEATURES), classes=["benign", "syn-flood"]).write(bundle)
    print(f"written {bundle.name}")


if __name__ == "__main__":
    main()
