#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-format over the hand-written C, with the newest version installed. Arguments go to clang-format.
set -euo pipefail
cd "$(dirname "$0")/.."

formatter=""
for candidate in clang-format-19 clang-format-18 clang-format-17 clang-format-16 clang-format-15 clang-format clang-format-14; do
    if command -v "$candidate" >/dev/null; then
        formatter=$candidate
        break
    fi
done
[ -n "$formatter" ] || { echo "error: clang-format is not installed; run scripts/setup.sh dev" >&2; exit 3; }

find bpf bench/published crates/wirewise-dpdk/src python/wirewise/targets/micro_c \( -name '*.c' -o -name '*.h' \) -print0 | xargs -0 -r "$formatter" "$@"
