# SPDX-License-Identifier: Apache-2.0
"""Training trees and networks on a feature table."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wirewise import html
from wirewise.datasets.table import Table
from wirewise.errors import InputError, choose
from wirewise.evaluate import leaks, out_of_fold, teaching
from wirewise.evaluate.apart import KEY as APART
from wirewise.evaluate.apart import Apart, Together, quiet_of
from wirewise.evaluate.autoencoder import HIDDEN as REMEMBERED
from wirewise.evaluate.autoencoder import Autoencoder
from wirewise.evaluate.classes import BENIGN, TWO_CLASSES, check_classes, counted_as, matrix, numbers
from wirewise.evaluate.families import families, kinds
from wirewise.evaluate.importance import IMPORTANCE_TITLE, Importance
from wirewise.evaluate.lesson import Lesson, Recipe, class_weights
from wirewise.evaluate.moments import At
from wirewise.evaluate.networks import HIDDEN, Progress, make_bnn, make_mlp, silent
from wirewise.evaluate.per_flow import flow_verdicts, usual
from wirewise.evaluate.phases import KEY as LATE
from wirewise.evaluate.phases import Late, Phase, Phases, packets_feature
from wirewise.evaluate.report import Report
from wirewise.evaluate.split import Split, check_folds, split
from wirewise.evaluate.split import folds as splits
from wirewise.importers import import_model


def _tree(depth: int, trees: int, seed: int) -> Any:
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(max_depth=depth, random_state=seed)


def _forest(depth: int, trees: int, seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(trees, max_depth=depth, random_state=seed, n_jobs=-1)


def _extra_trees(depth: int, trees: int, seed: int) -> Any:
    from sklearn.ensemble import ExtraTreesClassifier

    return ExtraTreesClassifier(trees, max_depth=depth, random_state=seed, n_jobs=-1)


def _boosting(depth: int, trees: int, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(max_iter=trees, max_depth=depth, random_state=seed)


TREES: dict[str, Callable[[int, int, int], Any]] = {
    "tree": _tree,
    "forest": _forest,
    "extra-trees": _extra_trees,
    "boosting": _boosting,
}
"""Tree estimators by name: (depth, number of trees, seed) -> a scikit-learn classifier."""

Said = tuple[NDArray[np.int64], "NDArray[np.float64] | None"]
"""Class numbers of rows, and their scores, see `out_of_fold.scores`."""
BENIGN_ONLY = "autoencoder"
"""The estimator that learns from benign rows alone."""
NETWORKS = ("mlp", "bnn", BENIGN_ONLY)
ESTIMATORS = (*TREES, *NETWORKS)
"""Names that `train` knows."""


MOST_LEAF = 1_000_000
"""Rows."""
FOLDS = 5
"""Of the cross-validation of trees; networks take too long for it to be the default."""
SEEDS = 3
"""Times that its folds are dealt: with few sources of a class, one dealing says little."""


@dataclass(frozen=True)
class CrossValidation:
    """Every row tested once in each dealing of the folds, by a model that had not seen its group.

    by : what is dealt. seeds : of the dealings. report : over all of them. accuracy : 0 to 1, of each fold.
    recall : of each family of attacks, the mean over its sources of the share of flows found, in each
    dealing; empty if the table has no benign class. benign_losing : share of benign flows with a verdict
    against them on any packet, in each dealing. by_packet : of each family, the share of flows found if they
    were judged at that packet, the mean over dealings. late : share of the flows that last to a late model
    which it finds, the mean over dealings. scored : the flows of each dealing, see
    `out_of_fold.flows`; empty if the estimator has no scores.
    """

    by: str
    seeds: list[int]
    report: Report
    accuracy: list[float]
    recall: dict[str, list[float]]
    benign_losing: list[float]
    by_packet: dict[str, dict[int, float]]
    late: dict[str, float]
    scored: list[pl.DataFrame] = field(default_factory=list, repr=False)

    def to_dict(self) -> dict[str, Any]:
        families = {
            "recall": self.recall,
            "by_packet": self.by_packet,
            "late": self.late,
            "benign_losing": self.benign_losing,
        }
        dealt = {"by": self.by, "seeds": self.seeds, "folds": self.accuracy}
        return {**dealt, **families, **self.report.to_dict()}


@dataclass(frozen=True)
class Training:
    """A fitted estimator, the names of its classes by number, and how it did on what it had not seen.

    facts : how it was trained, for the record. table : the labelled rows. split : the numbers of the rows it
    learned from, and of those that were kept apart, which the report is about. by_flow : what a split by flow
    would have reported, where the split was another. folds : None where there was no cross-validation.
    doubts : what makes the report doubtful. taught : where it had a teacher, both of them and the same
    estimator without one, on what was kept apart.
    """

    estimator: Any
    classes: list[str]
    report: Report
    facts: dict[str, Any] = field(repr=False)
    table: Table = field(repr=False)
    split: Split = field(repr=False)
    by_flow: Report | None = None
    folds: CrossValidation | None = None
    doubts: tuple[str, ...] = ()
    taught: teaching.Comparison | None = None

    @property
    def learned(self) -> Table:
        """The rows that the estimator learned from in the end: with `refit`, all."""
        if self.facts["refitted"]:
            return self.table
        return Table(self.table.frame[self.split.learn], self.table.feature_set)

    def importance(self) -> Importance:
        """How much the estimator leans on each feature, on the rows that were kept apart."""
        rows, truth = matrix(self.table)[self.split.test], numbers(self.table, self.classes)[self.split.test]
        number = {name: index for index, name in enumerate(self.classes)}
        counted = counted_as(set(truth.tolist()), self.classes)

        def predict(x: NDArray[np.int64]) -> NDArray[np.int64]:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="X does not have valid feature names")
                said = self.estimator.predict(x).tolist()  # names, once they were set, else numbers
            return counted[np.array([number.get(one, one) for one in said], np.int64)]

        names = self.table.feature_set.feature_names
        return Importance.of(predict, rows, truth, names, seed=self.facts["seed"])

    def _repr_html_(self) -> str:
        importance = self.importance()
        return html.fragment(self.report.to_html(), html.heading(IMPORTANCE_TITLE), importance.to_html())

    def __repr__(self) -> str:
        name = self.facts["estimator"]
        return f"<Training of {name}: accuracy {self.report.accuracy:.4f} on {self.report.packets:,} packets>"


def train(
    table: Table,
    estimator: str | Any = "forest",
    *,
    depth: int = 10,
    trees: int = 10,
    leaf: int | None = None,
    hidden: Sequence[int] | None = None,
    encoding: str = "steps",
    class_weight: str | Mapping[str, float] | None = None,
    two_classes: bool = False,
    recipe: Recipe | None = None,
    late: Late | None = None,
    test_share: float = 0.3,
    seed: int = 0,
    refit: bool = False,
    group: str | None = None,
    folds: int | None = None,
    seeds: int = SEEDS,
    at: At | None = None,
    augment: Sequence[str] = (),
    copies: int = 1,
    teacher: str | Any = None,
    beside: Table | None = None,
    apart: Apart | None = None,
    progress: Progress = silent,
) -> Training:
    """Fit an estimator to a table and test it on captures, or flows, it has not seen.

    table : its unlabelled rows are left out. estimator : a name of ESTIMATORS, or an unfitted scikit-learn
    classifier. depth : of each tree. trees : how many; for boosting, rounds. leaf : least rows of a leaf;
    None: as scikit-learn, 1, for boosting 20. hidden : for "mlp" and "bnn", neurons of each hidden layer.
    encoding : for "bnn", see `binary_encoding`. class_weight : "balanced" (all classes weigh the same),
    weights by class name (1 if not named), or None (all packets weigh the same). A heavier `benign` lets
    more attack packets pass and stops fewer benign ones. two_classes : learn benign against attack,
    whatever kind it is labelled as, as BENIGN_ONLY always does, for which the table need not have
    attacks. recipe : which rows are learned from, and whether captures weigh the same; None: all rows do.
    late : trees of their own for later packets of flows, see `phases`; both become one `Phases`.
    group : what is kept on one side of the split, one of GROUPS; None: see `split`. folds : of the cross-
    validation; None: FOLDS for trees of TREES, and BENIGN_ONLY where there are attacks to test, that are
    split by source or capture, else none. seeds : how often its folds are dealt. at : when flows are
    judged in it; None: as usual. augment : names of `wirewise.augment.AUGMENTATIONS` that tables allow;
    `copies` variants of each row that is learned from are learned from as well. teacher : a name of
    `teaching.TEACHERS`, or a fitted classifier, whose scores the estimator learns from, see there; the report
    then has the teacher and the same estimator without it beside. beside : a table of the same feature set,
    such as of made traffic, that is learned from as well and never tested; no margin rests on it. apart :
    trees of their own learn from it, and from what is benign in the table; the others learn from those of
    its captures that have no attacks; both become one `Together`. Needs two_classes. progress : called with
    the share that is done, 0 to 1, though not while a teacher is fitted.

    The estimator was fitted to the training part only, so the report is about that very model. With refit
    it is then fitted again, to all rows: the model that is kept has seen more than the one the report is
    about. Raises InputError when the table has fewer than two classes, or a weight names none;
    MissingFeatureError for "bnn" without JAX and optax.
    """
    if not isinstance(estimator, str) and not (
        hasattr(estimator, "fit") and hasattr(estimator, "get_params")
    ):
        raise InputError(
            f"an estimator of type {type(estimator).__name__}", "is none",
            f"give one of {', '.join(ESTIMATORS)}, or an unfitted classifier as scikit-learn has them",
        )  # fmt: skip
    usable = table.labelled
    benign_only = estimator == BENIGN_ONLY
    known = [part.frame.select("label") for part in (usable, beside and beside.labelled) if part]
    every = Table(pl.concat(known), table.feature_set)
    classes = check_classes(every, two=two_classes or benign_only, one=benign_only)
    if apart is not None:
        _check_apart(apart, estimator, beside, two_classes, late, teacher)
        classes.append(apart.name)
        apart = apart.sized(trees)
    rows, labels = matrix(usable), numbers(usable, classes)
    settings = {
        "depth": depth, "trees": trees, "leaf": leaf, "hidden": hidden, "encoding": encoding, "seed": seed
    }  # fmt: skip

    # What the trees of a class of its own find is an attack to the others.
    learned, taught_as = (labels, classes) if apart is None else (np.minimum(labels, 1), TWO_CLASSES)

    def lesson_of(recipe: Recipe, beside: Table | None) -> Lesson:
        return Lesson.of(
            table, rows, learned, taught_as,
            class_weights=lambda of, weights: class_weights(of, taught_as, class_weight, weights),
            augment=augment, copies=copies, seed=seed, recipe=recipe, beside=beside,
        )  # fmt: skip

    at = at or usual(late.start if late else None)
    phase = None if late is None else _phase(late, table, estimator, teacher)
    recipes = [recipe or Recipe()] if phase is None else (recipe or Recipe()).of_phases(phase)
    for_all = beside if apart is None else quiet_of(beside)
    lesson, *later = [lesson_of(each, for_all) for each in recipes]
    own = None if apart is None else lesson_of(recipes[0], beside)
    done = 0

    def make_late(late: Late) -> Any:
        return make_estimator(estimator, trees=late.trees, depth=late.depth, leaf=late.leaf, seed=seed)

    def fit(on: NDArray[np.int64], teacher: Any = None) -> Any:
        nonlocal done
        fresh = make_estimator(estimator, **settings)  # type: ignore[arg-type]
        fitted = lesson.teach(fresh, on, teacher, lambda share: progress((done + share) / fits))
        if own is not None and apart is not None:
            fresh = make_estimator(estimator, **{**settings, "trees": apart.trees})  # type: ignore[arg-type]
            fitted = Together(fitted, own.teach(fresh, on[learned[on] == 0]))
        if late is not None:
            second = later[0].teach(make_late(late), on)
            fitted = Phases(fitted, second, packets_feature(table.feature_set), late.start, len(classes))
        done += 1
        progress(min(1.0, done / fits))
        return fitted

    def test(parts: Split, fitted: Any) -> Report:
        return Report.of(labels[parts.test], np.asarray(fitted.predict(rows[parts.test]), np.int64), classes)

    if benign_only and teacher is not None:
        raise InputError("a teacher", "has nothing to say to an autoencoder", "leave it out")
    make_estimator(estimator, **settings)  # type: ignore[arg-type] # wrong settings are said first
    if late is not None:
        make_late(late)
    parts = split(usable.frame, group, test_share=test_share, seed=seed)
    met = set(learned[parts.learn].tolist()) | set(lesson.beside[1].tolist() if lesson.beside else ())
    missing = sorted(set(range(len(taught_as))) - met)
    if missing and not (benign_only and missing == [1]):
        raise InputError(
            "the table",
            f"has no {parts.by} of class {classes[missing[0]]!r} left to train on",
            "give more captures",
        )
    if folds is None:
        dealt = parts.by in ("source", "capture")
        quick = estimator in (*TREES, BENIGN_ONLY) and labels.any()
        folds = FOLDS if quick and dealt and teacher is None else 0
    by_flow_too = bool(folds) and parts.by != "flow" and teacher is None
    if seeds < 1:
        raise InputError(f"{seeds} seeds", "must be 1 or more")
    if folds:
        check_folds(folds)
    fits = 1 + (teacher is not None) + by_flow_too + folds * seeds + refit
    lessons = teaching.TeacherOf(teacher, classes, lesson, seed)
    fitted = fit(parts.learn, lessons.for_rows(parts.learn))
    report = test(parts, fitted)
    taught = None
    if teacher is not None:
        taught = teaching.compare(
            usable.frame[parts.test], rows[parts.test], labels[parts.test], classes,
            teacher=lessons.for_rows(parts.learn), student=fitted, direct=fit(parts.learn),
        )  # fmt: skip
    by_flow = crossed = None
    if by_flow_too:
        flows = split(usable.frame, "flow", test_share=test_share, seed=seed)
        by_flow = test(flows, fit(flows.learn))
    if folds:
        crossed = cross_validate(
            usable.frame, labels, classes, parts.by, folds, range(seed, seed + seeds), at,
            lambda part: said_by(
                fit(part.learn, lessons.for_rows(part.learn)), rows[part.test], len(classes)
            ),
            phase,
        )  # fmt: skip
    doubts = []
    if labels.any():
        doubts = leaks.warnings(usable.frame, rows, labels, classes, usable.feature_set.feature_names, parts)
    doubts += lessons.doubts
    if refit:
        everything = np.arange(len(rows))
        fitted = fit(everything, lessons.for_rows(everything))
    facts = {
        "estimator": estimator if isinstance(estimator, str) else type(estimator).__name__,
        "class_weight": class_weight,
        "seed": seed,
        "test_share": test_share,
        "split": f"by {parts.by}",
        "refitted": refit,
        "packets": len(usable.frame),
        **({"dealings": _dealings(crossed, at)} if crossed and crossed.recall else {}),
        **margins(fitted, crossed, rows, classes),
        **({LATE: {"feature": phase.feature, **asdict(late)}} if late and phase else {}),
        **({APART: asdict(apart)} if apart else {}),
        **(own or lesson).facts(),
        **lessons.facts(),
    }
    return Training(fitted, classes, report, facts, usable, parts, by_flow, crossed, tuple(doubts), taught)


def said_by(fitted: Any, rows: NDArray[np.int64], classes: int) -> Said:
    """Class numbers, and scores of each class, by a fitted estimator for rows, (n, n_features)."""
    return np.asarray(fitted.predict(rows), np.int64), out_of_fold.scores(fitted, rows, classes)


def cross_validate(
    frame: pl.DataFrame,
    labels: NDArray[np.int64],
    classes: list[str],
    by: str,
    count: int,
    seeds: Sequence[int],
    at: At,
    predict: Callable[[Split], Said],
    late: Phase | None = None,
) -> CrossValidation:
    """Reports on rows that no model has learned from. predict : class numbers of a split's tested rows, and
    their scores, by a model that learned from its others. late : the phase in which a second model judges.
    """
    reports, accuracy, losing = [], [], []
    recall: dict[str, list[float]] = {}
    by_packet: dict[str, dict[int, float]] = {}
    later: dict[str, float] = {}
    scored: list[pl.DataFrame] = []
    for seed in seeds:
        said = np.full(len(labels), -1, np.int64)
        scores = np.zeros((len(labels), len(classes)))
        has_scores = True
        for part in splits(frame, by, count, seed=seed, classes=labels):
            said[part.test], of_part = predict(part)
            has_scores &= of_part is not None
            scores[part.test] = 0 if of_part is None else of_part
            report = Report.of(labels[part.test], said[part.test], classes)
            reports.append(report)
            accuracy.append(report.accuracy)
        if classes[0] == BENIGN:
            tested = said >= 0
            rows, truth, every = frame.filter(pl.Series(tested)), labels[tested], range(1, len(classes))
            verdicts = flow_verdicts(
                rows, truth, said[tested], len(classes), at, None if late is None else late.start
            )
            for family in [*families(verdicts, classes, every), *kinds(verdicts, classes, every)]:
                recall.setdefault(family.name, []).append(family.of_sources)
                curve = by_packet.setdefault(family.name, dict.fromkeys(family.by_packet, 0.0))
                for packet, share in family.by_packet.items():
                    curve[packet] += share / len(seeds)
                if family.late is not None:
                    later[family.name] = later.get(family.name, 0.0) + family.late / len(seeds)
            if has_scores:
                second = None if late is None else late.judged(rows)
                scored.append(out_of_fold.flows(rows, truth, scores[tested], second))
            benign = verdicts.truth == 0
            losing.append(float(verdicts.losing(every)[benign].mean()) if benign.any() else 0.0)
    return CrossValidation(
        by, list(seeds), Report.sum(reports), accuracy, recall, losing, by_packet, later, scored
    )


def margins(
    fitted: Any, crossed: CrossValidation | None, rows: NDArray[np.int64], classes: list[str]
) -> dict[str, Any]:
    """The margins that the cross-validation calls for, in the integers that `compile` makes of the estimator;
    nothing where it makes none of it, or other ones than multiples of its scores.
    """
    said = None if crossed is None or not crossed.scored else out_of_fold.scores(fitted, rows, len(classes))
    if crossed is None or said is None:
        return {}
    try:
        model = import_model(fitted, classes=classes, margin=True).model
        phases = (fitted.feature, fitted.start) if isinstance(fitted, Phases) else None
        found = out_of_fold.OutOfFold.of(crossed.scored, crossed.by, model, rows, said, phases)
    except InputError:
        return {}
    return {out_of_fold.KEY: found.to_dict()} if found else {}


def _phase(late: Late, table: Table, estimator: Any, teacher: Any) -> Phase:
    """That of the second model. Raises InputError where there can be none."""
    if estimator not in TREES:
        raise InputError("a late model", "is of trees", f"choose of {', '.join(TREES)}, or leave it out")
    if teacher is not None:
        raise InputError("a teacher", "teaches one model, not a late one as well", "leave one of them out")
    index = packets_feature(table.feature_set)
    return Phase(table.feature_set.feature_names[index], late.start, late=True)


def _check_apart(
    apart: Apart, estimator: Any, beside: Table | None, two_classes: bool, late: Late | None, teacher: Any
) -> None:
    """Raises InputError where there can be no trees of a class of its own."""
    what = f"the class {apart.name!r} of what is beside"
    if beside is None:
        raise InputError(what, "has no table to learn from", "give one beside")
    if not two_classes:
        raise InputError(what, "comes beside two classes", "learn two classes, benign and attack")
    if estimator not in TREES or teacher is not None:
        raise InputError(what, "is found by trees without a teacher", f"choose of {', '.join(TREES)}")
    if late is not None and estimator == "boosting":
        raise InputError(what, "has no room beside a late model of boosting", "choose a forest")


def _dealings(crossed: CrossValidation, at: At) -> dict[str, Any]:
    """What the record of a training keeps of its cross-validation, for `evaluate`."""
    return {"by": crossed.by, "at": str(at), "seeds": crossed.seeds, "recall": crossed.recall}


def make_estimator(
    estimator: str | Any,
    *,
    depth: int,
    trees: int,
    seed: int,
    leaf: int | None = None,
    hidden: Sequence[int] | None = None,
    encoding: str = "steps",
) -> Any:
    """An unfitted classifier from its name in ESTIMATORS; of anything else, an unfitted copy. Raises
    InputError for settings out of range.
    """
    if not isinstance(estimator, str):
        from sklearn.base import clone

        return clone(estimator)
    if estimator not in ESTIMATORS:
        raise InputError(f"estimator {estimator!r}", "is not known", choose(estimator, ESTIMATORS))
    if estimator == "mlp":
        return make_mlp(hidden or HIDDEN["int8"], seed)
    if estimator == BENIGN_ONLY:
        return Autoencoder(hidden or REMEMBERED, seed)
    if estimator == "bnn":
        return make_bnn(hidden or HIDDEN["binary"], encoding, seed)
    if not 1 <= depth <= 32 or not 1 <= trees <= 1000:
        raise InputError(f"depth {depth} and {trees} trees", "must be 1 to 32 and 1 to 1000")
    if leaf is not None and not 1 <= leaf <= MOST_LEAF:
        raise InputError(f"leaves of {leaf} rows", f"must have 1 to {MOST_LEAF:,}")
    made = TREES[estimator](depth, trees, seed)
    return made if leaf is None else made.set_params(min_samples_leaf=leaf)
