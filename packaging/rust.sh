#!/bin/sh
# Sees to it that there is a Rust that builds the project, for the Makefile: rust.sh CARGO OLDEST, where OLDEST is rust-version of
# Cargo.toml. Debian's package rustup is installed where no Rust fits; it gets the toolchain of rust-toolchain.toml.
cargo=$1 oldest=$2
cd "$(dirname "$0")/.." || exit

has_rustup() { command -v rustup > /dev/null; }
# A cargo that rustup does not manage.
fits() {
  version=$("$cargo" --version 2> /dev/null | sed -n 's/^cargo \([0-9.]*\).*/\1/p')
  [ -n "$version" ] && [ "$(printf '%s\n' "$oldest" "$version" | sort -V | head -1)" = "$oldest" ]
}

if ! has_rustup && ! fits; then
  if ! apt-cache policy rustup 2> /dev/null | grep -q "Candidate: [0-9]"; then
    echo "make: Rust $oldest or newer is needed, and this system has no package rustup: install it from https://rustup.rs, or the .deb (docs/install.md)" >&2
    exit 1
  fi
  echo "installing rustup"
  sudo=$([ "$(id -u)" = 0 ] || echo sudo)
  # It takes the place of Debian's own cargo and rustc, which are the user's to remove.
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-remove --no-install-recommends rustup ca-certificates > /dev/null || {
    echo "make: rustup cannot be installed beside what is there: Rust $oldest or newer is needed, by 'apt install rustup' or https://rustup.rs" >&2
    exit 1
  }
fi
# rustup installs the toolchain at the first call, unless it was told not to.
has_rustup && ! "$cargo" --version > /dev/null 2>&1 && rustup toolchain install "$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)"
"$cargo" --version > /dev/null
