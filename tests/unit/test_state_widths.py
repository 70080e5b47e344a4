# SPDX-License-Identifier: Apache-2.0
"""Each variable of a flow's state is as wide as its largest number; the reference never holds a larger."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fields import ALONE
from tests.parity import frames
from wirewise.feature_sets import FIELDS, PRESETS, Extractor, FeatureSet
from wirewise.feature_sets.accumulators import ACCUMULATORS, CELLS, COUNT_MAX, SUM_MAX, Bounds, Cell, width
from wirewise.feature_sets.fields import Field
from wirewise.feature_sets.packet import MAX_LENGTH
from wirewise.feature_sets.state import FlowState, StateLayout, previous_variable
from wirewise.targets.ebpf import cache_lines, dear_features, entry_size, state_fields
from wirewise.units import format_duration

MS, SECOND = 10**6, 10**9
FRAME = frames.ethernet(
    frames.ipv4(bytes(4), bytes(4), frames.UDP, frames.udp(1, 2, 8), length=28), frames.IPV4
)
SCOPES = tuple(product((0, 500 * MS, 10 * SECOND), (1, 1000, MS, 60 * SECOND, 100 * 3600 * SECOND)))
"""Windows, 0 without one, and idle timeouts."""


@pytest.mark.parametrize("cell", CELLS.values(), ids=lambda cell: cell.name)
def test_a_sample_leads_from_no_state_within_the_widths_out_of_them(cell: Cell) -> None:
    """By induction, as a blank state lies within them, nothing ever does."""
    for field, (window_ns, idle_ns) in product(FIELDS.values(), SCOPES):
        bounds = Bounds.of(field, window_ns, idle_ns)
        assert 0 <= bounds.sample <= field.maximum
        # `deviations` reads the sum.
        largest = {name: of(bounds) for name, of in cell.variables.items()} | {"sum": bounds.total}
        values = [sorted({0, min(1, most), most // 2, max(0, most - 1), most}) for most in largest.values()]
        samples = (1 << 32) - 1 if cell.mixed else bounds.sample
        for found in product(*values):
            for x, n in product({0, samples // 2, samples}, (1, 2, COUNT_MAX)):
                state = dict(zip(largest, found, strict=True))
                cell.update(state, x, n, bounds)
                for name, most in largest.items():
                    assert 0 <= state[name] <= most, (field.name, window_ns, idle_ns, found, x, n)


def _within(state: FlowState, layout: StateLayout) -> None:
    for values, tracks in (
        (state.flow, layout.tracks),
        *((state.current[window.window_ns], window.tracks) for window in layout.windows),
    ):
        for track in tracks:
            for cell in track.cells:
                for name, of in cell.variables.items():
                    value = values.cells[track.field.name, track.direction][name]
                    assert 0 <= value <= of(track.bounds), (track, name)


@given(
    st.sampled_from((1000, 3 * MS, 40 * MS, SECOND, 60 * SECOND)),
    st.sampled_from((MS, 500 * MS, SECOND)),
    st.sampled_from(("per-cpu", "shared")),
    st.lists(
        st.one_of(
            st.sampled_from((0, 1, 999, 1000, -1, -MS, -SECOND)),
            st.sampled_from(("idle", "window")).flatmap(
                lambda what: st.tuples(st.just(what), st.sampled_from((-1, 0, 1)))
            ),
        ),
        min_size=1,
        max_size=40,
    ),
)
def test_times_between_packets_add_up_to_no_more_than_the_clock_allows(
    idle_ns: int, window_ns: int, sharing: str, steps: list[int | tuple[str, int]]
) -> None:
    """However late the packets come: no sum is ever cut off at its bound, so it means what it says."""
    window, names = format_duration(window_ns), ("iat", "iat_or_zero")
    specs = [f"{of}({name}, window={window})" for name in names for of in ("sum", "max", "variance", "min")]
    features = [*specs, *names, f"count(window={window})"]
    feature_set = FeatureSet("times", features, idle_timeout_ns=idle_ns, sharing=sharing)
    extractor, time_ns = Extractor(feature_set), 100 * SECOND
    layout = extractor.layouts[""]
    added, start_ns, last_ns = dict.fromkeys(names, 0), 0, -1
    for step in steps:
        if isinstance(step, tuple):
            time_ns += {"idle": idle_ns, "window": window_ns}[step[0]] + step[1]
        else:
            time_ns += step
        seen = extractor.process(FRAME, max(0, time_ns))
        assert seen.features is not None and seen.entry is not None
        values = dict(zip(feature_set.feature_names, seen.features, strict=True))
        if seen.packets == 1 or seen.entry.state.start_ns[window_ns] != start_ns:
            added = dict.fromkeys(names, 0)
        start_ns = seen.entry.state.start_ns[window_ns]
        for name in names:
            added[name] += values[name]
            assert values[f"sum_{name}_{window}"] == added[name]
        assert seen.packets == 1 or seen.entry.last_seen_ns >= last_ns
        last_ns = seen.entry.last_seen_ns
        offset = seen.entry.last_seen_ns - start_ns
        (of,) = layout.windows
        assert 0 <= offset <= of.offset[1]
        _within(seen.entry.state, layout)


@pytest.mark.parametrize(
    ("number", "size"), [(0, 1), (255, 1), (256, 2), (65535, 2), (65536, 4), (COUNT_MAX, 4), (SUM_MAX, 8)]
)
def test_the_smallest_type_that_holds_a_number(number: int, size: int) -> None:
    assert width(number) == size


@pytest.mark.parametrize(
    ("field", "window_ns", "idle_ns", "sample", "total"),
    [
        ("ttl", 0, 60 * SECOND, 255, 255 * COUNT_MAX),
        ("tcp_syn", SECOND, 60 * SECOND, 1, COUNT_MAX),
        ("length", SECOND, 60 * SECOND, MAX_LENGTH, SUM_MAX),
        ("iat", 0, 60 * SECOND, 60_000_000, SUM_MAX),
        ("iat", 500 * MS, 60 * SECOND, 60_000_000, 60_500_000),
        ("iat", 500 * MS, 100 * 3600 * SECOND, COUNT_MAX, 360_000_500_000),
        ("duration", 500 * MS, 60 * SECOND, COUNT_MAX, SUM_MAX),
    ],
)
def test_what_samples_come_to(field: str, window_ns: int, idle_ns: int, sample: int, total: int) -> None:
    assert Bounds.of(FIELDS[field], window_ns, idle_ns) == Bounds(FIELDS[field], sample, total)


def test_a_previous_window_is_kept_as_its_features() -> None:
    fields = {field.name: field.type for field in state_fields(PRESETS["galvao2026"])}
    assert fields == {
        "current_500ms.squares_iat": "u64",
        "current_500ms.sum_iat": "u32",
        "current_500ms.mean_iat": "u32",
        "current_500ms.samples_iat": "u32",
        "previous_500ms.mean_iat": "u64",
        "previous_500ms.variance_iat": "u64",
        "offset_500ms": "u32",
    }


def test_bytes_of_the_presets_entries() -> None:
    """What docs/feature-sets.md and docs/architecture.md say."""
    sizes = {
        name: [entry_size(preset, 4, None, by) for by in ("", *preset.aggregates())]
        for name, preset in PRESETS.items()
    }
    assert sizes == {
        "hara2023": [64], "flood": [64, 96], "intrusion": [128, 96, 96], "unsw2015": [64, 96, 96, 64],
        "hara2026": [96], "siracusano2022": [64], "galvao2026": [96], "pairs": [224, 96, 96, 128, 96, 96],
    }  # fmt: skip


def test_what_is_finished_is_never_larger_than_its_type() -> None:
    for accumulator in ACCUMULATORS.values():
        fields: list[Field] = [f for f in FIELDS.values() if f.identity <= accumulator.of_identity]
        for field in fields:
            assert width(accumulator.maximum(field)) <= 8
    layout = StateLayout.of(
        FeatureSet("finished", ["mean(ttl, window=1s, previous)", "max(ttl, window=1s, previous)"])
    )
    (window,) = layout.windows
    assert [previous_variable(feature) for feature in window.previous] == ["max_ttl", "mean_ttl"]
    assert window.previous_variables == {"max_ttl": 255, "mean_ttl": 255 << 16}


def test_a_feature_that_costs_a_cache_line_is_named() -> None:
    features = ["sum(length)", "sum(payload_length)", "variance(length)", "variance(payload_length)"]
    features = [*features, "max(length)", "min(length)", "mean(iat)"]
    feature_set = FeatureSet("seven", features)
    used = range(len(features))
    assert cache_lines(entry_size(feature_set, 4)) == 2 and not dear_features(feature_set, used)
    more = FeatureSet("eight", [*features, "variance(iat)"])
    while cache_lines(entry_size(more, 4)) == 2:
        more = FeatureSet("more", [*(f.spec for f in more.features), f"sum({_unused(more)})"])
    (said,) = dear_features(more, range(len(more.features)))
    assert "3 cache lines" in said and more.features[-1].name in said


def _unused(feature_set: FeatureSet) -> str:
    read = {feature.field.name for feature in feature_set.features if feature.field}
    return next(name for name in ALONE if name not in read)
