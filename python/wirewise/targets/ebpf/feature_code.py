# SPDX-License-Identifier: Apache-2.0
"""Lowers a feature set to ww_feature_set.h: options, flow state, accumulators, features.

What no feature of the set needs is not generated: no state, no code, no clock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from wirewise.abi import KEY_SIZE, SLOT_SIZE, TUNNEL_SIZE
from wirewise.feature_sets.accumulators import CELLS, COUNT_MAX, LINEAR_COUNTING, SKETCH_FULL, OfState, width
from wirewise.feature_sets.baseline import warm_windows, weighted_windows
from wirewise.feature_sets.feature_set import (
    AGGREGATES,
    Feature,
    FeatureSet,
    constant_feature,
    identifier,
)
from wirewise.feature_sets.fields import BIDIRECTIONAL, FIELDS, Field, ends_of_key
from wirewise.feature_sets.packet import TUNNELS
from wirewise.feature_sets.probes import words
from wirewise.feature_sets.sampling import Sampling
from wirewise.feature_sets.state import (
    Learned,
    StateLayout,
    Track,
    Window,
    bounds,
    finished_variable,
    layouts,
    previous_variable,
    track_suffix,
    way_variable,
)
from wirewise.formats.manifest import FlowFeature
from wirewise.targets.comments import comment
from wirewise.units import format_duration

ENTRY_ALIGNMENT = 32
CACHE_LINE = 64
CLAIM = "claim"
TIME_MAX = (1 << 64) - 1
_C_TYPES = {1: ctypes.c_uint8, 2: ctypes.c_uint16, 4: ctypes.c_uint32, 8: ctypes.c_uint64}


@dataclass(frozen=True)
class StateField:
    """One variable of struct ww_state: where it lies behind slot and key, as the bundle's manifest lists
    it.
    """

    name: str
    type: str
    offset: int


def state_fields(
    feature_set: FeatureSet, used: Collection[int] | None = None, by: str = ""
) -> list[StateField]:
    """The variables of a flow's state, or of an aggregate's, with their offsets in bytes from its start."""
    declared = _declarations(StateLayout.of(feature_set, used, by))
    struct = _structure(declared)
    fields = []
    for name, members in declared:
        at = getattr(struct, name).offset
        if isinstance(members, int):
            fields.append(StateField(name, f"u{8 * members}", at))
        else:
            inner = _structure(members)
            fields += [
                StateField(f"{name}.{n}", f"u{8 * size}", at + getattr(inner, n).offset)
                for n, size in members
            ]
    return fields


def flow_features(feature_set: FeatureSet, used: Collection[int] | None = None) -> list[FlowFeature]:
    """The features that a flow's state alone gives, those the model reads first, then those kept."""
    followed = {feature.spec: feature for feature in feature_set.followed(used) if not feature.scope.by}
    own = [f.spec for i, f in enumerate(feature_set.features) if used is None or i in used]
    found = []
    for feature in sorted(followed.values(), key=lambda f: f.spec not in own):
        scope, field, accumulator = feature.scope, feature.field, feature.accumulator
        prefix, sampling = "", feature.sampling
        samples = sampling.variable if sampling.counted else "intervals" if sampling.kind else "packets"
        if scope.window_ns:
            kind = "previous" if scope.previous else "current"
            prefix = f"{kind}_{format_duration(scope.window_ns)}."
            samples = f"{prefix}{sampling.variable}"
        if constant_feature(feature, feature_set.key) is not None:
            continue
        how, variable = OfState("value", ""), samples
        if scope.previous:
            variable = samples = f"{prefix}{previous_variable(feature)}"
        elif field is not None:
            if accumulator is None or accumulator.of_state is None:
                continue
            how = accumulator.of_state(bounds(feature, feature_set))
            variable = f"{prefix}{how.variable}_{track_suffix(field, scope.direction)}"
        found.append(
            FlowFeature(
                name=feature.name, unit=feature.unit, fraction_bits=feature.fraction_bits, how=how.how,
                variable=variable, samples=samples, shift=how.shift, drop=how.drop,
            )
        )  # fmt: skip
    return found


def claim_offset(feature_set: FeatureSet, used: Collection[int] | None = None) -> int | None:
    """Where the claim of a shared table's entry lies, in bytes from the start of the state; None if CPUs do
    not share the table.
    """
    if not feature_set.shared:
        return None
    struct = _structure(_declarations(StateLayout.of(feature_set, used), shared=True))
    return int(getattr(struct, CLAIM).offset)


def entry_size(
    feature_set: FeatureSet, ip_version: int, used: Collection[int] | None = None, by: str = ""
) -> int:
    """Bytes of one entry of the flow table, or of that of an aggregate: slot, key and state, rounded up so
    that entries share cache lines evenly.
    """
    shared = bool(by) or feature_set.shared
    state = ctypes.sizeof(_structure(_declarations(StateLayout.of(feature_set, used, by), shared)))
    tunnel = TUNNEL_SIZE if feature_set.tunnel_in_key and not by else 0
    size = SLOT_SIZE + KEY_SIZE[ip_version] + tunnel + state
    return -(-size // ENTRY_ALIGNMENT) * ENTRY_ALIGNMENT


def cache_lines(size: int) -> int:
    """How many lines of a processor's cache an entry of so many bytes takes."""
    return -(-size // CACHE_LINE)


def dear_features(feature_set: FeatureSet, used: Collection[int]) -> list[str]:
    """One sentence for each table whose entries would take a cache line less without one of its features."""
    found = []
    for by in ("", *feature_set.aggregates(used)):
        size = entry_size(feature_set, 4, used, by)
        saving = [
            feature_set.features[index].name
            for index in used
            if feature_set.features[index].scope.by == by
            and any(feature_set.features[other].scope.by == by for other in used if other != index)
            and cache_lines(entry_size(feature_set, 4, [i for i in used if i != index], by))
            < cache_lines(size)
        ]
        if saving:
            table = f"table by {by}" if by else "flow table"
            found.append(
                f"an entry of the {table} has {size} bytes, so it takes {cache_lines(size)} cache lines; "
                f"without {' or '.join(saving)} it would take one less"
            )
    return found


Members = list[tuple[str, int]]
"""Names with their bytes."""
Declarations = list[tuple[str, "int | Members"]]
"""The same of a state; a window's have members."""


def _declarations(layout: StateLayout, shared: bool = False) -> Declarations:
    """Members of struct ww_state in their order, the widest first, so that holes are few. The last is the
    claim, if CPUs share the flow tables.
    """
    variables = {"first_seen_ns": TIME_MAX} if layout.first_seen else {}
    variables |= {"flow_seen_ns": TIME_MAX} if layout.flow_gaps else {}
    variables |= {way_variable(way): TIME_MAX for way in layout.ways}
    variables |= dict(window.offset for window in layout.windows)
    for track in layout.tracks:
        variables |= track.variables
    for window in layout.windows:
        variables |= window.learned_variables
    variables |= {sampling.variable: COUNT_MAX for sampling in layout.counted} | layout.round_variables
    declared: Declarations = [*_members(variables)]
    for window in layout.windows:
        declared.append((f"current_{window.suffix}", _members(window.variables)))
        if window.previous:
            declared.append((f"previous_{window.suffix}", _members(window.previous_variables)))
    # A window is aligned as its first member, its widest.
    declared.sort(key=lambda item: item[1] if isinstance(item[1], int) else item[1][0][1], reverse=True)
    return [*declared, *([(CLAIM, 4)] if shared else [])]


def _members(variables: dict[str, int]) -> Members:
    sizes = [(name, width(largest)) for name, largest in variables.items()]
    return sorted(sizes, key=lambda item: item[1], reverse=True)


def _structure(declarations: Sequence[tuple[str, int | Members]]) -> type[ctypes.Structure]:
    fields = [(n, _C_TYPES[t] if isinstance(t, int) else _structure(t)) for n, t in declarations]
    return type("State", (ctypes.Structure,), {"_fields_": fields})


def feature_set_header(feature_set: FeatureSet, used: Collection[int], banner: str) -> str:
    """The text of ww_feature_set.h. used: indices of the features the model reads; nothing is generated
    for the others.
    """
    tables = [
        Table(by, layout, bool(by) or feature_set.shared, _samples_of(layout) if by else ())
        for by, layout in layouts(feature_set, used).items()
    ]
    return "\n".join(
        [
            banner,
            "#ifndef WW_FEATURE_SET_H",
            "#define WW_FEATURE_SET_H",
            "",
            *_options(feature_set, used),
            "",
            '#include "abi.h"',
            '#include "frame/arith.h"',
            '#include "classify/packet.h"',
            '#include "classify/probe.h"',
            '#include "classify/baseline.h"',
            '#include "classify/sketch.h"',
            "",
            *(line for table in tables for line in _table(table, feature_set, used)),
            *_extract_constants(feature_set, used),
            "#endif",
            "",
        ]
    )


@dataclass(frozen=True)
class Table:
    """A table of the program: of flows, or of what is kept `by` something, whose functions and structures
    have its name as a suffix.
    """

    by: str
    layout: StateLayout
    shared: bool
    samples: tuple[Field, ...] = ()
    """Of an aggregate: the fields whose values it gets, in the order of `sample`. Those that depend on its
    own times are not among them.
    """

    def sample(self, field: Field) -> str:
        """C expression of a packet's value, where the state is accounted and read."""
        return f"sample[{self.samples.index(field)}]" if field in self.samples else field.c

    def takes(self, sampling: Sampling) -> str:
        """C that is 1 if the packet is a sample, else 0; "" where each is."""
        kinds = {"iat": ["ww_is_not_0(c->packets - 1)"], "gap": ["c->is_gap"], "own": ["c->is_own"]}
        conditions = kinds.get(sampling.kind, [])
        conditions += [holds.format(x=self.sample(field)) for field, holds in sampling.conditions]
        # Without a branch: a register that is tested twice would keep the verifier's paths apart in between.
        return " & ".join(f"({each})" if len(conditions) > 1 else each for each in conditions)

    @property
    def packet(self) -> str:
        """C parameter that the values come from."""
        return "const __u32 *sample" if self.by else "const struct ww_packet *p"

    @property
    def suffix(self) -> str:
        return f"_{identifier(self.by)}" if self.by else ""

    @property
    def what(self) -> str:
        return f"of all packets with the same {self.by}" if self.by else "of a flow"


def _samples_of(layout: StateLayout) -> tuple[Field, ...]:
    read = [track.field for window in layout.windows for track in window.tracks]
    read += [f for window in layout.windows for s in window.counted for f, _ in s.conditions]
    read += [FIELDS["new_flow"]] if layout.flow_gaps else []
    return tuple({field.name: field for field in read if not field.needs_time}.values())


def _table(table: Table, feature_set: FeatureSet, used: Collection[int]) -> list[str]:
    return [
        *_structs(table),
        *(line for window in table.layout.windows for line in _roll(table, window, feature_set)),
        *_begin(table),
        *(_sample(table) if table.by else []),
        *_accumulate(table),
        *_extract(table, feature_set, used),
    ]


def _options(s: FeatureSet, used: Collection[int]) -> list[str]:
    key = ends_of_key(s.key)
    parts = {
        "SOURCE": key != "destination",
        "DESTINATION": key != "source",
        "TRANSPORT": key.startswith("five-tuple"),
        "VLAN": s.vlan_in_key,
    }
    values = {
        "WW_KEY_PARTS": f"({' | '.join(f'WW_PART_{part}' for part, has in parts.items() if has)})",
        "WW_KEY_BIDIRECTIONAL": int(key == BIDIRECTIONAL),
        "WW_KEY_VLAN": int(s.vlan_in_key),
        "WW_KEY_TEID": int(s.tunnel_in_key),
        **{f"WW_FLOW_KEY{version}": f"struct {_key_struct(s.tunnel_in_key, version)}" for version in (4, 6)},
        "WW_PDU_SESSION": int("gtp-u" in s.decapsulate and s.needs_pdu_session(used)),
        **{f"WW_DECAPSULATE_{t.upper().replace('-', '_')}": int(t in s.decapsulate) for t in TUNNELS},
        "WW_FEATURES": len(s.features),
        "WW_SHARED": int(s.shared),
        "WW_TABLE_SIZE": f"{s.table_size}U",
        "WW_IDLE_TIMEOUT_NS": f"{s.idle_timeout_ns}ULL",
        "WW_GRACE_NS": f"{s.grace_ns}ULL",
        "WW_PROVEN_PACKETS": f"{s.proven_packets}U",
        "WW_NEEDS_TIME": int(s.needs_time(used)),
        "WW_PROBES": int(s.needs_probe(used)),
        "WW_PAYLOAD": int(s.needs_payload(used)),
        "WW_QUESTION": int(s.needs_question(used)),
        "WW_PATHS": len(s.paths),
        "WW_AGGREGATES": len(s.aggregates(used)),
        **{f"WW_BY_{identifier(by).upper()}": int(by in s.aggregates(used)) for by in AGGREGATES},
        "WW_AGGREGATES_SIZE": f"{s.aggregates_size}U",
        "WW_AGGREGATES_IDLE_NS": f"{s.aggregates_idle_ns(used)}ULL",
        **_sketches(s, used),
    }
    return [f"#define {name} {value}" for name, value in values.items()]


def _key_struct(tunnel: bool, version: int) -> str:
    return f"ww_tunnel_key{version}" if tunnel else f"ww_key{version}"


def _sketches(s: FeatureSet, used: Collection[int]) -> dict[str, str | int]:
    """The table of `distinct`, where a feature needs it."""
    cells = [c for f in s.followed(used) if f.accumulator for c in f.accumulator.cells]
    if "distinct" not in cells:
        return {"WW_SKETCHES": 0}
    *partial, full = LINEAR_COUNTING
    return {
        "WW_SKETCHES": 1,
        "WW_SKETCH_FULL": SKETCH_FULL,
        "WW_LINEAR_COUNTING": ", ".join(map(str, partial)),
        "WW_LINEAR_COUNTING_FULL": full,
        "WW_LINEAR_COUNTING_SWITCH": partial[SKETCH_FULL],
    }


def _structs(table: Table) -> list[str]:
    lines = []
    members = []
    suffix = table.suffix
    for name, declared in _declarations(table.layout, table.shared):
        if isinstance(declared, int):
            members.append(f"\t__u{8 * declared} {name};")
            continue
        kind = f"struct ww_{name.replace('_', f'{suffix}_')}"
        lines += [f"{kind} {{", *(f"\t__u{8 * size} {n};" for n, size in declared), "};", ""]
        members.append(f"\t{kind} {name};")
    lines += [
        f"/* What is kept {table.what}; starts as zeros. */",
        f"struct ww_state{suffix} {{", *members, "};", "",
    ]  # fmt: skip
    for version in (4, 6):
        lines += [
            f"struct ww_entry{suffix}{version} {{",
            "\tstruct ww_slot slot;",
            f"\t{f'struct ww_key{version}' if table.by else f'WW_FLOW_KEY{version}'} key;",
            f"\tstruct ww_state{suffix} state;",
            f"}} __attribute__((aligned({ENTRY_ALIGNMENT})));",
            "",
            f"struct ww_bucket{suffix}{version} {{",
            f"\tstruct ww_entry{suffix}{version} entry[WW_WAYS];",
            "};",
            "",
        ]
    return lines


def _roll(table: Table, window: Window, feature_set: FeatureSet) -> list[str]:
    name, width_ns = window.suffix, f"{window.window_ns}ULL"
    averages: dict[str, str] = {}
    features = [
        f"\t\t\ts->previous_{name}.{previous_variable(feature)} = "
        f"{_expression(table, ended(feature), averages, feature_set)};"
        for feature in window.previous
    ]
    keep = [
        "\t\tif (passed == 1) {",
        *(f"\t\t\tconst __u64 {average} = {mean};" for average, mean in averages.items()),
        "" if averages else None,
        *features,
        "\t\t} else {",
        f"\t\t\t__builtin_memset(&s->previous_{name}, 0, sizeof(s->previous_{name}));",
        "\t\t}",
    ]
    return [
        f"/* Opens the tumbling window of {name} that the packet falls into. */",
        f"static __always_inline void ww_roll{table.suffix}_{name}(struct ww_state{table.suffix} *s,",
        "\t\t\t\t\t   const struct ww_context *c)",
        "{",
        f"\t__u64 offset = s->offset_{name} + c->elapsed_ns;",
        "",
        f"\tif (offset >= {width_ns}) {{",
        f"\t\t__u64 passed = offset / {width_ns};",
        "",
        *(f"\t{line}" for line in _learn(table, window, feature_set)),
        *(line for line in keep if window.previous and line is not None),
        f"\t\t__builtin_memset(&s->current_{name}, 0, sizeof(s->current_{name}));",
        f"\t\toffset -= passed * {width_ns};",
        "\t}",
        f"\ts->offset_{name} = offset;",
        "}",
        "",
    ]


def ended(feature: Feature) -> Feature:
    """The feature of the current window that, once this has ended, is one of the previous."""
    return replace(feature, scope=replace(feature.scope, previous=False))


def _learn(table: Table, window: Window, feature_set: FeatureSet) -> list[str]:
    """Statements that learn from a window which is over."""
    if not window.learned:
        return []
    finished = f"s->{finished_variable(window.window_ns)}"
    lines = [f"\t{finished} = ww_increment({finished}, 1);"]
    for each in window.learned:
        mean, spread = (f"s->{name}" for name in each.variables)
        value = _expression(table, each.rate, {}, feature_set)
        most, warm = weighted_windows(each.windows), warm_windows(each.windows)
        lines.append(f"\tww_learn(&{mean}, &{spread}, {value}, {finished}, {most}, {warm});")
    return lines


def _begin(table: Table) -> list[str]:
    layout = table.layout
    starts = ["first_seen_ns"] if layout.first_seen else []
    return [
        "/* The first packet: what does not start as zero. */",
        f"static __always_inline void ww_begin{table.suffix}(struct ww_state{table.suffix} *s,",
        "\t\t\t\t     const struct ww_context *c)",
        "{",
        *(f"\ts->{name} = c->now_ns;" for name in starts),
        "}",
        "",
    ]


def _places(track: Track, prefix: str) -> dict[str, str]:
    """Cell variable -> C lvalue."""
    suffix = track_suffix(track.field, track.direction)
    return {v: f"{prefix}{v}_{suffix}" for cell in track.cells for v in cell.variables}


def _sample(table: Table) -> list[str]:
    return [
        f"/* What the aggregate by {table.by} accumulates of a packet. c: its place in its flow. */",
        f"static __always_inline void ww_sample{table.suffix}(__u32 *sample, const struct ww_packet *p,",
        "\t\t\t\t\t   const struct ww_context *c)",
        "{",
        *(
            f"\tsample[{index}] = {field.c}; /* {comment(f'{field.name}, {field.unit}')} */"
            for index, field in enumerate(table.samples)
        ),
        "}",
        "",
    ]


def _counter(sampling: Sampling, prefix: str, window: bool) -> str:
    """C of how many samples a scope had."""
    if window or sampling.counted:
        return f"{prefix}{sampling.variable}"
    return "c->packets - 1" if sampling.kind else "c->packets"


def _count(table: Table, counted: tuple[Sampling, ...], prefix: str) -> list[str]:
    """Statements that count one packet in one scope."""
    counters = [(f"{prefix}{s.variable}", table.takes(s) or "1") for s in counted]
    return [f"\t{counter} = ww_increment({counter}, {takes});" for counter, takes in counters]


def _samples(table: Table, tracks: tuple[Track, ...], prefix: str, *, window: bool) -> list[str]:
    """Statements that account one packet in the tracks of one scope."""
    lines = []
    for sampling in sorted({track.sampling for track in tracks}):
        block = []
        for track in (t for t in tracks if t.sampling == sampling):
            updates = [cell.c(track.bounds) for cell in track.cells]
            places = _places(track, prefix)
            counted = any("{n}" in update for update in updates)
            block += [
                f"\t{{ /* {comment(f'{track.field.name}, {track.field.unit}')} */",
                f"\t\tconst __u32 x = {table.sample(track.field)};",
                *([f"\t\tconst __u32 n = {_counter(sampling, prefix, window)};"] if counted else []),
                "",
                *(
                    f"\t\t{text.format(x='ww_mix(x)' if cell.mixed else 'x', n='n', **places)}"
                    for cell, text in zip(track.cells, updates, strict=True)
                ),
                "\t}",
            ]
        if takes := table.takes(sampling):
            block = [f"\tif ({takes}) {{ /* else it is no sample of these */",
                     *("\t" + line if line else line for line in block), "\t}"]  # fmt: skip
        lines += block
    return lines


def _accumulate(table: Table) -> list[str]:
    layout = table.layout
    lines = [
        f"/* Accounts one packet in what is kept {table.what}. */",
        f"static __always_inline void ww_accumulate{table.suffix}(struct ww_state{table.suffix} *s,",
        f"\t\t\t\t\t  {table.packet},",
        "\t\t\t\t\t  struct ww_context *c)",
        "{",
    ]
    if layout.first_seen:
        lines.append("\tc->age_us = ww_microseconds(ww_elapsed(c->now_ns, s->first_seen_ns));")
    if layout.flow_gaps:
        lines += [
            f"\tif ({table.sample(FIELDS['new_flow'])}) {{",
            "\t\t__u64 passed = ww_elapsed(c->now_ns, s->flow_seen_ns);",
            "",
            "\t\tc->is_gap = ww_is_not_0(s->flow_seen_ns);",
            "\t\tc->gap_us = ww_microseconds(passed);",
            "\t\ts->flow_seen_ns += passed;",
            "\t}",
        ]
    for way in layout.ways:
        goes = "c->forward" if way == "forward" else "c->forward ^ 1"
        lines.append(f"\tww_go_way(&s->{way_variable(way)}, {goes}, c);")
    lines += _count(table, layout.counted, "s->")
    lines += _samples(table, layout.tracks, "s->", window=False)
    for window in layout.windows:
        current = f"s->current_{window.suffix}."
        lines.append(f"\tww_roll{table.suffix}_{window.suffix}(s, c);")
        lines += _count(table, window.counted, current)
        lines += _samples(table, window.tracks, current, window=True)
    if layout.paths:
        mask = sum(1 << path for path in layout.paths)
        lines += [
            f"\tc->whole = ww_take_probe(&s->delays_0, &s->whole_0, {words(layout.paths)}, {mask:#x}ULL,",
            "\t\t\t\t &s->round_seen, &s->round, p, c);",
        ]
    return [*lines, "}", ""]


def _extract(table: Table, feature_set: FeatureSet, used: Collection[int]) -> list[str]:
    lines = [
        "/* The features of the packet accounted last, in the order the model reads them. */",
        f"static __always_inline void ww_extract{table.suffix}(__s64 *x,",
        f"\t\t\t\t       const struct ww_state{table.suffix} *s,",
        f"\t\t\t\t       {table.packet}, const struct ww_context *c)",
        "{",
    ]
    averages: dict[str, str] = {}
    values = []
    for index, feature in enumerate(feature_set.features):
        if feature.scope.by != table.by:
            continue
        if index not in used:
            values.append(f"\t/* x[{index}], {comment(feature.name)}: the model does not read it */")
        elif constant_feature(feature, feature_set.key) is not None:
            values.append(f"\t/* x[{index}]: {comment(feature.name)}, a constant */")
        else:
            value = _expression(table, feature, averages, feature_set)
            values.append(f"\tx[{index}] = {value}; /* {comment(feature.label)} */")
    lines += [f"\tconst __u64 {name} = {mean};" for name, mean in averages.items()]
    return [*lines, *([""] if averages else []), *values, "}", ""]


def _extract_constants(feature_set: FeatureSet, used: Collection[int]) -> list[str]:
    return [
        "/* The same for every packet: models do not test them, so only a trace needs them. */",
        "static __always_inline void ww_extract_constants(__s64 *x)",
        "{",
        *(
            f"\tx[{index}] = {constant}; /* {comment(feature.label)} */"
            for index, feature in enumerate(feature_set.features)
            if index in used and (constant := constant_feature(feature, feature_set.key)) is not None
        ),
        "}",
        "",
    ]


def _expression(table: Table, feature: Feature, averages: dict[str, str], feature_set: FeatureSet) -> str:
    """C of one feature. A mean that it reads gets a variable in `averages`: divisions are dear, so each is
    done once.
    """
    if feature.against:
        return _comparison(table, feature, feature_set)
    scope, field, sampling = feature.scope, feature.field, feature.sampling
    prefix, suffix = "s->", ""
    if scope.window_ns:
        suffix = f"_{format_duration(scope.window_ns)}"
        if scope.previous:
            return f"s->previous{suffix}.{previous_variable(feature)}"
        prefix = f"s->current{suffix}."
    n = _counter(sampling, prefix, bool(scope.window_ns))
    if field is None:
        return n
    if feature.path is not None:
        return f"s->whole_{feature.path // 8} >> {feature.path % 8 * 8} & 255"
    if feature.accumulator is None:
        return field.c
    within = bounds(feature, feature_set)
    track = Track(within, tuple(CELLS[c] for c in feature.accumulator.cells), scope.direction)
    places = _places(track, prefix)
    n = f"({n})" if " " in n else n
    text = feature.accumulator.c(within)
    if "{average}" in text:
        places["average"] = f"average_{track_suffix(field, scope.direction)}{suffix}"
        averages[places["average"]] = f"ww_mean({places['sum']}, {n})"
    value = text.format(x=table.sample(field), n=n, **places)
    # Where there are samples, but this packet is none. (A flow's first packet comes before any of iat.)
    if feature.accumulator.of_sample and sampling.counted:
        return f"{value} & -(__s64)({table.takes(sampling)})"
    return value


def _comparison(table: Table, feature: Feature, feature_set: FeatureSet) -> str:
    """C of a feature that compares a window with its baseline."""
    assert feature.against is not None
    learned = Learned.of(feature)
    finished = f"s->{finished_variable(feature.scope.window_ns)}"
    mean, spread = (f"s->{name}" for name in learned.variables)
    value = feature.against.comparison.c.format(
        value=_expression(table, learned.rate, {}, feature_set), mean=mean, spread=spread
    )
    return f"ww_if_warm({value}, {finished}, {warm_windows(learned.windows)})"
