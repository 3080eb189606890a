# The recipes of the project: the same on a laptop and in CI. Only a Rust toolchain and a C compiler are needed.

.DEFAULT_GOAL := help
.PHONY: help run build test fmt fmt-check lint doc deny unit clean

# In CI a lock file that is out of date is an error, elsewhere cargo brings it up to date.
LOCKED := $(if $(filter true,$(CI)),--locked)

# What `make test` runs, in this order. A new check is a recipe below and its name here.
CHECKS := fmt-check lint doc deny unit

help: ## list the recipes
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## start a server of the release build on this machine
	cargo run --release --package handover -- serve

build: ## build the release binary, target/release/handover
	cargo build --release --package handover

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

unit: ## run the unit and integration tests
	cargo test $(LOCKED) --workspace

clean: ## remove everything that was built
	cargo clean
