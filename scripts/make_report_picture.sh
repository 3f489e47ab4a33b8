#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes docs/report.png, the picture of a report in the README: three runs in three precisions, as a browser shows them.
# Needs build/default/halfstep and chromium.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

program=$PWD/build/default/halfstep
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for run in "float16 amp.dtype=float16 amp.scaler.init_scale=1e8" "bfloat16 amp.dtype=bfloat16" "float32 amp.enabled=false"; do
  read -r name settings <<<"$run"
  sets=()
  for set in $settings; do sets+=(--set "$set"); done
  "$program" train configs/digits_mlp.json --quiet --set "output_dir=$folder/$name" --set logging.every=5 \
    --set train.grad_norm=true "${sets[@]}"
done
(cd "$folder" && "$program" report float16 bfloat16 float32 --no-plan --out page.html >/dev/null)
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1200,905 --screenshot="$PWD/docs/report.png" \
  "file://$folder/page.html" 2>/dev/null
