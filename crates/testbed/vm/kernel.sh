#!/bin/sh
# Brings a kernel of Debian and its modules to FOLDER/linux, for run.sh. Usage: kernel.sh FOLDER
#
# The package is unpacked and not installed, so no boot loader learns of it. A kernel that is there stays. The one of Debian 12 itself
# is too old for a router in Linux's place (tcx came with Linux 6.6): there it is the one of its backports.
set -eu

mkdir -p "$1"
cd "$1"
if [ -e linux ]; then exit 0; fi
case $(uname -m) in
  x86_64) newest=linux-image-amd64 ;;
  *) echo "kernel.sh: this machine is $(uname -m); expected x86_64" >&2; exit 1 ;;
esac
from=
if [ "$(id -u)" = 0 ]; then from="-o APT::Sandbox::User=root"; fi
if [ "$(. /etc/os-release; echo "$VERSION_ID")" = 12 ]; then
  mkdir -p lists/partial
  apt-get indextargets --format 'deb $(REPO_URI) $(CODENAME)-backports main' 'Created-By: Packages' |
    grep ' bookworm-backports ' | sort -u > sources.list
  from="$from -o Dir::Etc::SourceList=$PWD/sources.list -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists=$PWD/lists"
  from="$from -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache="
fi
apt-get $from update -qq
package=$(apt-cache $from depends "$newest" | sed -n 's/^ *Depends: \(linux-image-.*\)/\1/p')
if [ -z "$package" ]; then echo "kernel.sh: apt knows no package $newest" >&2; exit 1; fi
echo "downloading $package"
rm -rf unpacked ./"$package"_*.deb
apt-get $from download -qq "$package"
dpkg -x ./"$package"_*.deb unpacked
rm -rf ./"$package"_*.deb lists sources.list
depmod -b unpacked "${package#linux-image-}"
mv unpacked linux
