#!/bin/sh
# Brings a kernel of Debian and its modules to FOLDER/linux, for run.sh, or the newest to FOLDER/linux-newest:
# kernel.sh FOLDER [newest].
#
# The packages are unpacked and not installed, so no boot loader learns of them. A kernel that is there stays. The one of Debian 12
# itself is too old for a router in Linux's place (tcx came with Linux 6.6): there it is the one of its backports. The newest is that of
# the backports for Debian 13.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
name=linux${2:+-$2}
if [ -e "$name" ]; then exit 0; fi
case $(uname -m) in
  x86_64) newest=linux-image-amd64 ;;
  *) echo "kernel.sh: this machine is $(uname -m); expected x86_64" >&2; exit 1 ;;
esac
suite=
if [ -n "${2:-}" ]; then
  suite=trixie-backports
elif [ "$(. /etc/os-release; echo "$VERSION_ID")" = 12 ]; then
  suite=bookworm-backports
fi
. "$here/apt.sh"
# What it depends on: the kernel and its modules, which are packages of their own since 7.0.
packages=$(apt-cache $from depends --recurse --no-recommends --no-suggests --no-enhances --no-breaks --no-conflicts --no-replaces "$newest" |
  grep -E '^linux-(image|binary|modules)-[0-9]' | sort -u)
if [ -z "$packages" ]; then echo "kernel.sh: apt knows no package $newest" >&2; exit 1; fi
unpack "$name.new" $packages
cd "$name.new"
# Debian 13 has /lib in /usr.
if [ -e usr/lib/modules ]; then mkdir -p lib; [ -e lib/modules ] || mv usr/lib/modules lib/modules; fi
version=$(ls lib/modules)
if ! [ -e "boot/vmlinuz-$version" ]; then mkdir -p boot; cp "lib/modules/$version/vmlinuz" "boot/vmlinuz-$version"; fi
PATH=$PATH:/sbin:/usr/sbin depmod -b . "$version"
cd ..
mv "$name.new" "$name"
