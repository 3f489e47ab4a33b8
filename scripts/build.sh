#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures (the first time) and builds: scripts/build.sh PRESET [TARGET...]
# Presets: cpu, cuda, release, asan, tsan, fuzz (CMakePresets.json). Writes to stderr, and nothing when all is up to date.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:?usage: scripts/build.sh PRESET [TARGET...]}
shift
dir=build/$preset
jobs=${HALFSTEP_JOBS:-$(nproc)}

if [[ ! -f $dir/build.ninja ]]; then
  mkdir -p "$dir"
  echo "configuring $dir" >&2
  cmake --preset "$preset" >"$dir/configure.log" 2>&1 || { cat "$dir/configure.log" >&2; exit 1; }
  grep -E 'Warning|halfstep:' -A2 "$dir/configure.log" >&2 || true
fi
ninja -C "$dir" -j "$jobs" "$@" 2>&1 |
  sed -u -e '/Re-checking globbed directories/d' -e '/^ninja: no work to do/d' -e '/^ninja: Entering directory/d' >&2
