# SPDX-License-Identifier: Apache-2.0
"""Names reach generated sources as comments only: whatever they hold, the code is the same."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from wirewise.errors import InputError
from wirewise.feature_sets import Feature, FeatureSet
from wirewise.models import (
    Bound,
    Bounded,
    Model,
    random_binary_bank,
    random_binary_mlp,
    random_fixed_point_mlp,
    random_quantized_mlp,
    random_tree_ensemble,
)
from wirewise.targets import TARGETS
from wirewise.targets.comments import comment

PLAIN = FeatureSet.from_dict(
    {
        "name": "plain",
        "key": "source",
        "features": [
            "length",
            "mean(iat)",
            "max(ttl, window=1s)",
            "distinct(source_port, by=service, window=1s)",
        ],
    }
)
WIDTH = len(PLAIN.features)
RNG = np.random.default_rng(7)
TREES = random_tree_ensemble(RNG, n_features=WIDTH, n_trees=3, depth=3, n_classes=3, votes="majority")
MODELS: dict[str, Model] = {
    "trees": TREES,
    "bounded trees": Bounded(TREES, (Bound(0, 1, 1500), Bound(2, 0, 64))),
    "int8": random_quantized_mlp(RNG, n_features=WIDTH, layers=(4,), n_classes=2),
    "q16": random_fixed_point_mlp(RNG, n_features=WIDTH, layers=(4,), n_classes=2),
    "binary": random_binary_mlp(RNG, n_features=WIDTH, layers=(8,), n_classes=2),
    "bank": random_binary_bank(RNG, n_features=WIDTH, layers=(8,)),
}
TARGETS_OF = {
    "trees": ("ebpf", "p4", "verilog"),
    "bounded trees": ("ebpf", "p4", "verilog"),
    "int8": ("ebpf",),
    "q16": ("ebpf",),
    "binary": ("ebpf", "p4", "verilog", "micro-c"),
    "bank": ("ebpf",),
}
CASES = [(model, target) for model, targets in TARGETS_OF.items() for target in targets]
ENDS = (
    "x */\n#include <linux/bpf.h>\n#define XDP_PASS XDP_DROP\n/* y",
    '*/ asm(".incbin \\"/etc/shadow\\""); /*',
    '*/ `include "/etc/shadow" /*',
    "\\\n*/ int evil; /*",
    "??/\n*/ int evil; //",
    "\\",
    "??/",
    "*??/\n/ int evil; /*",
    "*\\\n/ int evil; /*",
    "\r#embed </etc/shadow>\r",
    "\x0b\x0c\x85\u2028\u2029int evil;",
    "// /* */ @pragma \\evil",
    "/",
    "*",
)
NAMES = st.one_of(
    st.sampled_from(ENDS),
    st.text(max_size=30),
    st.lists(st.sampled_from((*ENDS, "*", "/", "\n"))).map("".join),
)
# Newest tools read C and P4 with trigraphs off, older ones and other front ends with them on.
TRIGRAPHS = {"=": "#", "/": "\\", "'": "^", "(": "[", ")": "]", "!": "|", "<": "{", ">": "}", "-": "~"}
TOKEN = r'"(?:[^"\\\n]|\\.)*"|[A-Za-z_][\w$]*|\\\S+|\d[\w.]*|\S'


def tokens(name: str, text: str, *, trigraphs: bool) -> list[str]:
    """What a compiler of the language reads, line ends behind directives included. It knows of emitters
    nothing.
    """
    if not name.endswith((".c", ".h", ".p4", ".v")):
        return text.split()
    text = re.sub(r"\r\n?|[\x85\u2028\u2029\x0b\x0c]", "\n", text)  # of some lexer each ends a line
    if trigraphs:
        text = re.sub(r"\?\?([=/'()!<>-])", lambda match: TRIGRAPHS[match[1]], text)
    if not name.endswith(".v"):
        text = re.sub(r"\\[ \t]*\n", "", text)
    found = []
    strings_and_comments = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.S)
    bare = strings_and_comments.sub(lambda m: m[0] if m[0].startswith('"') else " ", text)
    for line in bare.split("\n"):
        here = re.findall(TOKEN, line)
        found += [*here, "<end>"] if here and here[0] in "#`" else here
    return found


def with_names(name: str, features: list[str], unit: str) -> FeatureSet:
    """The plain set under names that its checks would refuse."""
    renamed = replace(PLAIN)
    inside = []
    for feature, other in zip(PLAIN.features, features, strict=True):
        copy = replace(feature)
        assert copy.field is not None
        object.__setattr__(copy, "field", replace(copy.field, unit=unit))
        object.__setattr__(copy, "name", other)
        inside.append(copy)
    object.__setattr__(renamed, "name", name)
    object.__setattr__(renamed, "features", tuple(inside))
    return renamed


def emitted(case: tuple[str, str], feature_set: FeatureSet) -> dict[str, str]:
    model, target = case
    maker: Any = TARGETS[target]
    given = {"vectors": 4} if target in ("verilog", "micro-c") else {}
    files: dict[str, str] = maker.emit(MODELS[model], feature_set, maker.choose(given)).files
    return {name: text for name, text in files.items() if name != "main.bpf.c"}


@cache
def plain(case: tuple[str, str], trigraphs: bool) -> dict[str, list[str]]:
    return read(emitted(case, PLAIN), trigraphs)


def read(files: dict[str, str], trigraphs: bool) -> dict[str, list[str]]:
    """P4's fields are called after features; which of them is in front."""
    named = re.compile(r"(register_)?f(\d+)_\w*")
    return {
        name: [
            named.sub(r"\1f\2", token) if named.fullmatch(token) else token
            for token in tokens(name, text, trigraphs=trigraphs)
        ]
        for name, text in files.items()
    }


@examples(25)
@given(st.data())
@pytest.mark.parametrize("case", CASES, ids=" as ".join)
def test_the_tokens_are_the_same_whatever_names_hold(case: tuple[str, str], data: st.DataObject) -> None:
    name, unit = data.draw(NAMES), data.draw(NAMES)
    features = data.draw(st.lists(NAMES, min_size=WIDTH, max_size=WIDTH))
    files = emitted(case, with_names(name, features, unit))
    assert all(text.isascii() for text in files.values())
    for trigraphs in (False, True):
        assert read(files, trigraphs) == plain(case, trigraphs)


@pytest.mark.parametrize("case", [case for case in CASES if case[1] == "ebpf"], ids=" as ".join)
def test_clang_preprocesses_hostile_names_to_the_same_tokens(case: tuple[str, str], tmp_path: Path) -> None:
    clang = next((path for n in range(24, 13, -1) if (path := shutil.which(f"clang-{n}"))), None)
    if clang is None:
        pytest.skip("clang: it is not installed")

    def preprocessed(files: dict[str, str]) -> str:
        bare = {n: re.sub(r'(?m)^#include "(abi|frame/|classify/).*$', "", text) for n, text in files.items()}
        (tmp_path / "all.c").write_text("".join(bare.values()))
        command = [clang, "-E", "-P", "-trigraphs", "-x", "c", str(tmp_path / "all.c")]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
        return done.stdout

    expected = preprocessed(emitted(case, PLAIN))
    for end in ENDS:
        assert preprocessed(emitted(case, with_names(end, [end] * WIDTH, end))) == expected, end


@given(st.text())
def test_a_comment_is_one_line_of_harmless_ascii(text: str) -> None:
    said = comment(text)
    assert said.isascii() and said.isprintable() and not set(said) & set("*\\?`\"'#@")


def test_plain_labels_stay_as_they_are() -> None:
    for text in (
        "hara2023 (1f0c)",
        "mean_iat, microseconds, Q16",
        "3 trees, depth 3: 1,024 leaves",
        "bytes/s",
    ):
        assert comment(text) == text
    assert comment("größe */") == "gr<U+00F6><U+00DF>e <U+002A>/"


@pytest.mark.parametrize(
    "name", [*ENDS, "", " ", "a ", "x" * 201, "a\x1b[2J", "\u202ea", "\ud800", "a/b", "a'b"]
)
def test_a_feature_set_of_such_a_name_is_refused(name: str) -> None:
    for make in (
        lambda: FeatureSet(name, PLAIN.features),
        lambda: replace(PLAIN, name=name),
        lambda: FeatureSet.from_dict({"name": name, "features": ["length"]}, source="set.yaml"),
    ):
        with pytest.raises(InputError, match=r"feature set name .* is not one; use 1 to 200 letters"):
            make()


@pytest.mark.parametrize("name", [*ENDS, " ", "a b", "Größe", "x" * 201, "9", "a-b"])
def test_a_feature_of_such_a_name_is_refused(name: str) -> None:
    for make in (
        lambda: replace(Feature.parse("length"), name=name),
        lambda: Feature.parse({"name": name, "is": "length"}),
    ):
        with pytest.raises(InputError, match="feature name "):
            make()


@pytest.mark.parametrize("name", ["hara2023", "Web attacks (2), v1.5+x", "größe", "流量", "a-b_c:d"])
def test_names_that_people_use_are_kept(name: str) -> None:
    assert FeatureSet.from_dict({"name": name, "features": ["length"]}).name == name


@given(st.text(min_size=1))
def test_a_file_of_any_name_gives_its_set_a_name(stem: str) -> None:
    assert FeatureSet.from_dict({"features": ["length"]}, source=stem).name
