#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures (the first time) and builds: scripts/build.sh PRESET [TARGET...]
# Presets: default, dev, cuda, asan, tsan, fuzz (CMakePresets.json). Writes to stderr, and nothing when all is up to date.
# HALFSTEP_CUDA=ON|OFF|AUTO builds with CUDA, without it, or with it where a GPU is (AUTO, the default). HALFSTEP_JOBS=N: compilers at once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:?usage: scripts/build.sh PRESET [TARGET...]}
shift
dir=build/$preset
jobs=${HALFSTEP_JOBS:-$(nproc)}

choices=()
if [[ -n ${HALFSTEP_CUDA:-} ]] && ! grep -qs "^HALFSTEP_CUDA:STRING=$HALFSTEP_CUDA$" "$dir/CMakeCache.txt"; then
  choices=("-DHALFSTEP_CUDA=$HALFSTEP_CUDA")
fi
if [[ ! -f $dir/build.ninja || ${#choices[@]} -gt 0 ]]; then
  mkdir -p "$dir"
  cmake --preset "$preset" "${choices[@]}" >"$dir/configure.log" 2>&1 || { cat "$dir/configure.log" >&2; exit 1; }
  grep -A2 'Warning' "$dir/configure.log" >&2 || true
  sed -n 's/^-- \(halfstep: .*\)/\1/p' "$dir/configure.log" >&2
fi

# One line says how far the build is: rewritten in place on a terminal, and else printed every half minute. What compilers say, and what
# failed, is printed as it comes.
what=${*:-the program, the tests and the examples}
[[ $what == halfstep_program ]] && what="the program"
progress() {
  local line done_ total last=$SECONDS began=$SECONDS place=""
  [[ -t 2 ]] && place=$'\r\e[K'
  while IFS= read -r line; do
    case $line in
      @*) ;;
      *"Re-checking globbed directories"*) continue ;;
      "ninja: no work to do."* | "ninja: Entering directory"*) continue ;;
      *) printf '%s%s\n' "$place" "$line"; continue ;;
    esac
    line=${line#@}
    line=${line%% *}
    done_=${line%/*} total=${line#*/}
    local spent=$((SECONDS - began)) left=""
    if ((done_ == 1)) && [[ -z $place ]]; then
      printf 'building %s: %d steps on %d cores\n' "$what" "$total" "$jobs"
    fi
    ((spent >= 10 && done_ > 0)) && left=$(printf ', about %d:%02d left' $((spent * (total - done_) / done_ / 60)) $((spent * (total - done_) / done_ % 60)))
    if [[ -n $place ]]; then
      printf '%sbuilding %s: %d of %d steps in %d:%02d%s' "$place" "$what" "$done_" "$total" $((spent / 60)) $((spent % 60)) "$left"
    elif ((SECONDS - last >= 30)); then
      last=$SECONDS
      printf 'building %s: %d of %d steps in %d:%02d%s\n' "$what" "$done_" "$total" $((spent / 60)) $((spent % 60)) "$left"
    fi
  done
  [[ -n $place ]] && printf '%s' "$place"
  return 0
}
NINJA_STATUS='@%f/%t ' ninja -C "$dir" -j "$jobs" "$@" 2>&1 | progress >&2
