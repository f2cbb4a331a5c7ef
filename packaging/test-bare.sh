#!/bin/bash -e
# Follows the README in a Debian that has nothing but git and make: test-bare.sh trixie|bookworm [COMMAND...]. Where Debian has Rust's
# rustup, the commands work (`make demo` if none are given); where it has not, make says in a line what to do. `make test-bare` calls it, as root.

# Its mounts and namespaces end with it.
[ -n "$BRICKWAY_INSIDE" ] || BRICKWAY_INSIDE=1 exec unshare --mount "$0" "$@"
suite=$1
shift
project=$(realpath "$(dirname "$0")/..")
work=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
root=$work/root
step() { echo "test-bare $suite: $*"; }
fail() { echo "test-bare $suite: $*" >&2; exit 1; }
clean() {
  umount -l "$root/proc" "$root/sys" "$root/dev" "$root/project" "$root" 2> /dev/null || true
  rm -rf --one-file-system "$work"
}
trap clean EXIT

step "a bare Debian"
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: '"$(. /etc/os-release && echo "$VERSION_CODENAME")" | head -1)
debootstrap --variant=minbase --include=git,make,ca-certificates "$suite" "$root" "$mirror" > "$work/log" 2>&1 || { tail "$work/log" >&2; exit 1; }
# Namespaces of `ip netns` want a root that is a mount.
mount --bind "$root" "$root"
mkdir "$root/project"
mount --bind "$project" "$root/project"
for folder in proc sys dev; do mount --rbind "/$folder" "$root/$folder"; done
ln -f "$root/bin/true" "$root/usr/sbin/policy-rc.d"
# Names and certificates are those of this machine, behind whatever proxy it is.
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
in_root() { chroot "$root" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"; }
in_root git config --global safe.directory '*'
in_root git clone -q /project /root/brickway

if ! in_root apt-cache policy rustup | grep -q "Candidate: [0-9]"; then
  step "make build, without Rust"
  ! in_root make -C /root/brickway build > "$work/log" 2>&1 || fail "make build works: is there a Rust?"
  [ "$(grep -c 'Rust .* or newer is needed.*https://rustup.rs' "$work/log")" = 1 ] || fail "$(tail "$work/log")"
  step "it says what to do"
  exit
fi
[ $# != 0 ] || set -- make demo
step "$*"
begin=$SECONDS
in_root sh -c 'cd /root/brickway && exec "$@"' sh "$@" || fail "$* failed"
step "done in $((SECONDS - begin)) s"
