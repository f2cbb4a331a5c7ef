#!/bin/bash -e
# Keeps of all inputs that fuzzing found the smallest few that reach the same code: minimise.sh [TARGET...]. `make fuzz-corpus` calls it.
#
# Inputs whose names are words were written by hand and stay. The others, named by their SHA-1, are chosen anew. Inputs of more than
# 2,048 bytes are not kept.

cd "$(dirname "$0")"
programs=target/$(uname -m)-unknown-linux-gnu/release
targets=("$@")
if [ $# = 0 ]; then mapfile -t targets < <(cargo +nightly fuzz list --fuzz-dir .); fi
cargo +nightly fuzz build --fuzz-dir .
for target in "${targets[@]}"; do
  kept=corpus/$target found=target/corpus/$target new=target/minimised/$target
  rm -rf "$new"
  mkdir -p "$kept" "$found" "$new"
  find "$kept" -type f -regextype posix-extended ! -regex '.*/[0-9a-f]{40}' -exec cp -t "$new" {} +
  # Places of the code count, and not how often each is passed: that takes a tenth of the inputs.
  "$programs/$target" -merge=1 -use_counters=0 -max_len=2048 "$new" "$kept" "$found" > "target/minimised/$target.log" 2>&1 ||
    { tail -n 60 "target/minimised/$target.log" >&2; exit 1; }
  rm -rf "$kept"
  mv "$new" "$kept"
  echo "$target: $(find "$kept" -type f | wc -l) inputs, $(find "$kept" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum + 0 }') bytes"
done
