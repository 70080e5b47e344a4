#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes the agent's readers of files, what they let into the kernel, and the whole engine, with libFuzzer on the stable compiler.
#
#   scripts/fuzz.sh [SECONDS [TARGET...]]     each target, or these, for so long (default 60), all at once
#
# object, btf: a program, and its types. load: what was found for `object`, as far as the kernel (needs root; it runs behind the others).
# bundle. captures: pcap and pcapng, packed or not. labels: label files, lists of flows, manifests. rows: of features, CSV and NumPy's.
# policy: policies, tunnels. keys. engine: programs of all kinds, caged.
#
# New inputs are kept in target/fuzz/corpus. An input that crashes a target is kept in target/fuzz/artifacts, and the
# way to run it again is printed; put it into the seeds with the fix, or make a test of it.
set -euo pipefail

seconds=${1:-60}
if ! [[ $seconds =~ ^[1-9][0-9]*$ ]]; then
	echo "error: '$seconds' is not a number of seconds; such as: scripts/fuzz.sh 60" >&2
	exit 2
fi
shift $(($# > 0))
targets=("$@")
if ((!$#)); then
	targets=(object btf bundle captures labels rows policy keys engine load)
fi
root=$(cd "$(dirname "$0")/.." && pwd)
crate=$root/crates/wirewised/fuzz
work=$root/target/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')

# What `cargo fuzz` passes, without its nightly-only sanitizers: edge counters and comparison tracing for libFuzzer.
coverage="-Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
	coverage+=" -Cllvm-args=-sanitizer-coverage-$option"
done
# Only the engine itself is instrumented: the compiler it drives is the one that the tests have built already. At the same time
# as the readers, because either build ends with one crate that takes long.
FUZZ_FLAGS=$coverage RUSTC_WORKSPACE_WRAPPER=$root/scripts/fuzz-rustc.sh nice cargo build --quiet --locked --release \
	--manifest-path "$root/Cargo.toml" --workspace --bin fuzz-engine --features wirewise-engine/fuzz &
engine=$!
# With --target the flags do not reach build scripts.
RUSTFLAGS="--cfg fuzzing $coverage" nice cargo build --quiet --locked --release --target "$host" \
	--manifest-path "$crate/Cargo.toml" --target-dir "$work/build"
wait "$engine"

declare -A program limits
for target in object btf bundle captures labels rows policy keys; do
	program[$target]=$work/build/$host/release/$target
done
program[engine]=$root/target/release/fuzz-engine
program[load]=
limits=(
	[object]="-max_len=131072 -rss_limit_mb=256"
	[btf]="-max_len=65536 -rss_limit_mb=256"
	[bundle]="-max_len=32768 -rss_limit_mb=256"
	[captures]="-max_len=16384 -rss_limit_mb=256"
	[labels]="-max_len=16384 -rss_limit_mb=256"
	[rows]="-max_len=16384 -rss_limit_mb=256"
	[policy]="-max_len=32768 -rss_limit_mb=256"
	[keys]="-max_len=4096 -rss_limit_mb=256"
	# Drawn from few bytes: long ones are worth trying from the start. A cage is 4 GiB of addresses.
	[engine]="-max_len=1024 -len_control=0 -rss_limit_mb=2048"
)
for target in "${targets[@]}"; do
	if ! [[ -v program[$target] ]]; then
		echo "error: there is no target '$target'; there are ${!program[*]}" >&2
		exit 2
	fi
done
# An object to begin with: the small data path of the tests, and its types.
seeds_made=$work/seeds
mkdir -p "$seeds_made/object" "$seeds_made/btf"
clang=$(command -v clang-19 clang clang-16 clang-14 | head -1 || true)
if [[ -n $clang ]]; then
	small=$seeds_made/object/small.bpf.o
	"$clang" -O2 -g -DTAIL_CALL -target bpf -mcpu=v3 -I"$root/bpf" -I"$root/crates/wirewised/tests/fixtures/datapath" \
		-I"/usr/include/$(uname -m)-linux-gnu" -c "$root/crates/wirewised/tests/fixtures/fixture.bpf.c" -o "$small"
	python3 "$root/scripts/btf_seed.py" "$small" "$seeds_made/btf/small"
fi
declare -A pids
for target in "${targets[@]}"; do
	if [[ $target == load ]]; then
		continue
	fi
	mkdir -p "$work/corpus/$target" "$work/artifacts/$target"
	seeds=()
	for folder in "$crate/seeds/$target" "$seeds_made/$target"; do
		if [[ -d $folder ]]; then
			seeds+=("$folder")
		fi
	done
	read -ra limit <<<"${limits[$target]}"
	nice "${program[$target]}" "$work/corpus/$target" "${seeds[@]}" \
		-max_total_time="$seconds" -timeout=10 -print_final_stats=1 "${limit[@]}" \
		-artifact_prefix="$work/artifacts/$target/" >"$work/$target.log" 2>&1 &
	pids[$target]=$!
done
failed=0
for target in "${!pids[@]}"; do
	log=$work/$target.log
	if wait "${pids[$target]}"; then
		runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
		peak=$(sed -n 's/^stat::peak_rss_mb: *//p' "$log")
		coverage=$(grep -o 'cov: [0-9]*' "$log" | tail -1)
		echo "fuzz $target: $runs inputs in $seconds s, $coverage, at most $peak MB, no crash"
	else
		tail -40 "$log" >&2
		echo "error: the $target target crashed; run the input named above again with ${program[$target]} FILE" >&2
		failed=1
	fi
done
if [[ " ${targets[*]} " == *" load "* ]]; then
	log=$work/load.log latest=$work/artifacts/load/latest
	mkdir -p "$work/corpus/object" "$(dirname "$latest")"
	if ((EUID)); then
		echo "fuzz: 1 of ${#targets[@]} targets SKIPPED: load needs root, who may load programs"
	elif FUZZ_SECONDS=$seconds FUZZ_CORPUS=$work/corpus/object FUZZ_LATEST=$latest nice cargo test --quiet --locked \
		--manifest-path "$root/Cargo.toml" --profile bench -p wirewised --test kernel -- --ignored --nocapture \
		loading:: >"$log" 2>&1; then
		grep '^fuzz load: ' "$log"
	else
		tail -40 "$log" >&2
		echo "error: the load target failed; its last input is $latest" >&2
		failed=1
	fi
fi
exit $failed
