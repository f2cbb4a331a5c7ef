#!/bin/bash -e
# Signs files by a key that is thrown away, verifies them as docs/install.md does, and sees that a changed byte is refused. Sees too that
# compare.sh names the file of a package that differs. `make test-release` calls it.

project=$(realpath "$(dirname "$0")/..")
work=$(mktemp -d)
export GNUPGHOME=$work/maker
clean() {
  for home in maker user stranger; do GNUPGHOME=$work/$home gpgconf --kill all 2>/dev/null || true; done
  rm -rf "$work"
}
trap clean EXIT
fail() { echo "test-release: $*" >&2; exit 1; }
mkdir -m 700 "$work"/{maker,user,stranger} "$work"/{packages,first,second}

make_key() { GNUPGHOME=$work/$1 gpg --batch --quiet --passphrase '' --quick-generate-key "$1@example.org" ed25519 sign never 2> "$work/log"; }
make_key maker || { cat "$work/log" >&2; exit 1; }
make_key stranger || { cat "$work/log" >&2; exit 1; }

for file in brickway_1_amd64.deb brickway-1.rpm brickway-1.cdx.json program; do echo "what $file holds" > "$work/packages/$file"; done
sign() { "$project/packaging/sign.sh" "$@" > "$work/log" 2>&1; }
! sign "" || fail "signed without a key"
grep -q 'no key; expected KEY=ID' "$work/log" || fail "without a key: $(cat "$work/log")"
! sign nobody@example.org || fail "signed by an unknown key"
grep -q 'KEY=nobody@example.org: .*; expected a secret key' "$work/log" || fail "by an unknown key: $(cat "$work/log")"
sign maker@example.org || fail "a key that signs is refused: $(cat "$work/log")"
sign maker@example.org "$work/packages" "$work/packages/program" "$work/published" || fail "not signed: $(cat "$work/log")"

# As a user, who has the public key alone.
export GNUPGHOME=$work/user
cd "$work/published"
gpg --batch --quiet --import brickway-key.asc
! gpg --list-secret-keys | grep -q . || fail "the secret key is published"
verify() { gpg --batch --verify SHA256SUMS.asc SHA256SUMS > "$work/log" 2>&1 && sha256sum --check --ignore-missing SHA256SUMS >> "$work/log" 2>&1; }
verify || fail "what was signed does not verify: $(cat "$work/log")"
for file in *.deb *.rpm *.json brickway-*-linux-*; do grep -q "^$file: OK" "$work/log" || fail "$file: not in SHA256SUMS"; done
refuses() {
  cp -r "$work/published" "$work/changed"
  cd "$work/changed"
  # The byte at the place becomes another one.
  printf 'X' | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
  ! cmp --silent "$1" "$work/published/$1" || fail "$1 was not changed"
  ! verify || fail "$1: a changed byte was not noticed"
  cd "$work/published"
  rm -r "$work/changed"
}
for file in *.deb *.rpm *.json brickway-*-linux-*; do refuses "$file" 5; done
refuses SHA256SUMS 3
refuses SHA256SUMS.asc 100
GNUPGHOME=$work/stranger gpg --batch --quiet --armor --yes --detach-sign --output SHA256SUMS.asc SHA256SUMS
! verify || fail "a stranger's signature was taken"

# Two packages of which one file differs.
for build in first second; do
  tree=$work/tree-$build
  mkdir -p "$tree/DEBIAN" "$tree/usr/share/of"
  printf 'Package: of\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\nDescription: of a test\n' > "$tree/DEBIAN/control"
  echo same > "$tree/usr/share/of/same"
  echo "$build" > "$tree/usr/share/of/other"
  SOURCE_DATE_EPOCH=0 dpkg-deb --root-owner-group --build "$tree" "$work/$build/of.deb" > /dev/null
done
! "$project/packaging/compare.sh" "$work/first" "$work/second" of.deb > /dev/null 2> "$work/log" || fail "packages that differ are the same"
grep -q 'usr/share/of/other' "$work/log" && ! grep -q 'usr/share/of/same' "$work/log" || fail "the file that differs: $(cat "$work/log")"
cp "$work/first/of.deb" "$work/second"
"$project/packaging/compare.sh" "$work/first" "$work/second" of.deb > /dev/null || fail "equal packages differ"
echo "test-release: passed"
