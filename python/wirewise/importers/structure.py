# SPDX-License-Identifier: Apache-2.0
"""Whether the numbers of children form trees: what a library's native code takes for granted."""

from __future__ import annotations

from collections.abc import Sequence


def tree_nodes(left: Sequence[int], right: Sequence[int], is_leaf: Sequence[bool]) -> list[int] | None:
    """The nodes below node 0 in visiting order; None if a child does not exist or is reached twice."""
    seen = [False] * len(left)
    nodes: list[int] = []
    stack = [0]
    while stack:
        node = stack.pop()
        if not 0 <= node < len(seen) or seen[node]:
            return None
        seen[node] = True
        nodes.append(node)
        if not is_leaf[node]:
            stack += (right[node], left[node])
    return nodes
