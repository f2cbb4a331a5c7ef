#!/bin/sh -e
# Prints what is linked into brickway and brickway-lab as a CycloneDX list: crates, and the C libraries that Debian has.

cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
{
  cargo tree --locked --package brickway --package brickway-lab --edges normal,no-proc-macro --prefix none --format '{p}|{l}' |
    sed -n 's/ (\*)$//; s/^\([^ ]*\) v\([^ |]*\)\( ([^)]*)\)*|\(.*\)$/cargo|\1|\2|\4/p' | grep -v '^cargo|brickway' | sort -u
  # LuaJIT, which its crate builds for mlua-sys.
  sed -n '/^name = "luajit-src"/{n;s/^version = "\(.*\)"/cargo|luajit-src|\1|MIT/p}' Cargo.lock
  echo "deb/debian|libpcap|$(dpkg-query -W -f '${source:Version}' libpcap0.8-dev)|BSD-3-Clause"
  if mb=$(dpkg-query -W -f '${source:Version}' libipsec-mb-dev 2>/dev/null); then echo "deb/debian|intel-ipsec-mb|$mb|BSD-3-Clause"; fi
} | jq --raw-input --null-input --arg version "$version" '
  def licence: gsub(" */ *| +OR +"; " OR ") | if . == "" then [] else [{expression: .}] end;
  {
    bomFormat: "CycloneDX", specVersion: "1.5", version: 1,
    metadata: {component: {type: "application", name: "brickway", version: $version, licenses: [{expression: "MIT OR Apache-2.0"}]}},
    components: [inputs / "|" | {type: "library", name: .[1], version: .[2], purl: "pkg:\(.[0])/\(.[1])@\(.[2])", licenses: (.[3] | licence)}]
  }'
