# For kernel.sh and qemu.sh, which read it in the folder where they work: apt of one suite of Debian alone, $suite, or of this
# machine's where that is empty. $from has apt's options.
from=
if [ "$(id -u)" = 0 ]; then from="-o APT::Sandbox::User=root"; fi
if [ -n "$suite" ]; then
  mkdir -p "lists-$suite/partial"
  archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $(. /etc/os-release; echo "$VERSION_CODENAME")" | head -1)
  echo "deb $archive $suite main" > "$suite.list"
  from="$from -o Dir::Etc::SourceList=$PWD/$suite.list -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists=$PWD/lists-$suite"
  from="$from -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache="
fi
apt-get $from update -qq

# Downloads packages and unpacks them into a folder: unpack FOLDER PACKAGE...
unpack() {
  folder=$1
  shift
  echo "downloading" "$@"
  rm -rf "$folder" downloads
  mkdir downloads
  (cd downloads && apt-get $from download -qq "$@")
  for package in downloads/*.deb; do dpkg -x "$package" "$folder"; done
  rm -rf downloads "lists-$suite" "$suite.list"
}
