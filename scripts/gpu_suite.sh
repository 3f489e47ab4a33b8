#!/usr/bin/env bash
# Builds, tests, sanitizes and measures the CUDA backend on a machine with a GPU (docs/gpu.md):
#   scripts/gpu_suite.sh [--part build|test|sanitize|bench]... [--again] [--dry-run] [--limit SECONDS] [-- CMAKE_ARGUMENT...]
# Default: all parts. A part that passed with these very sources is not run again, unless --again. Each part ends within
# --limit (480 s); the other parts run all the same. Logs and results go to $OUT (default build/gpu_suite).
# Exit status: 0 all passed, 1 a part failed or ran out of time, 2 none failed but something could not be run (said why).
# shellcheck disable=SC2317  # the parts are called by a name that is put together
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1

usage() { sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit "$1"; }
parts=() again='' dry='' limit=480 inner='' cmake_arguments=()
while (($#)); do
  case $1 in
    --part) case ${2-} in build | test | sanitize | bench) parts+=("$2"); shift ;; *) usage 64 ;; esac ;;
    --inner-part) inner=${2-}; shift ;;  # this script, called by itself
    --again) again=1 ;;
    --dry-run) dry=1 ;;
    --limit) [[ ${2-} =~ ^[0-9]+$ ]] || usage 64; limit=$2; shift ;;
    --) shift; cmake_arguments=("$@"); break ;;
    -h | --help) usage 0 ;;
    *) usage 64 ;;
  esac
  shift
done
((${#parts[@]})) || parts=(build test sanitize bench)

build=build/gpu
state=build/gpu_suite  # what passed, by part; kept apart from $OUT, which may be emptied between runs
export OUT=${OUT:-$root/$state}
python=${HALFSTEP_PYTHON:-python3}
jobs=${HALFSTEP_JOBS:-$(nproc)}

say() { printf '%(%H:%M:%S)T %s\n' -1 "$*"; }
run() { say "+ $*"; [[ -n $dry ]] || "$@"; }
have() { command -v "$1" >/dev/null; }
gpu() { have nvidia-smi && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; }
because() { say "$*"; echo "$*" >"$state/reason"; }  # what the summary says of a part that was not run
no_gpu() { [[ -z $dry ]] && ! gpu && because "no GPU: nvidia-smi -L finds none"; }

sources() {  # one hash of everything that is built or run
  find CMakeLists.txt halfstep.h framework layers optim amp apps cuda tests benchmarks scripts configs -type f \
    -not -path 'benchmarks/results/*' -not -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum |
    { cat; echo "${cmake_arguments[*]-}"; } | sha256sum | cut -c1-16
}

# --- the parts; each runs in a process of its own and returns 0, 1 (failed) or 2 (not or not wholly run)

part_build() {
  local generator=()
  have cmake || { say "cmake was not found"; return 1; }
  have nvcc || say "nvcc is not on PATH: CMake may still find a CUDA compiler"
  have ninja && generator=(-G Ninja)
  run cmake -S . -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DHALFSTEP_CUDA=ON -DHALFSTEP_TESTS=ON \
    -DHALFSTEP_APPS=ON -DHALFSTEP_BENCHMARKS=ON -DHALFSTEP_EXAMPLES=OFF "${cmake_arguments[@]}" || return 1
  run cmake --build "$build" -j "$jobs" || return 1
}

ctest_label() {  # LABEL JOBS
  run env OMP_NUM_THREADS=2 ctest --test-dir "$build" -L "^$1\$" -j "$2" --timeout 240 --no-tests=error --output-on-failure
}

part_test() {
  local status=0 log=$OUT/test_cuda.txt
  if gpu || [[ -n $dry ]]; then
    # A few at a time: the GPU's memory is large, but times on a crowded GPU come near the tests' limits.
    ctest_label cuda 4 2>&1 | tee "$log" || status=1
    if [[ -z $dry ]] && grep -q '\*\*\*Skipped' "$log"; then
      say "CUDA tests were skipped although there is a GPU: see above"
      status=1
    fi
    rm -f "$log"
  else
    because "no GPU: nvidia-smi -L finds none, so only the tests of label cpu were run"
    status=2
  fi
  ctest_label cpu "$jobs" || status=1
  return "$status"
}

# Of each ctest test of label sanitize: its name, environment and command line, separated by \x1f.
sanitize_commands() {
  [[ -f $build/CTestTestfile.cmake ]] || return 0
  ctest --test-dir "$build" -L '^sanitize$' --show-only=json-v1 | "$python" -c '
import json, shlex, sys
for test in json.load(sys.stdin)["tests"]:
    if "command" in test:
        env = next((p["value"] for p in test.get("properties", []) if p["name"] == "ENVIRONMENT"), [])
        print(test["name"], shlex.join(env), shlex.join(test["command"]), sep="\x1f")'
}

part_sanitize() {
  local status=0 code left tool name environment command output=$OUT/sanitize_one.txt
  local -a words
  if ! have compute-sanitizer; then
    because "compute-sanitizer was not found (it comes with the CUDA toolkit)"
    [[ -n $dry ]] || return 2
  fi
  no_gpu && return 2
  local tests
  tests=$(sanitize_commands) || { say "ctest could not list the tests of $build"; [[ -n $dry ]] || return 1; }
  if [[ -z $tests ]]; then
    because "no test has the label sanitize"
    [[ -n $dry ]] || return 2
    tests=$'TEST\x1fNAME=VALUE\x1fPROGRAM --test-suite=sanitize'
  fi
  for tool in memcheck racecheck initcheck synccheck; do
    while IFS=$'\x1f' read -r name environment command; do
      # Both quoted by shlex.
      eval "words=(env $environment compute-sanitizer --tool $tool --error-exitcode 86 --print-limit 20 $command)"
      left=$((limit - SECONDS - 15 < 150 ? limit - SECONDS - 15 : 150))
      if ((left < 10)); then
        because "the time was up before $tool $name"
        return $((status ? status : 2))
      fi
      run timeout -k 5 "$left" "${words[@]}" 2>&1 | tee "$output"
      code=${PIPESTATUS[0]}
      if [[ -n $dry ]]; then
        continue
      elif grep -q 'Device not supported' "$output"; then
        because "compute-sanitizer does not work on this machine: Device not supported"
        return 2
      fi
      case $code in
        0) say "$tool $name: clean" ;;
        86) say "$tool $name: ERRORS FOUND"; status=1 ;;
        124 | 137) say "$tool $name: not ended after $left s"; status=1 ;;
        *) say "$tool $name: exit status $code"; status=1 ;;
      esac
    done <<<"$tests"
  done
  rm -f "$output"
  return "$status"
}

part_bench() {
  local code result copy=$OUT/bench_new
  [[ -n $dry || -x $build/halfstep ]] || { say "$build/halfstep is not there"; return 1; }
  no_gpu && return 2
  have "$python" || { because "$python was not found"; return 2; }
  mkdir -p "$copy"
  run "$python" -u benchmarks/compare_torch_cuda.py --binary "$root/$build/halfstep" --out "$copy" \
    --source "$(sources)" --budget $((limit - 60 > 30 ? limit - 60 : 30))
  code=$?
  for result in "$copy"/*.json; do
    [[ -f $result ]] && cp "$result" benchmarks/results/ && mv "$result" "$OUT/" &&
      say "result: benchmarks/results/$(basename "$result"), also in $OUT"
  done
  rmdir "$copy" 2>/dev/null
  ((code == 2)) && because "not everything could be measured: see the notes at the end of $OUT/bench.log"
  return "$code"
}

if [[ -n $inner ]]; then
  "part_$inner"
  exit
fi

# --- the driver

facts() {
  echo "sources $now, commit ${HALFSTEP_COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}"
  echo "$(uname -srm), $(nproc) cores; $(cmake --version 2>/dev/null | head -1 || true)"
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,power.draw --format=csv,noheader 2>/dev/null || echo "no GPU"
  nvcc --version 2>/dev/null | tail -1 || true
  "$python" -c 'import torch; print("PyTorch", torch.__version__, "CUDA", torch.version.cuda)' 2>/dev/null || echo "no PyTorch"
}

attempt() {  # PART; sets result[PART] and, when it passed, the stamp
  local part=$1 began=$SECONDS code options=(--limit "$limit")
  [[ -n $dry ]] && options+=(--dry-run)
  say "== $part"
  rm -f "$state/reason"
  timeout -k 10 "$limit" "$BASH" "${BASH_SOURCE[0]}" --inner-part "$part" "${options[@]}" -- "${cmake_arguments[@]}" 2>&1 |
    tee "$OUT/$part.log"
  code=${PIPESTATUS[0]}
  case $code in
    0) result[$part]="passed"; [[ -n $dry ]] || echo "$now" >"$state/$part.passed" ;;
    2) result[$part]="INCOMPLETE: $(cat "$state/reason")"; not_run=1 ;;
    124 | 137) result[$part]="FAILED: not ended after $limit s"; failed=1 ;;
    *) result[$part]="FAILED: see $OUT/$part.log"; failed=1 ;;
  esac
  if [[ -n $dry ]]; then
    result[$part]="not run: this was a dry run"
  fi
  took[$part]=$((SECONDS - began))
  [[ $part == bench && $code != 0 ]] && save_partial_bench
  say "== $part ${result[$part]} (${took[$part]} s)"
}

save_partial_bench() {  # what a benchmark that was stopped had measured so far
  local file
  for file in "$OUT"/bench_new/*.json; do
    [[ -f $file ]] || continue
    "$python" benchmarks/compare_torch_cuda.py --print "$file" 2>&1 | tee -a "$OUT/bench.log"
    mv "$file" "$OUT/"
  done
  rmdir "$OUT/bench_new" 2>/dev/null
}

passed() { [[ -z $again && -z $dry && -f $state/$1.passed && $(<"$state/$1.passed") == "$now" ]]; }

mkdir -p "$OUT" "$state"
now=$(sources)
declare -A result=() took=()
order=() failed='' not_run=''
facts | tee "$OUT/summary.txt"

# Every part stands on the build.
[[ " ${parts[*]} " == *" build "* ]] || parts=(build "${parts[@]}")
for part in "${parts[@]}"; do
  order+=("$part")
  if [[ $part != build && ${result[build]} == FAILED* ]]; then
    result[$part]="not run: the build failed"
    not_run=1
  elif passed "$part" && [[ $part != build || -f $build/CMakeCache.txt ]]; then
    result[$part]="passed before with these sources"
  else
    attempt "$part"
  fi
done

{
  echo
  for part in "${order[@]}"; do printf '%-10s%6s s  %s\n' "$part" "${took[$part]:--}" "${result[$part]}"; done
} | tee -a "$OUT/summary.txt"
[[ -n $dry ]] && exit 0
[[ -n $failed ]] && exit 1
[[ -n $not_run ]] && exit 2
exit 0
