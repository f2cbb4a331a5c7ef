#!/bin/sh
# Runs a command as root in a virtual machine with Debian's kernel, and exits with its status.
# Usage: run.sh COMMAND [ARGUMENT...]
#
# For tests of what the kernel of the machine at hand lacks, such as ESP. The guest has the file system, working folder and
# environment of its caller. What it writes stays in its memory, except in the folder VM_SHARED. It has no network
# but its loopback interface and the namespaces that it makes. 'make packages-vm' installs what this needs.
#
#   VM_SHARED       a folder that the guest may write, at the same path there; without it, one that is removed at the end
#   VM_SECONDS      the time limit (1800); status 124 when it is reached, as of timeout(1)
#   VM_CPUS         the number of CPUs (2, or 1 where QEMU emulates them)
#   VM_MEMORY       the memory in MiB (2048)
#   VM_ACCELERATOR  kvm or tcg; without it, kvm where a guest boots with it
#   VM_LINUX        linux, or linux-newest, of 'kernel.sh newest' (linux)
#   VM_QEMU         the program (qemu-system-x86_64)
#   VM_DEVICES      more options of QEMU
#   VM_APPEND       more words for the kernel
#
# Status 125: the guest stopped before the command ended; the end of its console follows.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../../target}/vm
fail() { echo "vm: $*" >&2; exit 125; }
if [ $# = 0 ]; then fail "no command; expected: run.sh COMMAND [ARGUMENT...]"; fi
linux=${VM_LINUX:-linux}
kernel=$(echo "$target/$linux"/boot/vmlinuz-*)
if ! [ -e "$kernel" ]; then fail "$target/$linux: no kernel; run 'make packages-vm', or for linux-newest 'make packages-rack'"; fi
target=$(cd "$target" && pwd)
version=${kernel##*/vmlinuz-}
umask 077

# Whether guests boot with KVM is found out once: a nested one can hang.
if [ -z "${VM_ACCELERATOR:-}" ]; then
  if ! [ -e "$target/accelerator" ]; then
    if [ -w /dev/kvm ] && VM_ACCELERATOR=kvm VM_SECONDS=20 VM_SHARED= "$0" true 2>/dev/null; then
      echo kvm > "$target/accelerator"
    else
      echo tcg > "$target/accelerator"
    fi
  fi
  VM_ACCELERATOR=$(cat "$target/accelerator")
fi
case $VM_ACCELERATOR in
  kvm) cpu=host cpus=2 ;;
  # With several CPUs a guest's kernel falls over code that it changes while another CPU runs it.
  tcg) cpu=max cpus=1 ;;
  *) fail "VM_ACCELERATOR=$VM_ACCELERATOR; expected kvm or tcg" ;;
esac

work=$(mktemp -d "$target/run.XXXXXX")
trap 'rm -rf "$work"' EXIT
if [ -n "${VM_SHARED:-}" ]; then
  mkdir -p "$VM_SHARED"
  VM_SHARED=$(cd "$VM_SHARED" && pwd)
else
  VM_SHARED=$work/shared
  mkdir "$VM_SHARED"
fi
export VM_SHARED

# The initial file system: busybox, init, the modules that reach the real one, and the command.
quoted() { for word; do printf "'%s' " "$(printf %s "$word" | sed "s/'/'\\\\''/g")"; done; }
root=$work/root
mkdir -p "$root/bin" "$root/modules"
cp "$(command -v busybox)" "$root/bin/busybox"
cp "$here/init" "$root/init"
chmod 755 "$root/init"
{ export -p; echo "cd $(quoted "$PWD")"; echo "exec $(quoted "$@")"; } > "$root/command"
printf '%s\n' "modules=$(quoted "$target/$linux/lib/modules")" "shared=$(quoted "$VM_SHARED")" > "$root/folders"
needs() { PATH=$PATH:/sbin:/usr/sbin modprobe -d "$target/$linux" -S "$version" --show-depends -a "$@"; }
# Since 7.0 the first two are in the kernel.
{ needs -q virtio_pci virtio_console || true; } > "$work/needed"
needs 9pnet_virtio 9p overlay >> "$work/needed" || fail "modprobe: no modules of $version"
number=100
sed -n 's/^insmod \([^ ]*\).*/\1/p' "$work/needed" | awk '!seen[$0]++' | while read -r module; do
  number=$((number + 1))
  case $module in
    *.xz) busybox unxz -c "$module" > "$root/modules/$number.ko" ;;
    *) cp "$module" "$root/modules/$number.ko" ;;
  esac
done
(cd "$root" && find . | busybox cpio --quiet -o -H newc) > "$work/initramfs"

# Standard output and error go to a port of their own, in order and unchanged; the kernel's messages go to the console.
mkfifo "$work/output"
exec 3<>"$work/output"
cat "$work/output" 3>&- &
reader=$!
timeout --foreground -k 5 "${VM_SECONDS:-1800}" "${VM_QEMU:-qemu-system-x86_64}" \
  -nodefaults -no-user-config -display none -no-reboot -nic none \
  -accel "$VM_ACCELERATOR" -cpu "$cpu" -smp "${VM_CPUS:-$cpus}" -m "${VM_MEMORY:-2048}" \
  -kernel "$kernel" -initrd "$work/initramfs" -append "console=ttyS0 quiet panic=-1 oops=panic ${VM_APPEND:-}" \
  -serial "file:$work/console" -device virtio-serial \
  -chardev "file,id=output,path=$work/output" -device virtserialport,chardev=output,nr=1 \
  -chardev "file,id=status,path=$work/status" -device virtserialport,chardev=status,nr=2 \
  -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
  -virtfs "local,path=$VM_SHARED,mount_tag=shared,security_model=none" ${VM_DEVICES:-} </dev/null 3>&- &
machine=$!
trap 'kill $machine; exit 143' INT TERM
result=0
wait $machine || result=$?
exec 3>&-
wait $reader
status=$(cat "$work/status")
if [ -n "$status" ]; then exit "$status"; fi
echo "vm: the guest stopped before the command ended; its console:" >&2
tail -n 20 "$work/console" >&2
if [ $result = 124 ]; then exit 124; fi
exit 125
