#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that option structs begin with the members that they had in 0.1.0, in their order: values may be given by position, as
GradScalerOptions{65536, 2}, and must keep their meaning.

    scripts/check_option_order.py [REVISION]    compares with a commit or tag; without one, with the last commit of 0.1.0

Exits with 1 for a struct whose members have moved, and with 0 and "SKIPPED" without the commit, as in a source package.
"""
import collections
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
LAST_0_1_0 = "37eb0885^"
NO_MEMBER = re.compile(r"(static|using|friend|template|struct|class|enum|constexpr|explicit|[A-Z_]{6,}\()")
# What 0.1.0 took by position does not compile: a member has another type.
OTHER = ("TimeSeriesOptions", "CsvOptions")
FOLDERS = ("framework", "layers", "optim", "amp")


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)


def body_of(text, start):
    """Returns the text between the braces that open at or after `start`, nested ones included."""
    depth, begin = 0, None
    for at in range(start, len(text)):
        if text[at] == "{":
            depth += 1
            begin = at + 1 if begin is None else begin
        elif text[at] == "}":
            depth -= 1
            if depth == 0:
                return text[begin:at]
    return ""


def split_outside(text, mark):
    """Splits at a character outside of brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "<({[") - (c in ">)}]")
        if c == mark and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def members_of(body):
    names = []
    for statement in split_outside(body, ";"):
        statement = re.sub(r"\s+", " ", statement).strip()
        head = split_outside(statement.replace("operator=", "operator"), "=")[0]
        if not statement or re.search(r"\boperator\b", statement) or NO_MEMBER.match(statement):
            continue
        if "(" in re.sub(r"<[^;]*>", "", head):  # a function, whose body may stand before the next member
            rest = statement.rsplit("}", 1)[-1].strip() if "{" in statement else ""
            if not rest or "(" in split_outside(rest, "=")[0]:
                continue
            statement = rest
        for i, part in enumerate(split_outside(statement, ",")):
            declared = re.sub(r"\{.*", "", split_outside(part, "=")[0]).strip()
            name = re.search(r"(\w+)$", declared)
            if name and (i > 0 or " " in declared) and not re.match(r"k[A-Z]", name[1]):
                names.append(name[1])
    return names


def structs_of(text):
    text = re.sub(r"//[^\n]*|/\*.*?\*/|\"(\\.|[^\"\\])*\"", "", text, flags=re.DOTALL)
    text = re.sub(r"^#.*(\\\n.*)*$", "", text, flags=re.MULTILINE)
    found = {}
    for match in re.finditer(r"\bstruct (\w*(?:Options|Arguments|Parts|Group|State))\s*(?::[^{;]*)?\{", text):
        found[match[1]] = members_of(body_of(text, match.end() - 1))
    return found


def main():
    revision = sys.argv[1] if len(sys.argv) > 1 else LAST_0_1_0
    listed = git("ls-tree", "-r", "--name-only", revision, *FOLDERS)
    if listed.returncode != 0:
        print(f"SKIPPED: there is no commit {revision} here")
        return 0
    old, new = {}, collections.defaultdict(list)  # several structs may have one name
    for path in listed.stdout.split():
        if path.endswith(".h"):
            old.update(structs_of(git("show", f"{revision}:{path}").stdout))
    for folder in FOLDERS:
        for at, _, files in os.walk(os.path.join(ROOT, folder)):
            for name in files:
                if name.endswith(".h"):
                    with open(os.path.join(at, name), encoding="utf-8") as f:
                        for struct, members in structs_of(f.read()).items():
                            new[struct].append(members)
    wrong = 0
    for name, before in sorted(old.items()):
        if name not in new or name in OTHER:
            continue
        if all(now[:len(before)] != before for now in new[name]):
            wrong += 1
            print(f"{name}: the members of {revision} must come first, in their order\n"
                  f"  then {', '.join(before)}\n  now  {', '.join(new[name][0])}")
    print(f"check_option_order: {len(old)} structs of {revision}, {wrong} with members that have moved")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
