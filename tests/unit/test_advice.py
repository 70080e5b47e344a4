# SPDX-License-Identifier: Apache-2.0
"""Callers in Python read of arguments where the command line reads of options."""

from __future__ import annotations

import pytest

from wirewise.advice import in_python_terms
from wirewise.errors import InputError, MissingFeatureError


@in_python_terms
def verb(
    text: str,
    kind: str = "input",
    *,
    table: object = None,
    yes: bool = False,
    max_benign_loss: float | None = None,
    classes: object = None,
) -> None:
    raise InputError("x", "is wrong", text) if kind == "input" else MissingFeatureError(text)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("add --table TABLE", "add table=..."),
        ("add --yes, or go home", "add yes=True, or go home"),
        ("--max-benign-loss is no share", "max_benign_loss=... is no share"),
        ("leave out --majority, and import it again", 'leave out votes="majority", and import it again'),
        (
            "give --classes benign,attack, which is better",
            'give classes=["benign", "attack"], which is better',
        ),
        ("name the classes with --classes", "name the classes with classes=..."),
        ("make it with `wirewise features --table x`", "make it with `wirewise features --table x`"),
        ("see --unheard-of", "see --unheard-of"),
    ],
)
def test_options_are_named_as_arguments(said: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        verb(said)
    assert str(caught.value) == f"x: is wrong; {told}" and caught.value.way_out == told
    with pytest.raises(MissingFeatureError) as missing:
        verb(said, "missing")
    assert str(missing.value) == told
