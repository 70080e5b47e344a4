#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds what is given away, to build/dist: the wheel, the agent and the service as static programs, and a Debian package of them.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo_deb=3.8.0
python=.venv/bin/python
out=build/dist package=build/package

if [ "$(build/tools/bin/cargo-deb --version 2>/dev/null)" != "cargo-deb $cargo_deb" ]; then
	echo "dist: installing cargo-deb $cargo_deb"
	cargo install --quiet --root build/tools --locked cargo-deb --version "$cargo_deb"
fi

rm -rf "$out" "$package"
mkdir -p "$out" "$package"
cargo rustc --locked --quiet --release -p wirewise-serve --bin wirewised-serve -- -C target-feature=+crt-static
cp target/release/wirewised-serve "$package/"
# The wheel brings both programs; maturin builds one, and packs the other with the scripts.
packed=python/wirewise.data/scripts/wirewised-serve
trap 'rm -f "$packed"' EXIT
cp "$package/wirewised-serve" "$packed"
# Everything else is made of the wheel's program: one build.
if ! "$python" -m maturin build --release --locked --out "$out" >"$package/maturin.log" 2>&1; then
	cat "$package/maturin.log" >&2
	exit 1
fi
"$python" - "$out"/wirewise-*.whl "$package/wirewised" <<'PYTHON'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    [name] = [name for name in wheel.namelist() if name.endswith(".data/scripts/wirewised")]
    open(sys.argv[2], "wb").write(wheel.read(name))
PYTHON
chmod 755 "$package/wirewised"
cp "$package/wirewised" "$package/wirewised-serve" "$out/"

"$package/wirewised" man "$package/man"
for shell in bash zsh fish; do
	"$package/wirewised" completions "$shell" >"$package/completions.$shell"
done
cargo tree --locked -p wirewised -p wirewise-serve --edges normal --prefix none --format '{p} {l}' |
	sed -e 's/ (\*)$//' -e 's/ ([^)]*)//' | sort -u >"$package/crates.txt"
build/tools/bin/cargo-deb deb --quiet --no-build --no-strip --package wirewised --output "$out/" >/dev/null
ls -l "$out" | awk 'NR > 1 {printf "%6.1f MB  %s\n", $5 / 1e6, $9}'
