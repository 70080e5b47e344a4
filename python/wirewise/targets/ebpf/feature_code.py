# SPDX-License-Identifier: Apache-2.0
"""Lowers a feature set to ww_feature_set.h: options, flow state, accumulators, features.

What no feature of the set needs is not generated: no state, no code, no clock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from wirewise.features.accumulators import CELLS
from wirewise.features.feature_set import Feature, FeatureSet, constant_feature
from wirewise.features.packet import TUNNELS
from wirewise.features.state import StateLayout, Track, Window
from wirewise.units import format_duration

SLOT_SIZE, KEY_SIZE, ENTRY_ALIGNMENT = 16, {4: 16, 6: 40}, 32
CLAIM = "claim"
_C_TYPES = {"__u32": ctypes.c_uint32, "__u64": ctypes.c_uint64, "__s64": ctypes.c_int64}


@dataclass(frozen=True)
class StateField:
    """One variable of struct ww_state: where it lies behind slot and key, as the bundle's manifest lists
    it.
    """

    name: str
    type: str
    offset: int


def state_fields(feature_set: FeatureSet, used: Collection[int] | None = None) -> list[StateField]:
    """The variables of a flow's state with their offsets in bytes from the start of the state."""
    declared = _declarations(StateLayout.of(feature_set, used))
    struct = _structure(declared)
    fields = []
    for name, members in declared:
        at = getattr(struct, name).offset
        if isinstance(members, str):
            fields.append(StateField(name, members.strip("_"), at))
        else:
            inner = _structure(members)
            fields += [
                StateField(f"{name}.{n}", str(t).strip("_"), at + getattr(inner, n).offset)
                for n, t in members
            ]
    return fields


def claim_offset(feature_set: FeatureSet, used: Collection[int] | None = None) -> int | None:
    """Where the claim of a shared table's entry lies, in bytes from the start of the state; None if CPUs do
    not share the table.
    """
    if not feature_set.shared:
        return None
    struct = _structure(_declarations(StateLayout.of(feature_set, used), shared=True))
    return int(getattr(struct, CLAIM).offset)


def entry_size(feature_set: FeatureSet, ip_version: int, used: Collection[int] | None = None) -> int:
    """Bytes of one flow-table entry: slot, key and state, rounded up so that entries share cache lines
    evenly.
    """
    state = ctypes.sizeof(_structure(_declarations(StateLayout.of(feature_set, used), feature_set.shared)))
    size = SLOT_SIZE + KEY_SIZE[ip_version] + state
    return -(-size // ENTRY_ALIGNMENT) * ENTRY_ALIGNMENT


Declarations = list[tuple[str, "str | Declarations"]]


def _by_size(variables: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted(variables, key=lambda item: -ctypes.sizeof(_C_TYPES[item[1]]))


def _declarations(layout: StateLayout, shared: bool = False) -> Declarations:
    """Members of struct ww_state in their order: 8-byte variables, windows, 4-byte variables; no holes.
    The last is the claim, if CPUs share the flow tables.
    """
    variables = [("first_seen_ns", "__u64")] if layout.first_seen else []
    variables += [(f"start_{w.suffix}_ns", "__u64") for w in layout.windows]
    variables += [item for track in layout.tracks for item in track.variables.items()]
    wide = [v for v in variables if v[1] != "__u32"]
    narrow = [v for v in variables if v[1] == "__u32"]
    windows: Declarations = []
    for window in layout.windows:
        members: Declarations = [*_by_size(window.variables.items())]
        windows.append((f"current_{window.suffix}", members))
        if window.previous:
            windows.append((f"previous_{window.suffix}", members))
    return [*wide, *windows, *narrow, *([(CLAIM, "__u32")] if shared else [])]


def _structure(declarations: Declarations) -> type[ctypes.Structure]:
    fields = [(n, _C_TYPES[t] if isinstance(t, str) else _structure(t)) for n, t in declarations]
    return type("State", (ctypes.Structure,), {"_fields_": fields})


def feature_set_header(feature_set: FeatureSet, used: Collection[int], banner: str) -> str:
    """The text of ww_feature_set.h. used: indices of the features the model reads; nothing is generated
    for the others.
    """
    layout = StateLayout.of(feature_set, used)
    return "\n".join(
        [
            banner,
            "#ifndef WW_FEATURE_SET_H",
            "#define WW_FEATURE_SET_H",
            "",
            *_options(feature_set, used),
            "",
            '#include "wirewise/abi.h"',
            '#include "wirewise/arith.h"',
            '#include "wirewise/packet.h"',
            "",
            *_structs(layout, feature_set.shared),
            *(line for window in layout.windows for line in _roll(window)),
            *_begin(layout),
            *_accumulate(layout),
            *_extract(feature_set, used),
            "#endif",
            "",
        ]
    )


def _options(s: FeatureSet, used: Collection[int]) -> list[str]:
    transport = s.key.startswith("five-tuple")
    values = {
        "WW_KEY_SOURCE": int(s.key != "destination"),
        "WW_KEY_DESTINATION": int(s.key != "source"),
        "WW_KEY_TRANSPORT": int(transport),
        "WW_KEY_BIDIRECTIONAL": int(s.key == "five-tuple-bidirectional"),
        **{f"WW_DECAPSULATE_{t.upper().replace('-', '_')}": int(t in s.decapsulate) for t in TUNNELS},
        "WW_SHARED": int(s.shared),
        "WW_TABLE_SIZE": f"{s.table_size}U",
        "WW_IDLE_TIMEOUT_NS": f"{s.idle_timeout_ns}ULL",
        "WW_GRACE_NS": f"{s.grace_ns}ULL",
        "WW_PROVEN_PACKETS": f"{s.proven_packets}U",
        "WW_NEEDS_TIME": int(s.needs_time(used)),
    }
    return [f"#define {name} {value}" for name, value in values.items()]


def _structs(layout: StateLayout, shared: bool) -> list[str]:
    lines = []
    members = []
    for window in layout.windows:
        inner = [f"\t{t} {n};" for n, t in _by_size(window.variables.items())]
        lines += [f"struct ww_window_{window.suffix} {{", *inner, "};", ""]
    for name, declared in _declarations(layout, shared):
        kind = declared if isinstance(declared, str) else f"struct ww_window_{name.split('_')[1]}"
        members.append(f"\t{kind} {name};")
    lines += ["/* What is kept of a flow; starts as zeros. */", "struct ww_state {", *members, "};", ""]
    for version in (4, 6):
        lines += [
            f"struct ww_entry{version} {{",
            "\tstruct ww_slot slot;",
            f"\tstruct ww_key{version} key;",
            "\tstruct ww_state state;",
            f"}} __attribute__((aligned({ENTRY_ALIGNMENT})));",
            "",
            f"struct ww_bucket{version} {{",
            f"\tstruct ww_entry{version} entry[WW_WAYS];",
            "};",
            "",
        ]
    return lines


def _roll(window: Window) -> list[str]:
    name = window.suffix
    keep = [
        "\tif (passed == 1)",
        f"\t\ts->previous_{name} = s->current_{name};",
        "\telse",
        f"\t\t__builtin_memset(&s->previous_{name}, 0, sizeof(s->previous_{name}));",
    ]
    return [
        f"/* Opens the tumbling window of {name} that now falls into. */",
        f"static __always_inline void ww_roll_{name}(struct ww_state *s, __u64 now)",
        "{",
        f"\t__u64 passed = ww_elapsed(now, s->start_{name}_ns);",
        "",
        f"\tif (passed < {window.window_ns}ULL)",
        "\t\treturn;",
        f"\tpassed /= {window.window_ns}ULL;",
        *(keep if window.previous else []),
        f"\t__builtin_memset(&s->current_{name}, 0, sizeof(s->current_{name}));",
        f"\ts->start_{name}_ns += passed * {window.window_ns}ULL;",
        "}",
        "",
    ]


def _begin(layout: StateLayout) -> list[str]:
    starts = ["first_seen_ns"] if layout.first_seen else []
    starts += [f"start_{w.suffix}_ns" for w in layout.windows]
    return [
        "/* The flow's first packet: what does not start as zero. */",
        "static __always_inline void ww_begin(struct ww_state *s, const struct ww_context *c)",
        "{",
        *(f"\ts->{name} = c->now_ns;" for name in starts),
        "}",
        "",
    ]


def _places(track: Track, prefix: str) -> dict[str, str]:
    """Cell variable -> C lvalue."""
    return {v: f"{prefix}{v}_{track.field.name}" for cell in track.cells for v in cell.variables}


def _samples(tracks: tuple[Track, ...], prefix: str, n: str, n_iat: str) -> list[str]:
    """Statements that account one packet in the tracks of one scope."""
    lines = []
    for from_second in (False, True):
        block = []
        for track in (t for t in tracks if t.field.from_second == from_second):
            updates = [cell.c(track.field) for cell in track.cells]
            counted = any("{n}" in update for update in updates)
            block += [
                f"\t{{ /* {track.field.name}, {track.field.unit} */",
                f"\t\tconst __u32 x = {track.field.c};",
                *([f"\t\tconst __u32 n = {n_iat if from_second else n};"] if counted else []),
                "",
                *(f"\t\t{update.format(x='x', n='n', **_places(track, prefix))}" for update in updates),
                "\t}",
            ]
        if block and from_second:
            block = ["\tif (c->packets > 1) { /* the first packet is no sample of these */",
                     *("\t" + line if line else line for line in block), "\t}"]  # fmt: skip
        lines += block
    return lines


def _accumulate(layout: StateLayout) -> list[str]:
    lines = [
        "/* Accounts one packet in its flow's state. */",
        "static __always_inline void ww_accumulate(struct ww_state *s, const struct ww_packet *p,",
        "\t\t\t\t\t  struct ww_context *c)",
        "{",
    ]
    if layout.first_seen:
        lines.append("\tc->age_us = ww_microseconds(ww_elapsed(c->now_ns, s->first_seen_ns));")
    lines += _samples(layout.tracks, "s->", "c->packets", "c->packets - 1")
    for window in layout.windows:
        current = f"s->current_{window.suffix}."
        lines.append(f"\tww_roll_{window.suffix}(s, c->now_ns);")
        if window.counts:
            lines.append(f"\t{current}samples = ww_increment({current}samples, 1);")
        if window.counts_iat:
            lines.append(f"\t{current}samples_iat = ww_increment({current}samples_iat, c->packets > 1);")
        lines += _samples(window.tracks, current, f"{current}samples", f"{current}samples_iat")
    return [*lines, "}", ""]


def _extract(feature_set: FeatureSet, used: Collection[int]) -> list[str]:
    lines = [
        "/* The features of the packet accounted last, in the order the model reads them. */",
        "static __always_inline void ww_extract(__s64 *x, const struct ww_state *s,",
        "\t\t\t\t       const struct ww_packet *p, const struct ww_context *c)",
        "{",
    ]
    averages: dict[str, str] = {}
    values, constants = [], []
    for index, feature in enumerate(feature_set.features):
        if index not in used:
            values.append(f"\t/* x[{index}], {feature.name}: the model does not read it */")
            continue
        fraction = f", Q{feature.fraction_bits}" if feature.fraction_bits else ""
        note = f"/* {feature.name}, {feature.unit}{fraction} */"
        constant = constant_feature(feature, feature_set.key)
        if constant is not None:
            constants.append(f"\tx[{index}] = {constant}; {note}")
            values.append(f"\t/* x[{index}]: {feature.name}, a constant */")
            continue
        values.append(f"\tx[{index}] = {_expression(feature, averages)}; {note}")
    lines += [f"\tconst __u64 {name} = {mean};" for name, mean in averages.items()]
    return [
        *lines,
        *([""] if averages else []),
        *values,
        "}",
        "",
        "/* The same for every packet: models do not test them, so only a trace needs them. */",
        "static __always_inline void ww_extract_constants(__s64 *x)",
        "{",
        *constants,
        "}",
        "",
    ]


def _expression(feature: Feature, averages: dict[str, str]) -> str:
    """C of one feature. A mean that it reads gets a variable in `averages`: divisions are dear, so each is
    done once.
    """
    scope, field = feature.scope, feature.field
    prefix, n, n_iat = "s->", "c->packets", "(c->packets - 1)"
    suffix = ""
    if scope.window_ns:
        suffix = f"_{'previous' if scope.previous else 'current'}_{format_duration(scope.window_ns)}"
        prefix = f"s->{suffix[1:]}."
        n, n_iat = f"{prefix}samples", f"{prefix}samples_iat"
    if field is None:
        return n
    if feature.accumulator is None:
        return field.c
    places = {v: f"{prefix}{v}_{field.name}" for c in feature.accumulator.cells for v in CELLS[c].variables}
    n = n_iat if field.from_second else n
    text = feature.accumulator.c(field)
    if "{average}" in text:
        places["average"] = f"average_{field.name}{suffix}"
        averages[places["average"]] = f"ww_mean({places['sum']}, {n})"
    return text.format(x=field.c, n=n, **places)
