# SPDX-License-Identifier: Apache-2.0
"""Writes docs/api.md, the reference of the Python package, from its docstrings: `make docs`."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import wirewise

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
_WIDTH = 100
_STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}

_GROUPS = {
    "Captures and data frames": ("features", "replay", "explain"),
    "Models": ("train", "search", "compile", "import_model", "judge", "write_report"),
    "Interfaces": ("check", "run"),
    "Plots and costs": ("plot", "cost"),
    "What they give": (
        "Training", "Found", "Space", "Compiled", "Bundle", "Report", "Evaluation", "Importance",
        "Explanation", "Cost",
        "Attachment", "Table", "Imported", "ImportOptions",
    ),
    "Features, models and policies": (
        "FeatureSet", "Feature", "PRESETS", "Extractor", "TreeEnsemble", "Tree", "Policy",
    ),
    "Errors": ("WirewiseError", "InputError", "MissingFeatureError", "RefusedError"),
}  # fmt: skip

_HEAD = """# Python

<!-- Made by scripts/api.py from the docstrings: change those, then run `make docs`. -->

    import wirewise as ww

Everything below stands at the top of the package, and is loaded when it is first used: `import wirewise`
alone takes milliseconds. [examples/notebook.py](../examples/notebook.py) has these functions at work, cell by
cell.

**Data frames** come in as frames of polars or pandas, or as anything else that speaks Arrow. They go out as
frames of polars, or with `frame="pandas"` as frames of pandas (`pip install pandas pyarrow`). Columns of
features may be of any numeric type as long as they hold whole numbers.

**Notebooks** show bundles, trainings, feature sets, explanations and costs as tables. `plot` draws figures
(`pip install matplotlib`).

**Estimators** of scikit-learn, XGBoost, LightGBM, PyTorch and ONNX are taken as they are:
[importers.md](importers.md).

**Types**, as they stand in the signatures:

| name | is |
| --- | --- |
| `AnyPath` | `str` or `os.PathLike` |
| `AnyBundle` | the path of a bundle, a `Bundle`, or a `Compiled` |
| `AnyFeatureSet` | a preset's name, the path of a YAML file, a `FeatureSet`, or a dictionary as in the file |
| `AnyTable` | a data frame, the path of a table that `wirewise features` wrote, or a `Table` |
| `Document` | the path of a YAML file, or a dictionary as in such a file |
| `Kind` | `"polars"` or `"pandas"` |
"""


def page() -> str:
    """The whole page. Raises AssertionError for a public name that is in no group."""
    grouped = [name for names in _GROUPS.values() for name in names]
    public = set(wirewise.__all__) - {"__version__"}
    assert set(grouped) == public, f"scripts/api.py: group {sorted(set(grouped) ^ public)}"
    parts = [_HEAD]
    for title, names in _GROUPS.items():
        parts.append(f"## {title}\n")
        parts += [_entry(name, getattr(wirewise, name)) for name in names]
    return "\n".join(parts)


def _entry(name: str, thing: Any) -> str:
    title = f"### {name}\n"
    if inspect.isfunction(thing):
        return f"{title}\n{_code(name, thing)}\n{inspect.getdoc(thing)}\n"
    if not inspect.isclass(thing):
        names = ", ".join(f"`{key}`" for key in thing)
        return f"{title}\nFeature sets by name, a read-only mapping: {names}.\n"
    text = f"{title}\n{inspect.getdoc(thing)}\n"
    if issubclass(thing, Exception):
        return text
    if is_dataclass(thing):
        shown = (f"`{field.name}: {field.type}`" for field in fields(thing) if not field.name.startswith("_"))
        text += f"\nFields: {', '.join(shown)}.\n"
    lines = [_member(member, value) for member, value in vars(thing).items() if not member.startswith("_")]
    return text + "".join(["\n", *filter(None, lines)] if any(lines) else [])


def _member(name: str, value: Any) -> str:
    """A line for a method or property that has a docstring; "" for anything else."""
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    is_property = not inspect.isfunction(function)
    if is_property:
        function = getattr(value, "fget", None) or getattr(value, "func", None)
    doc = inspect.getdoc(function) if inspect.isfunction(function) else None
    if not doc:
        return ""
    given = "" if is_property else f"({', '.join(_parameters(function))})"
    return f"- `{name}{given}`: {' '.join(doc.split())}\n"


def _parameters(function: Any) -> list[str]:
    """The names of a method's arguments, for its one line."""
    found = inspect.signature(function).parameters.values()
    return [_STARS.get(p.kind, "") + p.name for p in found if p.name not in ("self", "cls")]


def _code(name: str, function: Any) -> str:
    """The signature, one argument a line where it would be too long."""
    signature = inspect.signature(function)
    given, keyword_only = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            given.append("*")
        given.append(_parameter(parameter))
        keyword_only = keyword_only or parameter.kind is inspect.Parameter.VAR_POSITIONAL
    returns = str(signature.return_annotation)
    line = f"{name}({', '.join(given)}) -> {returns}"
    if len(line) > _WIDTH:
        line = f"{name}(\n" + "".join(f"    {part},\n" for part in given) + f") -> {returns}"
    return f"```text\n{line}\n```\n"


def _parameter(parameter: inspect.Parameter) -> str:
    text = f"{_STARS.get(parameter.kind, '')}{parameter.name}: {parameter.annotation}"
    if parameter.default is inspect.Parameter.empty:
        return text
    default = parameter.default
    return f"{text} = " + (json.dumps(default) if isinstance(default, str) else repr(default))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
