#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the halfstep program (and the rest of an installation) if needed, and runs it: scripts/run.sh train configs/digits_mlp.json
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
"$root/scripts/setup.sh"
"$root/scripts/build.sh" default installation
export HALFSTEP_COMMAND=$0  # for what the program says to type next
program=$root/build/default/run_halfstep  # of a build for another machine: an emulator
[[ -x $program ]] || program=$root/build/default/halfstep
exec "$program" "$@"
