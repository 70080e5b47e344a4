#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All tests; the closing lines name those that were skipped, which the test programs tell only each for itself or not at all.
#
#   scripts/test.sh [JOBS]     JOBS: processes for the Python tests
set -euo pipefail
cd "$(dirname "$0")/.."
export WIREWISE_SKIPPED=$PWD/build/skipped-tests

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

mkdir -p build
: >"$WIREWISE_SKIPPED"
trap name_skipped EXIT
.venv/bin/python -m pytest -n "${1:-auto}" --dist loadgroup --durations 20 --durations-min 5
cargo test --locked --quiet --profile bench --workspace --doc
# Most tests of the agent wait for packets most of the time.
RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) * 3 / 2 + 1))} \
	cargo test --locked --quiet --profile bench --workspace --tests
