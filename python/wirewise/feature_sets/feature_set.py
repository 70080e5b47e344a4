# SPDX-License-Identifier: Apache-2.0
"""Feature sets: an ordered list of named integer features over a flow key.

    FeatureSet.from_dict({"name": "small", "features": ["length", "mean(length)", "max(iat, window=500ms)"]})

A feature is `field`, `accumulator(field)`, `count` (packets of the flow), each but the first with
`window=DURATION` and then `previous`: the last finished tumbling window instead of the current one. Window
0 of a flow opens with its first packet. With `by=KEY` before the window, it is accumulated not over the
flow's packets but over all packets that have the same source, service, client and server or other of
AGGREGATES: an aggregate. `ratio(FEATURE, baseline=10m)` and others of COMPARISONS compare what a window of an
aggregate has so far with what is usual there.
"""

from __future__ import annotations

import hashlib
import json
import re
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from wirewise import html
from wirewise.abi import MAX_FEATURES
from wirewise.arguments import check_fields
from wirewise.errors import InputError, choose, did_you_mean
from wirewise.feature_sets.accumulators import ACCUMULATORS, COUNT_MAX, PLACES, Accumulator
from wirewise.feature_sets.baseline import COMPARISONS, LENGTHS, Comparison
from wirewise.feature_sets.fields import BIDIRECTIONAL, FIELDS, TEID, VLAN, Field, ends_of_key
from wirewise.feature_sets.packet import TUNNELS
from wirewise.feature_sets.probes import MAX_PATHS
from wirewise.feature_sets.sampling import DIRECTIONS, Sampling
from wirewise.files import parse_yaml, read_text
from wirewise.names import is_feature_name, is_set_name
from wirewise.registry import Registry
from wirewise.units import format_duration, parse_duration

_DIRECTIONAL = ("five-tuple", "source", "destination", "source-destination")
_WITHOUT_TUNNEL = tuple(key + vlan for vlan in ("", VLAN) for key in (*_DIRECTIONAL, BIDIRECTIONAL))
KEYS = (
    *_WITHOUT_TUNNEL,
    *(key + TEID for key in _WITHOUT_TUNNEL if not key.startswith(BIDIRECTIONAL)),
)
CLIENT_AGGREGATES = ("pair", "client-port", "hosts")
"""Of AGGREGATES, those that know a flow's client, who sent its first packet: client, server and the server's
port and protocol; these without the server; client and server alone. Both directions are one entry, so the
flow key must join them too."""
AGGREGATES = ("source", "destination", "service", *CLIENT_AGGREGATES)
"""What packets of several flows can be accumulated by, besides their flow's key."""
SHARINGS = ("shared", "per-cpu")
MAX_TABLE_SIZE = 1 << 24
ROUND, PROBE_DELAY = "round", "probe_delay"

T = TypeVar("T")

_SPEC = re.compile(r"([a-z_]+)(?:\((.*)\))?")
_COMPARED = re.compile(r"([a-z_]+)\((.*),\s*baseline=([^,()]*)\)")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


@dataclass(frozen=True)
class Scope:
    """Over what samples are accumulated: the flow (window_ns 0) or a tumbling window, the current or the
    previous. by : one of AGGREGATES, or "" for the flow's own packets. direction : of DIRECTIONS, that of the
    packets in their flow, or "" for both.
    """

    window_ns: int = 0
    previous: bool = False
    by: str = ""
    direction: str = ""

    def __str__(self) -> str:
        parts = [f"direction={self.direction}"] if self.direction else []
        parts += [f"by={self.by}"] if self.by else []
        parts += [f"window={format_duration(self.window_ns)}"] if self.window_ns else []
        parts += ["previous"] if self.previous else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Against:
    """What the rest of a feature is compared with: its own baseline, learned over span_ns."""

    comparison: Comparison
    span_ns: int


@dataclass(frozen=True)
class Feature:
    """One feature. name "": one made of the rest. field None: the number of packets. accumulator None: the
    packet's own value. against : None, or what the value in the current window is compared with.
    """

    name: str
    field: Field | None
    accumulator: Accumulator | None
    scope: Scope = Scope()
    path: int | None = None
    """Of the probe in the last whole round, whose value it is."""
    against: Against | None = None

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", _default_name(self))
        if not is_feature_name(self.name):
            raise InputError(f"feature name {self.name!r}: use lower-case letters, digits and _")

    def __repr__(self) -> str:
        return f"<Feature {self.name!r}: {self.spec}, {self.unit}>"

    @property
    def spec(self) -> str:
        """The canonical text; `Feature.parse` reads it back."""
        if self.against:
            span = format_duration(self.against.span_ns)
            return f"{self.against.comparison.name}({self.compared.spec}, baseline={span})"
        scope = str(self.scope)
        if self.field is None:
            return f"count({scope})" if scope else "count"
        if self.path is not None:
            return f"{ROUND}({self.field.name}, path={self.path})"
        if self.accumulator is None:
            return self.field.name
        place = str(self.accumulator.place or "")
        return f"{self.accumulator.name}({', '.join(filter(None, (self.field.name, place, scope)))})"

    @property
    def compared(self) -> Feature:
        """The feature without its baseline."""
        return replace(self, name="", against=None)

    @property
    def baseline_windows(self) -> int:
        """The baseline's length in windows."""
        return self.against.span_ns // self.scope.window_ns if self.against else 0

    @property
    def sampling(self) -> Sampling:
        """Which packets are samples of what it accumulates."""
        return Sampling.of(self.field, self.scope.direction)

    @property
    def unit(self) -> str:
        if self.against:
            return self.against.comparison.unit
        if self.field is None:
            return "packets"
        return self.accumulator.unit(self.field.unit) if self.accumulator else self.field.unit

    @property
    def fraction_bits(self) -> int:
        """Fractional bits of the integer: 16 where the value is a ratio."""
        if self.against:
            return self.against.comparison.fraction_bits
        return self.accumulator.fraction_bits(self.field) if self.accumulator and self.field else 0

    @property
    def label(self) -> str:
        """For comments in generated code: name, unit and, if it has any, fractional bits."""
        fraction = f", Q{self.fraction_bits}" if self.fraction_bits else ""
        return f"{self.name}, {self.unit}{fraction}"

    @property
    def minimum(self) -> int:
        return 0

    @property
    def maximum(self) -> int:
        if self.against:
            return self.against.comparison.maximum
        if self.field is None:
            return COUNT_MAX
        return self.accumulator.maximum(self.field) if self.accumulator else self.field.maximum

    @classmethod
    def parse(cls, text: str | dict[str, str]) -> Feature:
        """A feature from `spec` or `{"name": ..., "is": spec}`. Raises InputError."""
        if isinstance(text, dict):
            if set(text) != {"name", "is"}:
                raise InputError(f"feature {text!r}: write {{name: NAME, is: SPEC}} or the spec alone")
            feature = cls.parse(str(text["is"]))
            if not _NAME.fullmatch(str(text["name"])):
                raise InputError(
                    f"feature name {text['name']!r}: use lower-case letters, digits and _, 63 at most"
                )
            return replace(feature, name=str(text["name"]))
        spec = str(text).strip()
        if compared := _COMPARED.fullmatch(spec):
            return _parse_comparison(spec, *compared.groups())
        match = _SPEC.fullmatch(spec)
        if match is None:
            raise InputError(
                f"feature {spec!r}: expected FIELD, ACCUMULATOR(FIELD) or ACCUMULATOR(FIELD, window=500ms)"
            )
        if match[1] in COMPARISONS:
            raise InputError(
                f"feature {spec!r}: {match[1]} compares a rate with what is usual; "
                f"write {match[1]}(count(by=destination, window=1s), baseline=10m)"
            )
        head, arguments = match[1], [a.strip() for a in match[2].split(",")] if match[2] is not None else []
        target: Field | None = None
        accumulator: Accumulator | None = None
        if head == "count" and (not arguments or arguments[0].startswith(("window", "by", "direction="))):
            scope = _parse_scope(spec, arguments)
        elif head == ROUND:
            return _parse_round(spec, arguments)
        elif match[2] is None or head == "last":
            target = _lookup(spec, arguments[0] if arguments else head, FIELDS, "packet field")
            scope = _parse_scope(spec, arguments[1:])
            if scope != Scope():
                raise InputError(
                    f"feature {spec!r}: a packet's own value has no window or direction; accumulate it, as "
                    "in max(...)"
                )
            _refuse_identity(spec, target)
            _refuse_without_by(spec, target, scope)
            _refuse_of_direction(spec, target, None, scope)
        else:
            accumulator = _lookup(spec, head, ACCUMULATORS, "accumulator")
            target = _lookup(spec, arguments[0], FIELDS, "packet field")
            if accumulator.at:
                accumulator = accumulator.at(_parse_place(spec, target, arguments))
                del arguments[1]
            scope = _parse_scope(spec, arguments[1:])
            _refuse_of_direction(spec, target, accumulator, scope)
            if not accumulator.of_identity:
                _refuse_identity(spec, target)
            if scope.direction and target.needs_time and not target.of_way:
                raise InputError(
                    f"feature {spec!r}: {target.name} is a time of the flow, not of one direction; leave out "
                    "direction=, or take own_iat"
                )
            _refuse_without_by(spec, target, scope)
            if scope.previous and accumulator.of_sample:
                raise InputError(
                    f"feature {spec!r}: {head} compares with the current packet; drop `previous`"
                )
        return cls("", target, accumulator, scope)


def _parse_comparison(spec: str, name: str, inner: str, span: str) -> Feature:
    comparison = _lookup(spec, name, COMPARISONS, "comparison")
    feature = Feature.parse(inner)
    scope = feature.scope
    if not scope.by or feature.against or not (feature.accumulator is None or feature.accumulator.of_window):
        rates = ", ".join(f"{a.name}(FIELD, ...)" for a in ACCUMULATORS.values() if a.of_window)
        raise InputError(
            f"feature {spec!r}: a baseline is of count(...), {rates} with by= and window=, not of {inner}"
        )
    if scope.previous:
        raise InputError(f"feature {spec!r}: {name} compares the current window; drop `previous`")
    span_ns = parse_duration(span, what=f"feature {spec!r}, baseline")
    if span_ns // scope.window_ns not in LENGTHS:
        least, most = (format_duration(length * scope.window_ns) for length in (LENGTHS[0], LENGTHS[-1]))
        raise InputError(
            f"feature {spec!r}: a baseline takes {LENGTHS[0]} to {LENGTHS[-1]} windows; "
            f"give baseline={least} to {most}"
        )
    return replace(feature, name="", against=Against(comparison, span_ns))


def _parse_round(spec: str, arguments: list[str]) -> Feature:
    match = re.fullmatch(r"path=(0|[1-9][0-9]?)", arguments[1]) if len(arguments) == 2 else None
    if match is None or arguments[0] != PROBE_DELAY or int(match[1]) >= MAX_PATHS:
        raise InputError(
            f"feature {spec!r}: a round is of probes of paths 0 to {MAX_PATHS - 1}; "
            f"write {ROUND}({PROBE_DELAY}, path=0)"
        )
    return Feature("", FIELDS[PROBE_DELAY], None, path=int(match[1]))


def _lookup(spec: str, name: str, registry: dict[str, T], kind: str) -> T:
    if name not in registry:
        raise InputError(f"feature {spec!r}: no {kind} {name!r}; {choose(name, registry)}")
    return registry[name]


def _refuse_identity(spec: str, field: Field) -> None:
    if field.identity:
        raise InputError(
            f"feature {spec!r}: {field.name} only tells hosts or flows apart, and a model would learn "
            f"them by heart; count them: distinct({field.name}, by=destination, window=1s)"
        )


def _refuse_without_by(spec: str, field: Field, scope: Scope) -> None:
    if field.of_aggregates and not scope.by:
        raise InputError(
            f"feature {spec!r}: {field.name} is between flows, and one flow has none; "
            f"write mean({field.name}, by=source, window=10m)"
        )


def _parse_place(spec: str, field: Field, arguments: list[str]) -> int:
    text = arguments[1] if len(arguments) > 1 else ""
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) not in PLACES:
        raise InputError(
            f"feature {spec!r}: it gives one sample, by its number from 1 to {PLACES[-1]}; write "
            f"at({field.name}, 3)"
        )
    return int(text)


def _refuse_of_direction(spec: str, field: Field, accumulator: Accumulator | None, scope: Scope) -> None:
    if field.serial != (accumulator is not None and accumulator.of_serial):
        serial = next(f.name for f in FIELDS.values() if f.serial)
        repeats = next(a.name for a in ACCUMULATORS.values() if a.of_serial)
        what = f"{field.name} goes round" if field.serial else f"{field.name} is not a serial number"
        raise InputError(f"feature {spec!r}: {what}; write {repeats}({serial}, direction=forward)")
    if (field.serial or field.of_way) and scope.by:
        raise InputError(
            f"feature {spec!r}: each direction of each flow has its own {field.name}; leave out by="
        )


def _parse_scope(spec: str, arguments: list[str]) -> Scope:
    window_ns, previous, by, direction = 0, False, "", ""
    for argument in arguments:
        if argument.startswith("by=") and not by:
            by = argument.removeprefix("by=")
            if by not in AGGREGATES:
                raise InputError(f"feature {spec!r}: nothing is kept by {by!r}; {choose(by, AGGREGATES)}")
        elif argument.startswith("direction=") and not direction:
            direction = argument.removeprefix("direction=")
            if direction not in DIRECTIONS:
                raise InputError(
                    f"feature {spec!r}: no direction {direction!r}; {choose(direction, DIRECTIONS)}"
                )
        elif argument.startswith("window=") and not window_ns:
            text = argument.removeprefix("window=")
            if re.fullmatch(r"0+(\.0*)?[a-z]*", text):
                raise InputError(
                    f"feature {spec!r}: a window of 0 has no samples to divide by; try window=500ms"
                )
            window_ns = parse_duration(text, what=f"feature {spec!r}, window")
        elif argument == "previous" and window_ns and not previous:
            previous = True
        else:
            raise InputError(
                f"feature {spec!r}: {argument!r} is not by={'|'.join(AGGREGATES)}, window=DURATION or, "
                f"behind it, previous, nor direction={'|'.join(DIRECTIONS)}"
            )
    if by and not window_ns:
        raise InputError(
            f"feature {spec!r}: what is kept by {by} is of many flows, so it needs a window; add window=1s"
        )
    return Scope(window_ns, previous, by, direction)


def identifier(by: str) -> str:
    """One of AGGREGATES as names of features and of C have it."""
    return by.replace("-", "_")


def _default_name(feature: Feature) -> str:
    if feature.against:
        span = format_duration(feature.against.span_ns)
        return f"{feature.against.comparison.name}_{feature.compared.name}_{span}"
    parts = ["previous"] if feature.scope.previous else []
    parts += [feature.accumulator.label] if feature.accumulator else []
    parts += [feature.field.name] if feature.field else ["count"]
    parts += [f"of_path_{feature.path}"] if feature.path is not None else []
    parts += [format_duration(feature.scope.window_ns)] if feature.scope.window_ns else []
    parts += [f"by_{identifier(feature.scope.by)}"] if feature.scope.by else []
    parts += [feature.scope.direction] if feature.scope.direction else []
    return "_".join(parts)


def constant_feature(feature: Feature, key: str) -> int | None:
    """The value of a feature that is the same for every packet under a flow key, so that it needs neither
    state nor code; None: it varies.
    """
    value = feature.field.constant(key) if feature.field else None
    if value is None or feature.accumulator is None:
        return value
    if feature.scope.previous:  # a previous window may have had no packets
        return None
    return feature.accumulator.of_constant(value) if feature.accumulator.of_constant else None


def _set_name_of(source: str) -> str:
    """The name of a feature set that states none: that of its file, as far as the characters allow."""
    stem = "".join(c if c == " " or is_set_name(c) else "-" for c in Path(source).stem[:200])
    return stem.strip() or "unnamed"


def default_sharing(key: str) -> str:
    """Whether CPUs share the flow tables if the feature set does not say.

    A network card spreads packets over CPUs by their addresses and ports, as they stand: all packets of a
    directional five-tuple come to one CPU. Of every other key some go elsewhere.
    """
    return "per-cpu" if ends_of_key(key) == "five-tuple" else "shared"


@dataclass(frozen=True)
class FeatureSet:
    """What is computed per flow, and how flows are kept. See docs/feature-sets.md.

    features : of class Feature, or their text, such as "mean(length)". key : one of KEYS.
    idle_timeout_ns : a flow not seen for longer starts again. table_size : entries of the flow table, a power
    of two, for IPv4 and for IPv6 each. sharing : one of SHARINGS, whether all CPUs share that table or each
    has one of its own; "" is `default_sharing(key)`. decapsulate : of TUNNELS. aggregates_size : entries, a
    power of two, of the table of each aggregate, for IPv4 and IPv6 each. grace_ns, proven_packets : an entry
    with so many packets, seen within the grace time, is not given up for a new flow. kept : features whose
    state each flow has too, before that of the others, though no model needs to read them; only their specs
    count.
    """

    name: str
    features: tuple[Feature, ...]
    key: str = "five-tuple"
    idle_timeout_ns: int = 60_000_000_000
    table_size: int = 65536
    decapsulate: tuple[str, ...] = ()
    grace_ns: int = 10_000_000_000
    proven_packets: int = 4
    sharing: str = ""
    kept: tuple[Feature, ...] = ()
    aggregates_size: int = 16384
    doc: str = field(default="", compare=False)

    if TYPE_CHECKING:  # the fields are tuples of features, whatever they were given as

        def __init__(
            self,
            name: str,
            features: Sequence[Feature | str],
            key: str = ...,
            idle_timeout_ns: int = ...,
            table_size: int = ...,
            decapsulate: Sequence[str] = ...,
            grace_ns: int = ...,
            proven_packets: int = ...,
            sharing: str = ...,
            kept: Sequence[Feature | str] = ...,
            aggregates_size: int = ...,
            doc: str = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        check_fields(self, beside=("features", "kept"))
        for attribute in ("features", "kept"):
            object.__setattr__(self, attribute, self._parsed(attribute, getattr(self, attribute)))
        object.__setattr__(self, "decapsulate", tuple(self.decapsulate))
        if not is_set_name(self.name):
            raise InputError(
                f"feature set name {self.name!r}", "is not one",
                "use 1 to 200 letters, digits, spaces and . _ - + ( ) , :",
            )  # fmt: skip
        where = f"feature set {self.name!r}"
        names = self.feature_names
        if not 1 <= len(names) <= MAX_FEATURES:
            raise InputError(f"{where}: {len(names)} features; there must be 1 to {MAX_FEATURES}")
        if len(set(names)) < len(names):
            twice = sorted({n for n in names if names.count(n) > 1})
            raise InputError(
                f"{where}: feature {twice[0]!r} stands twice; "
                "leave one out or name it: {name: ..., is: ...}"
            )
        if self.key not in KEYS:
            if self.key.endswith(TEID) and self.key.removesuffix(TEID) in _WITHOUT_TUNNEL:
                raise InputError(
                    f"{where}: no flow of key {self.key!r} would have both directions, as each has a TEID of "
                    f"its own; leave out {TEID}, or take five-tuple{TEID}"
                )
            raise InputError(f"{where}: no flow key {self.key!r}; {choose(self.key, KEYS)}")
        if self.tunnel_in_key and "gtp-u" not in self.decapsulate:
            raise InputError(
                f"{where}: key {self.key!r} reads the TEID of GTP-U, which is not looked into; "
                "add decapsulate: [gtp-u]"
            )
        if ends_of_key(self.key) != BIDIRECTIONAL:
            for feature in (*self.features, *self.kept):
                if feature.scope.by in CLIENT_AGGREGATES:
                    raise InputError(
                        f"{where}: feature {feature.spec!r}",
                        f"under key {self.key!r} answers are not of the client's flow, and would look like "
                        "another client's packets",
                        f"add key: {BIDIRECTIONAL}, or take by=source, by=destination or by=service",
                    )  # fmt: skip
        for what, size in (("table_size", self.table_size), ("aggregates_size", self.aggregates_size)):
            if not 4 <= size <= MAX_TABLE_SIZE or size & (size - 1):
                raise InputError(f"{where}: {what} {size} must be a power of two from 4 to {MAX_TABLE_SIZE}")
        if not self.sharing:
            object.__setattr__(self, "sharing", default_sharing(self.key))
        if self.sharing not in SHARINGS:
            raise InputError(
                f"{where}: no flow table sharing {self.sharing!r}; {choose(self.sharing, SHARINGS)}"
            )
        for tunnel in self.decapsulate:
            if tunnel not in TUNNELS:
                raise InputError(f"{where}: cannot look into tunnel {tunnel!r}; {choose(tunnel, TUNNELS)}")
        directed = [f.spec for f in self.followed() if f.scope.direction]
        if directed and ends_of_key(self.key) != BIDIRECTIONAL:
            raise InputError(
                f"{where}: {directed[0]} is of one direction, but a flow of key {self.key!r} has only one; "
                f"leave out direction=, or take key: {BIDIRECTIONAL}"
            )
        single = [f.spec for f in self.followed() if f.field and f.field.of_way]
        if single and ends_of_key(self.key) != BIDIRECTIONAL:
            raise InputError(
                f"{where}: {single[0]}: a flow of key {self.key!r} has one direction; write iat, or take "
                f"key: {BIDIRECTIONAL}"
            )
        mixed = [f.spec for f in self.followed() if f.field and f.field.serial and not f.scope.direction]
        if mixed and ends_of_key(self.key) == BIDIRECTIONAL:
            raise InputError(
                f"{where}: {mixed[0]} would mix the numbers of two directions; add direction=forward or "
                "direction=backward"
            )
        if not 1 <= self.proven_packets <= COUNT_MAX:
            raise InputError(f"{where}: proven_packets must be 1 or more, not {self.proven_packets}")

    def _parsed(self, attribute: str, given: object) -> tuple[Feature, ...]:
        if not isinstance(given, list | tuple):
            raise InputError(
                f"feature set {self.name!r}", f"{attribute} is of type {type(given).__name__}",
                'give a list such as ["length", "mean(length)"]',
            )  # fmt: skip
        return tuple(one if isinstance(one, Feature) else Feature.parse(one) for one in given)

    def __repr__(self) -> str:
        return f"<FeatureSet {self.name!r}: {len(self.features)} features of each {self.key} flow>"

    def _repr_html_(self) -> str:
        rows = ((f.name, f.spec, f.unit, f.fraction_bits or "") for f in self.features)
        return html.fragment(
            html.paragraph(repr(self)),
            html.table(("feature", "is", "unit", "fraction bits"), rows, right=(3,)),
        )

    @property
    def shared(self) -> bool:
        """All CPUs share the flow tables."""
        return self.sharing == "shared"

    @property
    def tunnel_in_key(self) -> bool:
        """The flow key has the TEID of GTP-U."""
        return self.key.endswith(TEID)

    @property
    def vlan_in_key(self) -> bool:
        """The flow key has the ids of the VLAN tags."""
        return self.key.removesuffix(TEID).endswith(VLAN)

    @property
    def feature_names(self) -> list[str]:
        return [feature.name for feature in self.features]

    def needs_time(self, used: Collection[int] | None = None) -> bool:
        """Some feature (or some of those used, by index, or kept) reads microseconds, so the fine clock is
        needed.
        """
        if self.needs_probe(used):
            return True
        return any(f.scope.window_ns or (f.field and f.field.needs_time) for f in self.followed(used))

    def needs_probe(self, used: Collection[int] | None = None) -> bool:
        """Some feature, as above, reads probes."""
        return bool(self.paths) or any(f.field and f.field.needs_probe for f in self.followed(used))

    @property
    def paths(self) -> tuple[int, ...]:
        """Of the probes whose rounds are kept; with any, a model runs when a round is whole, only then."""
        read = {f.path for f in (*self.kept, *self.features) if f.path is not None}
        return tuple(sorted(read))

    def needs_pdu_session(self, used: Collection[int] | None = None) -> bool:
        """Some feature, as above, reads GTP-U's PDU session container."""
        return any(f.field and f.field.needs_pdu_session for f in self.followed(used))

    def needs_payload(self, used: Collection[int] | None = None) -> bool:
        """Some feature, as above, reads the payload's first bytes."""
        return any(f.field and f.field.needs_payload for f in self.followed(used))

    def needs_question(self, used: Collection[int] | None = None) -> bool:
        """Some feature, as above, reads the question of DNS messages."""
        return any(f.field and f.field.needs_question for f in self.followed(used))

    def followed(self, used: Collection[int] | None = None) -> tuple[Feature, ...]:
        """The features whose state a flow has: those kept, then all others, or those used, by index."""
        return (*self.kept, *(f for i, f in enumerate(self.features) if used is None or i in used))

    def aggregates(self, used: Collection[int] | None = None) -> tuple[str, ...]:
        """Of AGGREGATES: by what the features (or those used, by index, or kept) accumulate."""
        wanted = {feature.scope.by for feature in self.followed(used)}
        return tuple(by for by in AGGREGATES if by in wanted)

    def aggregates_idle_ns(self, used: Collection[int] | None = None) -> int:
        """An aggregate not seen for longer starts again: as a flow does, but not before its windows, the
        previous ones where they are read, and its baselines' lengths are over.
        """
        kept = [feature for feature in self.followed(used) if feature.scope.by]
        times = [f.scope.window_ns * (1 + f.scope.previous) for f in kept]
        times += [f.against.span_ns for f in kept if f.against]
        return max(self.idle_timeout_ns, *times, 0)

    @property
    def digest(self) -> str:
        """sha256 (hex) of the canonical JSON: equal digests compute equal features."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """JSON form, version 1; `from_dict` reads it back."""
        return {
            "version": 1,
            "name": self.name,
            "key": self.key,
            "idle_timeout": format_duration(self.idle_timeout_ns),
            "table_size": self.table_size,
            "flow_table": {"sharing": self.sharing},
            "decapsulate": list(self.decapsulate),
            "grace": format_duration(self.grace_ns),
            "proven_packets": self.proven_packets,
            **({"aggregates_size": self.aggregates_size} if self.aggregates() else {}),
            **({"keeps": [f.spec for f in self.kept]} if self.kept else {}),
            "features": [{"name": f.name, "is": f.spec} for f in self.features],
        }

    def to_yaml(self) -> str:
        """The same as a file to edit, with what each line means; `load` reads it back as an equal set."""
        comments = {
            "idle_timeout": "a flow not seen for longer starts again",
            "table_size": "flows for each IP version, a power of two",
            "flow_table": "shared: one table for all CPUs; per-cpu: one for each",
            "decapsulate": "tunnels to look into",
            "grace": "how long a proven flow keeps its place without packets",
            "proven_packets": "from this packet on a flow is proven",
            "aggregates_size": "sources, destinations, services, pairs, ..., where a feature is kept by them",
            "keeps": "state of these is kept with each flow, whatever the model reads",
        }
        lines = [f"# {line}" for line in textwrap.wrap(" ".join(self.doc.split()), 100)]
        for key, value in self.to_dict().items():
            if key == "features":
                continue
            text = json.dumps(value) if isinstance(value, str | list) else str(value)
            if isinstance(value, dict):
                text = "{" + ", ".join(f"{name}: {each}" for name, each in value.items()) + "}"
            line = f"{key}: {text}"
            lines.append(f"{line:<32}# {comments[key]}" if key in comments else line)
        entries = [f"  - {{name: {json.dumps(f.name)}, is: {json.dumps(f.spec)}}}" for f in self.features]
        width = max(map(len, entries)) + 2
        lines += ["features:"]
        lines += [
            f"{entry.ljust(width)}# {feature.unit}"
            for entry, feature in zip(entries, self.features, strict=True)
        ]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_dict(cls, data: object, *, source: str = "feature set") -> FeatureSet:
        """A feature set from its JSON or YAML form. Raises InputError naming `source`."""
        if not isinstance(data, dict):
            raise InputError(
                f"{source}: expected keys and values (name, key, features, ...), not {type(data).__name__}"
            )
        known = {
            "version",
            "name",
            "key",
            "idle_timeout",
            "table_size",
            "flow_table",
            "decapsulate",
            "grace",
            "proven_packets",
            "aggregates_size",
            "keeps",
            "features",
        }
        unknown = sorted(set(map(str, data)) - known)
        if unknown:
            raise InputError(f"{source}: unknown key {unknown[0]!r}; {choose(unknown[0], sorted(known))}")
        if data.get("version", 1) != 1:
            raise InputError(
                f"{source}: version {data['version']!r} is not known to this wirewise; it reads version 1"
            )
        features = data.get("features")
        if not isinstance(features, list):
            raise InputError(f"{source}: `features` must be a list such as [length, mean(length)]")
        kept = data.get("keeps", [])
        if not isinstance(kept, list):
            raise InputError(f"{source}: `keeps` must be a list of features such as [mean(length)]")
        decapsulate = data.get("decapsulate", [])
        if not isinstance(decapsulate, list):
            raise InputError(f"{source}: `decapsulate` must be a list such as [gtp-u]")
        numbers = {}
        for key in ("table_size", "proven_packets", "aggregates_size"):
            if key in data:
                if type(data[key]) is not int:
                    raise InputError(f"{source}: {key} must be a whole number, not {data[key]!r}")
                numbers[key] = data[key]
        for key, attribute in (("idle_timeout", "idle_timeout_ns"), ("grace", "grace_ns")):
            if key in data:
                numbers[attribute] = parse_duration(data[key], what=f"{source}, {key}")
        table = data.get("flow_table", {})
        if not isinstance(table, dict) or set(table) - {"sharing"}:
            raise InputError(
                f"{source}: `flow_table` must be {{sharing: {' | '.join(SHARINGS)}}}, not {table!r}"
            )
        try:
            return cls(
                name=str(data["name"]) if "name" in data else _set_name_of(source),
                features=tuple(Feature.parse(f) for f in features),
                key=str(data.get("key", "five-tuple")),
                decapsulate=tuple(map(str, decapsulate)),
                sharing=str(table.get("sharing", "")),
                kept=tuple(Feature.parse(f) for f in kept),
                **numbers,
            )
        except InputError as error:
            raise InputError(f"{source}: {error}") from error

    @classmethod
    def load(cls, name_or_path: str | Path) -> FeatureSet:
        """A preset by name, or a YAML (or JSON) file. Raises InputError."""
        if str(name_or_path) in PRESETS:
            return PRESETS[str(name_or_path)]
        path = Path(name_or_path)
        presets = ", ".join(PRESETS)
        if not path.exists():
            raise InputError(
                str(path), "is neither a preset nor a file",
                f"{did_you_mean(path, PRESETS)}give a YAML file or a preset ({presets})",
            )  # fmt: skip
        try:
            document = parse_yaml(read_text(path, what="feature set"))
        except ValueError as error:
            rule = f"is not YAML: {error}"
            raise InputError(str(path), rule, "docs/feature-sets.md has an example") from error
        return cls.from_dict(document, source=str(path))


PRESETS: Registry[FeatureSet] = Registry("preset", lambda preset: preset.name)
"""Feature sets that go by their names; `wirewise.feature_sets.presets` has those of papers."""
