# SPDX-License-Identifier: Apache-2.0
"""Ready models: what is in the package fits it, its cards are complete, and names are found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import wirewise as ww
from scripts.models import MAKINGS
from wirewise import ready
from wirewise.cli import app
from wirewise.errors import InputError
from wirewise.evaluate import out_of_fold
from wirewise.formats import model_file
from wirewise.ready import READY


@pytest.mark.parametrize("name", READY)
def test_each_is_whole(name: str) -> None:
    model = READY[name]
    loaded, record = model_file.read(model.file), model.record()
    assert record.feature_set.to_dict() == MAKINGS[name].feature_set.to_dict(), "run `make models`"
    assert loaded.model.n_features == len(record.feature_set.features)
    assert record.training[ready.KEY]["name"] == name
    assert loaded.reference is not None and len(loaded.reference.flows) == loaded.model.n_classes
    text = model.file.read_text()
    assert not re.search(r"/(home|work|root|tmp)/", text), "a path of the machine that made it"
    assert len(text) < 1 << 20


@pytest.mark.parametrize("name", [name for name in READY if READY[name].wish is not None])
def test_a_model_of_attacks_has_its_margin(name: str) -> None:
    model = READY[name]
    loaded = model_file.read(model.file)
    wish = model.wish
    assert wish is not None and loaded.classes[0] == "benign"
    point = out_of_fold.chosen(model.record().training, loaded.model, None, wish, 1)
    assert point is not None and point.by > 0 and point.loss <= wish
    rows = re.findall(r"^\| \*\*(.+)\*\* \| \d+ \| .* \|$", model.card, re.MULTILINE)
    dealings = model.record().training["dealings"]
    assert set(rows) == set(dealings["recall"]) - {"attack"} and len(dealings["seeds"]) > 1


@pytest.mark.parametrize("name", READY)
def test_a_card_says_what_it_is_for_and_cannot_see(name: str) -> None:
    model = READY[name]
    assert model.card.startswith(f"# {name}: {model.doc}\n")
    assert model.use in model.card and model.blind in model.card


def test_names_and_files_are_told_apart() -> None:
    found = ready.find("@flood")
    assert found is not None and found.name == "@flood"
    assert ready.find("flood.json") is None and ready.find(Path("./@flood")) is not None
    assert ready.bundle("some.wirewise") == Path("some.wirewise")
    with pytest.raises(InputError, match=r"model '@floot': is not a ready one; did you mean '@flood'"):
        ready.find("@floot")


def test_a_bundle_is_compiled_once_and_again_where_it_is_not_this_wirewises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = ready.bundle("@voip-or-bulk")
    assert path.parent == tmp_path / "wirewise"
    first = path.stat()
    assert ready.bundle("@voip-or-bulk") == path and path.stat().st_mtime_ns == first.st_mtime_ns
    bundle = ww.Bundle.read(path)
    assert bundle.manifest.training and bundle.manifest.training["ready"]["name"] == "@voip-or-bulk"
    assert bundle.manifest.reference is not None
    for damaged in (b"no bundle", path.read_bytes()[:-1]):
        path.write_bytes(damaged)
        ww.Bundle.read(ready.bundle("@voip-or-bulk"))
    other = ww.compile(READY["@voip-or-bulk"].file, name="voip-or-bulk", verify="never").bundle
    assert other.manifest.training != bundle.manifest.training
    other.write(path)
    assert ww.Bundle.read(ready.bundle("@voip-or-bulk")).manifest.training == bundle.manifest.training


def test_python_takes_the_name() -> None:
    compiled = ww.compile("@voip-or-bulk", verify="never")
    assert compiled.bundle.classes == ["bulk", "interactive", "video"]
    assert "What it cannot see" in READY["@voip-or-bulk"].card
    assert "cannot see" in compiled.bundle.card.replace("_", " ")


def test_models_lists_them_and_prints_cards() -> None:
    listed = CliRunner().invoke(app, ["models"])
    assert listed.exit_code == 0 and all(name in listed.output for name in READY)
    card = CliRunner().invoke(app, ["models", "flood"])
    assert card.output == READY["@flood"].card
    refused = CliRunner().invoke(app, ["models", "@nothing"])
    assert isinstance(refused.exception, InputError)
