#!/bin/sh -e
# Makes a .deb and an .rpm of programs that cargo has built: packages.sh PROGRAMS TO. PROGRAMS is the folder with brickway and
# brickway-lab, TO that of the packages; TO/build keeps what went into them. `make packages` calls it.

programs=$(realpath "$1")
project=$(realpath "$(dirname "$0")/..")
mkdir -p "$2"
to=$(realpath "$2")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$project/Cargo.toml" | head -1)
# Files in packages have the date of the last commit, and neither the time zone, the language nor the umask of the user counts: two
# builds of a commit are alike (packaging/test-reproducible.sh).
SOURCE_DATE_EPOCH=$("$project/packaging/date.sh")
export SOURCE_DATE_EPOCH TZ=UTC LC_ALL=C
umask 022

build=$to/build
rm -rf "$build"
mkdir -p "$build/bin" "$build/completions" "$build/pages" "$build/etc" "$build/examples" "$build/units"
cp "$programs/brickway" "$programs/brickway-lab" "$build/bin"

PATH=$build/bin:$PATH
brickway man "$build/man"
brickway-lab man "$build/man-lab"
COMPLETE=bash brickway > "$build/completions/brickway"
COMPLETE=fish brickway > "$build/completions/brickway.fish"
# zsh loads the file when it first completes a word of `brickway`; the last line completes this one.
{ COMPLETE=zsh brickway; echo '_clap_dynamic_completer_brickway "$@"'; } > "$build/completions/_brickway"

# The settings of a machine that was just installed name no port, so that there is nothing to forward.
sed -e 's/^\[\[port\]\]/#&/; s/^name = /#&/; s/^#\(read_group\|write_group\) = "root"/#\1 = "brickway"/' \
  "$project/examples/brickway.toml" > "$build/etc/brickway.toml"
cp -r "$project/examples/brickway.toml" "$project/examples/cluster.toml" "$project"/examples/*.click "$project/examples/lua" \
  "$project/packaging/etcd.yml" "$project/packaging/prometheus" "$project/packaging/grafana" "$build/examples"
# In the project their first lines say how to install them.
for unit in brickway.service brickway-cluster@.service brickway-etcd.service; do
  sed -e '1,/^$/d; s|/usr/local/bin/|/usr/bin/|' "$project/packaging/$unit" > "$build/units/$unit"
done
cp "$project/LICENSE-MIT" "$project/LICENSE-APACHE" "$build"
# What the demo and the benches of the laboratory read.
cp -r "$project/data" "$build/tables"
# What a crate with elements of one's own is built with: without what runs tests in virtual machines.
mkdir "$build/source"
cd "$project"
if [ "$(git rev-parse --show-toplevel 2> /dev/null)" = "$project" ]; then
  git ls-files -z Cargo.toml Cargo.lock rust-toolchain.toml crates examples ':!crates/testbed/vm'
else
  find Cargo.toml Cargo.lock rust-toolchain.toml crates examples \( -name target -o -path crates/testbed/vm \) -prune -o -type f -print0
fi | xargs -0 cp --parents -t "$build/source"
cd - > /dev/null
cp "$project/packaging/brickway.sysusers" "$project/packaging/brickway.tmpfiles" "$build/units"
cp "$project/CHANGELOG.md" "$project/SECURITY.md" "$build/pages"
# The licences of what is linked into the programs.
crates=$(cd "$project" && cargo metadata --format-version 1 --locked --filter-platform "$(rustc -vV | sed -n 's/^host: //p')" |
  grep -o '"manifest_path":"[^"]*/registry/src/[^"]*"' | cut -d'"' -f4 | sort -u)
for manifest in $crates; do
  crate=$(dirname "$manifest")
  for text in "$crate"/LICEN[CS]E* "$crate"/COPYING* "$crate"/NOTICE* "$crate"/*/LICENSE "$crate"/*/COPYRIGHT; do
    if [ -f "$text" ]; then echo "== $(basename "$crate"): $(basename "$text")"; cat "$text"; echo; fi
  done
done > "$build/pages/LICENSES-OTHERS"
cat /usr/share/doc/libpcap0.8-dev/copyright /usr/share/doc/libipsec-mb-dev/copyright >> "$build/pages/LICENSES-OTHERS" 2>/dev/null || true
"$project/packaging/sbom.sh" > "$to/brickway-$version.cdx.json"

cp -r "$project/packaging/debian" "$build/debian"
chmod -R u=rwX,go=rX "$build"
cd "$build"
cp units/brickway.service debian/brickway.service
cp units/brickway-cluster@.service debian/brickway.brickway-cluster@.service
cp units/brickway-etcd.service debian/brickway.brickway-etcd.service
cp units/brickway.sysusers debian/brickway.sysusers
cp units/brickway.tmpfiles debian/brickway.tmpfiles
{
  echo "brickway ($version) unstable; urgency=medium"; echo
  echo "  * CHANGELOG.md has what changed."; echo
  echo " -- $(sed -n 's/^Maintainer: //p' debian/control)  $(date -Rud "@$SOURCE_DATE_EPOCH")"
} > debian/changelog
dpkg-buildpackage --build=binary --unsigned-source --unsigned-changes > "$to/build.log" 2>&1 || { tail -30 "$to/build.log" >&2; exit 1; }
rpmbuild -bb --quiet --define "_topdir $build/rpm" --define "_rpmdir $to" --define "version $version" --define "laid $build" \
  --define "use_source_date_epoch_as_buildtime 1" --define "clamp_mtime_to_source_date_epoch 1" --define "_buildhost reproducible" \
  --define "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" "$project/packaging/brickway.spec" >> "$to/build.log" 2>&1 ||
  { tail -30 "$to/build.log" >&2; exit 1; }
cd "$to"
sha256sum -- *.deb *.rpm *.json > SHA256SUMS
cat SHA256SUMS
