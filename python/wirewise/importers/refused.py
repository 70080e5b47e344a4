# SPDX-License-Identifier: Apache-2.0
"""Estimators of which people ask why they cannot be imported: the reason, and what to do instead."""

from __future__ import annotations

from typing import Any

_FOREST = "train one forest or one boosted ensemble instead: RandomForestClassifier, XGBClassifier"
_MEMBER = f"{_FOREST}, or import the one of its .estimators_ that is to decide"
_WITHOUT = "train the estimator without it: those that can be imported take several classes themselves"
_OUTPUTS = "predicts several outputs", "train one classifier for the output you need"
_THRESHOLD = (
    "decides by another threshold than its estimator",
    "import its .estimator_, trained with class weights that move its threshold",
)

# Class -> (what it does that no integer model does, way out).
_REASONS = {
    "CalibratedClassifierCV": (
        "bends the scores of one or several estimators by curves, for which there is no integer model",
        "import the estimator that it was given, fitted to all rows; class weights move its threshold",
    ),
    "VotingClassifier": ("asks several estimators, whose votes cannot be added up in one model", _MEMBER),
    "StackingClassifier": ("feeds the scores of several estimators to another one", _MEMBER),
    "BaggingClassifier": ("asks estimators that may each read other features", _FOREST),
    "AdaBoostClassifier": (
        "weighs the votes of its estimators",
        "train GradientBoostingClassifier or HistGradientBoostingClassifier",
    ),
    "OneVsRestClassifier": ("compares the probabilities of an estimator for each class", _WITHOUT),
    "OneVsOneClassifier": ("asks an estimator for each pair of classes", _WITHOUT),
    "OutputCodeClassifier": ("decides by codes over several estimators", _WITHOUT),
    "MultiOutputClassifier": _OUTPUTS,
    "ClassifierChain": _OUTPUTS,
    "SelfTrainingClassifier": ("is a way of training around an estimator", "import its .estimator_"),
    "FixedThresholdClassifier": _THRESHOLD,
    "TunedThresholdClassifierCV": _THRESHOLD,
    "FrozenEstimator": ("only keeps an estimator from being fitted again", "import its .estimator"),
}


def reason(estimator: Any) -> tuple[str, str] | None:
    """Why an estimator cannot be imported, and the way out; None if there is nothing special to say of it."""
    for base in type(estimator).__mro__:
        if base.__module__.partition(".")[0] == "sklearn" and base.__name__ in _REASONS:
            return _REASONS[base.__name__]
    return None
