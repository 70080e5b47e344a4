# SPDX-License-Identifier: Apache-2.0
"""What a parity run compares: a feature set, a model and a policy, drawn from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_network
from random import Random
from typing import Any

import numpy as np

from tests.parity.frames import Fuzzer, TimedFrame
from wirewise.feature_sets import ACCUMULATORS, FIELDS, KEYS, Extractor, Feature, FeatureSet
from wirewise.feature_sets.baseline import COMPARISONS
from wirewise.feature_sets.feature_set import AGGREGATES, CLIENT_AGGREGATES, SHARINGS, TEID
from wirewise.feature_sets.fields import BIDIRECTIONAL, Field, ends_of_key
from wirewise.feature_sets.packet import TUNNELS
from wirewise.feature_sets.sampling import DIRECTIONS
from wirewise.models import MAX_CLASSES, Bound, Bounded, Family, Model
from wirewise.models.random import (
    random_binary_bank,
    random_binary_mlp,
    random_fixed_point_mlp,
    random_quantized_mlp,
    random_tree_ensemble,
)
from wirewise.models.tree import LEAF, Tree, TreeEnsemble
from wirewise.units import format_duration

HASH_SEED = 5
END_OF_PCAP_NS = (1 << 32) * 10**9
WINDOWS = ("1us", "37us", "1ms", "50ms", "500ms", "1s", "1500ms", "1m", "2h")
# Limits of a program, made small, so that a small model is cut as a large one is (targets/ebpf/shapes.py).
SMALL_LIMITS = {
    "FUNCTION_INSTRUCTIONS": 90,
    "VERIFIED_OF_THE_REST": 0,
    "VERIFIED_LIMIT": 225,
    "SUBPROGRAM_LIMIT": 16,
}


@dataclass(frozen=True)
class Case:
    """All that decides what a packet comes to. `seed` gives it back. kind: the model's, in a word."""

    seed: str
    feature_set: FeatureSet
    model: Model
    policy: dict[str, Any]
    mode: str = "observe"
    shape: str = "auto"
    kind: str = ""
    small_limits: bool = False
    observe: tuple[tuple[str, int | None], ...] = ()
    """Classes that observe in enforce mode, for a time in nanoseconds or for ever."""

    @property
    def classes(self) -> list[str]:
        return [f"c{index}" for index in range(self.model.n_classes)]


def random_case(seed: str, packets: int) -> tuple[Case, list[TimedFrame]]:
    """A case and packets for it, both functions of `seed` and the number of packets alone."""
    random = Random(seed)
    feature_set = random_feature_set(random)
    feature_set = replace(feature_set, sharing=Random(f"sharing of {seed}").choice(SHARINGS))
    directed = ends_of_key(feature_set.key) == BIDIRECTIONAL
    feature_set = replace(feature_set, kept=random_kept(Random(f"kept of {seed}"), directed))
    sizes = Random(f"aggregates of {seed}")
    feature_set = replace(feature_set, aggregates_size=sizes.choice((4, 4, 8, 64, 4096, 65536)))
    fuzzer = random_fuzzer(random, feature_set)
    # Times may jump far ahead in a long run; pcap ends in 2106.
    frames = [frame for frame in fuzzer.packets(packets) if frame[0] < END_OF_PCAP_NS]
    model, kind = random_model(random, feature_set, frames)
    bounds = Random(f"bounds of {seed}")
    if bounds.random() < 0.2 and model.n_classes < MAX_CLASSES:
        model = random_bounds(bounds, model, observed_values(feature_set, frames[:400]))
    policy = with_streaks(Random(f"after of {seed}"), random_policy(random, model.n_classes))
    policy = with_evidence(Random(f"evidence of {seed}"), policy, feature_set.key)
    policy = with_steering(Random(f"steering of {seed}"), policy)
    policy = with_selectors(Random(f"selectors of {seed}"), policy)
    policy = with_denials(Random(f"denials of {seed}"), policy)
    policy = with_bans(Random(f"bans of {seed}"), policy)
    policy = with_metadata(Random(f"metadata of {seed}"), policy)
    shape = random.choice(("auto", "inline", "functions", "tail-calls", "tail-calls"))
    case = Case(
        seed=seed,
        feature_set=feature_set,
        model=model,
        policy=policy,
        mode=random.choice(("observe", "enforce", "enforce")),
        shape=shape_of_kind(kind, shape),
        kind=kind,
        small_limits=shape != "auto" and kind in CUT_KINDS and random.random() < 0.6,
        observe=random_observed(Random(f"observed of {seed}"), model.n_classes),
    )
    return case, frames


# -- feature sets


def spelled(name: str, field: str, *scope: str) -> str:
    """A feature as a set has it; of accumulators that give one sample, the second."""
    place = str(ACCUMULATORS[name].place or "")
    return f"{name}({', '.join(filter(None, (field, place, *scope)))})"


def random_feature(random: Random, directed: bool) -> str:
    """directed: flows have two directions, so a feature may be of one."""
    window = f"window={random.choice(WINDOWS)}" if random.random() < 0.5 else ""
    aggregates = [by for by in AGGREGATES if directed or by not in CLIENT_AGGREGATES]
    if window and random.random() < 0.4:
        window = f"by={random.choice(aggregates)}, {window}"
    previous = ", previous" if window and random.random() < 0.4 else ""
    direction = f"direction={random.choice(DIRECTIONS)}" if directed and random.random() < 0.5 else ""
    kind = random.random()
    if kind < 0.08:
        scope = ", ".join(part for part in (direction, window) if part)
        return f"count({scope}{previous})" if scope else "count"
    field = random.choice(list(FIELDS))
    if FIELDS[field].serial or (FIELDS[field].of_way and directed):
        return random_of_direction(random, FIELDS[field], directed)
    if FIELDS[field].of_way:
        field = "iat"
    if kind < 0.25 and not (FIELDS[field].identity or FIELDS[field].of_aggregates):
        return field
    if FIELDS[field].of_aggregates and "by=" not in window:
        window = f"by={random.choice(aggregates)}, window={random.choice(WINDOWS)}"
    timed = FIELDS[field].needs_time
    fitting = [a for a in ACCUMULATORS.values() if not a.of_serial]
    name = random.choice([a.name for a in fitting if a.of_identity or not FIELDS[field].identity])
    if ACCUMULATORS[name].at:
        field = f"{field}, {random.choice((1, 2, 3, 5, 32))}"
    if previous and ACCUMULATORS[name].of_sample:
        previous = ""
    scope = [field, *([direction] if not timed else []), window]
    return f"{name}({', '.join(part for part in scope if part)}{previous})"


def random_of_direction(random: Random, field: Field, directed: bool) -> str:
    """A feature of a field that each direction of a flow has for itself."""
    may_be_both = field.of_way and random.random() < 0.3
    scope = [f"direction={random.choice(DIRECTIONS)}"] if directed and not may_be_both else []
    if random.random() < 0.5:
        scope += [f"window={random.choice(WINDOWS)}", *(["previous"] if random.random() < 0.4 else [])]
    fitting = [a for a in ACCUMULATORS.values() if a.of_serial == field.serial]
    name = random.choice([a.name for a in fitting if not (a.of_sample and "previous" in scope)])
    return spelled(name, field.name, *scope)


def random_comparison(random: Random, spec: str) -> str:
    """The feature against its baseline, where it may have one and chance says so."""
    feature = Feature.parse(spec)
    learns = feature.accumulator is None or feature.accumulator.of_window
    if not feature.scope.by or feature.scope.previous or not learns or random.random() < 0.3:
        return spec
    span = format_duration(random.choice((8, 11, 12, 40, 4096)) * feature.scope.window_ns)
    return f"{random.choice(list(COMPARISONS))}({spec}, baseline={span})"


def random_feature_set(random: Random) -> FeatureSet:
    few_windows = random.random() < 0.8
    both_ways = [key for key in KEYS if ends_of_key(key) == BIDIRECTIONAL]
    key = random.choice(both_ways if random.random() < 0.4 else KEYS)
    directed = key in both_ways
    comparisons = Random(random.random())
    specs: list[str] = []
    windows: set[int] = set()
    for _ in range(random.choice((1, 2, 4, 8, 12, 12, 16, 24, 40))):
        spec = random_comparison(comparisons, random_feature(random, directed))
        window_ns = Feature.parse(spec).scope.window_ns
        if few_windows and window_ns and window_ns not in windows and len(windows) == 2:
            continue
        windows |= {window_ns} - {0}
        if spec not in specs:
            specs.append(spec)
    return FeatureSet.from_dict(
        {
            "name": "random",
            "key": key,
            "features": specs,
            "table_size": random.choice((4, 4, 8, 16, 64, 4096)),
            "idle_timeout": random.choice(("1us", "1ms", "40ms", "1s", "60s", "3h", "100h")),
            "grace": random.choice(("1ns", "1ms", "100ms", "10s", "200h")),
            "proven_packets": random.choice((1, 2, 4, 4, 50)),
            "decapsulate": sorted(
                {
                    *random.sample(TUNNELS, random.choice((0, 0, 1, 2, 3, 4))),
                    *(["gtp-u"] if key.endswith(TEID) else []),
                }
            ),
        }
    )


def random_kept(random: Random, directed: bool) -> tuple[Feature, ...]:
    """Features whose state is kept though the model need not read them; of one window at most."""
    if random.random() < 0.6:
        return ()
    specs = [random_feature(random, directed) for _ in range(random.choice((1, 3, 6)))]
    kept = [Feature.parse(random_comparison(random, spec)) for spec in specs]
    windows = sorted({f.scope.window_ns for f in kept} - {0})[:1]
    return tuple(f for f in kept if f.scope.window_ns in (0, *windows))


def random_fuzzer(random: Random, feature_set: FeatureSet) -> Fuzzer:
    times = {feature.scope.window_ns for feature in feature_set.features} - {0}
    times |= {feature_set.idle_timeout_ns, feature_set.grace_ns}
    return Fuzzer(
        random,
        times_ns=sorted(times),
        damage=random.choice((0.02, 0.12, 0.3)),
        strangers=random.choice((0, 0.05, 0.5)),
        jumps=random.choice((0.001, 0.02, 0.1, 0.4)),
        hosts=random.choice((2, 4, 20)),
        now_ns=random.choice((0, 1, 1_700_000_000 * 10**9)),
    )


# -- models

TREE_KINDS = (
    "one tree", "majority", "majority of many classes", "majority of many trees", "sum with one output",
    "sum of rows", "one-output trees", "rows and one-output trees", "deep", "lone leaves",
)  # fmt: skip
NETWORK_KINDS = (
    "int8", "int8 extreme", "q16", "q16 extreme", "q16 with ceilings", "binary", "binary extreme",
    "bank", "bank extreme",
)  # fmt: skip
MODEL_KINDS = TREE_KINDS + NETWORK_KINDS

# Those whose parts still fit a chain of tail calls and its nested calls under SMALL_LIMITS.
CUT_KINDS = tuple(
    kind for kind in MODEL_KINDS if kind not in ("deep", "majority of many trees", "bank", "bank extreme")
)


def shape_of_kind(kind: str, shape: str) -> str:
    """The shape, unless the kind has only one."""
    return "functions" if kind.startswith("bank") else shape


def random_model(random: Random, feature_set: FeatureSet, frames: Sequence[TimedFrame]) -> tuple[Family, str]:
    """A model and its kind; it may read only some of the features, the others are not computed then."""
    kind = random.choice(MODEL_KINDS)
    return model_of_kind(kind, random, feature_set, frames, all_features=random.random() < 0.85), kind


def model_of_kind(
    kind: str,
    random: Random,
    feature_set: FeatureSet,
    frames: Sequence[TimedFrame],
    *,
    all_features: bool = True,
) -> Family:
    """A model whose thresholds are values that the features have on these frames, or lie beside them; or a
    network whose inputs range over those values.
    """
    values = observed_values(feature_set, frames[:400])
    if kind in NETWORK_KINDS:
        return network_of_kind(kind, random, [(column[0], column[-1]) for column in values])
    rng = np.random.default_rng(random.getrandbits(64))
    n = len(feature_set.features)
    common = {"n_features": n, "n_trees": random.choice((1, 2, 5, 12)), "depth": random.choice((1, 3, 5, 7))}
    few, many = random.randint(2, 8), random.choice((9, 17, 64))
    model = {
        "one tree": lambda: random_tree_ensemble(
            rng, **common | {"n_trees": 1}, n_classes=2, votes="majority"
        ),
        "majority": lambda: random_tree_ensemble(rng, **common, n_classes=few, votes="majority"),
        "majority of many classes": lambda: random_tree_ensemble(
            rng, **common, n_classes=many, votes="majority"
        ),
        "majority of many trees": lambda: random_tree_ensemble(
            rng, n_features=n, n_trees=random.choice((255, 256)), depth=1, n_classes=few, votes="majority"
        ),
        "sum with one output": lambda: random_tree_ensemble(rng, **common, n_classes=2, n_outputs=1),
        "sum of rows": lambda: random_tree_ensemble(rng, **common, n_classes=few, one_output_trees=False),
        "one-output trees": lambda: random_tree_ensemble(rng, **common, n_classes=few, one_output_trees=True),
        "rows and one-output trees": lambda: random_tree_ensemble(rng, **common, n_classes=many),
        "deep": lambda: chain(random, n, depth=random.choice((40, 120)), n_classes=few),
        "lone leaves": lambda: random_tree_ensemble(rng, **common | {"depth": 0}, n_classes=few),
    }[kind]()
    if all_features:
        model = reading_all_features(random, model)
    return with_thresholds(random, model, values)


def random_bounds(random: Random, model: Family, values: Sequence[Sequence[int]]) -> Bounded:
    """The model, unknown outside of some values that the features have, so that packets lie on both sides."""
    features = random.sample(range(model.n_features), random.randint(1, min(4, model.n_features)))
    bounds = []
    for feature in sorted(features):
        ends = sorted(max(0, random.choice(values[feature]) + random.choice((-1, 0, 0, 1))) for _ in range(2))
        low, high = (0, (1 << 63) - 1) if random.random() < 0.1 else ends
        bounds.append(Bound(feature, low, high))
    return Bounded(model, tuple(bounds))


def network_of_kind(kind: str, random: Random, ranges: Sequence[tuple[int, int]]) -> Family:
    """A small network. ranges: of each feature's values."""
    rng = np.random.default_rng(random.getrandbits(64))
    family, extreme = kind.split()[0], kind.endswith("extreme")
    common: dict[str, Any] = {
        "n_features": len(ranges),
        "ranges": list(ranges),
        "layers": random.choice(((), (1,), (4,), (16, 16), (16, 16), (7, 5, 3), (33,))),
        "n_classes": random.choice((2, 2, 3, 8, 64)),
        "extreme": extreme,
    }
    if family == "bank":
        del common["n_classes"]
        common |= {"layers": common["layers"] or (70,), "same_inputs": random.random() < 0.5}
        bits = random.choice((1, 30, 120, 256))
        return random_binary_bank(rng, **common, networks=random.choice((2, 5, 64)), input_bits=bits)
    if family == "binary":
        return random_binary_mlp(rng, **common, input_bits=random.choice((1, 30, 120, 256)))
    if common["n_classes"] == 2:
        common["n_outputs"] = random.choice((1, 2))
    if family == "int8":
        return random_quantized_mlp(rng, **common)
    return random_fixed_point_mlp(rng, **common, ceilings=kind.endswith("ceilings"))


def reading_all_features(random: Random, model: TreeEnsemble) -> TreeEnsemble:
    """With one more tree that tests the features that no tree tests yet."""
    unused = sorted(set(range(model.n_features)) - set(model.used_features))
    if not unused:
        return model
    path = chain(random, model.n_features, depth=len(unused), n_classes=model.n_classes).trees[0]
    order = iter(unused)
    feature = tuple(f if f == LEAF else next(order) for f in path.feature)
    value, output = path.value, None
    if model.votes == "sum":
        alone = all(tree.output is not None for tree in model.trees)
        output = random.randrange(model.n_outputs) if alone else None
        width = 1 if alone else model.n_outputs
        # The other trees and the base use up 1 / (trees + 1) of the range each: this is what is left.
        value = tuple(v and tuple(random.randint(-1, 1) for _ in range(width)) for v in path.value)
    tree = Tree(feature, path.threshold, path.left, path.right, value, output)
    return replace(model, trees=(*model.trees, tree))


def chain(random: Random, n_features: int, *, depth: int, n_classes: int) -> TreeEnsemble:
    """A tree that is one long path."""
    inner = range(0, 2 * depth, 2)  # nodes 0, 2, 4, ...: each has a leaf and the next inner node
    nodes = 2 * depth + 1
    feature, left, right = [LEAF] * nodes, [LEAF] * nodes, [LEAF] * nodes
    for node in inner:
        feature[node] = random.randrange(n_features)
        left[node], right[node] = (node + 1, node + 2) if random.random() < 0.5 else (node + 2, node + 1)
    value = tuple(() if f != LEAF else (random.randrange(n_classes),) for f in feature)
    tree = Tree(tuple(feature), (0,) * nodes, tuple(left), tuple(right), value)
    return TreeEnsemble(n_features, n_classes, "majority", (tree,), n_classes, (0,) * n_classes)


def observed_values(feature_set: FeatureSet, frames: Sequence[TimedFrame]) -> list[list[int]]:
    """By feature, values it has on the frames."""
    extractor = Extractor(feature_set)
    rows = [row for time_ns, frame in frames if (row := extractor.process(frame, time_ns).features)]
    return [sorted(set(column)) for column in zip(*rows, strict=True)] or [[0]] * len(feature_set.features)


def with_thresholds(random: Random, model: TreeEnsemble, values: Sequence[Sequence[int]]) -> TreeEnsemble:
    extremes = (-(1 << 63), -1, 0, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 62, (1 << 63) - 1)

    def threshold(feature: int) -> int:
        if feature == LEAF:
            return 0
        if random.random() < 0.05:
            return random.choice(extremes)
        return random.choice(values[feature]) + random.choice((-1, 0, 0, 1))

    trees = tuple(
        Tree(t.feature, tuple(map(threshold, t.feature)), t.left, t.right, t.value, t.output)
        for t in model.trees
    )
    return TreeEnsemble(model.n_features, model.n_classes, model.votes, trees, model.n_outputs, model.base)


# -- policies


def random_policy(random: Random, n_classes: int) -> dict[str, Any]:
    """A policy file's content."""

    def action() -> Any:
        kind = random.choice(("pass", "drop", "count", "rate-limit"))
        if kind != "rate-limit":
            return kind
        rate = random.choice(("1/m", "10/s", "1000/s", "1000000/s"))
        return {"action": kind, "rate": rate, "burst": random.choice((1, 2, 20))}

    named = random.sample(range(n_classes), random.randint(1, n_classes))
    policy: dict[str, Any] = {"version": 1, "classes": {f"c{index}": action() for index in named}}
    trigger = random.choice(("every", "every", "packets", "interval", "first-n"))
    if trigger == "packets":
        policy["trigger"] = {
            "packets": random.sample([1, 2, 3, 4, 5, 8, 63, 64, 65, 128, 1023], random.randint(1, 6))
        }
    elif trigger == "interval":
        policy["trigger"] = {"interval": random.choice(("1ns", "1us", "10ms", "1s", "1h"))}
    elif trigger == "first-n":
        policy["trigger"] = {"first-n": random.choice((1, 2, 3, 10, 4294967295))}
    allow: dict[str, Any] = {}
    if random.random() < 0.3:
        prefixes = [
            "10.0.0.1/32", "10.0.0.2/31", "128.0.0.0/1", "0.0.0.0/2",
            "2001:db8::/127", "2001:db8:0:1::/64", "8000::/1",
        ]  # fmt: skip
        allow["prefixes"] = random.sample(prefixes, random.randint(1, 3))
    if random.random() < 0.3:
        allow["ports"] = random.sample(
            [22, "tcp/80", "udp/53", "udp/4789", "tcp/65535", 0], random.randint(1, 3)
        )
    if random.random() < 0.2:  # of captured packets none is of a connection
        allow["established"] = "true"
    if allow:
        policy["allow"] = allow
    if random.random() < 0.2:
        policy["essential"] = "drop"
    if random.random() < 0.3:
        policy["enforce_for"] = random.choice(("1ms", "10s", "1h"))
    if random.random() < 0.5:
        policy["malformed"] = "drop"
    if random.random() < 0.5:
        policy["events"] = {"rate": random.choice((0, "5/s", "1000000/s"))}
    return policy


def with_selectors(random: Random, policy: dict[str, Any]) -> dict[str, Any]:
    """The policy, sometimes with a trigger by headers."""
    if "trigger" in policy or random.random() < 0.5:
        return policy
    any_of = [
        {"port": 53}, {"port": "tcp/80"}, {"source_port": "udp/53"}, {"destination_port": 0},
        {"protocol": "udp"}, {"protocol": 1}, {"protocol": "icmpv6"}, {"tcp_flags": "syn"},
        {"tcp_flags": ["syn", "not-ack"]},
        {"tcp_flags": "not-ack"}, {"destination_port": 443, "tcp_flags": ["fin", "ack"]}, {"port": 65535},
    ]  # fmt: skip
    trigger: dict[str, Any] = {}
    if random.random() < 0.8:
        trigger["any"] = random.sample(any_of, random.randint(1, 8))
    if not trigger or random.random() < 0.6:
        trigger["every"] = random.choice((1, 2, 3, 10, 4294967295))
    return policy | {"trigger": trigger}


def random_observed(random: Random, n_classes: int) -> tuple[tuple[str, int | None], ...]:
    """Classes that `wirewised mode` has observe, sometimes."""
    if random.random() < 0.6:
        return ()
    observed = random.sample(range(n_classes), random.randint(1, n_classes))
    return tuple((f"c{index}", random.choice((None, 1, 10**6, 10**9, 3600 * 10**9))) for index in observed)


def with_streaks(random: Random, policy: dict[str, Any]) -> dict[str, Any]:
    """The policy, some of whose classes need several verdicts in a row, sometimes."""
    if random.random() < 0.5:
        return policy

    def rule(name: str, action: Any) -> Any:
        if name == "c0" or random.random() < 0.3:
            return action
        return (action if isinstance(action, dict) else {"action": action}) | {
            "after": random.choice((1, 2, 2, 3, 7, 15))
        }

    return policy | {"classes": {name: rule(name, action) for name, action in policy["classes"].items()}}


def _prefix(address: str, length: int) -> str:
    return str(ip_network(f"{address}/{length}", strict=False))


def with_denials(random: Random, policy: dict[str, Any]) -> dict[str, Any]:
    """The policy with a deny list, sometimes an empty one, sometimes."""
    if random.random() < 0.6:
        return policy
    deny: dict[str, Any] = {}
    if random.random() < 0.7:
        prefixes = [
            "10.0.0.1/32",
            "10.0.0.2/31",
            "192.0.0.0/3",
            "2001:db8::2/127",
            "2001:db8:0:1::/64",
            "c000::/2",
            # Lengths around those at which the data path's filter changes.
            *(_prefix("10.0.0.3", length) for length in (0, 1, 8, 18, 19, 23, 24, 25, 30)),
            *(_prefix("10.0.1.1", length) for length in (24, 25, 32)),
            *(_prefix("2001:db8::1", length) for length in (0, 17, 18, 39, 40, 41, 128)),
        ]
        deny["prefixes"] = random.sample(prefixes, random.randint(1, 3))
    if random.random() < 0.7:
        deny["ports"] = random.sample([22, "tcp/443", "udp/53", "udp/8080", 0], random.randint(1, 2))
    return policy | {"deny": deny}


def with_bans(random: Random, policy: dict[str, Any]) -> dict[str, Any]:
    """The policy, some of whose classes that drop or limit have the senders of their packets banned,
    sometimes.
    """
    if random.random() < 0.4:
        return policy
    # Data paths look up four kinds.
    kinds: list[dict[str, Any]] = [
        {"by": "source"},
        {"by": "pair"},
        {"by": "source-prefix"},
        {"by": "source-prefix", "ipv4": random.choice((1, 8, 31)), "ipv6": random.choice((1, 63, 65, 127))},
    ]

    def rule(action: Any) -> Any:
        rule = action if isinstance(action, dict) else {"action": action}
        if rule.get("action") not in ("drop", "rate-limit") or random.random() < 0.2:
            return action
        ban = random.choice(kinds) | {"for": random.choice(("1ms", "50ms", "1s", "1m", "720h"))}
        return rule | {"ban": ban | ({"spoofable": "true"} if random.random() < 0.5 else {})}

    return policy | {"classes": {name: rule(action) for name, action in policy["classes"].items()}}


def with_evidence(random: Random, policy: dict[str, Any], key: str) -> dict[str, Any]:
    """The policy, which asks for evidence against senders, sometimes. key : of flows."""
    key = key.partition("+")[0]
    whole = key.startswith("five-tuple")
    kinds = ["source"] if whole or key.startswith("source") else []
    kinds += ["pair"] if whole or key == "source-destination" else []
    kinds += ["service"] if whole else []
    if not kinds or random.random() < 0.5:
        return policy
    last = random.choice((1, 2, 5, 20, 255))
    return policy | {
        "evidence": {
            "by": random.choice(kinds), "last": last, "flows": random.randint(1, last),
            "threshold": f"{random.choice((1, 10, 33, 50, 80, 100))}%",
            "within": random.choice(("1ms", "40ms", "1s", "10m", "168h")),
        }
    }  # fmt: skip


def with_metadata(random: Random, policy: dict[str, Any]) -> dict[str, Any]:
    """The policy, which lets other programs see the verdicts, sometimes."""
    keys = random.choice(((), (), ("metadata",), ("metadata", "verdicts")))
    return policy | dict.fromkeys(keys, True)


def with_steering(random: Random, policy: dict[str, Any]) -> dict[str, Any]:
    """The policy, some of whose classes go elsewhere or are written on, sometimes."""
    if random.random() < 0.5:
        return policy

    def rule(action: Any) -> Any:
        if random.random() < 0.4:
            return action
        after = {"after": action["after"]} if isinstance(action, dict) and "after" in action else {}
        if random.random() < 0.25:
            return {"action": "challenge"} | after
        steered: dict[str, Any] = {
            "dscp": random.choice((0, 63, "AF41", "ef", "0x2a")),
            "mark": random.choice((0, 7, "0xffffffff")),
            "priority": random.choice((0, 4294967295)),
            "queue": random.choice((0, 65533)),
        }
        steered = {key: value for key, value in steered.items() if random.random() < 0.4}
        where = (
            random.choice(("", "", "bounce", "redirect", "forward", "backend"))
            if steered
            else random.choice(("bounce", "redirect", "forward", "backend"))
        )
        if where in ("bounce", "forward"):
            steered["action"] = where
        elif where == "backend":
            steered["backend"] = random.choice(list(POOLS))
        elif where:
            targets: list[dict[str, Any]] = [{"interface": "nowhere"}, {"cpu": [3, 700]}, {"socket": 1}]
            steered["redirect"] = random.choice(targets)
        if random.random() < 0.2:
            steered["mirror"] = {"interface": "nowhere", "rate": "1/3"}
        return steered | after

    classes = {name: rule(action) for name, action in policy["classes"].items()}
    used = {action["backend"] for action in classes.values() if "backend" in action}
    pools = {"pools": {name: POOLS[name] for name in sorted(used)}} if used else {}
    return policy | {"classes": classes} | pools


POOLS: dict[str, Any] = {
    "even": {
        "backends": [{"address": f"10.8.0.{host}", "mac": f"02:00:00:00:09:0{host}"} for host in range(1, 6)]
    },
    "odd": {
        "method": "dsr",
        "seed": 7,
        "backends": [
            {"address": "fd08::1", "mac": "02:00:00:00:09:0a", "weight": 7},
            {"address": "10.8.0.2", "mac": "02:00:00:00:09:0b"},
            {"address": "10.8.0.3", "drain": "true"},
        ],
    },
}
"""Few, so that the reference makes their tables once."""
