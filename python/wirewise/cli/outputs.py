# SPDX-License-Identifier: Apache-2.0
"""What every command does before its work: refuse options that are given twice, and look at the files that it
is to write.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import typer
from typer.core import TyperCommand

from wirewise.errors import InputError

OUTPUT = "output"
"""Marks an option that names a file to write: Annotated[Path, typer.Option(...), OUTPUT]."""
OUTPUT_OR_FOLDER = "output or folder"
"""The same where some uses of the command write a folder."""


class _Checked(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Raises InputError for an option that is given twice, of whose values typer would take the last."""
        if not ctx.resilient_parsing:
            given: Counter[Any] = Counter(self.make_parser(ctx).parse_args(list(args))[2])
            for option, times in given.items():
                if times == 1 or option.multiple or (option.is_flag and not option.secondary_opts):
                    continue
                raise InputError(
                    f"{option.opts[0]}: given {times} times",
                    way_out=f"give it once; see `{ctx.command_path} --help`",
                )
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        from wirewise import ending
        from wirewise.places import check_outputs, reading

        outputs = output_names(self.callback)
        folders = output_names(self.callback, OUTPUT_OR_FOLDER)
        given = {name: list(_paths(value)) for name, value in ctx.params.items()}
        marked = (*outputs, *folders)
        with reading(path for name, paths in given.items() if name not in marked for path in paths):
            written = [path for name in outputs for path in given.get(name, [])]
            written += [path for name in folders for path in given.get(name, []) if not path.is_dir()]
            check_outputs(written)
            ending.expect(written)
            return super().invoke(ctx)


def check_commands(app: typer.Typer) -> None:
    """For all commands that are registered."""
    for command in app.registered_commands:
        own = command.cls or TyperCommand
        command.cls = type(own.__name__, (_Checked, own) if own is not TyperCommand else (_Checked,), {})
    for group in app.registered_groups:
        if group.typer_instance:
            check_commands(group.typer_instance)


def output_names(callback: Any, mark: str = OUTPUT) -> list[str]:
    """The parameters of a command that have a mark."""
    hints = get_type_hints(inspect.unwrap(callback), include_extras=True)
    return [name for name, hint in hints.items() if mark in getattr(hint, "__metadata__", ())]


def _paths(value: Any) -> Iterator[Path]:
    """Every text may name a file, such as that of a feature set."""
    if isinstance(value, str | Path):
        yield Path(value)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _paths(each)
