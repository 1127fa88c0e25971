# Everything a contributor types. Each target sets up what it needs and leaves nothing running.

.PHONY: demo test soak lint bench image crds setup root build clean
export KEEP
.DEFAULT_GOAL := build
RIG := target/debug/rig
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)

## build: compile the workspace
build: setup
	cargo build --quiet --workspace --all-features

## demo: three real clusters that share a shop, one of which is cut off
demo: root build
	$(RIG) build
	target/debug/demo
	$(if $(filter-out 0,$(KEEP)),,scripts/nothing-left)

## test: all tests, on real clusters too
test: root
	# With what tests ask of the crates, so that nothing is compiled once more for them.
	cargo build --quiet --workspace --all-features --all-targets
	$(RIG) build
	scripts/count scripts/suites
	scripts/nothing-left

## soak: the long forms of the tests
soak: root build
	$(RIG) build
	scripts/soak

## lint: formatting, clippy, licences, advisories
lint: setup
	scripts/lint

## bench: figures of optimised programs, beside its goal each that has one
bench: root
	cargo build --quiet --release --package ferro --package rig --package testbox --bin bench --bin ferro --bin rig --bin testbox
	target/release/rig build
	target/release/bench
	scripts/nothing-left

## image: the OCI archive of ferro, one static binary
image: build
	$(RIG) image ferro --tag ferro:$(VERSION) --output target/image/ferro.tar

## crds: bring the chart's copy of the kinds up to date
crds: build
	target/debug/ferro crds --directory deploy/chart/crds

setup:
	@scripts/setup

root:
	@scripts/setup run

## clean: remove what was built; programs cached for all clones stay
clean:
	cargo clean
