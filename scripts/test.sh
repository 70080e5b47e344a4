#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All tests: cargo's run beside pytest's, because most of the agent's wait for packets. pytest prints as it goes; cargo's
# output follows in one piece. The closing lines name the tests that were skipped, which the test programs report
# each for itself or not at all. Fails if either fails; Ctrl-C ends both.
#
#   scripts/test.sh [JOBS]     JOBS: processes for the Python tests, and threads for cargo's
set -euo pipefail
cd "$(dirname "$0")/.."
# As many at a time as keep a processor busy that most of them leave idle, waiting for packets and processes; and as
# have room: a process of Python's grows to over 1 GB with all that the tests import.
jobs=$(($(nproc) * 3 / 2 + 1))
room=$(($(awk '/^MemAvailable/ { print $2 }' /proc/meminfo) / (3 << 19)))
((jobs <= room)) || jobs=$((room > 0 ? room : 1))
jobs=${1:-$jobs}
export WIREWISE_SKIPPED=$PWD/build/skipped-tests
# What the tests start are hundreds of Pythons: compiled once, whatever the caller's surroundings say.
unset PYTHONDONTWRITEBYTECODE
rust_output=build/rust-tests.log

name_skipped() {
    [ -s "$WIREWISE_SKIPPED" ] || return 0
    sort -u "$WIREWISE_SKIPPED" | awk -F '\t' '
        { print "skipped: " $1 " (" $2 ")"; sub(/:.*/, "", $2); tests[$1]; lacking[$2] }
        END {
            for (test in tests) count++
            for (need in lacking) list = list (list ? ", " : "") need
            print count " tests or modules were skipped for lack of: " list
        }'
}

python_tests() {
    # As in the commands (python/wirewise/__main__.py): threads that spin take the CPU from those they wait for.
    export OMP_WAIT_POLICY=passive
    exec .venv/bin/python -m pytest -n "$jobs" --dist loadgroup --durations 20 --durations-min 5
}

rust_tests() {
    export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$jobs}
    {
        cargo test --locked --quiet --profile bench --workspace --tests --no-fail-fast &&
            cargo test --locked --quiet --profile bench --workspace --doc
    } >"$rust_output" 2>&1 && return
    local code=$?
    echo "error: cargo test failed; its output follows that of pytest, and is in $rust_output" >&2
    return $code
}

interrupt() {
    trap '' INT TERM HUP
    kill -INT -- "${groups[@]/#/-}" 2>/dev/null || true
    wait
    exit 130
}

mkdir -p build
: >"$WIREWISE_SKIPPED"
trap name_skipped EXIT
# Each in a process group of its own, which an interrupt reaches with all that the tests started.
set -m
groups=()
trap interrupt INT TERM HUP
rust_tests &
groups+=("$!")
python_tests &
groups+=("$!")
python=0 rust=0
wait "${groups[1]}" || python=$?
wait "${groups[0]}" || rust=$?
cat "$rust_output"
((!python)) || echo "error: pytest failed with exit code $python" >&2
((!rust)) || echo "error: cargo test failed with exit code $rust" >&2
exit $((python ? python : rust))
