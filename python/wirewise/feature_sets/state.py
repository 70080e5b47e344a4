# SPDX-License-Identifier: Apache-2.0
"""The state a feature set keeps with each flow, and each aggregate of flows: only what its features need.

Both the reference (`FlowState`) and the lowering (a C struct) are made from the one `StateLayout`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from wirewise.errors import InputError
from wirewise.feature_sets.accumulators import CELLS, COUNT_MAX, Bounds, Cell, State
from wirewise.feature_sets.baseline import Usual, warm_windows
from wirewise.feature_sets.feature_set import Feature, FeatureSet, constant_feature
from wirewise.feature_sets.fields import FIELDS, Context, Field
from wirewise.feature_sets.probes import Rounds, words
from wirewise.feature_sets.sampling import DIRECTIONS, Sampling
from wirewise.units import format_duration


@dataclass(frozen=True)
class Track:
    """Cells of one field in one scope, in the order in which a sample updates them. direction : of the
    packets that are samples; "" for both.
    """

    bounds: Bounds
    cells: tuple[Cell, ...]
    direction: str = ""

    @property
    def field(self) -> Field:
        return self.bounds.field

    @property
    def sampling(self) -> Sampling:
        return Sampling.of(self.field, self.direction)

    @property
    def variables(self) -> dict[str, int]:
        """Variable of the state -> the largest number that it holds."""
        suffix = track_suffix(self.field, self.direction)
        return {f"{v}_{suffix}": of(self.bounds) for cell in self.cells for v, of in cell.variables.items()}


def track_suffix(field: Field, direction: str) -> str:
    """What the variables of a field's cells end with."""
    return f"{field.name}_{direction}" if direction else field.name


@dataclass(frozen=True)
class Learned:
    """A baseline that is kept: of what, a feature without one, and its length in windows."""

    rate: Feature
    windows: int

    @classmethod
    def of(cls, feature: Feature) -> Learned:
        return cls(feature.compared, feature.baseline_windows)

    @property
    def variables(self) -> dict[str, int]:
        """As in `Track`; those of the mean and of the spread."""
        return {f"{what}_{self.rate.name}_{self.windows}": (1 << 64) - 1 for what in ("usual", "spread")}


@dataclass(frozen=True)
class Window:
    """State of one tumbling window length: of the current window all that its features need; of the previous
    one no more than its features, which are computed when it ends.

    counted : the numbers of samples that are kept. previous : features, under their default names. learned :
    from the windows that are over.
    """

    window_ns: int
    tracks: tuple[Track, ...]
    counted: tuple[Sampling, ...]
    previous: tuple[Feature, ...] = ()
    learned: tuple[Learned, ...] = ()

    @property
    def suffix(self) -> str:
        return format_duration(self.window_ns)

    @property
    def offset(self) -> tuple[str, int]:
        """The variable that says how long after the window's start the last packet came, in nanoseconds, and
        the largest number that it holds.
        """
        return f"offset_{self.suffix}", self.window_ns - 1

    @property
    def variables(self) -> dict[str, int]:
        """The current window's, as in `Track`."""
        counts = {sampling.variable: COUNT_MAX for sampling in self.counted}
        return {v: n for track in self.tracks for v, n in track.variables.items()} | counts

    @property
    def previous_variables(self) -> dict[str, int]:
        """The previous window's, as in `Track`."""
        return {previous_variable(feature): feature.maximum for feature in self.previous}

    @property
    def learned_variables(self) -> dict[str, int]:
        """What is learned, as in `Track`."""
        variables = {v: n for each in self.learned for v, n in each.variables.items()}
        return variables | ({finished_variable(self.window_ns): COUNT_MAX} if self.learned else {})


def way_variable(way: str) -> str:
    """Where the state keeps when a direction's latest packet came."""
    return f"{way}_seen_ns"


def finished_variable(window_ns: int) -> str:
    """Where the state keeps how many windows are over, if something is learned from them."""
    return f"finished_{format_duration(window_ns)}"


def previous_variable(feature: Feature) -> str:
    """Where the state keeps a feature of the previous window."""
    if feature.field is None or feature.accumulator is None:
        return feature.sampling.variable
    return f"{feature.accumulator.label}_{track_suffix(feature.field, feature.scope.direction)}"


@dataclass(frozen=True)
class StateLayout:
    """All state of a flow, or of an aggregate, behind its slot and key."""

    key: str
    tracks: tuple[Track, ...]
    windows: tuple[Window, ...]
    first_seen: bool
    flow_gaps: bool = False
    """The time at which the aggregate's latest flow began is kept."""
    ways: tuple[str, ...] = ()
    """Of DIRECTIONS, those whose latest packet's time is kept."""
    paths: tuple[int, ...] = ()
    """Of probes, whose rounds are kept."""
    counted: tuple[Sampling, ...] = ()
    """Of the whole flow, besides its packets: the numbers of samples that are kept."""

    @classmethod
    def of(cls, feature_set: FeatureSet, used: Collection[int] | None = None, by: str = "") -> StateLayout:
        """The state of a feature set's flows, or of what it keeps `by` something; of all its features, or of
        those (indices) that a model reads; and of those that it keeps.
        """
        cells: dict[int, dict[tuple[str, str], list[str]]] = {}
        counts: dict[int, set[Sampling]] = {}
        previous: dict[int, dict[str, Feature]] = {}
        learned: dict[int, dict[Learned, None]] = {}
        followed = [feature for feature in feature_set.followed(used) if feature.scope.by == by]
        idle_ns = idle_of(feature_set, by)
        for feature in followed:
            if constant_feature(feature, feature_set.key) is not None:
                continue
            window_ns = feature.scope.window_ns
            fields = cells.setdefault(window_ns, {})
            if feature.scope.previous:
                previous.setdefault(window_ns, {})[previous_variable(feature)] = replace(feature, name="")
            if feature.against:
                learned.setdefault(window_ns, {})[Learned.of(feature)] = None
            if feature.field is None:
                counts.setdefault(window_ns, set()).add(feature.sampling)
            elif feature.accumulator is not None:
                counts.setdefault(window_ns, set()).add(feature.sampling)
                wanted = fields.setdefault((feature.field.name, feature.scope.direction), [])
                wanted += [c for c in feature.accumulator.cells if c not in wanted]
        windows = []
        for window_ns, by_field in sorted(cells.items()):
            if window_ns:
                tracks = _tracks(by_field, window_ns, idle_ns)
                # A window counts its samples: `first` and the ratios need them.
                windows.append(
                    Window(
                        window_ns,
                        tracks,
                        counted=tuple(sorted(counts.get(window_ns, ()))),
                        previous=tuple(f for _, f in sorted(previous.get(window_ns, {}).items())),
                        learned=tuple(learned.get(window_ns, ())),
                    )
                )
        needs_age = any(f.field is not None and f.field.needs_age for f in followed)
        paths = () if by else feature_set.paths
        counted = tuple(sorted(sampling for sampling in counts.get(0, ()) if sampling.counted))
        gaps = any(f.field is not None and f.field.of_aggregates for f in followed)
        asked = {f.scope.direction for f in followed if f.field is not None and f.field.of_way}
        ways = tuple(way for way in DIRECTIONS if asked & {way, ""})
        tracks = _tracks(cells.get(0, {}), 0, idle_ns)
        return cls(feature_set.key, tracks, tuple(windows), needs_age, gaps, ways, paths, counted)

    @property
    def round_variables(self) -> dict[str, int]:
        """Those of the rounds of probes, as in `Track`."""
        count = words(self.paths)
        wide = [f"{name}_{n}" for name in ("delays", "whole") for n in range(count)]
        return dict.fromkeys((*wide, "round_seen"), (1 << 64) - 1) | {"round": COUNT_MAX} if count else {}


def layouts(feature_set: FeatureSet, used: Collection[int] | None = None) -> dict[str, StateLayout]:
    """The state of flows, under "", and of each aggregate."""
    return {by: StateLayout.of(feature_set, used, by) for by in ("", *feature_set.aggregates(used))}


def keeping(
    feature_set: FeatureSet,
    used: Collection[int],
    running: FeatureSet,
    running_used: Collection[int],
) -> FeatureSet:
    """The feature set, with the flow state of another that runs: flows go on where one replaces the other.

    used, running_used : indices of the features that the models read. The state that only the other needs is
    accounted too, so that it is right when the other comes back. Raises InputError where the flow tables
    differ, or where the model needs state that the other does not have.
    """
    where = f"feature set {feature_set.name!r}"
    for what, ours, theirs in (
        ("flow key", feature_set.key, running.key),
        ("table_size", feature_set.table_size, running.table_size),
        ("aggregates_size", feature_set.aggregates_size, running.aggregates_size),
        ("flow table sharing", feature_set.sharing, running.sharing),
        ("decapsulate", sorted(feature_set.decapsulate), sorted(running.decapsulate)),
    ):
        if ours != theirs:
            raise InputError(
                where, f"its {what} is {ours}, that of the running bundle {theirs}, so flows cannot go on",
                "leave out --keep-state-of, and swap with --reset-flows",
            )  # fmt: skip
    layout = layouts(running, running_used)
    blank = layouts(replace(running, kept=(), features=(Feature.parse("length"),)))
    followed = {feature.spec: feature for feature in running.followed(running_used)}
    kept = tuple(f for f in followed.values() if layouts(replace(running, kept=(), features=(f,))) != blank)
    lacking = [
        feature.name
        for index, feature in enumerate(feature_set.features)
        if index in used and layouts(replace(running, kept=kept, features=(feature,))) != layout
    ]
    if lacking:
        raise InputError(
            where, f"the flows of the running bundle have no state for {', '.join(lacking)}",
            "train a model that does not read them, or leave out --keep-state-of and swap with --reset-flows",
        )  # fmt: skip
    return replace(feature_set, kept=kept)


def bounds(feature: Feature, feature_set: FeatureSet) -> Bounds:
    """How large the samples that a feature accumulates become."""
    assert feature.field is not None
    scope = feature.scope
    return Bounds.of(feature.field, scope.window_ns, idle_of(feature_set, scope.by))


def idle_of(feature_set: FeatureSet, by: str) -> int:
    """How long a flow, or an aggregate, may be silent at most, in nanoseconds: whatever features are used."""
    return feature_set.aggregates_idle_ns() if by else feature_set.idle_timeout_ns


def _tracks(by_field: dict[tuple[str, str], list[str]], window_ns: int, idle_ns: int) -> tuple[Track, ...]:
    order = list(CELLS)
    return tuple(
        Track(
            Bounds.of(FIELDS[name], window_ns, idle_ns),
            tuple(CELLS[c] for c in sorted(wanted, key=order.index)),
            direction,
        )
        for (name, direction), wanted in by_field.items()
    )


@dataclass
class ScopeState:
    """Reference state of one scope: by field and direction the variables of its cells and their bounds, and
    how many samples there were of each kind.
    """

    cells: dict[tuple[str, str], State]
    bounds: dict[tuple[str, str], Bounds]
    samples: dict[Sampling, int]

    @classmethod
    def blank(cls, tracks: Sequence[Track], counted: Sequence[Sampling]) -> ScopeState:
        cells = {
            (t.field.name, t.direction): {v: 0 for cell in t.cells for v in cell.variables} for t in tracks
        }
        bounds = {(t.field.name, t.direction): t.bounds for t in tracks}
        return cls(cells, bounds, dict.fromkeys((*counted, *(t.sampling for t in tracks)), 0))

    def read(self, feature: Feature, x: int | None) -> int:
        """What a feature has of the scope. x : the latest packet's sample, where it is one and is read."""
        samples = self.samples[feature.sampling]
        if feature.accumulator is None or feature.field is None:
            return samples
        place = (feature.field.name, feature.scope.direction)
        return feature.accumulator.read(self.cells[place], x, samples, self.bounds[place])

    def sample(self, tracks: Sequence[Track], context: Context) -> None:
        for sampling in self.samples:
            if sampling.takes(context):
                self.samples[sampling] = min(self.samples[sampling] + 1, COUNT_MAX)
        for track in tracks:
            field, sampling = track.field, track.sampling
            if not sampling.takes(context):
                continue
            x, n, state = field.read(context), self.samples[sampling], self.cells[field.name, track.direction]
            for cell in track.cells:
                cell.update(state, context.mix(x) if cell.mixed else x, n, track.bounds)


def _since(before_ns: int, time_ns: int) -> int | None:
    """Nanoseconds since `before_ns`, where 0 means that there was nothing: then None."""
    return max(0, time_ns - before_ns) if before_ns else None


class FlowState:
    """Reference state of one flow or aggregate: what the generated struct ww_state holds."""

    def __init__(self, layout: StateLayout, time_ns: int) -> None:
        self._layout = layout
        self.first_seen_ns = time_ns
        self.flow_seen_ns = 0
        self.way_seen_ns = dict.fromkeys(layout.ways, 0)
        self.flow = ScopeState.blank(layout.tracks, (Sampling(), *layout.counted))
        self.current = {w.window_ns: ScopeState.blank(w.tracks, w.counted) for w in layout.windows}
        self.previous = {w.window_ns: ScopeState.blank(w.tracks, w.counted) for w in layout.windows}
        self.start_ns = {w.window_ns: time_ns for w in layout.windows}
        self.rounds = Rounds.of(layout.paths)
        self.usual = {each: Usual() for w in layout.windows for each in w.learned}
        self.finished = {w.window_ns: 0 for w in layout.windows}

    def begin_flow(self, time_ns: int) -> int | None:
        """A flow of the aggregate begins. How long after the one before; None if there was none."""
        before = self.flow_seen_ns
        self.flow_seen_ns = max(before, time_ns)
        return _since(before, time_ns)

    def go_way(self, forward: int, time_ns: int) -> int | None:
        """A packet of a direction. How long after the one before; None if there was none."""
        way = DIRECTIONS[not forward]
        if way not in self.way_seen_ns:
            return None
        before = self.way_seen_ns[way]
        self.way_seen_ns[way] = max(before, time_ns)
        return _since(before, time_ns)

    def sample(self, context: Context, time_ns: int) -> bool:
        """Account one packet seen at time_ns. Whether a round of probes is whole with it."""
        self.flow.sample(self._layout.tracks, context)
        for window in self._layout.windows:
            width = window.window_ns
            passed = max(0, time_ns - self.start_ns[width]) // width
            if passed:
                self._learn(window)
                blank = ScopeState.blank(window.tracks, window.counted)
                self.previous[width] = self.current[width] if passed == 1 else blank
                self.current[width] = ScopeState.blank(window.tracks, window.counted)
                self.start_ns[width] += passed * width
            self.current[width].sample(window.tracks, context)
        probe = context.packet.probe
        return probe is not None and self.rounds.take(probe, time_ns)

    def _learn(self, window: Window) -> None:
        """The current window is over."""
        width = window.window_ns
        self.finished[width] = min(self.finished[width] + 1, COUNT_MAX)
        for each in window.learned:
            value = self.current[width].read(each.rate, None)
            self.usual[each].learn(value, self.finished[width], each.windows)


Reader = Callable[[FlowState, Context], int]


def reader(feature: Feature, key: str) -> Reader:
    """What reads a feature's value for the packet that was sampled last. key: of the feature set.

    All that is the same for every packet is decided here, once.
    """
    constant = constant_feature(feature, key)
    if constant is not None:
        value = constant
        return lambda state, context: value
    if feature.path is not None:
        path = feature.path
        return lambda state, context: state.rounds.whole[path]
    if feature.accumulator is None and feature.field is not None:
        read_field = feature.field.read
        return lambda state, context: read_field(context)
    window_ns, previous, sampling = feature.scope.window_ns, feature.scope.previous, feature.sampling

    def scope(state: FlowState) -> ScopeState:
        if not window_ns:
            return state.flow
        return (state.previous if previous else state.current)[window_ns]

    if feature.against:
        learned, comparison = Learned.of(feature), feature.against.comparison
        warm = warm_windows(learned.windows)

        def compare(state: FlowState, context: Context) -> int:
            if state.finished[window_ns] < warm:
                return 0
            return comparison.read(scope(state).read(feature, None), state.usual[learned])

        return compare
    field, accumulator = feature.field, feature.accumulator
    of_sample = accumulator is not None and accumulator.of_sample and not previous

    def read(state: FlowState, context: Context) -> int:
        x = field.read(context) if field and of_sample and sampling.takes(context) else None
        return scope(state).read(feature, x)

    return read
