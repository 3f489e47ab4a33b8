#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In place of the tools, and of the programs they build, for gpu_suite_test.py: called by their names. $FAULT chooses what goes
# wrong, $DELAY is how long (s) everything takes.
name=${0##*/}
echo "$name $*" >>"$CALLS"
[ "$name" = nvidia-smi ] || [ "${DELAY:-0}" = 0 ] || sleep "$DELAY"
tests() { # NAME CASES
  case $FAULT in
    skipped) echo "SKIPPED: [cuda] no device"; exit 0 ;;
    "failing $1") echo "[doctest] test cases:  7 |  6 passed | 1 failed | 0 skipped"; exit 1 ;;
    "hanging $1") trap '' TERM; sleep 60 & echo "sleeper $!" >>"$CALLS"; wait ;;
  esac
  echo "[doctest] test cases:  $2 |  $2 passed | 0 failed | 0 skipped"
}
case $name in
  nvidia-smi)
    [ "$FAULT" = "no GPU" ] && { echo "No devices were found"; exit 6; }
    case $1 in
      -L) echo "GPU 0: ${GPU:-NVIDIA H100 80GB HBM3} (UUID: GPU-0)" ;;
      *) echo "${GPU:-NVIDIA H100 80GB HBM3}, 580.1, 1980, 2619, 120.5, 40, 500" ;;
    esac ;;
  cmake)
    mkdir -p build/gpu/tests build/gpu/benchmarks
    [ "$FAULT" = "no package" ] && { echo 'Could not find a package configuration file provided by "doctest" with any of'; exit 1; }
    [ "$FAULT" = "not compiled" ] && [ "$1" = --build ] && { echo "error: expected ';'"; exit 1; }
    case $FAULT$* in "tests not compiled"*test_cuda*) echo "error: expected ';'"; exit 1 ;; esac
    [ "$1" = --build ] || echo "-- halfstep: CUDA 13.0, architectures 90"
    for target; do
      case $target in
        halfstep_program) ln -sf "$0" build/gpu/halfstep ;;
        bench_nets) ln -sf "$0" build/gpu/benchmarks/nets ;;
        test_*) ln -sf "$0" "build/gpu/tests/$target" ;;
        bench_*) ln -sf "$0" "build/gpu/benchmarks/$target" ;;
      esac
    done ;;
  ctest)
    case $* in
      *sanitize*) set -- cuda.sanitize test_cuda --test-suite=sanitize ;;
      *) set -- cuda test_cuda --test-suite-exclude=sanitize ;;
    esac
    echo "{\"tests\": [{\"name\": \"$1\", \"command\": [\"build/gpu/tests/$2\", \"$3\"],"
    echo "\"properties\": [{\"name\": \"ENVIRONMENT\", \"value\": [\"OMP_WAIT_POLICY=PASSIVE\"]}]}]}" ;;
  ncu)
    [ "$FAULT" = "no profiler" ] && { echo "==ERROR== LibraryNotLoaded"; exit 1; }
    echo "==PROF== Connected to process 7"
    echo '"ID","Process ID","Kernel Name","Block Size","Grid Size","Section Name","Metric Name","Metric Unit","Metric Value"'
    for kernel in fill cast gemm gemm mse sgd cast gemm gemm mse sgd cast gemm gemm mse sgd read; do
      printf '"0","7","%s","(128, 1, 1)","(1,024, 1, 1)","Command line profiler metrics","gpu__time_duration.sum","ns","2,500"\n' $kernel
    done ;;
  compute-sanitizer)
    case $FAULT in
      "no sanitizer") echo "Error: Device not supported"; exit 1 ;;
      *check) [ "$FAULT" = "$6" ] && { echo "========= ERROR SUMMARY: 3 errors"; exit 86; } ;;
    esac
    while case $1 in build*|/*) false ;; esac; do shift; done
    "$@" && echo "========= ERROR SUMMARY: 0 errors" ;;
  test_cuda_kernels)
    case $* in
      *--test-case=probe*) echo "ReLU mask of the library at +0: 1, -0: 1, NaN: 1"; tests probe 1 ;;
      *cudnn_engines*)
        echo "image float16 rows, direction 0, engine 4: CUDNN_STATUS_SUCCESS, workspace 0, made in 0.4 ms, off by 0.01 of 65"
        echo "image float16 rows, direction 0, engine 5: CUDNN_STATUS_NOT_SUPPORTED, workspace 0, made in 312.5 ms, off by 0 of 65"
        tests engines 2 ;;
      *) tests gemm 9 ;;
    esac ;;
  test_cuda)
    case $* in
      *dnn_test*) tests dnn 8 ;;
      *lengths*) tests lengths 3 ;;
      *) tests cuda 40 ;;
    esac ;;
  bench_convolutions)
    echo '{"device": "a stand-in", "batch": 64, "rows": ['
    echo '{"layer": "7x7/2", "dtype": "float16", "channels_last": true, "direction": "data", "first_ms": 300.0, "ms": 0.5, "gflop": 2.0, "tflop_s": 4.0}]}' ;;
  nets)
    [ "$FAULT" = "crashing" ] && { echo "error: [cuda] out of memory" >&2; exit 2; }
    while read -r line; do echo '{"ms": 2.0, "first_ms": 900.0}'; done ;;
  bench_uploads) echo '{"bench": "uploads"}' ;;
  halfstep)
    case $* in
      *--help*) echo "--device --arms --inner --graph --json, tf32" ;;
      devices*) echo '{"devices": []}' ;;
      --version) echo "halfstep 0.1.0" ;;
      *)
        [ "$FAULT" = "crashing" ] && { echo "error: [cuda] out of memory" >&2; exit 2; }
        rung=fused plain=0
        [ "$FAULT" = "plain products" ] && rung=plain plain=2
        printf %s '{"description": "a stand-in", "arms": [{"arm": "float16", "median_ms": 2.0, "fastest_ms": 1.9, "p90_ms": 2.1,' \
          ' "peak_bytes": 1000, "first_loss": 1.0, "final_loss": 0.5, "losses": [1.0, 0.5], "skipped": 0, "plain_products": ' $plain \
          ', "products": [{"m": 4096, "n": 512, "k": 4096, "batch": 1, "a_transposed": true, "b_transposed": false, "in": "float16",' \
          ' "out": "float16", "compute": "f32", "epilogue": "relu+bias", "rung": "' $rung '", "top": "fused", "candidates": 8,' \
          ' "status": 0, "algorithm": 66, "workspace": 0, "tuned": false, "calls": 3}]}]}'
        echo
        [ $plain = 0 ] ;;
    esac ;;
esac
