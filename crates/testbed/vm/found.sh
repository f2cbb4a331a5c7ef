#!/bin/sh
# Brings what tests of the rack have found ('rack:' and fields, in lines of LOG) to FILE, in the place of what they had found before:
# found.sh LOG FILE.
set -eu

log=$1 file=$2 today=$(date +%Y-%m-%d)
{
  grep '^#' "$file"
  { grep -v '^#' "$file" || true; tr -d '\r' < "$log" | awk -F '\t' -v today="$today" \
      '$1 == "rack:" { print $2 " | " $3 " | " $4 " | " $5 " | " today }'; } |
    awk -F ' [|] ' 'NF == 5 { key = $1 FS $2 FS $3; line[key] = $0 } END { for (key in line) print line[key] }' | LC_ALL=C sort
} > "$file.new"
mv "$file.new" "$file"
