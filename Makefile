# The two commands of the README do all their own set-up on a fresh Debian machine.
#
#   make run    builds Kelvin, starts a tiered server on ./data, tells how to connect
#   make test   formats, lints, unit, property, differential and client tests
#   make simulate  100,000 runs of the simulation (FIRST= and SEEDS= choose others)
#   make contention  every type under contention, for ten minutes
#   make crash  the server killed at random moments under load, 300 times
#   make power-loss  the journal through a loss of power at every operation of 100,000 histories (HISTORIES= chooses others)
#   make fuzz   every parser and decoder on damaged bytes, a minute each (FUZZ_SECONDS= chooses another time)
#   make bench  the acceptance benchmarks against redis-server (quiet machine, about an hour)

SHELL := /bin/bash
CACHE := $(HOME)/.cache/kelvin
export CARGO_TARGET_DIR ?= $(CACHE)/target
export PATH := $(HOME)/.cargo/bin:$(PATH)

PORT ?= 6379
MAXMEMORY ?= 1gb
FLASH_SIZE ?= 16gb
DATA ?= $(CURDIR)/data

.PHONY: run test simulate bench build setup setup-test lint unit differential contention crash power-loss clients valkey report-test fuzz

run: build
	@mkdir -p $(DATA)
	@echo "Kelvin: connect with   redis-cli -p $(PORT)   (maxmemory $(MAXMEMORY), flash $(FLASH_SIZE) in $(DATA))"
	exec $(CARGO_TARGET_DIR)/release/kelvin server --port $(PORT) --maxmemory $(MAXMEMORY) \
		--dir $(DATA) --flash-path $(DATA) --flash-size $(FLASH_SIZE)

build: setup
	cargo build --release -p kelvin

test: setup setup-test lint unit differential clients valkey report-test

# What a build needs: a C compiler (jemalloc) and Rust.
setup:
	@scripts/setup.sh build

# What the tests need besides: redis-server as oracle, clients in four languages.
setup-test:
	@scripts/setup.sh test

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --profile fast -- -D warnings

# Of the tests with servers one runs at a time: they look at what is resident, which is more where a kernel is busy.
unit:
	cargo test --workspace --exclude kelvin --profile fast --no-fail-fast
	RUST_TEST_THREADS=1 cargo test -p kelvin --profile fast --no-fail-fast

# Seeds of the simulation (ARCHITECTURE.md, "Simulation"). One that failed is run again by FIRST=.
FIRST ?= 0
SEEDS ?= 100000
simulate: setup
	cargo run --profile fast -p simulation -- $(FIRST) $(SEEDS)

# Clients of two and of four workers that change the same values of every type, ten minutes in all.
contention: setup
	KELVIN_CONTENTION_SECONDS=$${KELVIN_CONTENTION_SECONDS:-300} cargo test --profile fast -p kelvin \
		--test types_under_contention -- --nocapture --test-threads 1

# The server killed and started again on what it left, so often.
KILLS ?= 300
crash: setup
	KELVIN_KILLS=$(KILLS) cargo test --profile fast -p kelvin --test journal --test kept_flash -- what_was_answered

# Histories of the journal, each with the power lost at every of its operations (flash/src/journal/tests/power_loss.rs).
HISTORIES ?= 100000
power-loss: setup
	KELVIN_HISTORIES=$(HISTORIES) cargo test -p flash --profile fast --lib -- --nocapture a_loss_of_power_at_every_operation

# A million random commands against redis-server, values forced to flash in between.
differential:
	KELVIN_DIFF_COMMANDS=$${KELVIN_DIFF_COMMANDS:-1000000} \
		cargo test --profile fast -p kelvin --test differential -- --nocapture

# redis-cli, redis-benchmark, redis-py, ioredis, go-redis and jedis doing their ordinary work.
clients:
	scripts/with_server.sh python3 tests/clients/run.py

# The units of Valkey's own suite on every type and on keys.
valkey:
	scripts/with_server.sh python3 tests/valkey/run.py

# The report of a benchmark run, made from sample results, in headless Chromium.
report-test:
	cargo run --profile fast -p suite --example sample_report -- $(CACHE)/report-test
	cd tests/report && npm ci --no-fund --no-audit && \
		KELVIN_REPORTS=$(CACHE)/report-test node --test

bench: build
	python3 benches/run_all.py --kelvin $(CARGO_TARGET_DIR)/release/kelvin

# Every fuzz target in turn, for so many seconds each: corpora are kept from run to run. Needs a nightly toolchain
# and `cargo install cargo-fuzz`; no other target does.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?= $$(cargo +nightly fuzz list)
fuzz:
	python3 fuzz/seeds.py fuzz/corpus
	cd fuzz && for target in $(FUZZ_TARGETS); do \
		cargo +nightly fuzz run --target-dir $(CARGO_TARGET_DIR)/fuzz $$target -- \
			-max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=3000 -timeout=60 || exit 1; done
