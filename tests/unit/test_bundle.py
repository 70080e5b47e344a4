# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import json
import re
import zipfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from tests.examples import examples
from wirewise.cli import app
from wirewise.errors import InputError
from wirewise.feature_sets import FeatureSet
from wirewise.formats.bundle import Bundle
from wirewise.formats.card import write_card
from wirewise.formats.manifest import Flow, Program, StateField
from wirewise.models import Tree, TreeEnsemble

STUMP = TreeEnsemble(
    2, 2, "majority", (Tree((1, -1, -1), (80, 0, 0), (1, -1, -1), (2, -1, -1), ((), (0,), (1,))),), 2, (0, 0)
)
FEATURES = FeatureSet.from_dict({"name": "small", "features": ["length", "mean(length)"]})


def make(**changes: Any) -> Bundle:
    """A bundle whose object is not a program: the format does not look inside."""
    parts: dict[str, Any] = {
        "name": "stump",
        "classes": ["benign", "attack"],
        "model": STUMP,
        "feature_set": FEATURES,
        "flow": Flow(
            key="five-tuple", table_size=65536, sharing="per-cpu",
            idle_timeout_ns=60_000_000_000, grace_ns=10_000_000_000,
            proven_packets=4, clock="coarse", entry4_size=64, entry6_size=96, layout_digest="00",
            state=[StateField(name="sum_length", type="u64", offset=0)],
        ),
        "program": Program(
            section="xdp", entry="ww_main", tail_calls=[], shape="inline", why="small", instructions=1,
            object_bytes=4, clang="clang 19", predicted={}, verifier=None,
        ),
        "object_file": b"\x7fELF",
        "sources": {"main.bpf.c": "int x;\n"},
        "accuracy": {"rows": 10, "accuracy": 0.9},
    }  # fmt: skip
    return Bundle.create(**(parts | changes))


CONTENT = make().to_bytes()


def repack(data: bytes, **members: bytes | None) -> bytes:
    """The archive with members replaced (None: left out) and a right seal, as a forger would make it."""
    source = zipfile.ZipFile(io.BytesIO(data))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in source.namelist():
            content = members.get(name, source.read(name))
            if content is not None:
                archive.writestr(name, content)
        archive.comment = b"0" * 64
    body = buffer.getvalue()[:-64]
    return body + sha256(body).hexdigest().encode()


def manifest_of(content: bytes) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(zipfile.ZipFile(io.BytesIO(content)).read("manifest.json"))
    return manifest


def refusal(data: bytes) -> str:
    with pytest.raises(InputError) as caught:
        Bundle.from_bytes(data, source="b.wirewise")
    message = str(caught.value)
    assert message.startswith("b.wirewise: ") and "\n" not in message
    return message


def test_what_is_written_is_read(tmp_path: Path) -> None:
    bundle = make()
    path = tmp_path / "b.wirewise"
    bundle.write(path)
    assert Bundle.read(path) == bundle
    assert bundle.to_bytes() == path.read_bytes()
    assert [p.name for p in path.parent.iterdir()] == ["b.wirewise"]
    assert zipfile.ZipFile(path).testzip() is None
    manifest = json.loads(zipfile.ZipFile(path).read("manifest.json"))
    assert manifest["digests"]["program.bpf.o"] == sha256(b"\x7fELF").hexdigest()
    assert set(manifest["digests"]) == {
        "model.json", "features.json", "program.bpf.o", "card.md", "sources/main.bpf.c",
    }  # fmt: skip
    assert "benign" in bundle.card and "sum_length" not in bundle.card


@examples(100)
@given(st.data())
def test_every_changed_byte_is_found(data: st.DataObject) -> None:
    content = bytearray(CONTENT)
    index = data.draw(st.integers(0, len(content) - 1))
    content[index] ^= data.draw(st.integers(1, 255))
    refusal(bytes(content))


@given(st.integers(0, 3000))
def test_cut_off_bundles_are_refused(length: int) -> None:
    refusal(CONTENT[: min(length, len(CONTENT) - 1)])


@given(st.binary(max_size=300))
def test_other_files_are_refused(data: bytes) -> None:
    refusal(data)
    refusal(b"PK\x03\x04" + data)


def test_digests_are_checked_even_if_the_seal_is_right() -> None:
    assert Bundle.from_bytes(repack(CONTENT), source="b") == Bundle.from_bytes(CONTENT, source="b")
    assert "digest of program.bpf.o" in refusal(repack(CONTENT, **{"program.bpf.o": b"\x7fELG"}))
    assert "card.md is missing" in refusal(repack(CONTENT, **{"card.md": None}))
    assert "manifest.json" in refusal(repack(CONTENT, **{"manifest.json": None}))
    assert "not JSON" in refusal(repack(CONTENT, **{"manifest.json": b"{"}))


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        ({"version": 2}, "version 2 is unknown, this wirewise reads version 1"),
        ({"abi": 99}, "abi 99 is unknown"),
        ({"format": "other"}, "not one of a wirewise bundle"),
        ({"classes": ["benign"]}, "manifest.json: classes"),
        ({"colour": "red"}, "manifest.json: colour"),
        ({"classes": ["benign", "benign"]}, "twice"),
        ({"classes": ["benign", "a\x1b[2J"]}, "a terminal would obey or hide"),
        ({"feature_names": ["a", "b"]}, "feature names"),
        ({"model": {"used_features": [0]}}, "used features: [0] where the parts say [1]"),
        ({"model": {"n_outputs": 1}}, "number of outputs: 1 where the parts say 2"),
        ({"model": {"n_outputs": 65}}, "manifest.json: model.n_outputs"),
    ],
)
def test_manifests_that_are_wrong(change: dict[str, Any], fragment: str) -> None:
    manifest = manifest_of(CONTENT)
    model = manifest["model"] | change.get("model", {})
    manifest |= change | {"model": model}
    assert fragment in refusal(repack(CONTENT, **{"manifest.json": json.dumps(manifest).encode()}))


def test_the_manifest_states_what_the_agent_would_have_to_read_of_the_model() -> None:
    model = manifest_of(CONTENT)["model"]
    assert (model["used_features"], model["n_outputs"]) == ([1], 2)


def test_bundles_older_than_that_are_read() -> None:
    manifest = manifest_of(CONTENT)
    del manifest["model"]["used_features"], manifest["model"]["n_outputs"]
    old = Bundle.from_bytes(repack(CONTENT, **{"manifest.json": json.dumps(manifest).encode()}), source="b")
    assert old.manifest.model.used_features is None and old.model == STUMP


def test_parts_must_belong_together() -> None:
    with pytest.raises(InputError, match="number of classes"):
        make(classes=["a", "b", "c"])
    with pytest.raises(InputError, match="number of features"):
        make(feature_set=FeatureSet.from_dict({"name": "one", "features": ["length"]}))


def test_writing_where_it_cannot_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a folder"):
        make().write(tmp_path / "folder")
    with pytest.raises(InputError, match="cannot be written"):
        make().write(tmp_path / "file" / "b.wirewise")
    with pytest.raises(InputError, match="does not exist"):
        Bundle.read(tmp_path / "nothing.wirewise")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["file", "folder"]


MARKUP = "[bold]x[/bold] :boom:"
HOSTILE = f"\x1b]0;title\x07\x9b31m\u202e{MARKUP}"


def test_a_signature_is_kept_and_shown(tmp_path: Path) -> None:
    key = bytes(range(32))
    signature = json.dumps({"public_key": key.hex()}).encode()
    signed = repack(CONTENT)
    bundle = replace(Bundle.from_bytes(signed, source="b"), signature=signature)
    again = Bundle.from_bytes(bundle.to_bytes(), source="b")
    assert again.signature == signature
    assert again.signed_by == sha256(key).hexdigest()
    bundle.write(tmp_path / "b.wirewise")
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path / "b.wirewise")])
    assert again.signed_by[:32] in shown.output and "`wirewised verify` checks it" in shown.output
    assert "by nobody" in inspected(tmp_path, CONTENT).output


def inspected(folder: Path, content: bytes, *options: str) -> Result:
    path = folder / "b.wirewise"
    path.write_bytes(content)
    result = CliRunner().invoke(app, ["inspect", str(path), *options])
    assert result.exit_code == 0, result.output
    return result


def test_what_others_wrote_is_shown_as_text(tmp_path: Path) -> None:
    manifest = json.loads(zipfile.ZipFile(io.BytesIO(CONTENT)).read("manifest.json"))
    manifest["model"]["summary"] = manifest["model"]["source"] = MARKUP
    manifest["model"]["notes"] = [MARKUP]
    card = f"# card {HOSTILE}\n".encode()
    manifest["digests"]["card.md"] = sha256(card).hexdigest()
    content = repack(CONTENT, **{"manifest.json": json.dumps(manifest).encode(), "card.md": card})
    for options, text in (
        ([], MARKUP), (["--json"], MARKUP), (["--card"], f"\\u001b]0;title\\u0007\\u009b31m\\u202e{MARKUP}")
    ):  # fmt: skip
        shown = inspected(tmp_path, content, *options).output
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown), repr(shown)
        assert text in shown
    assert json.loads(inspected(tmp_path, content, "--json").output)["model"]["summary"] == MARKUP
    manifest["model"]["notes"] = [HOSTILE]
    assert "would obey or hide" in refusal(
        repack(CONTENT, **{"manifest.json": json.dumps(manifest).encode()})
    )


def test_a_new_bundle_has_no_such_text() -> None:
    bundle = make(source=HOSTILE, notes=[HOSTILE, "two\nlines"], accuracy={HOSTILE: HOSTILE})
    text = json.dumps(bundle.manifest.model_dump(), ensure_ascii=False)
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202e]", text)
    assert bundle.manifest.model.notes[1] == "two lines"
    with pytest.raises(InputError, match="cannot be a name"):
        make(classes=["benign", HOSTILE])


def test_a_bundle_that_is_read_has_the_card_that_it_was_written_with() -> None:
    facts = {"seed": 1, "estimator": "forest", "dealings": {"seeds": [0], "by": "source"}}
    bundle = Bundle.from_bytes(make(training=facts).to_bytes(), source="bundle")
    assert write_card(bundle.manifest, bundle.model) == bundle.card
