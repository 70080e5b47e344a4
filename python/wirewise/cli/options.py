# SPDX-License-Identifier: Apache-2.0
"""Options that several verbs have: one name and one meaning everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wirewise.cli import completing
from wirewise.cli.outputs import OUTPUT


def bundle_at(path: Path) -> Path:
    """The bundle of a ready model, compiled if it has to be; any other path as it is."""
    from wirewise import ready
    from wirewise.console import step

    if not ready.find(path):
        return path
    with step(f"compiling {path}"):
        return ready.bundle(path)


def _bundle(context: typer.Context, path: Path) -> Path:
    return path if context.resilient_parsing else bundle_at(path)


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
BundleOption = Annotated[
    Path,
    typer.Option(
        "--bundle",
        "-b",
        help="Bundle made by `wirewise compile`, or a ready model (@flood).",
        autocompletion=completing.bundles,
        callback=_bundle,
    ),
]
BundleArgument = Annotated[
    Path,
    typer.Argument(
        help="Bundle made by `wirewise compile`, or a ready model (@flood).",
        autocompletion=completing.bundles,
        callback=_bundle,
    ),
]
PolicyOption = Annotated[
    Path | None, typer.Option("--policy", "-p", help="Policy file. Without one every class passes.")
]
FeatureSetOption = Annotated[
    str | None,
    typer.Option(
        "--feature-set",
        "-f",
        help="A preset (hara2023, hara2026) or a YAML file.",
        autocompletion=completing.feature_sets,
    ),
]
TableArgument = Annotated[Path, typer.Argument(help="Table made by `wirewise features` (Parquet).")]
BenignOption = Annotated[
    str | None,
    typer.Option(
        "--benign",
        help="Class that becomes class 0, which margins and `after` count from. Default: the one called "
        "benign, normal or background.",
    ),
]
NetworkOption = Annotated[
    str | None,
    typer.Option("--network", help="Integers to turn a neural network into: int8 (default) or q16."),
]
CalibrationOption = Annotated[
    str | None,
    typer.Option("--calibration", help="How to choose int8 ranges: kl (default), minmax, percentile, mse."),
]
FineTuneOption = Annotated[
    bool | None,
    typer.Option(
        "--fine-tune/--no-fine-tune",
        help="Train int8 weights further with the rounding in place. Default: only if accuracy is lost.",
    ),
]
TargetOption = Annotated[str, typer.Option("--target", help="What to generate code for.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace sources that already exist.")]
PlotOption = Annotated[
    Path | None,
    typer.Option("--plot", help="Plot confusion and importance of features to a .html, .svg, .png or .pdf."),
    OUTPUT,
]
