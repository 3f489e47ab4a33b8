#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures (the first time) and builds: scripts/build.sh PRESET [TARGET...]
# Presets: default, dev, cuda, asan, tsan, fuzz (CMakePresets.json). Writes to stderr, and nothing when all is up to date.
# HALFSTEP_CUDA=ON|OFF|AUTO builds with CUDA, without it, or with it where a GPU is (AUTO, the default).
# HALFSTEP_JOBS=N: compilers at once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:?usage: scripts/build.sh PRESET [TARGET...]}
shift
dir=build/$preset
jobs=${HALFSTEP_JOBS:-$(nproc)}

# With ccache (which CMake takes where it is installed), an object of one clone serves another: paths below the clone count as
# relative, and debug information may name the clone that compiled it. ccache.log lists what the last build compiled, and what the
# cache had of it.
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD} CCACHE_NOHASHDIR=1 CCACHE_STATSLOG=$PWD/$dir/ccache.new

choices=()
# A preset sets the variable anew in every configuration, also where the cache has the choice of an earlier one.
if [[ -n ${HALFSTEP_CUDA:-} ]] &&
  { [[ ! -f $dir/build.ninja ]] || ! grep -qs "^HALFSTEP_CUDA:STRING=$HALFSTEP_CUDA$" "$dir/CMakeCache.txt"; }; then
  choices=("-DHALFSTEP_CUDA=$HALFSTEP_CUDA")
fi
if [[ ! -f $dir/build.ninja || ${#choices[@]} -gt 0 ]]; then
  mkdir -p "$dir"
  cmake --preset "$preset" "${choices[@]}" >"$dir/configure.log" 2>&1 || { cat "$dir/configure.log" >&2; exit 1; }
  grep -A2 'Warning' "$dir/configure.log" >&2 || true
  sed -n 's/^-- \(halfstep: .*\)/\1/p' "$dir/configure.log" >&2
fi

# One line says how far the build is: rewritten in place on a terminal, printed every half minute elsewhere. What compilers say is
# printed as it comes.
what=${*:-the program, the tests and the examples}
[[ $what == installation ]] && what="the program"
minutes() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }
progress() {
  local line finished total spent text last=$SECONDS began=$SECONDS place=""
  [[ -t 2 ]] && place=$'\r\e[K'
  while IFS= read -r line; do
    case $line in
      @*) ;;
      *"Re-checking globbed directories"* | "ninja: no work to do."* | "ninja: Entering directory"*) continue ;;
      *) printf '%s%s\n' "$place" "$line"; continue ;;
    esac
    line=${line#@}
    line=${line%% *}
    finished=${line%/*} total=${line#*/} spent=$((SECONDS - began))
    text="building $what: $finished of $total steps on $jobs cores"
    if ((spent >= 10 && finished > 0)); then
      text+=" in $(minutes $spent), about $(minutes $((spent * (total - finished) / finished))) left"
    fi
    if [[ -n $place ]]; then
      printf '%s%s' "$place" "$text"
    elif ((finished == 1 || SECONDS - last >= 30)); then
      last=$SECONDS
      printf '%s\n' "$text"
    fi
  done
  printf '%s' "$place"
}
rm -f "$CCACHE_STATSLOG"
NINJA_STATUS='@%f/%t ' ninja -C "$dir" -j "$jobs" "$@" 2>&1 | progress >&2
if [[ -s $CCACHE_STATSLOG ]]; then
  mv "$CCACHE_STATSLOG" "$dir/ccache.log"
  hits=$(grep -cE '^(direct|preprocessed)_cache_hit$' "$dir/ccache.log" || true)
  echo "$hits of $((hits + $(grep -cx cache_miss "$dir/ccache.log" || true))) objects came from the compiler's cache" >&2
fi
