#!/bin/sh
# Brings a QEMU that emulates igb (8.0 or newer) to FOLDER/qemu, where the one that is installed is older: qemu.sh FOLDER. FOLDER/qemu/run
# is it; it is unpacked and not installed.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
if [ -e qemu ]; then exit 0; fi
version=$(qemu-system-x86_64 --version | sed -n 's/.*version \([0-9]*\).*/\1/p')
if [ "$version" -ge 8 ]; then
  mkdir qemu
  ln -s "$(command -v qemu-system-x86_64)" qemu/run
  exit 0
fi
suite=bookworm-backports
. "$here/apt.sh"
unpack qemu.new qemu-system-x86 qemu-system-common qemu-system-data
suite=
. "$here/apt.sh"
# What this one needs more than the one that is installed.
unpack qemu.others ipxe-qemu seabios liburing2 libfuse3-3 libpmem1 libndctl6 libdaxctl1
cp -r qemu.others/. qemu.new
rm -rf qemu.others
cat > qemu.new/run <<'RUN'
#!/bin/sh
usr=$(dirname "$(realpath "$0")")/usr
QEMU_MODULE_DIR=$usr/lib/x86_64-linux-gnu/qemu LD_LIBRARY_PATH=$usr/lib/x86_64-linux-gnu exec "$usr/bin/qemu-system-x86_64" -L "$usr/share/qemu" -L "$usr/share/seabios" -L "$usr/lib/ipxe/qemu" "$@"
RUN
chmod 755 qemu.new/run
mv qemu.new qemu
