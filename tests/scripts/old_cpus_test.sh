#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Old x86-64 CPUs, as QEMU has them: old_cpus_test.sh PROGRAM LIBRARY CLIENT DATA LAYERS TESTS...
# On those before x86-64-v2 PROGRAM and TESTS end with a line, and the loader refuses LIBRARY, the C library, with another: dlopen
# fails, and CLIENT, which is linked with it, does not start. On a CPU of v2 and one of v3 all TESTS pass, and of DATA and LAYERS
# the cases that compare bits with recorded ones.
set -euo pipefail
program=$1 library=$2 client=$3 data=$4 layers=$5
shift 5
qemu=$(command -v qemu-x86_64-static || command -v qemu-x86_64) ||
  { echo "SKIPPED: old_cpus: needs qemu-x86_64 (qemu-user-static)"; exit 0; }
python=$(python3 -c 'import sys; print(sys.executable)')
said=$(mktemp)
trap 'rm -f "$said"' EXIT
fail() { echo "old_cpus: $*"; cat "$said"; exit 1; }

for cpu in qemu64 Conroe Penryn; do
  for linked in "$program" "$@"; do
    code=0
    "$qemu" -cpu "$cpu" "$linked" --version >"$said" 2>&1 || code=$?
    [[ $code -eq 5 ]] || fail "$cpu: $linked ended with $code"
    grep -qE '^halfstep: \[cpu\] needs a CPU of x86-64-v2, .* got one without (SSSE3|SSE4.1|SSE4.2)$' "$said" ||
      fail "$cpu: no line"
    [[ $(wc -l <"$said") -eq 1 ]] || fail "$cpu: more than a line"
  done
  code=0
  "$qemu" -cpu "$cpu" "$client" answers none none 1 >"$said" 2>&1 || code=$?
  [[ $code -eq 127 ]] || fail "$cpu: $client ended with $code"
  grep -qF "${library##*/}: CPU ISA level is lower than required" "$said" || fail "$cpu: no line of the loader"
  "$qemu" -cpu "$cpu" "$python" -c "import ctypes, sys
try: ctypes.CDLL(sys.argv[1])
except OSError as e: print('refused:', e)" "$library" >"$said" 2>&1 || fail "$cpu: dlopen"
  grep -qF "refused: $library: CPU ISA level is lower than required" "$said" || fail "$cpu: dlopen does not refuse"
done
for cpu in Nehalem Haswell; do
  "$qemu" -cpu "$cpu" "$program" devices >"$said" 2>&1 || fail "$cpu: devices"
  [[ $cpu == Nehalem ]] && level=v2 || level=v3
  grep -qE "loops (x86-64-$level|as compiled)" "$said" || fail "$cpu: other loops"
  for test in "$data" "$layers" "$@"; do
    choice=(--test-suite-exclude=data,slow,cuda,values)
    [[ $test != "$data" && $test != "$layers" ]] || choice=(--test-case="one seed *")
    began=$SECONDS
    "$qemu" -cpu "$cpu" "$test" "${choice[@]}" >"$said" 2>&1 || fail "$cpu: $test"
    echo "$cpu: $test: $((SECONDS - began)) s"
    tail -3 "$said"
  done
done
