# SPDX-License-Identifier: Apache-2.0
"""What all scikit-learn estimators have in common: whether they are fitted, and asking them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from wirewise.errors import InputError
from wirewise.importers.lowering import library
from wirewise.importers.request import Predict, Request, Rows


def check_fitted(estimator: Any, request: Request) -> None:
    """Raises InputError unless `fit` was called."""
    validation = library("sklearn.utils.validation")
    try:
        validation.check_is_fitted(estimator)
    except library("sklearn.exceptions").NotFittedError:
        raise request.refuse("is not fitted", "call fit first") from None


def predict_with(estimator: Any, fed_as: type[Any] = np.int64) -> Predict:
    """The estimator's own `predict`, as class numbers in the order of its class names."""

    def predict(x: Rows) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            try:
                labels = np.asarray(estimator.predict(x.astype(fed_as, copy=False)))
            except Exception as error:  # of any library
                text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
                raise InputError(
                    type(estimator).__name__, f"its own predict fails ({text})", "import one that predicts"
                ) from None
        classes = np.asarray(estimator.classes_)
        by_name = np.argsort(classes)  # in our order, which need not be that of the names
        places = np.searchsorted(classes, labels, sorter=by_name).clip(max=len(classes) - 1)
        numbers = by_name[places]
        if numbers.shape != (len(x),) or (classes[numbers] != labels).any():
            raise InputError(
                type(estimator).__name__,
                "its predict gives something else than one of its classes_ for each row",
                "import an estimator whose predict does",
            )
        return numbers.astype(np.int32)

    return predict
