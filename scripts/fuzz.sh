#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes the agent's readers of bundles and policies with libFuzzer, on the stable compiler.
#
#   scripts/fuzz.sh [SECONDS]     each reader for so long (default 60), both at once
#
# New inputs are kept in target/fuzz/corpus. An input that crashes a reader is kept in target/fuzz/artifacts, and the
# way to run it again is printed; put it into crates/wirewised/fuzz/seeds with the fix.
set -euo pipefail

seconds=${1:-60}
if ! [[ $seconds =~ ^[1-9][0-9]*$ ]]; then
	echo "error: '$seconds' is not a number of seconds; such as: scripts/fuzz.sh 60" >&2
	exit 2
fi
root=$(cd "$(dirname "$0")/.." && pwd)
crate=$root/crates/wirewised/fuzz
work=$root/target/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')

# What `cargo fuzz` passes, without its nightly-only sanitizers: edge counters and comparison tracing for libFuzzer.
flags="--cfg fuzzing -Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
	flags+=" -Cllvm-args=-sanitizer-coverage-$option"
done
# With --target the flags do not reach build scripts.
RUSTFLAGS=$flags nice cargo build --quiet --locked --release --target "$host" \
	--manifest-path "$crate/Cargo.toml" --target-dir "$work/build"

pids=()
for reader in bundle policy; do
	mkdir -p "$work/corpus/$reader" "$work/artifacts/$reader"
	nice "$work/build/$host/release/$reader" "$work/corpus/$reader" "$crate/seeds/$reader" \
		-max_total_time="$seconds" -max_len=32768 -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 \
		-artifact_prefix="$work/artifacts/$reader/" >"$work/$reader.log" 2>&1 &
	pids+=($!)
done
failed=0
for reader in bundle policy; do
	if wait "${pids[0]}"; then
		runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$reader.log")
		coverage=$(grep -o 'cov: [0-9]*' "$work/$reader.log" | tail -1)
		echo "fuzz $reader: $runs inputs in $seconds s, $coverage, no crash"
	else
		tail -40 "$work/$reader.log" >&2
		echo "error: the $reader reader crashed; run the input named above again with" \
			"$work/build/$host/release/$reader FILE" >&2
		failed=1
	fi
	pids=("${pids[@]:1}")
done
exit $failed
