#!/bin/bash -e
# Builds the last commit twice and compares bit for bit: test-reproducible.sh PROFILE packages [static]. The last word has it build and
# compare the static program too. `make test-reproducible` calls it.
#
# The second build has another folder, home of cargo, umask, locale and time zone, comes later, and for root on another host.

profile=$1 targets=${*:2}
project=$(realpath "$(dirname "$0")/..")
work=$(mktemp -d -p "${TMPDIR:-/var/tmp}" brickway-twice-XXXXXX)
trap 'rm -rf "$work"' EXIT
export CARGO_INCREMENTAL=0
unset CARGO_TARGET_DIR RUSTFLAGS

build() {
  git clone --quiet "$project" "$1"
  # What is built of it is not kept, so that two builds have room.
  (cd "$1" && make --no-print-directory $targets PROFILE="$profile" && rm -rf target/packaged target/static/*-linux-gnu)
}

first=$work/brickway second=$work/another/folder/of/brickway
mkdir -p "${second%/*}"
SECONDS=0
echo "test-reproducible: the first build"
build "$first" > "$work/log" 2>&1 || { tail -n 60 "$work/log" >&2; exit 1; }
echo "test-reproducible: the second build, after $SECONDS s"
ln -s "${CARGO_HOME:-$HOME/.cargo}" "$work/cargo"
export -f build
export profile project targets
elsewhere() { CARGO_HOME=$work/cargo TZ=Asia/Kolkata LC_ALL=C.UTF-8 bash -ec 'umask 077; build "$0"' "$second"; }
(
  if [ "$(id -u)" = 0 ]; then
    export -f elsewhere
    export work second
    unshare --uts bash -ec 'echo elsewhere > /proc/sys/kernel/hostname; elsewhere'
  else
    elsewhere
  fi
) > "$work/log" 2>&1 || { tail -n 60 "$work/log" >&2; exit 1; }
echo "test-reproducible: both are there after $SECONDS s"
cd "$first/target"
files=(packages/*.deb packages/*.rpm packages/*.json packages/SHA256SUMS)
case $targets in *static) files+=(static/brickway) ;; esac
"$project/packaging/compare.sh" "$first/target" "$second/target" "${files[@]}"
