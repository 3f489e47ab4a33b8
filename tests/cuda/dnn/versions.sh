#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The adapter's attention before every version of cuDNN in a folder, as scripts/fetch_cudnn.sh fills it: what each accepts, and what
# it is sent.  HALFSTEP_CUDNN_VERSIONS=FOLDER tests/cuda/dnn/versions.sh TEST_CUDNN_PLANS
set -euo pipefail

plans=${1:?usage: versions.sh TEST_CUDNN_PLANS}
folder=${HALFSTEP_CUDNN_VERSIONS:-}
if [[ -z $folder ]]; then
  echo "SKIPPED: HALFSTEP_CUDNN_VERSIONS names no folder of cuDNN's versions; scripts/fetch_cudnn.sh FOLDER makes one"
  exit 0
fi
shopt -s nullglob
libraries=("$folder"/*/libcudnn.so.9)
if ((${#libraries[@]} == 0)); then
  echo "versions.sh: no VERSION/libcudnn.so.9 in HALFSTEP_CUDNN_VERSIONS=$folder" >&2
  exit 1
fi
status=0
for library in "${libraries[@]}"; do
  # Its own parts, and the NVRTC beside it.
  HALFSTEP_CUDNN=$library LD_LIBRARY_PATH=$(dirname "$library") "$plans" --no-intro \
    --test-case="attention by version*,a gradient whose scores*" || status=1
done
exit "$status"
