#!/bin/bash -e
# Compares two builds of packages bit for bit: compare.sh FOLDER FOLDER FILE... Names the files of a package that differ.

first=$(realpath "$1") second=$(realpath "$2")
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

# Unpacks a package into a folder. The headers of an .rpm, of which the digests of the whole say nothing more, become a file.
unpack() {
  mkdir -p "$2"
  case $1 in
    *.deb) dpkg-deb --raw-extract "$1" "$2" ;;
    *.rpm)
      rpm2cpio "$1" | (cd "$2" && cpio --quiet --extract --make-directories --preserve-modification-time --no-absolute-filenames)
      rpm --query --xml --package "$1" 2>/dev/null | grep -v '<rpmTag name="\(Sig\|Sha1header\|Sha256header\|Payload\|Archivesize\)' > "$2/HEADERS" ;;
    *) cp "$1" "$2" ;;
  esac
}

for file; do
  if cmp --silent "$first/$file" "$second/$file"; then echo "$file: the same $(stat -c %s "$first/$file") bytes"; continue; fi
  status=1
  echo "$file: differs" >&2
  if ! [ -e "$first/$file" ] || ! [ -e "$second/$file" ]; then echo "$file: not in both folders" >&2; continue; fi
  unpack "$first/$file" "$work/first"
  unpack "$second/$file" "$work/second"
  (cd "$work" && diff --recursive --brief first second | sed "s|^|$file: |") >&2 || true
  # Modes, sizes and times of files that hold the same.
  list() { (cd "$1" && find . ! -name HEADERS -printf '%P %M %s %TY-%Tm-%Td %TH:%TM:%.2TS\n' | sort); }
  diff <(list "$work/first") <(list "$work/second") | sed -n "s|^[<>] |$file: |p" | head -20 >&2 || true
  if [ -e "$work/first/HEADERS" ]; then diff "$work/first/HEADERS" "$work/second/HEADERS" | head -20 >&2 || true; fi
  rm -rf "$work/first" "$work/second"
done
exit $status
