# SPDX-License-Identifier: Apache-2.0
"""Model files that are cut, flipped and renumbered: refused in one line or read right, never a crash."""

from __future__ import annotations

import json
import os
import pickle
import random
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.neural_network import MLPClassifier

from tests import needs
from tests.damage import mutants, outcomes
from tests.multiplicity import first
from wirewise.errors import InputError
from wirewise.importers import import_model, isolated, saved

ROOT = Path(__file__).parents[3]
X = np.random.default_rng(1).integers(0, 1500, (400, 4))
Y = (X[:, 0] // 500 + (X[:, 1] > 700)) % 3


def lightgbm(path: Path) -> None:
    library = needs.package("lightgbm")
    library.LGBMClassifier(n_estimators=3, num_leaves=9, verbose=-1, n_jobs=1).fit(X, Y).booster_.save_model(
        path
    )


def xgboost(path: Path) -> None:
    library = needs.package("xgboost")
    library.XGBClassifier(n_estimators=2, max_depth=3, booster="dart", n_jobs=1).fit(X, Y).save_model(path)


def onnx(estimator: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        convert = needs.package("skl2onnx")
        kind = convert.common.data_types.FloatTensorType([None, 4])
        fitted = estimator.fit(X, Y)
        options = {id(fitted): {"zipmap": False}}
        model = convert.convert_sklearn(fitted, initial_types=[("X", kind)], options=options)
        path.write_bytes(model.SerializeToString())

    return write


FOREST = RandomForestClassifier(3, max_depth=3, random_state=0)
NETWORK = MLPClassifier((5,), max_iter=5, random_state=0)


def skops(path: Path) -> None:
    needs.package("skops.io").dump(FOREST.fit(X, Y), path)


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps(FOREST.fit(X, Y)))


def with_joblib(path: Path) -> None:
    joblib.dump(FOREST.fit(X, Y), path)


CHECKED = {
    "lightgbm.txt": lightgbm,
    "xgboost.json": xgboost,
    "xgboost.ubj": xgboost,
    "trees.onnx": onnx(FOREST),
    "network.onnx": onnx(NETWORK),
}
TRUSTED = {"forest.skops": skops, "forest.pkl": pickled, "forest.joblib": with_joblib}


def read_copies(model: Path, seed: int, count: int) -> list[dict[str, Any]]:
    """What `tests.damage` prints; its own end, too, must not be a crash."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.damage", model, str(seed), str(count)],
        capture_output=True,
        text=True,
        timeout=3600,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, f"copy {len(lines)} of {model.name}: {done.returncode}, {done.stderr[-800:]}"
    assert len(lines) == count
    return lines


def assert_refused_or_right(lines: list[dict[str, Any]]) -> None:
    refusals = [line["refused"] for line in lines if "refused" in line]
    assert all("\n" not in refusal and "; " in refusal for refusal in refusals)
    assert len(refusals) > len(lines) // 3  # else nothing much was damaged
    wrong = [line for line in lines if line.get("agree", 1) < 0.9]
    assert not wrong


@pytest.mark.parametrize("name", CHECKED)
def test_our_checks_keep_damage_from_the_libraries(tmp_path: Path, name: str) -> None:
    CHECKED[name](tmp_path / name)
    assert_refused_or_right(read_copies(tmp_path / name, seed=1, count=300))


def numbers_changed(message: Any) -> Iterator[None]:
    """Gives each number of a protobuf message, one at a time, values that it cannot have."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in value if isinstance(value, Sequence) else [value]:
                yield from numbers_changed(part)
        elif isinstance(value, int):
            for wrong in (0, 65, -1, 1 << 30):
                with suppress(ValueError):  # an enumeration that has no such value
                    setattr(message, field.name, wrong)
                    yield
            setattr(message, field.name, value)


@pytest.mark.parametrize("estimator", first([FOREST, NETWORK]))
def test_every_number_of_an_onnx_model_is_checked(tmp_path: Path, estimator: Any) -> None:
    path = tmp_path / "model.onnx"
    onnx(estimator)(path)
    model = needs.package("onnx").load(path)
    copies = (model.SerializeToString() for _ in numbers_changed(model))
    assert_refused_or_right(list(outcomes(path, copies, isolated=False)))


@pytest.mark.parametrize(
    "said", ["", "{", "[]", "5", '{"a" 1}', '{"_estimator_type": 5}', "{}" * 2, "[" * 10**5]
)
def test_what_an_estimator_saved_of_itself_is_checked(tmp_path: Path, said: str) -> None:
    path = tmp_path / "model.json"
    xgboost(path)
    document = json.loads(path.read_bytes())
    document["learner"]["attributes"]["scikit_learn"] = said
    (outcome,) = outcomes(path, iter([json.dumps(document).encode()]), isolated=False)
    assert "scikit_learn is no JSON object" in outcome["refused"] or "different type" in outcome["refused"]


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKED)
def test_our_checks_keep_damage_from_the_libraries_at_length(tmp_path: Path, name: str) -> None:
    CHECKED[name](tmp_path / name)
    assert_refused_or_right(read_copies(tmp_path / name, seed=random.randrange(10**6), count=5000))


def test_trusted_files_cannot_crash_us(tmp_path: Path) -> None:
    for name, write in TRUSTED.items():
        write(tmp_path / name)
        copies = mutants((tmp_path / name).read_bytes(), 2, 2)
        assert len(list(outcomes(tmp_path / name, copies, isolated=True))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CHECKED, *TRUSTED])
def test_whole_imports_of_damaged_files(tmp_path: Path, name: str) -> None:
    {**CHECKED, **TRUSTED}[name](tmp_path / name)
    copies = mutants((tmp_path / name).read_bytes(), random.randrange(10**6), 100)
    assert len(list(outcomes(tmp_path / name, copies, isolated=True))) == 100


class Runs:
    """Runs code when it is loaded."""

    def __init__(self, code: str) -> None:
        self.code = code

    def __reduce__(self) -> Any:
        return exec, (self.code,)


@pytest.mark.parametrize("end", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_a_crash_is_one_line(tmp_path: Path, end: signal.Signals) -> None:
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(Runs(f"import os; os.kill(os.getpid(), {end.value})")))
    with pytest.raises(InputError, match=rf"crashes the library that reads it \({end.name}\); it is damaged"):
        import_model(path)


def test_waiting_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "LOOK_EVERY", 1)
    monkeypatch.setattr(isolated, "MOST_IDLE", 2)
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(Runs("import signal; signal.pause()")))
    with pytest.raises(InputError, match="has not been read for 2 seconds in which nothing happened"):
        import_model(path)


def test_time_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "SECONDS", 1)
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(Runs("while True: pass")))
    with pytest.raises(InputError, match="takes more than 1 seconds to read"):
        import_model(path)


def test_the_reading_process_ends_with_a_killed_caller(tmp_path: Path) -> None:
    """Even in the middle of native code, here a sleep that nothing interrupts."""
    path, started = tmp_path / "model.pkl", tmp_path / "started"
    os.mkfifo(started)
    code = f"import os, time; open({str(started)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    path.write_bytes(pickle.dumps(Runs(code)))
    call = f"from wirewise.importers import import_model; import_model({str(path)!r})"
    caller = subprocess.Popen([sys.executable, "-c", call])
    try:
        reader = int(started.read_text())
        watched = os.pidfd_open(reader)
        caller.kill()
        ended, _, _ = select.select([watched], [], [], 10)
        os.close(watched)
        assert ended
    finally:
        caller.kill()
        caller.wait()


def test_a_crash_of_a_teacher_is_one_line(tmp_path: Path) -> None:
    """`wirewise train --teacher FILE` loads the estimator itself, after another process did."""
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(Runs("import os; os.abort()")))
    with pytest.raises(InputError, match=r"crashes the library that reads it \(SIGABRT\)"):
        saved.load(path)
    forest = RandomForestClassifier(1, max_depth=2, random_state=0).fit(X, Y)
    state = forest.estimators_[0].tree_.__getstate__()
    state["nodes"]["left_child"][0] = 2**40
    forest.estimators_[0].tree_.__setstate__(state)
    path.write_bytes(pickle.dumps(forest))
    with pytest.raises(InputError, match=r"crashes the library that reads it \(SIGSEGV\)"):
        saved.load(path)
    with pytest.raises(InputError, match="nodes do not form a tree"):
        import_model(path)


def test_memory_has_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "model.pkl"
    path.write_bytes(b"c__builtin__\nbytearray\n(L9000000000L\ntR.")
    with pytest.raises(InputError, match=r"needs more than \d+ MiB of memory to read"):
        import_model(path)


def test_line_ends_and_a_byte_order_mark_of_lightgbm_files_do_not_matter(tmp_path: Path) -> None:
    lightgbm(tmp_path / "unix.txt")
    text = (tmp_path / "unix.txt").read_bytes()
    expected = import_model(tmp_path / "unix.txt")
    for end in (b"\r\n", b"\r"):
        (tmp_path / "other.txt").write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", end))
        imported = import_model(tmp_path / "other.txt")
        assert imported.model == expected.model
        np.testing.assert_array_equal(imported.predict(X), expected.predict(X))


def test_what_lightgbm_reads_predicts_as_the_file_does(tmp_path: Path) -> None:
    lightgbm(tmp_path / "model.txt")
    booster = needs.package("lightgbm").Booster(model_file=tmp_path / "model.txt")
    rows = np.random.default_rng(3).integers(-9, 2000, (2000, 4))
    np.testing.assert_array_equal(
        import_model(tmp_path / "model.txt").predict(rows), booster.predict(rows.astype(float)).argmax(axis=1)
    )


def test_the_reading_process_ends_with_the_model(tmp_path: Path) -> None:
    pickled(tmp_path / "model.pkl")
    imported = import_model(tmp_path / "model.pkl")
    process = imported.predict.__self__._process
    assert process.poll() is None
    del imported
    assert process.poll() == -signal.SIGKILL
