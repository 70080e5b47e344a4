# SPDX-License-Identifier: Apache-2.0
"""What CONTRIBUTING.md says of extensions: a field, an accumulator, an importer and a target are each an
entry in a registry. Here they are added as a package outside of wirewise would add them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from tests.parity.cases import Case
from tests.parity.harness import Run, assert_agree, needs_kernel
from wirewise import compiler
from wirewise.abi import Status
from wirewise.cli import app
from wirewise.errors import InputError
from wirewise.feature_sets import ACCUMULATORS, FIELDS, FeatureSet
from wirewise.feature_sets.accumulators import CELLS, Accumulator, Bounds, Cell, State
from wirewise.feature_sets.catalogue import accumulators_table, fields_table
from wirewise.feature_sets.fields import Field
from wirewise.importers import FORMATS, Format, Imported, Request, import_model, supported_table
from wirewise.models import Model, Tree, TreeEnsemble
from wirewise.targets import TARGETS, Sources, Target, option
from wirewise.traffic import generate


def stump(n_features: int, feature: int, threshold: int) -> TreeEnsemble:
    """Class 1 above the threshold of one feature."""
    tree = Tree((feature, -1, -1), (threshold, 0, 0), (1, -1, -1), (2, -1, -1), ((), (0,), (1,)))
    return TreeEnsemble(n_features, 2, "majority", (tree,), 2, (0, 0))


@contextmanager
def added(registry: Any, *entries: Any) -> Iterator[None]:
    before = set(registry)
    try:
        for entry in entries:
            registry.add(entry)
        yield
    finally:
        for name in set(registry) - before:
            del registry[name]


# -- a field and an accumulator


def _update_seen(s: State, x: int, n: int, b: Bounds) -> None:
    s["seen"] |= 1 << (x & 31)


PAYLOAD_CLASS = Field(
    "payload_class",
    "class",
    31,
    "the payload's length in steps of 50 bytes, modulo 32",
    "(p->payload_length / 50 & 31)",
    lambda c: c.packet.payload_length // 50 & 31,
)
SEEN = Cell("seen", {"seen": lambda b: (1 << 32) - 1}, _update_seen, lambda b: "{seen} |= 1U << ({x} & 31);")
VALUES_SEEN = Accumulator(
    "values_seen",
    "which values modulo 32 the samples had, as bits",
    ("seen",),
    fraction_bits=lambda f: 0,
    maximum=lambda f: (1 << 32) - 1,
    read=lambda s, x, n, b: s["seen"],
    c=lambda b: "{seen}",
    unit=lambda unit: f"set of {unit}",
    of_constant=lambda x: 1 << (x & 31),
)


@needs_kernel
def test_a_field_and_an_accumulator_from_outside_run_as_their_references_say(tmp_path: Path) -> None:
    frames = [(packet.time_ns, packet.frame) for packet in generate(seed=4, duration_s=3, packets=2000)]
    with added(FIELDS, PAYLOAD_CLASS), added(CELLS, SEEN), added(ACCUMULATORS, VALUES_SEEN):
        specs = ["payload_class", "values_seen(payload_class)", "values_seen(ttl, window=500ms, previous)"]
        feature_set = FeatureSet.from_dict({"name": "own", "features": specs})
        assert [feature.spec for feature in feature_set.features] == specs
        assert [feature.unit for feature in feature_set.features] == ["class", "set of class", "set of hops"]
        assert "`payload_class`" in fields_table() and "`values_seen(FIELD)`" in accumulators_table()
        # Trees over all three, so that none is left out of the program.
        trees = tuple(stump(3, index, limit).trees[0] for index, limit in enumerate((3, 0b11, 1 << 20)))
        model = TreeEnsemble(3, 2, "majority", trees, 2, (0, 0))
        case = Case("own", feature_set, model, {"version": 1, "classes": {"c1": "drop"}})

        def seen(run: Run) -> None:
            assert run.statuses >= {Status.CLASSIFIED}
            assert all(len(np.unique(column)) > 3 for column in run.features.T)

        assert_agree(case, frames, tmp_path, seen=seen)


def test_what_is_the_same_for_every_packet_costs_nothing_of_an_accumulator_from_outside() -> None:
    with added(CELLS, SEEN), added(ACCUMULATORS, VALUES_SEEN):
        feature_set = FeatureSet.from_dict({"name": "own", "features": ["values_seen(direction)", "length"]})
        sources = compiler.emit(stump(2, 0, 1), feature_set, target="ebpf", classes=["a", "b"])
        header = sources.files["ww_feature_set.h"]
        assert "x[0] = 2; /* values_seen_direction" in header
        assert "struct ww_state {\n};" in header


# -- an importer


@dataclass
class Limit:
    """Somebody's estimator: class 1 above a limit of one feature."""

    n_features: int
    feature: int
    limit: int


def import_limit(estimator: Limit, request: Request) -> Imported:
    def predict(x: Any) -> Any:
        return (x[:, estimator.feature] > estimator.limit).astype(np.int32)

    model = stump(estimator.n_features, estimator.feature, estimator.limit)
    classes = list(request.classes or ("below", "above"))
    return Imported(model, classes, "somebody's limit", [], ((0, 1, 2),), predict)


def import_limit_file(path: str, request: Request) -> Imported:
    return import_limit(Limit(**json.loads(Path(path).read_text())), request)


@pytest.fixture
def somebody(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module of somebody's, with an estimator, its importers, and their entries."""
    module = ModuleType("somebody")
    vars(module).update(Limit=Limit, import_limit=import_limit, import_limit_file=import_limit_file)
    monkeypatch.setitem(sys.modules, "somebody", module)
    monkeypatch.setattr(Limit, "__module__", "somebody")
    shared = ("integers", "votes", "one feature")
    with added(
        FORMATS,
        Format("somebody.Limit", "somebody", "somebody:import_limit", *shared),
        Format(".limit", "somebody", "somebody:import_limit_file", *shared),
    ):
        yield


@pytest.mark.usefixtures("somebody")
def test_an_importer_from_outside_reads_estimators_and_files(tmp_path: Path) -> None:
    path = tmp_path / "a.limit"
    path.write_text('{"n_features": 3, "feature": 1, "limit": 80}')
    from_file = import_model(path, classes=["no", "yes"])
    assert from_file.model == import_model(Limit(3, 1, 80)).model == stump(3, 1, 80)
    assert from_file.classes == ["no", "yes"]
    assert "| somebody | Limit |" in supported_table()
    with pytest.raises(InputError, match="Limit"):  # it is among what can be imported
        import_model(object())


def test_a_name_is_taken_once() -> None:
    with pytest.raises(InputError, match="packet field 'length': is there already; choose another name"):
        FIELDS.add(FIELDS["length"])


# -- a target


@dataclass(frozen=True)
class TextOptions:
    indent: int = option(0, "Blanks in front of each line.")
    upper: str = option("as-is", "Write it in capitals.", yes="upper", no="as-is")


class TextTarget(Target[TextOptions, Sources]):
    """Models as text."""

    name: ClassVar[str] = "text"
    summary: ClassVar[str] = "text for people"
    options = TextOptions

    def emit(self, model: Model, feature_set: FeatureSet, options: TextOptions) -> Sources:
        if model.n_features > 2:
            raise InputError("model", "has more than 2 features", "train it on fewer")
        lines = [model.describe(), *feature_set.feature_names]
        text = "".join(f"{' ' * options.indent}{line}\n" for line in lines)
        text = text.upper() if options.upper == "upper" else text
        return Sources({"model.txt": text, "more/digest.txt": f"{model.digest}\n"})


FEATURES = FeatureSet.from_dict({"name": "two", "features": ["length", "ttl"]})


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def bundle(tmp_path: Path) -> Iterator[Path]:
    """A bundle, while there is the target."""
    compiled = compiler.compile(
        stump(2, 0, 80), FEATURES, name="stump", classes=["a", "b"], shape="functions", verify="never"
    )
    compiled.bundle.write(tmp_path / "stump.wirewise")
    with added(TARGETS, TextTarget()):
        yield tmp_path / "stump.wirewise"


def test_a_target_from_outside_emits_what_is_in_a_bundle(bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    said = run("emit", bundle, "--target", "text", "-o", folder, "--indent", 2, "--upper", "--json")
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)["files"] == ["model.txt", "more/digest.txt"]
    assert (folder / "model.txt").read_text().splitlines()[1:] == ["  LENGTH", "  TTL"]
    assert (folder / "more" / "digest.txt").read_text() == f"{stump(2, 0, 80).digest}\n"


def test_sources_that_are_there_are_replaced_by_force_only(bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "model.txt").write_text("mine")
    refused = run("emit", bundle, "--target", "text", "-o", folder)
    assert isinstance(refused.exception, InputError)
    assert str(refused.exception).endswith(
        "holds model.txt already; give another folder, or --force to replace them"
    )
    assert [path.name for path in folder.iterdir()] == ["model.txt"]
    assert (folder / "model.txt").read_text() == "mine"
    assert run("emit", bundle, "--target", "text", "-o", folder, "--force").exit_code == 0
    assert (folder / "model.txt").read_text() != "mine"


def test_a_model_is_compiled_to_a_target_from_outside(bundle: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.json"
    document = {"format": "wirewise-model", "version": 1, "classes": ["a", "b"], "source": "", "notes": []}
    document |= {"feature_names": None, "model": stump(2, 0, 80).to_dict()}
    model.write_text(json.dumps(document))
    (tmp_path / "two.yaml").write_text(json.dumps(FEATURES.to_dict()))
    command = ["compile", model, "-f", tmp_path / "two.yaml", "-o", tmp_path / "out"]
    assert run(*command, "--target", "text").exit_code == 0
    assert (tmp_path / "out" / "model.txt").read_text().endswith("length\nttl\n")
    foreign = run(*command, "--target", "text", "--shape", "inline")
    assert str(foreign.exception) == "--shape: is an option of target ebpf, not of text; leave it out"
    unknown = run(*command, "--target", "test")
    known = ", ".join(TARGETS)
    assert str(unknown.exception) == f"target 'test': is not known; did you mean 'text'? there are: {known}"
    helped = run("compile", "--help").stdout
    assert "Options of target text" in helped and "Options of target ebpf" in helped


def test_options_of_two_targets_share_a_name_only_with_one_type(bundle: Path, tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Wide:
        indent: int | None = option(None, "Blanks, wide ones.")

    @dataclass(frozen=True)
    class Other:
        indent: str = option("x", "What stands in front.")

    class WideTarget(TextTarget):
        name: ClassVar[str] = "wide"
        options = Wide  # type: ignore[assignment]

    class OtherTarget(TextTarget):
        name: ClassVar[str] = "other"
        options = Other  # type: ignore[assignment]

    with added(TARGETS, WideTarget()):
        helped = run("emit", "--help").stdout
        assert "Options of target text, wide" in helped
    with added(TARGETS, OtherTarget()):
        refused = run("emit", bundle, "-o", tmp_path / "out")
        assert "target 'other': its option 'indent' has another type" in str(refused.exception)


@pytest.mark.usefixtures("bundle")
def test_a_target_without_a_program_makes_no_bundle() -> None:
    with pytest.raises(InputError, match="target 'text': makes sources and no program"):
        compiler.compile(stump(2, 0, 80), FEATURES, name="x", classes=["a", "b"], target="text")
    with pytest.raises(InputError, match="option 'shape': is none of target text; it has indent, upper"):
        compiler.emit(stump(2, 0, 80), FEATURES, target="text", classes=["a", "b"], shape="inline")
    with pytest.raises(InputError, match="feature set 'two': has 2 features, the model reads 3"):
        compiler.emit(stump(3, 0, 80), FEATURES, target="text", classes=["a", "b"])


def test_emit_gives_the_sources_in_the_bundle_unless_asked_for_others(bundle: Path, tmp_path: Path) -> None:
    from wirewise import Bundle

    assert run("emit", bundle, "-o", tmp_path / "same").exit_code == 0
    kept = dict(Bundle.read(bundle).sources)
    assert kept == {path.name: path.read_text() for path in (tmp_path / "same").iterdir()}
    assert run("emit", bundle, "-o", tmp_path / "other", "--shape", "inline").exit_code == 0
    assert (tmp_path / "other" / "ww_model.h").read_text() != kept["ww_model.h"]
    building = run("emit", bundle, "-o", tmp_path / "third", "--clang", "clang-19")
    assert building.exit_code == 2 and not (tmp_path / "third").exists()
