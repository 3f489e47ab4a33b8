#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds, tests, measures and sanitizes the CUDA backend on a machine with a GPU (docs/testing.md): scripts/gpu_suite.sh --help
exec "${HALFSTEP_PYTHON:-python3}" "$(dirname "${BASH_SOURCE[0]}")/gpu_suite.py" "$@"
