# SPDX-License-Identifier: Apache-2.0
"""`wirewise preset`: a feature set that comes with wirewise, as a file to edit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wirewise.cli import completing
from wirewise.cli.options import Json
from wirewise.cli.outputs import OUTPUT
from wirewise.console import grid, print_json


def register(app: typer.Typer) -> None:
    app.command("preset")(preset)


def preset(
    name: Annotated[
        str, typer.Argument(help="The preset, such as hara2026.", autocompletion=completing.presets)
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File (YAML) to write."), OUTPUT
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a preset as a file to edit: a feature set for --feature-set FILE, with what each line means.

    The file as it is gives the same features and the same program as the preset. Without -o it is printed.
    """
    from wirewise.errors import InputError, choose
    from wirewise.feature_sets import PRESETS
    from wirewise.files import write_atomically

    if name not in PRESETS:
        raise InputError(f"preset {name!r}", "does not exist", choose(name, PRESETS))
    chosen = PRESETS[name]
    if output:
        write_atomically(output, chosen.to_yaml().encode())
    if as_json:
        print_json({"preset": name, "output": output and str(output), "feature_set": chosen.to_dict()})
    elif output:
        grid([("written", output), ("use", f"wirewise features CAPTURES -f {output} -o table.parquet")])
    else:
        print(chosen.to_yaml(), end="")
