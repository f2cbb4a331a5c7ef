#!/bin/sh
# Puts into FOLDER/lib what packages link statically, so that they run on any Linux with the C library of the machine that built them or
# a newer one: libpcap, of Debian's source package, without its devices (only its compiler of filters is used), and intel-ipsec-mb.
# Usage: libraries.sh FOLDER
#
# Nothing of the system is changed: the list of source packages and what it names lie in FOLDER.
set -eu

mkdir -p "$1/source" "$1/lists/partial" "$1/lib"
cd "$1"
version=$(dpkg-query -W -f '${source:Version}' libpcap0.8-dev)
stamp="$version $(dpkg-query -W libipsec-mb-dev 2>/dev/null || true)"
if [ "$(cat stamp 2>/dev/null)" = "$stamp" ]; then exit 0; fi

apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' | sort -u > sources.list
if ! [ -s sources.list ]; then echo "libpcap: apt has no repository to fetch Debian's source package from" >&2; exit 1; fi
from="-o Dir::Etc::SourceList=$PWD/sources.list -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists=$PWD/lists"
if [ "$(id -u)" = 0 ]; then from="$from -o APT::Sandbox::User=root"; fi
apt-get $from update -qq
(cd source && apt-get $from source -qq --download-only "libpcap=$version")
rm -rf libpcap && mkdir libpcap
tar xf source/libpcap_*.orig.tar.gz -C libpcap --strip-components=1
cd libpcap
./configure --quiet --disable-shared --disable-dbus --disable-usb --disable-bluetooth --disable-rdma --without-libnl --without-dpdk \
  CFLAGS="-O2 -g -fPIC -fstack-protector-strong -D_FORTIFY_SOURCE=2 -ffile-prefix-map=$PWD=/usr/src/libpcap" > ../configure.log
make -s libpcap.a > ../make.log 2>&1 || { tail ../make.log >&2; exit 1; }
cp libpcap.a ../lib
cd ..
for archive in /usr/lib/*/libIPSec_MB.a; do
  if [ -f "$archive" ]; then cp "$archive" lib; fi
done
echo "$stamp" > stamp
