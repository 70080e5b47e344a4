# SPDX-License-Identifier: Apache-2.0
"""What a caller in Python gives is looked at before it is used."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import pytest

import wirewise as ww
from wirewise.advice import in_python_terms
from wirewise.arguments import kinds_of
from wirewise.errors import InputError
from wirewise.feature_sets import FeatureSet
from wirewise.quantize import Options

Kind = Literal["polars", "pandas"]

FUNCTIONS = [
    ww.check, ww.compile, ww.cost, ww.explain, ww.features, ww.import_model, ww.judge, ww.replay, ww.run,
    ww.search, ww.train, ww.write_report,
]  # fmt: skip


@in_python_terms
def verb(
    path: str | Path,
    *,
    count: int = 1,
    share: float = 0.5,
    sure: bool = False,
    names: Sequence[str] | None = None,
    at: int | str | None = None,
    frame: Kind = "polars",
    sizes: tuple[int, int] = (1, 2),
    layers: tuple[tuple[int, ...], ...] = ((8,),),
    feature_set: FeatureSet | None = None,
    anything: Any = None,
) -> None:
    pass


@pytest.mark.parametrize(
    "given",
    [
        {"count": np.int64(3), "share": np.float32(0.5), "sure": np.bool_(True)},
        {"share": 1, "names": ["a", "b"], "at": "5,30"},
        {"names": np.array(["a"]), "at": 5},
        {"names": pl.Series(["a"]), "frame": "pandas"},
        {"names": (name for name in "ab")},
        {"names": {"a"}, "sizes": [3, 4], "layers": [[8, 4], []]},
        {"feature_set": FeatureSet("x", ["length"]), "anything": object()},
    ],
)
def test_what_fits_is_taken(given: dict[str, Any]) -> None:
    verb("a", **given)
    verb(Path("a"), **given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"count": "x"}, "count='x': cannot be of type str; give a whole number"),
        ({"count": 1.5}, "count=1.5: cannot be of type float; give a whole number"),
        ({"count": None}, "count: cannot be of type NoneType; give a whole number"),
        ({"share": "x"}, "share='x': cannot be of type str; give a number"),
        ({"sure": "no"}, "sure='no': cannot be of type str; give True or False"),
        ({"names": "ab"}, "names='ab': cannot be of type str; give a list of texts or None"),
        ({"names": ["a", 0]}, "names[1]=0: cannot be of type int; give text"),
        ({"names": np.array([0])}, "names: cannot be of type ndarray; give a list of texts or None"),
        ({"at": 0.5}, "at=0.5: cannot be of type float; give a whole number or text or None"),
        ({"frame": ["polars"]}, "frame: cannot be of type list; give text"),
        ({"sizes": 3}, "sizes=3: cannot be of type int; give a list of 2 whole numbers"),
        ({"sizes": (3,)}, "sizes: has 1 parts; give a list of 2 whole numbers"),
        ({"layers": ((8,), 8)}, "layers[1]=8: cannot be of type int; give a list of whole numbers"),
        (
            {"feature_set": "hara2023"},
            "feature_set='hara2023': cannot be of type str; give a FeatureSet or None",
        ),
        ({"path": 3}, "path=3: cannot be of type int; give text or a Path"),
        ({"path": b"x"}, "path: cannot be of type bytes; give text or a Path"),
        ({"path": "a\0b"}, "path: has a NUL, which no name and no path can have; leave it out"),
        ({"names": "x" * 100}, "names: cannot be of type str; give a list of texts or None"),
    ],
)
def test_what_does_not_fit_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as told:
        verb(**{"path": "a", **given})
    assert str(told.value) == said


def test_python_says_what_is_missing_or_unknown() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'path'"):
        verb()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'cuont'"):
        verb("a", cuont=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_every_function_looks_at_its_arguments(function: Callable[..., Any]) -> None:
    kinds, parameters = kinds_of(inspect.unwrap(function)), inspect.signature(function).parameters
    named = [
        name for name, one in parameters.items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    required = [name for name in named if parameters[name].default is inspect.Parameter.empty]
    needed = {name: "x" if kinds[name].fits("x") else 1 for name in required}
    looked_at = [name for name in named if kinds[name].one]
    assert len(looked_at) >= len(named) // 2, looked_at
    for name in looked_at:
        with pytest.raises(InputError, match=rf"^{name}: cannot be of type object; give "):
            function(**{**needed, name: object()})


@pytest.mark.parametrize(
    "make",
    [
        lambda: FeatureSet("x", ["length"], key=3),  # type: ignore[arg-type]
        lambda: FeatureSet(None, ["length"]),  # type: ignore[arg-type]
        lambda: FeatureSet("x", ["length"], table_size="64k"),  # type: ignore[arg-type]
        lambda: ww.Space(depth=3),  # type: ignore[arg-type]
        lambda: ww.Space(hidden=(8, 8)),  # type: ignore[arg-type]
        lambda: Options(network=8),  # type: ignore[arg-type]
        lambda: ww.Table.read(None),  # type: ignore[arg-type]
    ],
)
def test_so_do_classes(make: Callable[[], Any]) -> None:
    with pytest.raises(InputError, match="cannot be of type"):
        make()


def test_what_the_system_says_of_a_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="File name too long; check its name"):
        ww.features("a" * 300, "hara2023")


def test_messages_have_no_control_characters() -> None:
    with pytest.raises(InputError) as told:
        FeatureSet.load("\x1b[31mred")
    assert str(told.value).startswith("\\u001b[31mred: ")
