# SPDX-License-Identifier: Apache-2.0
"""`wirewise emit`: the sources that a target makes of a bundle's model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wirewise.cli.options import BundleArgument, ForceOption, Json, TargetOption
from wirewise.cli.outputs import OUTPUT_OR_FOLDER
from wirewise.cli.target_options import SourcesCommand, find_target
from wirewise.console import grid, print_json

if TYPE_CHECKING:
    from wirewise.targets import Sources


def register(app: typer.Typer) -> None:
    app.command("emit", cls=SourcesCommand)(emit)


def emit(
    context: typer.Context,
    bundle: BundleArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the sources."), OUTPUT_OR_FOLDER],
    target: TargetOption = "ebpf",
    force: ForceOption = False,
    as_json: Json = False,
) -> None:
    """Write the sources that a target makes of a bundle's model and feature set to a folder.

    Nothing is compiled. For the target that the bundle was compiled for they are those in the bundle, unless
    an option says something else.
    """
    from wirewise.formats.bundle import Bundle

    maker, given = find_target(context, target)
    loaded = Bundle.read(bundle)
    options = maker.choose(given, loaded.manifest.program)
    sources = maker.emit(loaded.model, loaded.feature_set, options)
    write_sources(sources, output, force=force)
    if as_json:
        print_json(
            {
                "bundle": str(bundle),
                "target": target,
                "output": str(output),
                "files": sorted(sources.files),
            }
        )
        return
    print_sources(sources, output)


def write_sources(sources: Sources, folder: Path, *, force: bool) -> None:
    """Writes sources below a folder, which is made if its parent exists. Raises InputError if one of them is
    there already, unless forced; then nothing is written.
    """
    from wirewise.errors import InputError
    from wirewise.files import check_folder, write_atomically

    check_folder(folder)
    there = sorted(name for name in sources.files if (folder / name).exists())
    if there and not force:
        raise InputError(
            str(folder),
            f"holds {', '.join(there)} already",
            "give another folder, or --force to replace them",
        )
    for name, text in sources.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / name, text.encode())


def print_sources(sources: Sources, folder: Path) -> None:
    """What was chosen, and what was written where."""
    grid([*sources.about(), ("written", f"{', '.join(sorted(sources.files))} to {folder}")])
