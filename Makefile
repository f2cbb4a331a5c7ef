# Everything a newcomer needs: each target first installs what it uses (Debian packages, Rust tools), and can
# be run again at any time.
#
#   make demo    route between four Linux hosts in network namespaces (needs root)
#   make test    formatting, lints, all tests, a short fuzz run
#   make dpdk-test  lints and tests of what needs DPDK (make test runs them where libdpdk-dev is installed)
#   make bench   the figures of SPECIFICATION.md
#   make install the program to /usr/local/bin; with DPDK: make install FEATURES=dpdk

SHELL := /bin/bash
.DEFAULT_GOAL := help

CARGO ?= cargo
SUDO := $(shell [ $$(id -u) = 0 ] || echo sudo)
FUZZ_SECONDS ?= 10

# clang compiles the BPF program of AF_XDP ports.
BUILD_PACKAGES := build-essential clang
DEMO_PACKAGES := iproute2 iputils-ping traceroute iperf3 ethtool procps
# FRR and BIRD are routed with; their services stay stopped.
TEST_PACKAGES := $(DEMO_PACKAGES) tcpdump frr bird2
# DPDK's tables and dpdk-testpmd are measured beside ours, and the kernel on veth links.
BENCH_PACKAGES := libdpdk-dev dpdk-dev pkg-config iproute2 ethtool procps
DPDK_PACKAGES := libdpdk-dev pkg-config

.PHONY: help build packages-build packages-demo packages-test packages-bench packages-dpdk rust demo test dpdk-test lint fuzz loom bench install clean

help:
	@sed -n 's/^#   //p' $(MAKEFILE_LIST)

# Installs the Debian packages in $(1) that are not there yet.
define install_packages
	@missing=$$(for package in $(1); do dpkg-query -W -f='$${Status}' $$package 2>/dev/null | grep -q '^install ok' || echo $$package; done); \
	if [ -n "$$missing" ]; then echo "installing" $$missing; \
	  $(SUDO) apt-get update -qq && DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends $$missing >/dev/null; fi
endef

packages-build:
	$(call install_packages,$(BUILD_PACKAGES))

packages-demo:
	$(call install_packages,$(BUILD_PACKAGES) $(DEMO_PACKAGES))

packages-test:
	$(call install_packages,$(BUILD_PACKAGES) $(TEST_PACKAGES))

packages-dpdk:
	$(call install_packages,$(BUILD_PACKAGES) $(TEST_PACKAGES) $(DPDK_PACKAGES))

packages-bench:
	$(call install_packages,$(BUILD_PACKAGES) $(BENCH_PACKAGES))

# The toolchain named in rust-toolchain.toml; rustup itself must be there (https://rustup.rs).
rust:
	@command -v rustup >/dev/null || command -v $(CARGO) >/dev/null || \
	  { echo "make: Rust is not installed; see https://rustup.rs"; exit 1; }
	@$(CARGO) --version >/dev/null

build: packages-build $(if $(findstring dpdk,$(FEATURES)),packages-dpdk) rust
	$(CARGO) build --release -p brickway --features "$(FEATURES)"

demo: packages-demo build
	$(SUDO) target/release/brickway demo

lint: packages-build rust
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

test: packages-test lint
	$(CARGO) test --workspace
	$(MAKE) --no-print-directory dpdk-test loom fuzz

# DPDK's environment starts once a process, so that its tests share one; they need no huge pages.
dpdk-test: packages-dpdk rust
	$(CARGO) clippy -p brickway-ports -p brickway-elements --features brickway-elements/dpdk --all-targets -- -D warnings
	$(CARGO) test -p brickway-ports -p brickway-elements --features brickway-elements/dpdk --lib dpdk

# Lock-free code under the model checker.
loom: rust
	RUSTFLAGS="--cfg loom" $(CARGO) test -p brickway-packet -p brickway-fib --lib --target-dir target/loom loom

# A short run of each fuzz target; FUZZ_SECONDS=3600 make fuzz for a long one.
fuzz: packages-build rust
	@rustup toolchain list | grep -q ^nightly || rustup toolchain install nightly --profile minimal
	@command -v cargo-fuzz >/dev/null || $(CARGO) install --quiet --locked cargo-fuzz
	@for target in configuration packets routes netlink fabric; do \
	  echo "fuzzing $$target for $(FUZZ_SECONDS) s"; \
	  $(CARGO) +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -verbosity=0 -print_final_stats=1 || exit 1; done

# Root lends DPDK huge pages for the time of a bench, and makes network namespaces.
bench: FEATURES = dpdk
bench: packages-bench build
	target/release/brickway bench forward
	$(SUDO) target/release/brickway bench fib
	$(SUDO) target/release/brickway bench io
	$(SUDO) target/release/brickway bench batching
	target/release/brickway bench scaling
	$(CARGO) run --release -q -p brickway-graph --example hop

install: build
	$(SUDO) install -m 755 target/release/brickway /usr/local/bin/brickway

clean:
	$(CARGO) clean
