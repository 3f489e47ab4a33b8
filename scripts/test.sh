#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds and runs the tests: scripts/test.sh [PRESET] [ctest arguments...]
#   scripts/test.sh                   all but the slow tests; uses the files built by scripts/run.sh
#   scripts/test.sh default -R ops    the tests of one folder
#   scripts/test.sh default -L slow   the slow tests
#   scripts/test.sh asan              under the address and undefined-behaviour sanitizers, without slow tests and those of data;
#                                     sweeps that only compare values are slow there (-L values)
#   scripts/test.sh tsan              under the thread sanitizer, without those and the fuzz tests
# HALFSTEP_DATA=FOLDER turns on the tests that need data files (docs/testing.md says which).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=default
if [[ $# -gt 0 && $1 != -* ]]; then
  preset=$1
  shift
fi

needs=()
[[ $preset == asan ]] && needs=(--with clang)
scripts/setup.sh "${needs[@]}"
scripts/build.sh "$preset"

if [[ -z ${HALFSTEP_DATA:-} ]]; then
  echo "HALFSTEP_DATA is not set: the tests that need data files are skipped" >&2
else
  export HALFSTEP_DATA
fi

# As many programs at once as there are cores, and yet two threads in each, so that the parallel paths of the kernels are
# taken on any machine. (Waiting threads sleep in tests, see halfstep_test, so this costs nothing.)
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}

choice=(-LE slow)
[[ $preset == asan ]] && choice=(-LE 'slow|data')
[[ $preset == tsan ]] && choice=(-LE 'slow|data|fuzz')  # those have one thread, and the sanitizer's own memory exceeds their bound
for argument in "$@"; do
  [[ $argument == -L* || $argument == --label* ]] && choice=()
done
# A test that hangs fails by its name after half an hour; those that may take longer say so.
exec ctest --test-dir "build/$preset" -j "${HALFSTEP_JOBS:-$(nproc)}" --timeout 1800 --output-on-failure "${choice[@]}" "$@"
