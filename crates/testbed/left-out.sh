#!/bin/sh
# The last line of `make test`: which tests were not run, by what they lacked. FILE has a line each: what, a tab, the target that has it.
set -eu
awk -F '\t' '
  { count[$1]++; target[$1] = $2 }
  END {
    if (NR == 0) { print "make: all tests were run."; exit }
    for (what in count) line = line (line ? ", " : "") what " (" count[what] ", make " target[what] ")"
    print "make: " NR " tests were not run, for want of " line
  }' "$1"
