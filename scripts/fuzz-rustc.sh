#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Cargo's RUSTC_WORKSPACE_WRAPPER in scripts/fuzz.sh: compiles the workspace's own crates for libFuzzer (FUZZ_FLAGS) and with all
# checks, while all others stay as they are.
set -euo pipefail

read -ra flags <<<"${FUZZ_FLAGS:-}"
exec "$@" -Copt-level=1 -Cdebug-assertions=on -Coverflow-checks=on -Cstrip=none "${flags[@]}"
