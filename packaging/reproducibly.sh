#!/bin/bash -e
# Runs a build whose programs depend on the sources and the compilers alone, and not on the folder, the user's home or the time:
# reproducibly.sh COMMAND... The Makefile runs cargo so for packages and for the static program.

cd "$(dirname "$0")/.."
project=$(pwd -P)
cargo=${CARGO_HOME:-$HOME/.cargo}
rust=$(rustc --print sysroot)
commit=$(rustc -vV | sed -n 's/^commit-hash: //p')
host=$(rustc -vV | sed -n 's/^host: //p')
# The folders of what is downloaded are there before their names are known.
cargo fetch --quiet --locked --target "$host"

# Names of folders stand in messages of panics and in debug symbols. Of two names that fit rustc and compilers of C take the last one.
names=(
  "$project=/usr/src/brickway" "$rust/lib/rustlib/src/rust=/rustc/$commit"
)
for crates in "$cargo"/registry/src/*/; do
  names+=("${crates%/}=/usr/src/crates" "$(realpath "$crates")=/usr/src/crates")
done

# Arguments may have spaces in them: the unit separator keeps them apart.
separator=$'\037'
flags=${RUSTFLAGS// /$separator}
# CFLAGS in the environment takes the place of cargo's own.
CFLAGS=$(sed -n 's/^CFLAGS = "\(.*\)"/\1/p' .cargo/config.toml)
for name in "${names[@]}"; do
  flags="$flags${flags:+$separator}--remap-path-prefix=$name"
  CFLAGS="$CFLAGS -ffile-prefix-map=$name"
done
export CARGO_ENCODED_RUSTFLAGS="$flags" CFLAGS
SOURCE_DATE_EPOCH=$(packaging/date.sh)
export SOURCE_DATE_EPOCH
unset RUSTFLAGS
exec "$@"
