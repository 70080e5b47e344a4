# SPDX-License-Identifier: Apache-2.0
.DEFAULT_GOAL := help
SHELL := /bin/bash

VENV := .venv
BIN := $(VENV)/bin
PYTEST_JOBS ?= auto
# Folders and files may have any name, in any locale.
export LC_ALL := C.UTF-8
FUZZ_SECONDS ?= 60
SECONDS ?= 60
# The demo and the benchmark make network namespaces and load programs.
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

.PHONY: help setup demo abi act test test-slow test-kernels test-dpdk test-ray test-p4 test-verilog lint lint-python lint-rust lint-c format docs models bench bench-planes bench-xdp bench-5g bench-n3ic bench-dpdk soak fuzz dist test-dist clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what is missing: packages, virtual environment, wirewise and wirewised
	@scripts/setup.sh dev

demo: ## train a forest, attach it, drop an attack (MODEL=@flood: a ready model; CAPTURES=DIR: on your own captures; PAGE=1: watch it in a browser)
	@scripts/setup.sh $(if $(PAGE),serve,demo)
	@$(SUDO) $(BIN)/wirewise demo --output build/demo $(if $(MODEL),--model "$(MODEL)") $(if $(CAPTURES),--captures "$(CAPTURES)") $(if $(PAGE),--page)

test: setup ## unit, property, parity, kernel and end-to-end tests
	@scripts/test.sh $(filter-out auto,$(PYTEST_JOBS))

test-slow: setup ## tests that `make test` leaves out for their time: long pages of docs/, benchmarks, every preset with every model
	@$(SUDO) $(BIN)/python -m pytest -n $(PYTEST_JOBS) --dist loadgroup -m slow
	@WIREWISED_EVERY_DEATH=1 cargo test --locked --quiet --profile bench -p wirewised --test agent -- deaths

test-kernels: setup ## boot Debian's kernels, load and use everything there from every clang; writes docs/kernels.md
	$(BIN)/python -m tests.matrix

test-ray: setup ## install Ray into an environment of its own, and run jobs on a local cluster
	@test -x build/ray/bin/python || python3 -m venv build/ray
	@build/ray/bin/python -m pip install --quiet --disable-pip-version-check "ray>=2.30"
	@$(BIN)/python -c "import site; print(site.getsitepackages()[0])" > \
		"$$(build/ray/bin/python -c 'import site; print(site.getsitepackages()[0])')/wirewise.pth"
	PATH="$$PWD/$(BIN):$$PATH" PYTHONPATH="$$PWD/python:$$PWD" WIREWISE_REQUIRE=ray RAY_USAGE_STATS_ENABLED=0 \
		build/ray/bin/python -m pytest -n 0 -k ray tests/e2e/test_datasets.py tests/unit/test_search.py

test-p4: setup ## emitted P4 through p4c and bmv2's simple_switch (P4C=PATH BMV2=PATH, else those on the path)
	WIREWISE_P4C="$(P4C)" WIREWISE_BMV2="$(BMV2)" WIREWISE_REQUIRE=p4 $(BIN)/python -m pytest -n 0 tests/p4/test_bmv2.py

test-verilog: setup ## 1,000 random networks in simulators, sizes and clock by synthesis; writes tables of docs/targets/verilog.md
	@command -v verilator >/dev/null && command -v yosys >/dev/null && command -v nextpnr-ice40 >/dev/null || \
		{ $(SUDO) apt-get update -qq && $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
		--no-install-recommends verilator yosys nextpnr-ice40 >/dev/null; }
	$(BIN)/python -m tests.verilog

lint: setup ## all linters
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint-python lint-rust lint-c

lint-python:
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m scripts.abi --check

lint-rust:
	cargo fmt --all --check
	cargo clippy --locked --release --workspace --all-targets --quiet -- -D warnings

lint-c:
	scripts/clang-format.sh --dry-run -Werror

format: setup ## format everything in place
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format
	cargo fmt --all
	scripts/clang-format.sh -i

abi: setup ## write what bpf/abi.h says for the agent, the toolkit, the compiler and docs/abi.md
	@$(BIN)/python -m scripts.abi

act: ## compile the actor (bpf/act/) and the dispatcher (bpf/dispatch/) to the objects that the agent carries
	@scripts/actor.sh

docs: setup ## write docs/api.md from the docstrings
	$(BIN)/python -m scripts.api

models: setup ## train the ready models again, and write their cards (CAPTURES='DIR DIR': folders with manifests)
	$(BIN)/python -m scripts.models $(if $(CAPTURES),--captures $(CAPTURES))

bench: setup ## ns per packet in kernel, engine and native C, to build/bench/*.json (KEEP=1: also to bench/results)
	cargo build --release --locked --quiet -p wirewised --example planes
	$(SUDO) $(BIN)/python -m bench.kernel --output build/bench/kernel.json $(if $(KEEP),--keep)
	$(SUDO) $(BIN)/python -m bench.engine --output build/bench/engine.json $(if $(KEEP),--keep)

bench-planes: setup ## packets/s on every plane over a veth pair, to build/bench/planes.json, with plots (KEEP=1: also to bench/results and docs/planes)
	$(SUDO) $(BIN)/python -m bench.planes --output build/bench/planes.json $(if $(KEEP),--keep)

bench-xdp: setup ## packets dropped and forwarded, and a service under a flood, to build/bench/xdp.json, with plots (KEEP=1: also to bench/results and docs/planes)
	$(SUDO) $(BIN)/python -m bench.xdp --output build/bench/xdp.json $(if $(KEEP),--keep)

bench-5g: setup ## classification and URLLC's delay at a 5G user plane function, to build/5g, with plots (KEEP=1: also to bench/results and docs/5g.md)
	$(SUDO) $(BIN)/python examples/5g/run.py all --output build/5g/5g.json $(if $(KEEP),--keep)

bench-n3ic: setup ## binary networks in kernel, engine, batches and circuits, to build/bench/n3ic.json (KEEP=1: also to bench/results, and tables and figures to docs)
	cargo build --release --locked --quiet -p wirewised --example planes
	$(SUDO) $(BIN)/python -m bench.n3ic --output build/bench/n3ic.json $(if $(KEEP),--keep)

bench-dpdk: setup ## packets/s that one core classifies from DPDK's cheapest devices, to build/bench/dpdk.json (KEEP=1: also to bench/results)
	@export PKG_CONFIG_PATH="$$(scripts/dpdk.sh)" && cargo build --release --locked --quiet -p wirewised --features dpdk
	$(SUDO) env WIREWISED="$$PWD/target/release/wirewised" $(BIN)/python -m bench.dpdk --output build/bench/dpdk.json $(if $(KEEP),--keep)

soak: setup ## planes in user space for SECONDS each: memory, files, packets and frames (WIREWISED=FILE: an agent with DPDK)
	$(SUDO) env WIREWISE_SOAK_SECONDS=$(SECONDS) $(if $(WIREWISED),WIREWISED="$(WIREWISED)") \
		$(BIN)/python -m pytest -n 0 -q tests/e2e/test_soak.py

fuzz: setup ## readers, engine and parity (FUZZ_SECONDS each), and the tests with drawn inputs at their full number
	scripts/fuzz.sh $(FUZZ_SECONDS)
	$(SUDO) $(BIN)/python -m tests.parity.fuzz --seconds $(FUZZ_SECONDS)
	$(BIN)/python -m pytest -n $(PYTEST_JOBS) -m hypothesis --hypothesis-profile=full
	$(SUDO) env WIREWISE_PARITY_CASES=200 WIREWISE_PARITY_PACKETS=850000 \
		$(BIN)/python -m pytest -n $(PYTEST_JOBS) tests/parity/test_random.py tests/parity/test_cpus.py

test-dpdk: setup ## fetch Debian's DPDK, and test the plane that uses it
	@export PKG_CONFIG_PATH="$$(scripts/dpdk.sh)" && \
		CARGO_TARGET_DIR=target/dpdk cargo test --locked --release --quiet --manifest-path crates/wirewise-dpdk/Cargo.toml && \
		WIREWISE_REQUIRE=root,clang cargo test --locked --quiet --profile bench --features dpdk -p wirewised --test agent -- user_space faults limits devices

dist: ## wheel, static wirewised and Debian package, to build/dist
	@scripts/setup.sh demo
	@scripts/dist.sh

test-dist: dist setup ## use them where nothing else is installed: an empty root, an environment without compilers
	@command -v mmdebstrap >/dev/null || { $(SUDO) apt-get update -qq && $(SUDO) env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends mmdebstrap debian-archive-keyring >/dev/null; }
	$(SUDO) $(BIN)/python -m pytest packaging

clean: ## remove what was built (keeps the virtual environment)
	rm -rf build target .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find python tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
