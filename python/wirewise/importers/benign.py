# SPDX-License-Identifier: Apache-2.0
"""Benign traffic as class 0, which is what margins and `after` count from.

scikit-learn and others number classes in the order of their sorted names, so that `attack` comes before
`benign`. An integer model is renumbered so that each decision stays what it was, equal scores included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from wirewise.errors import InputError, choose
from wirewise.importers.request import Imported, Predict, Request, Rows

NAMES = ("benign", "normal", "background")
"""What class 0 is recognised by, in any case; the first that there is."""


def benign_first(imported: Imported, request: Request) -> Imported:
    """The same decisions with the benign class as class 0, and a note that says so.

    Raises InputError if the request names a class that the model does not have, or that cannot come first.
    """
    first = find_benign(imported.classes, request)
    if not first:
        return imported
    name = imported.classes[first]
    try:
        model = imported.model.renumbered(first)
    except InputError as error:
        if request.benign is not None:
            raise request.refuse(
                f"class {name!r} cannot become class 0: {error.rule}", error.way_out
            ) from None
        note = f"{name} stays class {first}, so no margin can be set: {error.rule}; {error.way_out}"
        return replace(imported, notes=[*imported.notes, note])
    classes = [*imported.classes[first:], *imported.classes[:first]]
    return replace(
        imported,
        model=model,
        classes=classes,
        notes=[*imported.notes, order_note(classes, first)],
        predict=_renumbered(imported.predict, first, len(classes)),
        first=first,
    )


def order_note(classes: Sequence[str], first: int) -> str:
    """The note on a model whose class 0 is class `first` of the estimator; "" if nothing changed."""
    if not first:
        return ""
    return f"class 0 is {classes[0]}, class {first} of the estimator; in order: {', '.join(classes)}"


def find_benign(classes: Sequence[str], request: Request) -> int:
    """The number of the benign class; 0 if no name says which it is."""
    if request.benign is not None:
        if request.benign not in classes:
            raise request.refuse(
                f"has no class {request.benign!r} that could be the benign one",
                choose(request.benign, classes),
            )
        return classes.index(request.benign)
    folded = [name.casefold() for name in classes]
    return next((folded.index(name) for name in NAMES if name in folded), 0)


def _renumbered(predict: Predict, first: int, n_classes: int) -> Predict:
    def renumbered(x: Rows) -> Any:
        return (predict(x) - first) % n_classes

    return renumbered
