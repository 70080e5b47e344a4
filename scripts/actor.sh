#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles the actor (bpf/act/) and writes the object that the agent carries; with a FILE, only what clang makes goes there.
# One version of clang makes it, so that every agent of a release has the same bytes; tests/kernel/actor.rs compares.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly CLANG=clang-19 OBJECT=bpf/act/act.bpf.o

object=${1-}
if [ -z "$object" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    object=$work/act.o
fi
mapfile -t flags < bpf/clang.flags
headers=$(dirname "$(dirname "$(find /usr/include -path '*-linux-gnu/asm/types.h' -print -quit)")")
"$CLANG" "${flags[@]}" -Wall -Werror -Wno-unused-function -fdebug-compilation-dir=. -Ibpf -isystem"$headers" \
    -c bpf/act/act.bpf.c -o "$object"
[ -n "${1-}" ] || cargo run --release --locked --quiet -p wirewised --example actor -- "$object" "$OBJECT"
