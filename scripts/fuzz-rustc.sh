#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Cargo's RUSTC_WORKSPACE_WRAPPER in scripts/fuzz.sh: compiles the workspace's own crates for libFuzzer (FUZZ_FLAGS) and with all
# checks, while all others, and build scripts, stay as they are.
set -euo pipefail

if [[ " $* " == *" --crate-name build_script_build "* ]]; then
	exec "$@"
fi
read -ra flags <<<"${FUZZ_FLAGS:-}"
exec "$@" -Copt-level=1 -Cdebug-assertions=on -Coverflow-checks=on -Cstrip=none "${flags[@]}"
