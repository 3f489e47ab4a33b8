#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes the manual page of the halfstep program, made of the program's own help: scripts/make_man_page.sh PROGRAM >halfstep.1
set -euo pipefail
program=${1:?usage: scripts/make_man_page.sh PROGRAM}

commands_of() { sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p'; }
# Help as roff: a line in which text begins in column 31 is a name with its description, which
# may also be the next line, and continues in lines that begin there.
to_roff() {
  awk -v titled="$1" '
    function plain(s) { gsub(/\\/, "\\e", s); gsub(/-/, "\\-", s); sub(/^[.'\'']/, "\\\\\\&&", s); return s }
    function entry(name, text) { sub(/ +$/, "", name); print ".TP\n.B " plain(name); if (text != "") print plain(text) }
    { line[NR] = $0 }
    END {
      for (i = titled ? 1 : 2; i <= NR; ++i) {
        if (line[i] ~ /^Exit codes:/) break
        if (line[i] ~ /^Usage:/) { print ".PP\n.B " plain(substr(line[i], 8)) }
        else if (line[i] ~ /^  [^ ]/) {
          if (substr(line[i], 30, 1) != " ") entry(substr(line[i], 3), "")
          else entry(substr(line[i], 3, 27), substr(line[i], 31))
        }
        else if (line[i] ~ /^ +[^ ]/) { sub(/^ +/, "", line[i]); print plain(line[i]) }
        else if (line[i] ~ /^[A-Z][a-z]+:$/) print ".PP\n" plain(line[i])
        else if (line[i] != "") print (line[i - 1] == "" ? ".PP\n" : "") plain(line[i])
      }
    }'
}
section() {  # section COMMAND...: its help, and that of the commands below it
  local help inner
  help=$("$program" "$@" --help)
  printf '.SS halfstep %s\n' "$*"
  to_roff 1 <<<"$help"
  for inner in $(commands_of <<<"$help"); do section "$@" "$inner"; done
}

help=$("$program" --help)
version=$("$program" --version | cut -d ' ' -f 2)
summary=$(head -1 <<<"$help")
printf '.TH HALFSTEP 1 "" "halfstep %s" "User Commands"\n.SH NAME\nhalfstep \\- %s\n' "$version" "${summary,}"
printf '.SH SYNOPSIS\n.B halfstep\n.I COMMAND\n[OPTIONS]\n.SH DESCRIPTION\n'
to_roff '' <<<"$help" | sed '1,/^\.B/d'  # without the line of usage
printf '.SH COMMANDS\n'
for command in $(commands_of <<<"$help"); do section "$command"; done
printf '.SH EXIT STATUS\n'
grep -A9 '^Exit codes:' <<<"$help" | sed 's/^Exit codes://' | tr ';' '\n' | sed -nE 's/^ *([0-9]+) (.+)/.TP\n.B \1\n\2/p'
