#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles what the agent carries, the actor (bpf/act/) and the programs of a dispatcher (bpf/dispatch/), and writes the objects beside the
# sources; with a FOLDER, only what clang makes goes there. One version of clang makes them, so that every agent of a release has the same
# bytes; tests/kernel/actor.rs compares.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly CLANG=clang-19 OBJECT=bpf/act/act.bpf.o DISPATCH=bpf/dispatch

folder=${1-}
if [ -z "$folder" ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
fi
mapfile -t flags < bpf/clang.flags
headers=$(dirname "$(dirname "$(find /usr/include -path '*-linux-gnu/asm/types.h' -print -quit)")")
compile() { # FROM TO FLAG...
    local from=$1 to=$2
    shift 2
    "$CLANG" "${flags[@]}" -Wall -Werror -Wno-unused-function -fdebug-compilation-dir=. -Ibpf -isystem"$headers" "$@" -c "$from" -o "$to"
}
compile bpf/act/act.bpf.c "$folder/act.o"
for version in 2 3; do
    compile "$DISPATCH/dispatcher.bpf.c" "$folder/dispatcher-$version.bpf.o" -DWW_DISPATCHER_VERSION=$version
done
compile "$DISPATCH/component.bpf.c" "$folder/component.bpf.o"
if [ -z "${1-}" ]; then
    cargo run --release --locked --quiet -p wirewised --example actor -- "$folder/act.o" "$OBJECT"
    cp "$folder"/*.bpf.o "$DISPATCH/"
fi
