#!/bin/sh
# Builds DPDK's example l3fwd out of Debian's source package into FOLDER/l3fwd, as the peer of `brickway-lab bench io`.
# Usage: build.sh FOLDER
#
# Nothing of the system is changed: the list of source packages and what it names lie in FOLDER. The program is DPDK's
# but for its limits (routes, groups, mbufs), for an offload that virtual devices do not have, and for report.c, which
# tells what was forwarded.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/source" "$1/lists/partial"
cd "$1"
version=$(dpkg-query -W -f '${source:Version}' libdpdk-dev)
stamp="$version $(cat "$here/build.sh" "$here/report.c" | sha256sum)"
if [ -x l3fwd ] && [ "$(cat l3fwd.stamp 2>/dev/null)" = "$stamp" ]; then exit 0; fi

apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' | sort -u > sources.list
if ! [ -s sources.list ]; then echo "l3fwd: apt knows no source to bring DPDK's source package from" >&2; exit 1; fi
from="-o Dir::Etc::SourceList=$PWD/sources.list -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists=$PWD/lists"
if [ "$(id -u)" = 0 ]; then from="$from -o APT::Sandbox::User=root"; fi
apt-get $from update -qq
(cd source && apt-get $from source -qq --download-only "dpdk=$version")
rm -rf l3fwd.source
mkdir l3fwd.source
tar xf source/dpdk_*.orig.tar.xz -C l3fwd.source --strip-components=2 --wildcards '*/examples/l3fwd/*' '*/examples/common/*'
cd l3fwd.source/l3fwd

# change FILE OLD NEW: a text that is not there is a release that this script does not know.
change() {
  grep -q -- "$2" "$1" || { echo "l3fwd: $1 of DPDK $version has no '$2' to change" >&2; exit 1; }
  sed -i "s/$2/$3/" "$1"
}
change l3fwd_fib.c 'max_routes = (1 << 16)' 'max_routes = 1300000'
change l3fwd_fib.c 'num_tbl8 = (1 << 15)' 'num_tbl8 = (1 << 17)'
change l3fwd_lpm.c 'MAX_RULES  *1024' 'MAX_RULES 1300000'
change l3fwd_lpm.c 'NUMBER_TBL8S (1 << [0-9]*)' 'NUMBER_TBL8S (1 << 17)'
change main.c '(unsigned)8192' '(unsigned)200000'
change main.c '\.offloads = RTE_ETH_RX_OFFLOAD_CHECKSUM' '.offloads = 0'

# The files *_route_parse.c are included by others.
units=$(ls ./*.c | grep -v route_parse)
cc -O3 -w -I../common -DALLOW_EXPERIMENTAL_API $(pkg-config --cflags libdpdk) $units "$here/report.c" -o ../../l3fwd $(pkg-config --libs libdpdk)
cd ../..
rm -rf l3fwd.source
echo "$stamp" > l3fwd.stamp
