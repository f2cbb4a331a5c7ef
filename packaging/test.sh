#!/bin/bash -e
# Installs the packages in FOLDER into a fresh Debian, runs the router there, upgrades it under traffic, and purges it: test.sh FOLDER.
# `make test-packages` calls it, as root; SUITE=trixie is another Debian than this one.
#
# No systemd runs in that Debian. A script in the place of systemctl writes down what maintainer scripts ask for, and restarts the router as
# systemd would.

# Its mounts and namespaces end with it.
[ -n "$BRICKWAY_INSIDE" ] || BRICKWAY_INSIDE=1 exec unshare --mount "$0" "$@"
packages=$(realpath "$1")
work=$(mktemp -d)
root=$work/root
name=brickway-package-$$
step() { echo "test-packages: $*"; }
fail() { echo "test-packages: $*" >&2; exit 1; }

clean() {
  [ ! -s "$root/run/router" ] || kill "$(cat "$root/run/router")" 2>/dev/null || true
  for namespace in a r b; do ip netns delete "$name-$namespace" 2>/dev/null || true; done
  umount -l "$root/proc" "$root/sys" "$root/dev" 2>/dev/null || true
  rm -rf --one-file-system "$work"
}
trap clean EXIT

step "lintian"
lintian --fail-on error,warning "$packages"/*.changes

step "a fresh Debian"
suite=${SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: '"$(. /etc/os-release && echo "$VERSION_CODENAME")" | head -1)
debootstrap --variant=minbase --include=iproute2,nftables "$suite" "$root" "$mirror" > "$work/log" 2>&1 || { tail "$work/log" >&2; exit 1; }
mount --bind /proc "$root/proc"
mount --bind /sys "$root/sys"
mount --bind /dev "$root/dev"
mkdir -p "$root/packages" "$root/run/systemd/system"
cp "$packages"/*.deb "$root/packages"
ln -f "$root/bin/true" "$root/usr/sbin/policy-rc.d"
in_root() { chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }

# What maintainer scripts ask systemd for. The process in /run/router is brickway.service.
asked=$root/asked
cat > "$root/usr/local/bin/systemctl" <<'SYSTEMCTL'
#!/bin/bash
echo "$*" >> /asked
pid=$(cat /run/router 2>/dev/null)
case "$*" in
  *"stop brickway.service"*) kill "$pid"; while [ -d "/proc/$pid" ]; do sleep 0.1; done; rm /run/router ;;
  *"try-restart brickway.service"*)
    [ -n "$pid" ] || exit 0
    kill "$pid"; while [ -d "/proc/$pid" ]; do sleep 0.1; done
    setsid brickway run --config /etc/brickway/brickway.toml >> /var/log/router 2>&1 < /dev/null & echo $! > /run/router ;;
esac
SYSTEMCTL
chmod 755 "$root/usr/local/bin/systemctl"

step "install"
# apt's own path for maintainer scripts leaves out /usr/local.
in_root sh -c 'apt-get install -y -qq --no-install-recommends -o DPkg::Path="$PATH" /packages/brickway_*.deb /packages/brickway-lab_*.deb' > "$work/log" 2>&1 ||
  { tail "$work/log" >&2; exit 1; }
in_root getent group brickway > /dev/null || fail "no group 'brickway' after the installation"
in_root getent passwd brickway > /dev/null || fail "no user 'brickway' after the installation"
grep -q daemon-reload "$asked" || fail "the installation has not told systemd of its units"
! grep -E '(start|enable).* brickway' "$asked" && [ -z "$(find "$root/etc/systemd" -name 'brickway*')" ] ||
  fail "the installation started or enabled a service"
for file in /usr/share/man/man1/brickway-show-routes.1.gz /usr/share/man/man5/brickway.toml.5.gz /usr/share/man/man7/brickway-elements.7.gz \
  /usr/share/bash-completion/completions/brickway /usr/share/fish/vendor_completions.d/brickway.fish \
  /usr/share/zsh/vendor-completions/_brickway /usr/share/doc/brickway/examples/cluster.toml; do
  [ -s "$root$file" ] || fail "$file: not installed"
done
in_root brickway check /etc/brickway/brickway.toml > "$work/log" 2>&1 && fail "the settings of a new machine name ports"
grep -q 'port' "$work/log" || fail "the settings of a new machine: $(cat "$work/log")"

step "run"
for namespace in a r b; do ip netns add "$name-$namespace"; done
in_r() { ip netns exec "$name-r" "$@"; }
in_router() { in_r sh -c 'mount -t sysfs sysfs "$0/sys" && exec chroot "$0" env DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"' "$root" "$@"; }
for n in 1 2; do
  host=$([ $n = 1 ] && echo a || echo b)
  ip link add "eth$n" netns "$name-r" type veth peer name eth0 netns "$name-$host"
  in_r ip addr add "10.0.$n.1/24" dev "eth$n"
  in_r ip link set "eth$n" up
  ip -n "$name-$host" addr add "10.0.$n.2/24" dev eth0
  ip -n "$name-$host" link set eth0 up
  ip -n "$name-$host" route add default via "10.0.$n.1"
done
in_r sysctl -qw net.ipv4.ip_forward=1
settings=$root/etc/brickway/brickway.toml
printf '\n[[port]]\nname = "eth1"\n[[port]]\nname = "eth2"\n' >> "$settings"
sum=$(sha256sum < "$settings")
start() { in_router bash -c 'setsid brickway run --config /etc/brickway/brickway.toml >> /var/log/router 2>&1 < /dev/null & echo $! > /run/router'; }
running() {
  for _ in $(seq 300); do
    if in_router brickway show ports 2>/dev/null | grep -q '^eth1'; then return; fi
    sleep 0.1
  done
  cat "$root/var/log/router" >&2
  fail "the router does not answer"
}
is_its_users() {
  user=$(in_root id -u brickway)
  users=$(cat /proc/"$(cat "$root/run/router")"/task/*/status | sed -n 's/^Uid:[[:space:]]*//p' | sort -u)
  [ "$users" = "$user	$user	$user	$user" ] || { cat "$root/var/log/router" >&2; fail "threads of users '$users', not $user"; }
}
: > "$asked"
start
running
is_its_users
ip netns exec "$name-a" ping -q -c 3 -i 0.2 -W 5 10.0.2.2 > "$work/log" || { cat "$work/log"; fail "the router does not forward"; }

step "the laboratory's tables"
in_root sh -c 'cd / && brickway-lab demo --help' | grep -q /usr/share/brickway-lab/rib-v4.txt.gz || fail "the demo does not find its table"
in_root brickway-lab rib stats /usr/share/brickway-lab/rib-v6.txt.gz > "$work/log" || fail "the laboratory has no IPv6 table"

step "an element of one's own, of the sources of brickway-dev"
in_root sh -c 'dpkg -i --force-depends /packages/brickway-dev_*.deb' > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
in_root sh -c 'cd /srv && brickway new element RedMark' > "$work/log" 2>&1 || { cat "$work/log" >&2; fail "no new element"; }
# Built here: that Debian has no Rust.
sed "s|/usr/share/brickway|$root&|" -i "$root/srv/red_mark/Cargo.toml"
(cd "$root/srv/red_mark" && CARGO_TARGET_DIR=$work/red_mark cargo check --tests) > "$work/log" 2>&1 || { tail "$work/log" >&2; fail "a new element cannot be built"; }
rm -rf "$work/red_mark"

step "names of functions by brickway-dbgsym"
in_root sh -c 'dpkg -i /packages/brickway-dbgsym_*.deb' > "$work/log" 2>&1
echo 'InfiniteSource(LIMIT -1) -> Strip(2) -> Discard' > "$root/busy.click"
in_router sh -c 'echo $$ > /run/busy; exec brickway run /busy.click --quiet --for 60 --socket /run/busy.sock' > "$work/log" 2>&1 &
for _ in $(seq 300); do [ ! -S "$root/run/busy.sock" ] || break; sleep 0.1; done
in_router brickway profile 2 --socket /run/busy.sock --folded > "$work/profile" 2>> "$work/log" || { cat "$work/log" >&2; exit 1; }
kill "$(cat "$root/run/busy")"; wait
grep -q 'element InfiniteSource' "$work/profile" || { head -3 "$work/profile" >&2; fail "a profile names no elements"; }

step "upgrade while packets pass"
dpkg-deb -R "$root"/packages/brickway_*.deb "$work/next"
sed -i 's/^Version: .*/&.1/' "$work/next/DEBIAN/control"
echo '# Of the next version.' >> "$work/next/etc/brickway/brickway.toml"
sed -i '/brickway.toml$/d' "$work/next/DEBIAN/md5sums"
dpkg-deb -b "$work/next" "$root/packages/next.deb" > /dev/null
before=$(cat "$root/run/router")
ip netns exec "$name-a" ping -q -i 0.01 -W 5 10.0.2.2 > "$work/ping" & ping=$!
in_router dpkg -i --force-confold --force-depends /packages/next.deb > "$work/log" 2>&1 ||
  { cat "$work/log" >&2; exit 1; }
running
is_its_users
sleep 1
kill -INT $ping; wait $ping || true
[ "$(cat "$root/run/router")" != "$before" ] || fail "the upgrade did not restart the router; systemctl was called with: $(cat "$asked")"
grep ' packets transmitted' "$work/ping"
grep -q ' 0% packet loss' "$work/ping" || fail "the upgrade lost packets"
[ "$(sha256sum < "$settings")" = "$sum" ] || fail "the upgrade changed the settings"

step "remove and purge"
in_router dpkg --remove brickway-dbgsym brickway-dev brickway-lab brickway > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
grep -q 'stop.* brickway.service\|stop brickway.service' "$asked" || fail "the removal did not stop the router: $(cat "$asked")"
[ ! -e "$root/usr/bin/brickway" ] && [ -e "$settings" ] || fail "a removal takes the program and leaves the settings"
in_root dpkg --purge brickway brickway-lab > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
left=$(find "$root"/etc "$root"/usr "$root"/var/lib/systemd "$root"/lib/systemd -name '*brickway*' 2>/dev/null || true)
[ -z "$left" ] || fail "the purge left $left"
step "the .rpm in a folder"
rpm() { command rpm --root "$work/rpm" "$@" 2> >(grep -v '^rpm: ' >&2); }
mkdir "$work/rpm"
rpm --initdb
rpm -i --nodeps --noscripts "$packages"/brickway-[0-9]*.rpm "$packages"/brickway-lab-[0-9]*.rpm "$packages"/brickway-devel-[0-9]*.rpm
rpm -V --nodeps brickway brickway-lab brickway-devel
[ "$("$work/rpm/usr/bin/brickway" --version)" = "$("$packages/build/bin/brickway" --version)" ] || fail "the program of the .rpm is another one"
rpm -e --noscripts brickway-devel brickway-lab brickway
left=$(find "$work/rpm" -name '*brickway*')
[ -z "$left" ] || fail "the removal of the .rpm left $left"
step "passed"
