# The recipes of the project: the same on a laptop and in CI. Building needs Rust and a C compiler; the demo and most checks need
# Python 3 with venv as well, and a check whose other tools are not there is skipped.

.DEFAULT_GOAL := help
.PHONY: help run demo cluster install build release test fmt fmt-check lint doc deny advisories unit sim macp-sdk macp-differential conformance mcp-clients hostile grid openapi traces metrics packages deb cli browser pictures docs nodes soak fuzz bench bench-toy clean

# In CI a lock file that is out of date is an error, elsewhere cargo brings it up to date.
LOCKED := $(if $(filter true,$(CI)),--locked)

# Everything is built under target/, also where cargo is told to build elsewhere: the scripts look for it there.
export CARGO_TARGET_DIR := $(CURDIR)/target

# What `make test` runs, in this order; what is joined by + side by side. A new check is a recipe below and its name here.
CHECKS := fmt-check lint doc deny advisories unit+release sim macp-sdk conformance mcp-clients hostile grid openapi traces metrics packages cli browser+nodes docs bench-toy

help: ## list the recipes
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## start a server of the release build on this machine, with the settings of the demo
	cargo run --release --package handover -- serve --config examples/demo/handover.toml

demo: ## have three agents work together at the server that make run has started
	@python=$$(scripts/python tests/docs) && exec "$$python" examples/demo/demo.py

install: ## build the release binary and put it on the PATH: into ~/.cargo/bin, or under CARGO_INSTALL_ROOT
	cargo install --locked --path crates/handover

cluster: ## start three nodes on a PostgreSQL of their own behind a small load balancer, until Ctrl-C
	@scripts/cluster

build: ## build the release binary, target/release/handover, and beside it handover.debug for debuggers and profilers
	@scripts/build

release: ## build the release binaries that the checks use
	cargo build $(LOCKED) --release --package handover
	cargo build $(LOCKED) --release --package handover-sim

test: ## run every check, in order, and say how long each took
	@scripts/steps $(CHECKS)

fmt: ## format the code
	cargo fmt --all

fmt-check: ## see that the code is formatted
	cargo fmt --all --check

lint: ## run clippy on everything; a warning is an error
	cargo clippy $(LOCKED) --workspace --all-targets -- -D warnings

doc: ## build the documentation; a warning is an error
	RUSTDOCFLAGS="-D warnings" cargo doc $(LOCKED) --workspace --no-deps

deny: ## check licences, duplicate versions and sources of the dependencies
	@scripts/deny

advisories: ## check the lock file against the RustSec advisories, if they can be fetched
	@scripts/deny advisories

unit: ## run the unit and integration tests, those of the stores on a PostgreSQL too
	@scripts/unit

sim: ## run the engine on a failing store, 3,500 seeded worlds, of which at least 1,000 must be hard for several nodes
	cargo run $(LOCKED) --release --package handover-sim -- --seeds 3500 --worlds 1000

macp-sdk: ## drive the release binary with the published MACP SDK for Python
	@scripts/macp-sdk

macp-differential: ## compare with the MACP reference runtime by SCRIPTS random scripts of SEED; builds it first
	@scripts/macp-differential $(if $(SEED),--seed $(SEED)) $(if $(SCRIPTS),--scripts $(SCRIPTS))

conformance: ## run the official MCP conformance suite against the release binary
	@scripts/conformance

mcp-clients: ## let the published MCP clients complete tasks at the release binary
	@scripts/mcp-clients

hostile: ## attack the release binary in every way that it is defended against
	@scripts/hostile

grid: ## let agents talk over Grid at the release binary, signed and not, also while it is killed
	@scripts/grid

openapi: ## have Schemathesis try everything that docs/openapi.json describes at the release binary
	@scripts/openapi

traces: ## look at the traces of tasks between published SDKs at the release binary, also while it is killed
	@scripts/traces

metrics: ## ask a Prometheus everything that the dashboard and the alerts in deploy/ ask, and test the alerts
	@scripts/metrics

packages: ## make the Debian package and the bundle for MCP hosts, install and start the one, use the other as a host does
	@scripts/packages

deb: ## make the Debian package and the bundle, target/package/handover.deb and .mcpb
	@scripts/packages make

cli: ## try every command of the release binary, and use it from a real terminal: the live table, progress bars
	@scripts/cli

browser: ## use the console in a real Chromium: journeys, and every page on a desk and a phone, light and dark
	@scripts/browser

pictures: ## make the pictures of README.md again, by the browser test that does what it says
	@scripts/browser "first ten minutes"
	cp target/browser/screenshots/first-*.png docs/pictures/

docs: ## run every block of README, docs and examples as it is written
	@scripts/docs

nodes: ## let agents work at three nodes on PostgreSQL while everything goes wrong, at a load balancer; test engines behind a pooler, and desk and protocols on PostgreSQL
	@scripts/nodes
	@scripts/nodes --rolling
	@scripts/or-skip scripts/cluster --http 127.0.0.1:0 --macp 127.0.0.1:0 python3 tests/nodes/in_front.py
	@scripts/or-skip scripts/soak --short
	POOLED=1 scripts/or-skip scripts/postgres cargo test $(LOCKED) --workspace --test engine -- --quiet on_a_database
	HANDOVER_TEST_STORE=postgres scripts/or-skip scripts/postgres cargo test $(LOCKED) --workspace --quiet --test agents --test directory --test lists --test rules --test signed \
		--test macp --test mcp --test grid --test console --test together

soak: ## what takes too long for every run: the clients' suites at three nodes, and SOAK_MINUTES (10) of everything going wrong
	@scripts/soak

fuzz: ## fuzz everything that reads bytes from outside, FUZZ_RUNS executions of each target
	@scripts/fuzz

bench-toy: ## run every benchmark at toy size: shows that it works, not how fast
	cargo run $(LOCKED) --release --package handover -- bench engine --part all --toy --data target
	cargo run $(LOCKED) --release --package handover -- bench macp --toy --data target
	cargo run $(LOCKED) --release --package handover -- bench mcp --toy --data target
	cargo run $(LOCKED) --release --package handover -- bench grid --toy --data target
	cargo run $(LOCKED) --release --package handover -- bench scale --toy --data target
	cargo run $(LOCKED) --release --package handover -- bench console --toy --data target
	cargo run $(LOCKED) --release --package handover -- bench hostile --toy --data target
	scripts/or-skip scripts/postgres cargo run $(LOCKED) --release --package handover -- bench nodes --toy

bench: ## run the benchmarks at full size; takes about half an hour and wants a quiet machine
	cargo run $(LOCKED) --release --package handover -- bench engine --part all --data target
	cargo run $(LOCKED) --release --package handover -- bench macp --data target
	cargo run $(LOCKED) --release --package handover -- bench mcp --data target
	cargo run $(LOCKED) --release --package handover -- bench grid --data target
	cargo run $(LOCKED) --release --package handover -- bench scale --data target
	cargo run $(LOCKED) --release --package handover -- bench console --data target
	cargo run $(LOCKED) --release --package handover -- bench hostile --data target
	scripts/postgres cargo run $(LOCKED) --release --package handover -- bench nodes

clean: ## remove everything that was built
	cargo clean
