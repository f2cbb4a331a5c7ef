# Everything a newcomer needs: each target first installs what it uses (Debian packages, Rust tools), and can
# be run again at any time.
#
#   make demo    route between four Linux hosts in network namespaces (needs root)
#   make demo-cluster  four servers that are one router, of which two die (needs root)
#   make test    formatting, lints, all tests
#   make lint    formatting, lints and the rules of English alone, benches and examples too
#   make test-all  these, and what is built in other ways: with DPDK, under a model checker, with sanitizers, for fuzzing
#   make test-router  the tests of the router alone, without the Click library's and the laboratory's
#   make test-drivers the tests of a router in Linux's place on xdp, af_xdp and af_packet
#   make test-twin random changes of Linux beside Linux alone; SEEDS=20000 of them, some hours
#   make test-twin-vm  the same with VLANs, VRFs, bonds and tunnels, in a virtual machine whose kernel has them
#   make test-web the tests of the web page in a browser, Chromium
#   make test-linux-esp  tests of IPsec beside Linux's and strongSwan, in a virtual machine whose kernel has ESP
#   make test-linux-vlan  tests of VLANs that are interfaces of Linux, in such a machine
#   make test-psample  the test of samples for the kernel's PSAMPLE, in such a machine
#   make rack    the router over cards that QEMU emulates, by the drivers of two kernels; CARDS=igb is one of them
#   make docs    writes what commands print, options and types into the pages that show them
#   make book    the pages as a book, target/book/html
#   make deny    licences and sources of what we depend on; make advisories: its known holes (needs the network)
#   make fuzz    each fuzz target for FUZZ_SECONDS=10; make fuzz-corpus: keeps the few inputs in git that matter
#   make sanitize the crates with unsafe code under AddressSanitizer and ThreadSanitizer
#   make ci      the checks of the CI beside make test: these four, packages bit for bit, signatures, virtual machines; CI_MINUTES=84 at most
#   make dpdk-test  lints and tests of what needs DPDK
#   make bench-peers  build what our figures are compared with
#   make bench   the figures of SPECIFICATION.md
#   make install both programs to /usr/local/bin; with DPDK: make install FEATURES=dpdk
#   make static  the router as a program that needs no library, target/static/brickway
#   make packages .deb and .rpm, in target/packages
#   make test-packages  installs, runs, upgrades and purges them in a fresh Debian
#   make test-bare  follows the README in a Debian that has git and make alone; SUITES="bookworm trixie"
#   make test-reproducible  builds them twice and compares them bit for bit; PROFILE=quick in half the time
#   make release KEY=ID  packages, the static program and their signed SHA256SUMS, target/published

SHELL := /bin/bash
.DEFAULT_GOAL := help

CARGO ?= cargo
SUDO := $(shell [ $$(id -u) = 0 ] || echo sudo)
FUZZ_SECONDS ?= 10
# The profile of packages and of the static program.
PROFILE ?= release
# The most minutes of `make ci`.
CI_MINUTES ?= 84

# clang compiles the BPF program of AF_XDP ports, protoc the messages of etcd; libprotobuf-dev has the messages that all import.
# libpcap compiles the filters of captures; libipsec-mb has IPsec's ciphers for x86.
BUILD_PACKAGES := build-essential clang protobuf-compiler libprotobuf-dev libpcap-dev $(if $(filter x86_64,$(shell uname -m)),libipsec-mb-dev)
DEMO_PACKAGES := iproute2 iputils-ping traceroute iperf3 ethtool procps
# FRR, BIRD and etcd: the demo and tests run their own; the services stay stopped.
CLUSTER_PACKAGES := $(DEMO_PACKAGES) etcd-server frr bird2
TEST_PACKAGES := $(CLUSTER_PACKAGES) tcpdump tshark etcd-client openssl nftables iptables bpftool pmacct nfdump
# DPDK's tables and dpdk-testpmd are measured beside ours, and on veth links the kernel and xdp-forward (xdp-tools of Debian 13).
BENCH_PACKAGES := libdpdk-dev dpdk-dev pkg-config iproute2 iputils-ping ethtool procps etcd-server xdp-tools iperf3 nftables
DPDK_PACKAGES := libdpdk-dev pkg-config
WEB_PACKAGES := chromium
# Packages; flex and bison for the libpcap that is linked into their programs.
PACKAGING_PACKAGES := debhelper rpm jq flex bison git
# What signs, and what compares packages.
SIGNING_PACKAGES := gnupg dpkg-dev cpio rpm
PACKAGE_TEST_PACKAGES := lintian debootstrap iproute2 iputils-ping
# A virtual machine with Debian's kernel, and strongSwan for tests in it.
VM_PACKAGES := qemu-system-x86 busybox-static kmod strongswan-swanctl charon-systemd
# DPDK, and its dpdk-testpmd as a control.
RACK_PACKAGES := $(DPDK_PACKAGES) dpdk-dev ethtool

TARGET := $(shell uname -m)-unknown-linux-gnu
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
OLDEST_RUST := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
ROUTER := $(addprefix -p brickway-,packet fib graph ports fabric ipsec elements lua control) -p brickway
UNSAFE := -p brickway-packet -p brickway-fib -p brickway-ports -p brickway-ipsec

.PHONY: help build quick packages static test-packages test-bare test-reproducible release test-release packages-build packages-demo packages-cluster packages-test packages-bench packages-dpdk packages-web packages-vm packages-rack packages-packaging packages-signing rust nightly nightly-sources demo demo-cluster test test-router test-drivers test-twin test-twin-vm test-web test-linux-esp test-linux-vlan test-psample rack test-all ci dpdk-test lint fuzz fuzz-corpus loom sanitize docs book cargo-deny cargo-fuzz deny advisory-database advisories bench-peers bench install clean

help:
	@sed -n 's/^#   //p' $(MAKEFILE_LIST)

# Installs the Debian packages in $(1) that are not there yet. Services that come with them are neither started nor enabled.
define install_packages
	@missing=$$(for package in $(1); do dpkg-query -W -f='$${Status}' $$package 2>/dev/null | grep -q '^install ok' || echo $$package; done); \
	if [ -n "$$missing" ]; then echo "installing" $$missing; \
	  services=$$(for package in $$missing; do case $$package in frr) echo frr;; bird2) echo bird;; etcd-server) echo etcd;; charon-systemd) echo strongswan;; esac; done); \
	  [ -n "$$services" ] && [ -d /run/systemd/system ] || services=; \
	  if [ -n "$$services" ]; then $(SUDO) systemctl mask --runtime --quiet $$services; fi; \
	  $(SUDO) apt-get update -qq && DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	  result=$$?; \
	  if [ -n "$$services" ]; then $(SUDO) systemctl unmask --runtime --quiet $$services; $(SUDO) systemctl disable --quiet $$services; fi; \
	  exit $$result; fi
endef

packages-build:
	$(call install_packages,$(BUILD_PACKAGES))

packages-demo:
	$(call install_packages,$(DEMO_PACKAGES))

packages-cluster:
	$(call install_packages,$(CLUSTER_PACKAGES))

packages-test:
	$(call install_packages,$(BUILD_PACKAGES) $(TEST_PACKAGES))

packages-dpdk:
	$(call install_packages,$(BUILD_PACKAGES) $(TEST_PACKAGES) $(DPDK_PACKAGES))

packages-web:
	$(call install_packages,$(BUILD_PACKAGES) $(TEST_PACKAGES) $(WEB_PACKAGES))

packages-bench:
	$(call install_packages,$(BUILD_PACKAGES) $(BENCH_PACKAGES))

packages-packaging: packages-build
	$(call install_packages,$(PACKAGING_PACKAGES))

packages-signing:
	$(call install_packages,$(SIGNING_PACKAGES))

packages-vm:
	$(call install_packages,$(BUILD_PACKAGES) $(TEST_PACKAGES) $(VM_PACKAGES))
	@sh crates/testbed/vm/kernel.sh target/vm

packages-rack: packages-vm
	$(call install_packages,$(RACK_PACKAGES))
	@sh crates/testbed/vm/kernel.sh target/vm newest
	@sh crates/testbed/vm/qemu.sh target/vm

# The toolchain named in rust-toolchain.toml, by rustup, which Debian 13 has a package of; or another Rust that is new enough.
rust:
	@packaging/rust.sh "$(CARGO)" $(OLDEST_RUST)

nightly: rust
	@rustup toolchain list | grep -q ^nightly || rustup toolchain install nightly --profile minimal

# The sources of the standard library too.
nightly-sources: nightly
	@rustup component add --toolchain nightly rust-src

build: packages-build $(if $(findstring dpdk,$(FEATURES)),packages-dpdk) rust
	$(CARGO) build --release -p brickway -p brickway-lab --features "$(FEATURES)"

# Built in half the time of a release, and a few per cent slower.
quick: packages-build $(if $(findstring dpdk,$(FEATURES)),packages-dpdk) rust
	$(CARGO) build --profile quick -p brickway -p brickway-lab --features "$(FEATURES)"

# Sets $$lab to a laboratory that is as new as the sources, which takes seconds where there is one: target/quick's, or an installed one of
# this version where nothing was built here. Else it is built.
define ready_lab
lab=target/quick/brickway-lab; \
if [ ! -x $$lab ] && [ "$$(brickway-lab --version 2>/dev/null)" = "brickway-lab $(VERSION)" ]; then \
  lab=$$(command -v brickway-lab); \
elif [ ! -x $$lab ] || [ -n "$$(find crates Cargo.toml Cargo.lock examples/ip-router.click -path 'crates/*/tests' -prune -o -newer $$lab -print -quit)" ]; then \
  echo "make: building the router and the laboratory from source: 6 minutes the first time on two cores, then seconds."; \
  echo "      Where brickway-lab $(VERSION) is installed and nothing was built here, the demo starts at once (docs/install.md)."; \
  $(MAKE) --no-print-directory quick || exit 1; touch $$lab; \
fi
endef

# LUA=examples/lua/router.lua has the script in the place of the configuration.
demo: packages-demo
	@$(ready_lab); $(SUDO) $$lab demo $(LUA:%=--lua %) $(KEEP:%=--keep)

demo-cluster: packages-cluster
	@$(ready_lab); $(SUDO) $$lab demo --cluster

lint: packages-build rust
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) test -p brickway-testbed --lib prose

# clippy-driver is the compiler that `cargo clippy` calls, and these are its arguments: one build lints and is then tested.
LINTING := RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings

# Tests that mostly wait, for routers and clusters in network namespaces; they run beside all others, which compute and take as long.
WAITING := capture cluster cluster_security churn conformance demo documents drop_in export faults filtering in_kernel log lua multipath redirects routing_daemons supervision twin vlan web web_page
WORKING := $(filter-out $(WAITING),$(sort $(notdir $(basename $(wildcard crates/*/tests/*.rs)) $(patsubst %/main.rs,%,$(wildcard crates/*/tests/*/main.rs)))))

# Fewer random cases of each property than proptest's 256, for a run that one waits for; PROPTEST_CASES=10000 make test for a night's.
test: export PROPTEST_CASES ?= 64
test: export BRICKWAY_WEB := 1
# Tests that lack something are noted here, and counted at the end.
test: export BRICKWAY_LEFT_OUT := $(CURDIR)/target/left-out
test: packages-test packages-web rust
	@mkdir -p target && : > $(BRICKWAY_LEFT_OUT)
	$(CARGO) fmt --all -- --check
	$(LINTING) $(CARGO) test --workspace --no-run
	@$(LINTING) $(CARGO) test --workspace --no-fail-fast $(WAITING:%=--test %) > target/waiting-tests.log 2>&1 & waiting=$$!; \
	  $(LINTING) $(CARGO) test --workspace --no-fail-fast --lib --bins $(WORKING:%=--test %); working=$$?; \
	  $(LINTING) $(CARGO) test --workspace --doc; documents=$$?; \
	  wait $$waiting; waiting=$$?; cat target/waiting-tests.log; \
	  grep -h '^test .* FAILED$$' target/waiting-tests.log; crates/testbed/left-out.sh $(BRICKWAY_LEFT_OUT); \
	  exit $$((working | documents | waiting))

# The crates of the router itself, of which some tests send traffic by the laboratory's program.
test-router: export PROPTEST_CASES ?= 64
test-router: packages-test rust
	$(LINTING) $(CARGO) build -p brickway-lab
	$(LINTING) $(CARGO) test $(ROUTER)

# The tests of a router in Linux's place by each way that packets can take, where they name none.
test-drivers: packages-test rust
	$(LINTING) $(CARGO) build -p brickway-lab
	for driver in xdp af_xdp af_packet; do \
	  BRICKWAY_TEST_DRIVER=$$driver $(LINTING) $(CARGO) test -p brickway --no-fail-fast --test churn --test conformance --test drop_in \
	    --test filtering --test routing_daemons --test service --test vlan || exit 1; done

# Two worlds, one of them Linux alone, under the same random changes (crates/router/tests/twin). `make test` has 200 seeds.
test-twin: SEEDS ?= 20000
test-twin: packages-test rust
	BRICKWAY_TWIN_SEEDS=$(SEEDS) $(LINTING) $(CARGO) test -p brickway --no-fail-fast --test twin

# The kinds of interfaces that many a kernel lacks, in a virtual machine. A seed takes it a minute where QEMU emulates it.
test-twin-vm: SEEDS ?= 64
test-twin-vm: packages-test packages-vm rust
	BRICKWAY_TWIN_SEEDS=$(SEEDS) BRICKWAY_TWIN_KINDS="vlan vlan_port vrf bond bond_port tunnel gretap ipvlan ifb" \
	  CARGO_TARGET_$(subst -,_,$(shell echo $(TARGET) | tr a-z A-Z))_RUNNER=$(CURDIR)/crates/testbed/vm/run.sh \
	  $(LINTING) $(CARGO) test -p brickway --no-fail-fast --test twin by_

# The tests of the web page, by what a browser shows.
test-web: packages-web rust
	BRICKWAY_WEB=1 $(LINTING) $(CARGO) test -p brickway --test web_page

# These name the whole workspace, as another choice of features would be built anew.
# The tests of ESP, in a virtual machine: many a kernel has none. `make test` then says that they were not run.
test-linux-esp: ESP_TESTS ?= --test ipsec_linux --test esp_hooks
test-linux-esp: packages-vm rust
	BRICKWAY_ESP=1 CARGO_TARGET_$(subst -,_,$(shell echo $(TARGET) | tr a-z A-Z))_RUNNER=$(CURDIR)/crates/testbed/vm/run.sh \
	  $(LINTING) $(CARGO) test --workspace $(ESP_TESTS) -- --test-threads 1

# The tests of VLANs that Linux has interfaces for, in such a machine.
test-linux-vlan: packages-vm rust
	CARGO_TARGET_$(subst -,_,$(shell echo $(TARGET) | tr a-z A-Z))_RUNNER=$(CURDIR)/crates/testbed/vm/run.sh \
	  $(LINTING) $(CARGO) test --workspace --test vlan beside_linux

# The test of PSAMPLE, in a virtual machine: many a kernel has none.
test-psample: packages-vm rust
	BRICKWAY_PSAMPLE=1 CARGO_TARGET_$(subst -,_,$(shell echo $(TARGET) | tr a-z A-Z))_RUNNER=$(CURDIR)/crates/testbed/vm/run.sh \
	  $(LINTING) $(CARGO) test --workspace --test export psample

# Cards that QEMU emulates, by their own drivers of two kernels, and by DPDK's: some fifteen minutes for each. CARDS="igb virtio"
# KERNELS=linux-newest RACK_TESTS="a_dpdk a_bond" are fewer. With RECORD=1 what tests that pass find goes to docs/cards.txt, of which
# 'make docs' makes a table.
rack: CARDS ?= e1000 e1000e igb rtl8139 virtio vmxnet3
rack: KERNELS ?= linux linux-newest
rack: RACK_FEATURES ?= brickway/dpdk
# Each in a guest of its own: what one leaves behind is not the next one's.
rack: RACK_TESTS ?= a_bond a_dpdk a_list a_ring changes_of of_all_lengths
rack: packages-rack rust
	@set -o pipefail; mkdir -p target/tmp; failed=; \
	for kernel in $(KERNELS); do for card in $(CARDS); do for tests in $(RACK_TESTS); do \
	  echo "rack: $$card, $$kernel $$tests"; \
	  VM_LINUX=$$kernel RACK_IOMMU=1 VM_MEMORY=3584 \
	  CARGO_TARGET_$(subst -,_,$(shell echo $(TARGET) | tr a-z A-Z))_RUNNER="$(CURDIR)/crates/testbed/vm/rack.sh $$card" \
	  $(LINTING) $(CARGO) test --workspace --features "$(RACK_FEATURES)" --test cards -- --nocapture --test-threads 1 $$tests | \
	  tee target/tmp/rack.log || failed="$$failed $$card/$$kernel"; \
	  if [ -n "$(RECORD)" ]; then sh crates/testbed/vm/found.sh target/tmp/rack.log docs/cards.txt; fi; done; done; done; \
	if [ -n "$$failed" ]; then echo "rack: failed:$$failed"; exit 1; fi

# What is built in other ways, each of which takes some minutes more.
test-all: test
	$(MAKE) --no-print-directory lint test-twin test-twin-vm test-web test-linux-esp test-linux-vlan test-psample rack test-packages dpdk-test loom sanitize fuzz deny book

# DPDK's environment starts once a process, so that its tests share one; they need no huge pages. All of the workspace is named
# so that what does not depend on DPDK need not be built again.
dpdk-test: packages-dpdk rust
	$(CARGO) clippy --workspace --lib --features brickway-click/dpdk -- -D warnings
	$(CARGO) test --workspace --lib --features brickway-click/dpdk dpdk

# Lock-free code under the model checker.
loom: rust
	RUSTFLAGS="--cfg loom" $(CARGO) test -p brickway-packet -p brickway-fib -p brickway-ipsec --lib --target-dir target/loom loom

# The crates with `unsafe` under AddressSanitizer, and what threads share of them under ThreadSanitizer. That one needs a standard
# library of its own, and does not see that a test's memory is unmapped before another one's comes to lie there.
sanitize: packages-test nightly-sources
	RUSTFLAGS=-Zsanitizer=address $(CARGO) +nightly test --target $(TARGET) --target-dir target/address --lib $(UNSAFE)
	RUSTFLAGS=-Zsanitizer=thread RUST_TEST_THREADS=1 $(CARGO) +nightly test -Zbuild-std --target $(TARGET) --target-dir target/thread --lib $(UNSAFE)

cargo-fuzz: packages-build nightly
	@command -v cargo-fuzz >/dev/null || $(CARGO) install --quiet --locked cargo-fuzz

# A short run of each fuzz target; FUZZ_SECONDS=3600 make fuzz for a long one.
fuzz: cargo-fuzz
	fuzz/run.sh $(FUZZ_SECONDS)

# What git keeps of the inputs that fuzzing found.
fuzz-corpus: cargo-fuzz
	fuzz/minimise.sh

# What pages show of outputs, the reference of the API, the example of settings, docs/first-minute.svg and docs/peers.svg. `make test`
# compares them with the program or with what they are drawn from, and of outputs the form: figures differ from run to run.
docs: packages-test rust
	BRICKWAY_UPDATE=1 $(LINTING) $(CARGO) test --workspace --test documents
	BRICKWAY_UPDATE=1 $(LINTING) $(CARGO) test -p brickway --lib
	BRICKWAY_UPDATE=1 $(LINTING) $(CARGO) test -p brickway-testbed --lib -- peers cards

# The pages of the project, with what they link to. A link that leads nowhere fails `make test`.
BOOK := README.md ARCHITECTURE.md SPECIFICATION.md CONTRIBUTING.md SECURITY.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT Makefile docs examples packaging data/README.md crates/fib/README.md
book: rust
	@command -v mdbook >/dev/null || $(CARGO) install --quiet --locked mdbook
	rm -rf target/book && mkdir -p target/book/src
	cp -r --parents $(BOOK) target/book/src
	cp packaging/book/book.toml target/book && cp packaging/book/SUMMARY.md target/book/src
	mdbook build target/book -d $(CURDIR)/target/book/html

cargo-deny: rust
	@command -v cargo-deny >/dev/null || $(CARGO) install --quiet --locked cargo-deny

# Licences, sources and bans of what we depend on; it needs no network once cargo-deny is installed.
deny: cargo-deny
	$(CARGO) deny check licenses bans sources

# The database of known holes, RustSec's. It is fetched from GitHub.
advisory-database: cargo-deny
	@timeout 300 $(CARGO) deny fetch db || { echo "make: https://github.com/RustSec/advisory-db: not fetched; known holes are not checked" >&2; exit 1; }

# Known holes of what we depend on.
advisories: advisory-database
	$(CARGO) deny check --disable-fetch advisories

# DPDK's l3fwd, of which Debian has the source only. FastClick and VPP are in no package of Debian 12: `brickway-lab bench io` knows
# neither.
bench-peers: packages-bench
	sh crates/lab/peers/l3fwd/build.sh target/peers

# Root lends DPDK huge pages for the time of a bench, and makes network namespaces.
bench: FEATURES = dpdk
bench: packages-bench build bench-peers
	target/release/brickway-lab bench forward
	target/release/brickway-lab bench mixed
	target/release/brickway-lab bench elements
	target/release/brickway-lab bench ipsec
	target/release/brickway-lab bench lua
	target/release/brickway-lab bench reload
	$(SUDO) target/release/brickway-lab bench fib
	$(SUDO) target/release/brickway-lab bench io
	$(SUDO) target/release/brickway-lab bench batching
	target/release/brickway-lab bench scaling
	target/release/brickway-lab bench fabric
	target/release/brickway-lab bench cluster
	$(SUDO) target/release/brickway-lab paper all --quick || [ $$? = 3 ]
	target/release/brickway-lab bench distribution
	$(CARGO) run --release -q -p brickway-graph --example hop

install: build
	$(SUDO) install -m 755 target/release/brickway target/release/brickway-lab /usr/local/bin

# What packages have beside the C library is linked statically, so that those of Debian 12 run on Debian 13 and others too.
packages: packages-packaging rust
	sh packaging/libraries.sh target/libraries
	LIBPCAP_LIBDIR=$(CURDIR)/target/libraries/lib packaging/reproducibly.sh \
	  $(CARGO) build --locked --profile $(PROFILE) --target-dir target/packaged -p brickway -p brickway-lab
	rm -rf target/packages
	packaging/packages.sh target/packaged/$(PROFILE) target/packages

# It runs where there is no library at all, not even the C library.
static: packages-packaging rust
	sh packaging/libraries.sh target/libraries
	LIBPCAP_LIBDIR=$(CURDIR)/target/libraries/lib RUSTFLAGS="-C target-feature=+crt-static" packaging/reproducibly.sh \
	  $(CARGO) build --locked --profile $(PROFILE) --target $(TARGET) --target-dir target/static -p brickway
	strip -o target/static/brickway target/static/$(TARGET)/$(PROFILE)/brickway

test-packages: packages
	$(call install_packages,$(PACKAGE_TEST_PACKAGES))
	$(SUDO) packaging/test.sh target/packages

# Debian 13 has rustup, Debian 12 has not. Builds all in the first one.
test-bare: SUITES ?= bookworm trixie
test-bare:
	$(call install_packages,$(PACKAGE_TEST_PACKAGES))
	for suite in $(SUITES); do $(SUDO) packaging/test-bare.sh $$suite || exit 1; done

# Of the last commit. REPRODUCED=packages leaves the static program out.
test-reproducible: REPRODUCED ?= packages static
test-reproducible: packages-packaging packages-signing rust
	packaging/test-reproducible.sh $(PROFILE) $(REPRODUCED)

# The key comes first, and nothing is built if it does not sign.
release: packages-signing
	@packaging/sign.sh "$(KEY)"
	$(MAKE) --no-print-directory packages static
	packaging/sign.sh "$(KEY)" target/packages target/static/brickway target/published

test-release: packages-signing
	packaging/test-release.sh

# What CI checks beside `make test`, in CI_MINUTES at most.
ci: rust
	.ci/beside $(CI_MINUTES)

clean:
	$(CARGO) clean
