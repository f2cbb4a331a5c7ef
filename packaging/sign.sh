#!/bin/bash -e
# Makes the folder that is published of packages and the static program: sign.sh KEY PACKAGES PROGRAM TO. Its SHA256SUMS is signed by KEY,
# a secret key of GnuPG; SHA256SUMS.asc is the signature. With KEY alone it checks that the key signs. `make release` calls it.

key=$1
if [ -z "$key" ]; then
  echo "make release: no key; expected KEY=ID, of a secret key that 'gpg --list-secret-keys' prints" >&2
  exit 1
fi
if ! problem=$(gpg --batch --quiet --local-user "$key" --detach-sign --output /dev/null --yes < /dev/null 2>&1); then
  echo "KEY=$key: ${problem%%$'\n'*}; expected a secret key that 'gpg --list-secret-keys' prints" >&2
  exit 1
fi
[ $# -gt 1 ] || exit 0

packages=$2 program=$3 to=$4
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml" | head -1)
rm -rf "$to"
mkdir -p "$to"
cp "$packages"/*.deb "$packages"/*.rpm "$packages"/*.cdx.json "$to"
cp "$program" "$to/brickway-$version-linux-$(uname -m)"
cd "$to"
sha256sum -- * > SHA256SUMS
gpg --batch --quiet --local-user "$key" --armor --detach-sign --output SHA256SUMS.asc SHA256SUMS
gpg --batch --quiet --armor --export "$key" > brickway-key.asc
gpg --batch --verify SHA256SUMS.asc SHA256SUMS
