#!/bin/sh -e
# Prints the date of what is built, in seconds since 1970: that of the last commit, or that of the release where there is no git.

cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
released=$(sed -n "s/^## \[$version\] - //p" CHANGELOG.md)
[ -n "$released" ] || { echo "CHANGELOG.md: no date for version $version; expected '## [$version] - DATE'" >&2; exit 1; }
git log -1 --format=%ct 2>/dev/null || date -ud "$released" +%s
