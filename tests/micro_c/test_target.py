# SPDX-License-Identifier: Apache-2.0
"""The micro-C target on the command line, which mode a network gets, and what is refused."""

from __future__ import annotations

import json
import re
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests import refusals
from tests.micro_c import chip
from tests.p4.cases import feature_set
from wirewise.cli import app
from wirewise.errors import InputError
from wirewise.models import (
    BinaryMlp,
    Bounded,
    Model,
    random_binary_mlp,
    random_quantized_mlp,
    random_tree_ensemble,
)
from wirewise.targets.micro_c import Options, emit

PAGE = Path(__file__).parents[2] / "docs" / "targets" / "micro-c.md"


def network(*widths: int, n_features: int = 4, steps: bool = True) -> BinaryMlp:
    """Of input bits, hidden layers, classes."""
    bits, *hidden, classes = widths
    return random_binary_mlp(
        np.random.default_rng(0),
        n_features=n_features,
        layers=hidden,
        n_classes=classes,
        input_bits=bits,
        steps=steps,
    )


refusal = partial(refusals.refusal, emit)
fits = partial(refusals.fits, emit)


@pytest.mark.parametrize(
    ("widths", "chained"),
    [((256, 32, 16, 2), False), ((256, 128, 2), False), ((256, 256, 2), True), ((1024, 64, 2), True)],
)
def test_size_chooses_the_mode(widths: tuple[int, ...], chained: bool) -> None:
    """The largest layer that the paper ran with weights in CLS has 256 inputs and 128 neurons."""
    made = emit(network(*widths), feature_set(4), Options())
    assert made.plan.chained == chained
    assert ("ww_chain.h" in made.files) == chained
    declared = "__emem" if chained else "__cls"
    assert f"#define WW_TABLE __export __shared {declared}\n" in made.files["ww_config.h"]


@pytest.mark.parametrize(
    ("widths", "options", "expected"),
    [
        ((256, 256, 2), Options(mode="data"), "bytes of weights and steps, the limit is 8,192"),
        (
            (256, 64, 32, 2),
            Options(mode="data", cls_bytes=3000),
            "bytes of weights and steps, the limit is 3,000",
        ),
        ((1024, 256, 2), Options(emem_bytes=10_000), "bytes of weights and steps, the limit is 10,000"),
    ],
)
def test_a_network_beyond_a_memory_is_refused_with_the_size_that_fits(
    widths: tuple[int, ...], options: Options, expected: str
) -> None:
    told = refusal(network(*widths), options)
    assert expected in told and "or give a larger --" in told
    size = re.search(r"train a network of at most ([\d-]+)", told)
    assert size, told
    assert fits(network(*map(int, size[1].split("-"))), options)


def test_what_does_not_fit_the_packet_buffer_is_refused() -> None:
    told = refusal(network(64, 8, 2, n_features=24), Options())
    assert (
        "needs 279 bytes of a packet's buffer in CTM, the limit is 256; train a network of at most 21" in told
    )
    assert fits(network(64, 8, 2, n_features=21), Options())
    assert not fits(network(64, 8, 2, n_features=22), Options())
    assert fits(network(64, 8, 2, n_features=24), Options(ctm_bytes=512))
    assert fits(network(64, 8, 2, n_features=24), Options(input="memory"))


def test_scores_that_do_not_fit_local_memory_are_refused() -> None:
    options = Options(scores="yes", ctm_bytes=2048)
    told = refusal(network(256, 64), options)
    assert "--scores: needs 139 words of a thread's local memory, the limit is 128" in told
    most = re.search(r"at most (\d+) classes", told)
    assert most and fits(network(256, int(most[1])), options)
    assert not fits(network(256, int(most[1]) + 1), options)


@pytest.mark.parametrize(
    ("model", "given", "expected"),
    [
        (random_tree_ensemble(np.random.default_rng(0)), {}, "tree-ensemble: has no micro-C; train a binary"),
        (random_quantized_mlp(np.random.default_rng(0)), {}, "has no micro-C; train a binary network"),
        (
            Bounded.by(network(64, 8, 2), np.arange(40).reshape(10, 4)),
            {"input": "bits"},
            "--input bits: does not have the features that --unknown compares",
        ),
    ],
)
def test_what_does_not_go_with_the_model_is_refused(
    model: Model, given: dict[str, Any], expected: str
) -> None:
    assert expected in refusal(model, Options(**given))


def test_a_model_of_other_features_is_refused() -> None:
    with pytest.raises(InputError, match="reads 4 features, feature set 'case' has 3"):
        emit(network(64, 8, 2), feature_set(3))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"mode": "date"}, "--mode date: is not known; did you mean 'data'?"),
        ({"input": "wire"}, "--input wire: is not known; there are: packet, bits, memory"),
        ({"result": "x"}, "--result x: is not known"),
        ({"executors": 4}, "--executors: is for --mode model"),
        ({"executors": 241, "mode": "model"}, "--executors 241: is no number from 1 to 240"),
        ({"cls_bytes": 65537}, "--cls-bytes 65537: is no number from 0 to 65536"),
        ({"emem_bytes": -1}, "--emem-bytes -1: is no number from 0"),
        ({"ctm_bytes": 300}, "--ctm-bytes 300: is no size of a buffer; there are: 256, 512, 1024, 2048"),
        ({"flows": 1000}, "--flows 1000: is no power of two"),
        ({"vectors": -1}, "--vectors -1: is no number from 0"),
        ({"scores": "yes", "result": "port"}, "--scores: needs the result header"),
        ({"scores": "yes", "input": "memory"}, "--scores: needs the result header"),
        ({"result": "memory"}, "--result memory: has an element for each flow; use --input memory"),
    ],
)
def test_options_that_make_no_sense_are_refused(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError) as refused:
        Options(**given)
    assert expected in str(refused.value)


def test_sources_are_the_same_each_time_and_say_what_made_them() -> None:
    once, again = (chip.sources(chip.paper(), Options()).files for _ in range(2))
    assert once == again
    for name, text in once.items():
        if name != "host/vectors.txt":
            assert text.startswith("/* SPDX-License-Identifier: Apache-2.0 */\n"), name
    for name in ("ww_config.h", "ww_tables.h", "ww_layers.h", "ww_model.h"):
        assert "Generated by wirewise from feature set case" in once[name]


def test_without_vectors_there_is_nothing_for_this_machine() -> None:
    files = chip.sources(chip.paper(), Options(vectors=0)).files
    assert not [name for name in files if name.startswith("host/")]
    assert not [line for line in files["ww_main.c"].splitlines() if "host" in line]


@pytest.fixture
def written(tmp_path: Path) -> list[str]:
    """A model file and its feature set, as the start of a command."""
    document = {"format": "wirewise-model", "version": 1, "classes": ["a", "b"], "source": "", "notes": []}
    document |= {"feature_names": None, "model": network(64, 8, 2).to_dict()}
    (tmp_path / "m.json").write_text(json.dumps(document))
    (tmp_path / "f.yaml").write_text(json.dumps(feature_set(4).to_dict()))
    return ["compile", f"{tmp_path}/m.json", "-f", f"{tmp_path}/f.yaml", "--target", "micro-c"]


def test_compile_writes_a_program_that_checks_itself(written: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "out"
    done = CliRunner().invoke(app, [*written, "--mode", "model", "--executors", "8", "-o", str(folder)])
    assert done.exit_code == 0, done.output
    assert "model-parallel: 8 threads judge a packet together" in " ".join(done.stdout.split())
    chip.build(folder)
    said = chip.run(folder)
    assert said.right and said.results == 64 + 8


def test_the_documented_command_checks_what_was_written(tmp_path: Path) -> None:
    chip.write(chip.sources(chip.paper(), Options()).files, tmp_path / "nfp")
    command = re.search(r"^    (cd nfp && cc .*)$", PAGE.read_text(), re.MULTILINE)
    said = re.search(r"It prints `(.*?)`", PAGE.read_text())
    assert command and said
    line = command[1].replace(" cc ", f" {chip.compiler()} ")
    done = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == said[1], done.stderr


@pytest.mark.parametrize(
    "widths", [(256, 32, 16, 2), (256, 128, 2), (256, 256, 2), (1024, 256, 256, 256, 64)]
)
def test_the_documented_sizes_are_true(widths: tuple[int, ...]) -> None:
    plain, stepped = (
        emit(network(*widths, n_features=16, steps=steps), feature_set(16), Options()).plan
        for steps in (False, True)
    )
    mode = "model" if plain.chained else "data"
    name = "-".join(map(str, widths))
    line = f"| {name} | {mode} | {plain.table_bytes:,} | {stepped.table_bytes:,} | {plain.lmem} |"
    assert line in PAGE.read_text()


def test_a_refusal_writes_nothing(written: list[str], tmp_path: Path) -> None:
    options = ["--mode", "data", "--cls-bytes", "100", "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(app, [*written, *options])
    assert isinstance(done.exception, InputError) and "the limit is 100" in str(done.exception)
    assert not (tmp_path / "out").exists()
