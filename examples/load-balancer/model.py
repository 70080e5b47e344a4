# SPDX-License-Identifier: Apache-2.0
"""A model for the load balancer, made by hand: long packets of UDP are a flood, all others are of clients."""

from __future__ import annotations

from wirewise.compiler import compile
from wirewise.feature_sets import FeatureSet
from wirewise.models.tree import LEAF, Tree, TreeEnsemble

FEATURES = FeatureSet.from_dict({"name": "by-hand", "key": "five-tuple", "features": ["protocol", "length"]})
TREE = Tree(
    feature=(0, LEAF, 1, LEAF, LEAF),
    threshold=(16, 0, 500, 0, 0),
    left=(1, LEAF, 3, LEAF, LEAF),
    right=(2, LEAF, 4, LEAF, LEAF),
    value=((), (0,), (), (0,), (1,)),
)

if __name__ == "__main__":
    model = TreeEnsemble(2, 2, "majority", (TREE,), 2, (0, 0))
    compiled = compile(model, FEATURES, name="by-hand", classes=["client", "flood"], verify="never")
    compiled.bundle.write("model.wirewise")
    print("model.wirewise: a client, or a flood")
