#!/bin/sh
# Runs a command in a virtual machine that has two cards of a model, as run.sh does: rack.sh CARD COMMAND [ARGUMENT...]
#
# CARD is e1000, e1000e, igb, rtl8139, virtio or vmxnet3. The guest has the cards 52:54:00:00:01:01 and 52:54:00:00:02:01. On a cable
# with each is a far end, 52:54:00:00:01:02 and 52:54:00:00:02:02, for namespaces. RACK_CARD names the model, and /dev/virtio-ports/qmp
# takes commands of QEMU's QMP: to pull a cable, or a card. With RACK_IOMMU=1 the guest has an IOMMU. 'make packages-rack' installs
# what this needs.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../../target}/vm
fail() { echo "rack: $*" >&2; exit 125; }
if [ $# -lt 2 ]; then fail "expected: rack.sh CARD COMMAND [ARGUMENT...]"; fi
card=$1
shift
options=
case $card in
  e1000 | e1000e | vmxnet3 | rtl8139) model=$card ;;
  # Its virtual functions want a bus of its own.
  igb) model=igb ;;
  # Zero-copy wants an IOMMU's addresses.
  virtio) model=virtio-net-pci options=,iommu_platform=on,disable-legacy=on,mrg_rxbuf=on ;;
  *) fail "no card '$card'; expected e1000, e1000e, igb, rtl8139, virtio or vmxnet3" ;;
esac
export VM_QEMU="$target/qemu/run" RACK_CARD="$card"
[ -x "$VM_QEMU" ] || fail "$VM_QEMU is missing; run 'make packages-rack'"
"$VM_QEMU" -device "$model,help" > /dev/null 2>&1 || fail "skipped: this QEMU has no $model"

devices="-M q35"
if [ "${RACK_IOMMU:-}" = 1 ]; then
  devices="$devices -device intel-iommu,intremap=on,caching-mode=on"
  export VM_APPEND="intel_iommu=on iommu=pt"
fi
for n in 1 2; do
  bus=
  if [ "$card" = igb ]; then devices="$devices -device pcie-root-port,id=p$n,chassis=$n" bus=,bus=p$n; fi
  devices="$devices -netdev hubport,id=r$n,hubid=$n -netdev hubport,id=h$n,hubid=$n"
  devices="$devices -device $model,id=card$n,netdev=r$n,mac=52:54:00:00:0$n:01$bus$options"
  devices="$devices -device virtio-net-pci,id=far$n,netdev=h$n,mac=52:54:00:00:0$n:02"
done
# The guest speaks to its own QEMU.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
devices="$devices -chardev socket,id=monitor,path=$work/qmp,server=on,wait=off -mon chardev=monitor,mode=control"
devices="$devices -chardev socket,id=guest,path=$work/qmp,reconnect=1 -device virtserialport,chardev=guest,nr=3,name=qmp"
export VM_DEVICES="$devices" VM_MEMORY="${VM_MEMORY:-3072}"
"$here/run.sh" "$@"
