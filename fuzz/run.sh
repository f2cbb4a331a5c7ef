#!/bin/bash -e
# Fuzzes targets, as many at a time as there are processors: run.sh SECONDS [TARGET...]. `make fuzz` calls it.
#
# A target begins with the inputs of fuzz/corpus/TARGET, which git keeps. Inputs that it finds lie in fuzz/target/corpus/TARGET, and it
# begins with them too the next time; minimise.sh keeps a few of them. An input that ends a target lies in fuzz/artifacts/TARGET.
# With FUZZ_SEED the same draws are made each time, from 1 on.

cd "$(dirname "$0")"
programs=target/$(uname -m)-unknown-linux-gnu/release
logs=target/logs

# Fuzzes one target, and prints how it went in a line. An input may take two minutes, on a machine that does other work too.
if [ "$1" = --one ]; then
  seconds=$2 target=$3
  mkdir -p "target/corpus/$target" "corpus/$target" "artifacts/$target"
  if "$programs/$target" -max_total_time="$seconds" -seed="${FUZZ_SEED:-0}" -max_len=4096 -timeout=120 -verbosity=0 -print_final_stats=1 \
    -artifact_prefix="artifacts/$target/" "target/corpus/$target" "corpus/$target" > "$logs/$target" 2>&1; then
    number() { sed -n "s/^stat::$1: *//p" "$logs/$target"; }
    kept=("corpus/$target"/*)
    [ -e "${kept[0]}" ] || kept=()
    echo "$target: $(number number_of_executed_units) inputs in $seconds s, ${#kept[@]} of them kept in git, $(number new_units_added) new"
  else
    tail -n 60 "$logs/$target" >&2
    echo "$target: FAILED; 'fuzz/$programs/$target fuzz/artifacts/$target/FILE' repeats it" >&2
    exit 1
  fi
  exit
fi

seconds=$1
shift
targets=("$@")
if [ $# = 0 ]; then mapfile -t targets < <(cargo +nightly fuzz list --fuzz-dir .); fi
cargo +nightly fuzz build --fuzz-dir .
mkdir -p "$logs"
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I TARGET ./run.sh --one "$seconds" TARGET
