#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints a page as Doxygen wants it, whose filter it is in scripts/docs.sh: docs_filter.py PAGE

Headings get names, and links to them use these.
"""
import os
import re
import sys


def headings(text):
    """Yields (line, slug) of each heading, with slugs as GitHub makes them; the second one of a name gets -1."""
    seen, in_code = {}, False
    for line in text.splitlines():
        in_code ^= line.startswith("```")
        found = None if in_code else re.match(r"#+ +(.+)$", line)
        if found:
            title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", found.group(1).strip().lower())
            slug = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
            yield line, slug if slug not in seen else f"{slug}-{seen[slug]}"
            seen[slug] = seen.get(slug, 0) + 1


def page(path, text):
    stem = os.path.splitext(os.path.basename(path))[0].lower()
    out, in_code, names = [], False, headings(text)
    for number, line in enumerate(text.splitlines()):
        in_code ^= line.startswith("```")
        line = re.sub(r"^```(\w+) .*", r"```\1", line)  # of a block's marks it knows the language alone
        if not in_code:
            if re.match(r"#+ +", line):
                slug = next(names)[1]
                line += f" {{#{stem}-{slug}}}" if number else ""  # the first one is the page itself
            line = re.sub(r"\]\((?:[\w./]*?(\w+)\.md)?#([\w-]+)\)", lambda m: f"](@ref {(m[1] or stem).lower()}-{m[2]})", line)
            # Sources and configs are not on the site.
            line = re.sub(r"\[([^\]]*)\]\((?:\.\./(?!\w+\.md)[^)]*|[^):]*\.json)\)", r"\1", line)
            line = re.sub(r"(`[^`]*`)|<(?=\w+>)", lambda m: m[1] or "\\<", line)  # outside of code: no tags of HTML
            line = re.sub(r"\*\*`([^`]*)`\*\*", r"<b>\1</b>", line)  # code in bold, which it does not know
        out.append(line)
    return "\n".join(out)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as source:
        print(page(sys.argv[1], source.read()))
