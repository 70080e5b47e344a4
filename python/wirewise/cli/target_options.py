# SPDX-License-Identifier: Apache-2.0
"""The options of targets on the command line: each target declares its own, and the verbs have them all."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand
from typer.main import get_command

if TYPE_CHECKING:
    from wirewise.targets import Target

_GIVEN = "wirewise.target_options"


class TargetCommand(TyperCommand):
    """A verb that also has the options of all targets; with builds False, those that decide the sources.

    They are looked up when the verb is used: targets need libraries that take longer to load than some verbs
    take to run.
    """

    builds = True

    def get_params(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        *own, help_option = super().get_params(ctx)
        return [*own, *_options(self.builds), help_option]

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        values = {option.name: ctx.params.pop(option.name, None) for option in _options(self.builds)}
        ctx.meta[_GIVEN] = {name: value for name, value in values.items() if value is not None}
        return super().invoke(ctx)


class SourcesCommand(TargetCommand):
    """A verb that ends with the sources."""

    builds = False


def find_target(context: typer.Context, name: str) -> tuple[Target[Any, Any], dict[str, object]]:
    """The target of this name, and those of its options that stand on the command line, by name.

    Raises InputError for an unknown target, and for an option of another one.
    """
    from wirewise.errors import InputError
    from wirewise.targets import TARGETS

    target = TARGETS.find(name)
    own = {one.name: one for one in fields(target.options)}
    given = {}
    for option, value in context.meta[_GIVEN].items():
        if option not in own:
            owners = [other.name for other in TARGETS.values() if option in _names(other)]
            raise InputError(
                f"--{option.replace('_', '-')}",
                f"is an option of target {', '.join(owners)}, not of {name}",
                "leave it out",
            )
        words = own[option].metadata
        given[option] = value if words.get("yes") is None else words["yes" if value else "no"]
    return target, given


def _names(target: Target[Any, Any]) -> list[str]:
    return [one.name for one in fields(target.options)]


def _kind(hint: Any) -> Any:
    """The type of an option's value: `int` of `int | None` too, which only says that there is a default."""
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    return kinds[0] if len(kinds) == 1 else hint


def _options(builds: bool) -> list[Any]:
    """One option for each name that a target has; those that several have say what they mean to each."""
    from wirewise.errors import InputError
    from wirewise.targets import TARGETS

    kinds: dict[str, Any] = {}
    texts: dict[str, dict[str, str]] = {}
    for target in TARGETS.values():
        hints = get_type_hints(target.options)
        for one in fields(target.options):
            if one.metadata.get("build") and not builds:
                continue
            kind = _kind(hints[one.name]) if one.metadata.get("yes") is None else bool
            if kinds.setdefault(one.name, kind) != kind:
                raise InputError(
                    f"target {target.name!r}",
                    f"its option {one.name!r} has another type than that of an earlier target",
                    "give it another name",
                )
            texts.setdefault(one.name, {})[target.name] = one.metadata.get("help", "")

    def carrier() -> None:
        """Only its signature is used, from which typer makes options."""

    annotations = {}
    for name, kind in kinds.items():
        by_target = texts[name]
        told = " ".join(f"{target}: {text}" for target, text in by_target.items())
        help = told if len(by_target) > 1 else next(iter(by_target.values()))
        panel = f"Options of target {', '.join(by_target)}"
        annotations[name] = Annotated[kind | None, typer.Option(help=help, rich_help_panel=panel)]
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in annotations.items()
    ]
    carrier.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    carrier.__annotations__ = annotations
    app = typer.Typer(add_completion=False)
    app.command()(carrier)
    return list(get_command(app).params)
