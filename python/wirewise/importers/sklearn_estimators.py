# SPDX-License-Identifier: Apache-2.0
"""What all scikit-learn estimators have in common: whether they are fitted, and asking them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from wirewise.importers.lowering import library
from wirewise.importers.request import Predict, Request, Rows


def check_fitted(estimator: Any, request: Request) -> None:
    """Raises InputError unless `fit` was called."""
    validation = library("sklearn.utils.validation")
    try:
        validation.check_is_fitted(estimator)
    except library("sklearn.exceptions").NotFittedError:
        raise request.refuse("is not fitted", "call fit first") from None


def predict_with(estimator: Any) -> Predict:
    """The estimator's classes, as numbers in its own order of class names."""

    def predict(x: Rows) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            labels = estimator.predict(x)
        by_name = np.argsort(estimator.classes_)  # in our order, which need not be that of the names
        numbers = by_name[np.searchsorted(estimator.classes_, labels, sorter=by_name)]
        return numbers.astype(np.int32)

    return predict
