# SPDX-License-Identifier: Apache-2.0
"""From a table to an estimator, and from an estimator of any library to a bundle."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from wirewise import compiler, evaluate, ready
from wirewise.advice import in_python_terms, translate
from wirewise.api.inputs import AnyFeatureSet, AnyTable, feature_set_of, table_of
from wirewise.compiler import Compiled
from wirewise.datasets import Table
from wirewise.errors import InputError
from wirewise.evaluate import Training, matrix, numbers, out_of_fold
from wirewise.evaluate.apart import Apart
from wirewise.evaluate.binary_training import BinaryClassifier
from wirewise.evaluate.fidelity import HeldOut
from wirewise.evaluate.held_out import Parts, parts
from wirewise.evaluate.lesson import Recipe
from wirewise.evaluate.moments import At
from wirewise.evaluate.naming import doubts
from wirewise.evaluate.networks import set_names
from wirewise.evaluate.open_set import choose_from as open_set_from
from wirewise.evaluate.operating_point import choose_from
from wirewise.evaluate.phases import Late
from wirewise.feature_sets import FeatureSet
from wirewise.formats import model_file, training_file
from wirewise.formats.model_file import LoadedModel
from wirewise.importers import Imported, ImportOptions, import_with
from wirewise.models import Bounded, Model
from wirewise.models.tree import Votes
from wirewise.quantize import Options


@in_python_terms
def train(
    table: AnyTable,
    estimator: str | Any = "forest",
    *,
    feature_set: AnyFeatureSet | None = None,
    depth: int = 10,
    trees: int = 10,
    leaf: int | None = None,
    hidden: Sequence[int] | None = None,
    encoding: str = "steps",
    class_weight: str | Mapping[str, float] | None = None,
    two_classes: bool = False,
    learn_first: int | None = None,
    flows_per_capture: int | None = None,
    weights: str = "packet",
    late_from: int | None = None,
    late_trees: int = 20,
    late_depth: int = 12,
    late_leaf: int | None = None,
    test_share: float = 0.3,
    seed: int = 0,
    refit: bool = False,
    group: str | None = None,
    folds: int | None = None,
    seeds: int = 3,
    at: int | str | None = None,
    augment: Sequence[str] = (),
    copies: int = 1,
    teacher: str | Any = None,
    beside: AnyTable | Sequence[AnyTable] | None = None,
    apart: str | None = None,
    apart_trees: int | None = None,
) -> Training:
    """Fit an estimator to a table, and test it on captures, or flows, it has not seen.

    - table: what `features` gives, a file that `wirewise features` wrote, or a `Table`. Rows without a label
      are left out.
    - estimator: "tree", "forest", "extra-trees", "boosting", "mlp", "bnn" or "autoencoder"; or an unfitted
      classifier.
    - feature_set: the one that made the table; needed for a data frame, which does not say it.
    - depth, trees: of each tree, and how many (for boosting, rounds). leaf: least rows of a leaf; None: 1,
      for boosting 20.
    - hidden, encoding: neurons of a network's hidden layers; how "bnn" reads features.
    - class_weight: "balanced", weights by class name, or None: all packets weigh the same.
    - two_classes: learn benign against attack, whatever kind of attack a label says.
    - learn_first, flows_per_capture: learn from each flow's first packets only, and from at most that many
      flows of each class of a capture, drawn at random; None: from all. weights: "packet", "capture",
      "source" or "kind" (of attack), what weighs the same. All are tested (docs/training.md).
    - late_from: from this packet of a flow on, such as 30, trees of their own judge, of the same kind; None:
      the same ones do. late_trees, late_depth, late_leaf: as trees, depth and leaf, of theirs.
    - test_share: share of each class's captures, or flows, to test on, between 0 and 1.
    - seed: equal seeds and tables give equal models.
    - refit: fit again to all rows in the end; the report is about the model before.
    - group: what is never learned from and tested on: "source" (where a manifest says that captures come
      from), "capture", "host" (who sent a flow's first packet), "time" (later flows are tested) or "flow".
      None: "source" or "capture" where two are of one class, else "flow" (docs/training.md).
    - folds: of the cross-validation, 0 for none. None: 5 for trees, by source or capture.
    - seeds: how often the folds are dealt.
    - at: when flows are judged in it: a packet, from 1, or text such as "5,30,100", "10s" or "every". None:
      5, and late_from.
    - augment, copies: "ports" and "ttl": learn from so many variants of each row as well, in what should not
      matter (docs/search.md).
    - teacher: "forest", "extra-trees", "hist-gradient-boosting" or "mlp", or a fitted classifier: learn from
      the scores of a large model.
    - beside: a table of the same features, or several, to learn from as well and never to test, such as of
      made traffic. apart: the name of a class that apart_trees trees of their own (None: four for five of
      trees) learn from it, while the others learn only from its captures without attacks; needs two_classes.
      None: all learn from both.

    Gives a `Training`: `estimator` (which predicts class names), `classes` in the order of their numbers,
    `report`, `by_flow` and `folds` (what a split by flow and a cross-validation say), `doubts` (what makes
    the report doubtful), `taught` (teacher, student and direct training), and `facts` for the record.
    `compile` takes it as it is.

    Raises InputError for a table with fewer than two classes, or columns that are missing.

    """
    rows = table_of(table, feature_set)
    training = evaluate.train(
        rows, estimator, depth=depth, trees=trees, leaf=leaf, hidden=hidden, encoding=encoding,
        class_weight=class_weight, two_classes=two_classes,
        recipe=Recipe(learn_first, flows_per_capture, weights), test_share=test_share, seed=seed,
        late=None if late_from is None else Late(late_from, late_trees, late_depth, late_leaf),
        refit=refit, group=group, folds=folds, seeds=seeds,
        at=None if at is None else At.parse(str(at)), augment=augment, copies=copies, teacher=teacher,
        beside=None if beside is None else _beside(beside, feature_set),
        apart=None if apart is None else Apart(apart, apart_trees),
    )  # fmt: skip
    if not isinstance(training.estimator, BinaryClassifier):
        names = (training.classes, rows.feature_set.feature_names)
        set_names(training.estimator, *(np.array(part, dtype=object) for part in names))
    return training


@in_python_terms
def compile(
    model: Any,
    feature_set: AnyFeatureSet | None = None,
    *,
    name: str = "model",
    table: AnyTable | None = None,
    classes: Sequence[str] | None = None,
    benign: str | None = None,
    votes: Votes | None = None,
    quantise: Options | None = None,
    max_benign_loss: float | None = None,
    after: int | None = 1,
    unknown: bool = False,
    target: str = "ebpf",
    **options: Any,
) -> Compiled:
    """One eBPF program, in a bundle, from a model and the feature set it reads.

    - model: a fitted estimator of scikit-learn, XGBoost, LightGBM, PyTorch or ONNX (docs/importers.md), what
      `train` gives, the path of a saved one, an `Imported`, a model of `wirewise.models`, or a ready one:
      "@flood" (`wirewise models` lists them), which brings its feature set and its max_benign_loss.
    - feature_set: a preset's name, a YAML file, a `FeatureSet` or its JSON form; the one whose columns the
      model was trained on, in their order. Not needed if the table or the model says it.
    - name: of the bundle, 1 to 200 printable characters.
    - table: as in `train`: integers and estimator are compared on it, a neural network is quantised with a
      part of it, and `wirewised stats --drift` compares live flows with it. Of what `train` gives, it is the
      table it was trained on.
    - classes: names in the order of the model's class numbers, instead of its own.
    - benign: the class that becomes class 0, which margins and `after` count from; None: the one called
      benign, normal or background. scikit-learn numbers classes in the order of their names.
    - votes: "majority" to let the trees of a forest vote instead of adding up their class fractions.
    - quantise: how a neural network becomes integers, see `wirewise.quantize.Options`.
    - max_benign_loss: share of benign flows that may lose a packet, such as 0.001: another class must be so
      far ahead of benign, by the rows of the table that training kept apart (docs/training.md).
    - after: with it, verdicts in a row that a flow will need, 1 to 15, which the policy must ask for; None:
      of 1, 2 and 3 the number with which most attacks are seen.
    - unknown: add the class `unknown`: packets with a feature outside what training saw (docs/training.md).
    - target: one of `wirewise.targets.TARGETS` that makes programs.
    - options: of that target, by name; eBPF has shape ("auto"), clang (a path) and verify ("if-possible",
      "always", "never": whether this machine's kernel is asked; nothing is attached).

    Gives a `Compiled`; `write` writes its bundle to a file.

    Raises InputError for what cannot be imported or does not fit, RefusedError if the kernel's verifier says
    no, MissingFeatureError without a compiler.

    """
    training: dict[str, Any] | None = None
    accuracy: dict[str, Any] | None = None
    recorded: FeatureSet | None = None
    reference = None
    prepared = None
    if isinstance(model, str | PathLike) and (chosen_model := ready.find(model)):
        model, prepared = chosen_model.file, chosen_model.record()
        max_benign_loss = chosen_model.wish if max_benign_loss is None else max_benign_loss
    if isinstance(model, Training):
        training, accuracy = model.facts, model.report.to_dict()
        classes, table = classes or model.classes, model.table if table is None else table
    elif isinstance(model, str | PathLike) and (record := prepared or training_file.read(Path(model))):
        training, accuracy = record.training, record.accuracy
        if feature_set is None:
            feature_set = recorded = record.feature_set
    rows = None if table is None else table_of(table, None if recorded else feature_set)
    if rows is not None and recorded is not None:
        rows = rows.reading(recorded)
    chosen = _chosen(feature_set, rows)
    split = None if rows is None else _split(rows, model, training)
    asked = ImportOptions(
        classes=classes, benign=benign, votes=votes, margin=max_benign_loss is not None, options=quantise
    )
    given = _imported(model, replace(asked, **_quantised_with(split)))
    if isinstance(given, LoadedModel):
        classes, reference = classes or given.classes, None if unknown else given.reference
        given = given.imported or given.model
    compared = held_out = point = learned = None
    if split and rows is not None and isinstance(given, Imported):
        quantised = given.network is not None
        learned = split.learned(quantised)
        judged, known = split.judged(quantised)
        compared = matrix(judged if quantised else rows.classified)
        held_out = HeldOut(matrix(judged), numbers(judged, given.classes), known)
        for doubt in doubts(given.model, judged, given.classes, split.name, given.first):
            warnings.warn(translate(doubt, inspect.signature(compile).parameters), stacklevel=3)
    if max_benign_loss is not None:
        integers = given.model if isinstance(given, Imported) else given
        point = out_of_fold.chosen(training or {}, integers, split, max_benign_loss, after)
        if point is None and (split is None or not isinstance(given, Imported)):
            raise InputError(
                "max_benign_loss", "needs an estimator, and flows to measure it by", "give a table"
            )
        if point is None and split and isinstance(given, Imported):
            quantised = given.network is not None
            point = choose_from(
                given.model, given.classes, split, max_benign_loss, quantised=quantised, after=after
            )
    open_set = None
    if unknown:
        if split is None or not isinstance(given, Imported) or isinstance(given.model, Bounded):
            raise InputError("unknown", "needs an estimator, and the rows that it saw", "give a table")
        open_set = open_set_from(given.model, given.classes, split, quantised=given.network is not None)
    names = given.classes if isinstance(given, Imported) and given is not model else classes
    compiled = compiler.compile(
        given, chosen, name=name, classes=names, rows=compared, held_out=held_out, training=training,
        accuracy=accuracy, operating_point=point, open_set=open_set, learned=learned, reference=reference,
        target=target, **options,
    )  # fmt: skip
    return replace(compiled, training_rows=model.learned) if isinstance(model, Training) else compiled


def _beside(given: AnyTable | Sequence[AnyTable], feature_set: AnyFeatureSet | None) -> Table:
    """One table of those to learn from as well."""
    several = given if isinstance(given, list | tuple) else [given]
    if not several:
        raise InputError("no table", "is beside", "leave it out, or give one")
    return Table.joined([table_of(table, feature_set) for table in several])


def _chosen(feature_set: AnyFeatureSet | None, table: Table | None) -> FeatureSet:
    if feature_set is not None:
        return feature_set_of(feature_set)
    if table is None:
        raise InputError(
            "the feature set", "was not given", "name a preset such as hara2026, a file, or give a table file"
        )
    return table.feature_set


def _split(table: Table, model: Any, training: Mapping[str, Any] | None) -> Parts:
    """The table in two parts; as training split it, if that was on this table."""
    if isinstance(model, Training) and table is model.table:
        return parts(table, {**model.facts, "table_sha256": "the same"}, digest="the same", name="the table")
    return parts(table, training, digest="another", name="the table")


def _quantised_with(split: Parts | None) -> dict[str, Any]:
    if split is None:
        return {}
    return {"rows": matrix(split.learn), "labels": split.learn.frame["label"].to_list()}


def _imported(model: Any, asked: ImportOptions) -> Imported | Model | LoadedModel:
    if isinstance(model, Imported) or type(model) in get_args(Model):
        if asked.benign is not None:
            raise InputError("benign", "the model was imported before", "give it to import_model")
        return cast("Imported | Model", model)
    if isinstance(model, str | PathLike):
        return model_file.read(Path(model), asked)
    return import_with(model.estimator if isinstance(model, Training) else model, asked)
