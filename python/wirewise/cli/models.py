# SPDX-License-Identifier: Apache-2.0
"""`wirewise models`: the ready models, and what is known of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from wirewise.cli import completing
from wirewise.cli.options import Json
from wirewise.console import grid, listing, print_json, step

if TYPE_CHECKING:
    from wirewise.ready import Ready


def register(app: typer.Typer) -> None:
    app.command("models")(models)


def models(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Print the card of this one, such as @flood.", autocompletion=completing.ready_models
        ),
    ] = None,
    compile_: Annotated[
        bool,
        typer.Option("--compile", help="Compile it where it has not been, and say where the bundle is."),
    ] = False,
    as_json: Json = False,
) -> None:
    """List the ready models, which need no captures and no training, or print the card of one.

    Their names are taken wherever a model or a bundle is: `wirewise compile @flood -o flood.wirewise`.
    """
    from wirewise import ready
    from wirewise.errors import InputError
    from wirewise.formats import model_file

    if compile_:
        if name is None:
            raise InputError("--compile", "needs a model", f"name one of {', '.join(ready.READY)}")
        chosen = _find(name)
        with step(f"compiling {chosen.name}", quiet=as_json):
            path = ready.bundle(chosen.name)
        if as_json:
            print_json({"name": chosen.name, "bundle": str(path)})
        else:
            grid([("bundle", path)])
        return
    if name is not None:
        chosen = _find(name)
        if as_json:
            print_json({"name": chosen.name, "card": chosen.card})
        else:
            print(chosen.card, end="")
        return
    found: list[dict[str, Any]] = []
    for model in ready.READY.values():
        loaded, record = model_file.read(model.file), model.record()
        found.append(
            {
                "name": model.name,
                "doc": model.doc,
                "classes": loaded.classes,
                "features": len(record.feature_set.features),
                "key": record.feature_set.key,
                "model": loaded.model.describe(),
                "max_benign_loss": model.wish,
            }
        )
    if as_json:
        print_json({"models": found})
        return
    listing(
        ("model", "finds", "classes"),
        [(one["name"], one["doc"], ", ".join(one["classes"])) for one in found],
    )
    grid(
        [
            ("card", "wirewise models @flood"),
            ("compile", "wirewise compile @flood -o flood.wirewise"),
            ("run", "wirewised run --bundle @flood --interface eth0"),
        ]
    )


def _find(name: str) -> Ready:
    """With or without the sign in front of its name."""
    from wirewise import ready

    return ready.READY.find(name if name.startswith(ready.SIGN) else ready.SIGN + name)
