#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Old x86-64 CPUs, as QEMU has them: old_cpus_test.sh PROGRAM CLIENT TESTS...
# On those before x86-64-v2 PROGRAM ends with a message, and the C library, in CLIENT, gives one. On a CPU of v2 and one of v3 all
# TESTS pass.
set -euo pipefail
program=$1 client=$2
shift 2
qemu=$(command -v qemu-x86_64-static || command -v qemu-x86_64) ||
  { echo "SKIPPED: old_cpus: needs qemu-x86_64 (qemu-user-static)"; exit 0; }
said=$(mktemp)
trap 'rm -f "$said"' EXIT
fail() { echo "old_cpus: $*"; cat "$said"; exit 1; }

for cpu in qemu64 Conroe Penryn; do
  code=0
  "$qemu" -cpu "$cpu" "$program" --version >"$said" 2>&1 || code=$?
  [[ $code -eq 5 ]] || fail "$cpu: the program ended with $code"
  grep -qE '^halfstep: \[cpu\] needs a CPU of x86-64-v2, .* got one without (SSSE3|SSE4.1|SSE4.2)$' "$said" ||
    fail "$cpu: no message"
  "$qemu" -cpu "$cpu" "$client" answers none none 1 >"$said" 2>&1 || true
  grep -qF '[cpu] a CPU of x86-64-v2, as made since about 2009, is needed, got an older one' "$said" || fail "$cpu: no hs_error"
done
for cpu in Nehalem Haswell; do
  "$qemu" -cpu "$cpu" "$program" devices >"$said" 2>&1 || fail "$cpu: devices"
  [[ $cpu == Nehalem ]] && level=v2 || level=v3
  grep -qE "loops (x86-64-$level|as compiled)" "$said" || fail "$cpu: other loops"
  for test in "$@"; do
    echo "$cpu: $test"
    "$qemu" -cpu "$cpu" "$test" --test-suite-exclude=data,slow,cuda,values >"$said" 2>&1 || fail "$cpu: $test"
    tail -3 "$said"
  done
done
