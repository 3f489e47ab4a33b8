#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every link of a page leads to a file that is there, and to a heading of it: links_test.py FOLDER

Pages are the .md files at the top of FOLDER and anywhere in FOLDER/docs. Addresses elsewhere are not opened. Before that it
tries itself on pages with broken links.
"""
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts"))
sys.dont_write_bytecode = True
from docs_filter import headings

LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def pages(root):
    for folder in (root, *(folder for folder, _, _ in sorted(os.walk(os.path.join(root, "docs"))))):
        yield from (os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".md"))


def broken(root):
    for page in pages(root):
        for link in LINK.findall(CODE.sub("", text_of(page))):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not os.path.exists(target):
                yield f"{os.path.relpath(page, root)}: {link}: no such file"
            elif anchor and anchor not in [slug for _, slug in headings(text_of(target))]:
                yield f"{os.path.relpath(page, root)}: {link}: no such heading"


def self_test():
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(os.path.join(root, "docs/deep"))
        with open(os.path.join(root, "a.md"), "w", encoding="utf-8") as file:
            file.write("[good](docs/b.md#two-words) [self](#a) [web](https://x.org/none) `[code](none.md)`\n# A\n"
                       "[lost](none.md) [gone](docs/b.md#three)\n```\n[code](none.md)\n# Code\n```\n[not](#code)\n")
        with open(os.path.join(root, "docs/b.md"), "w", encoding="utf-8") as file:
            file.write("# Two `words`\n[up](../a.md#a)\n")
        with open(os.path.join(root, "docs/deep/c.md"), "w", encoding="utf-8") as file:
            file.write("[up](../b.md#two-words) [lost](b.md)\n")
        found = list(broken(root))
    expected = ["a.md: none.md: no such file", "a.md: docs/b.md#three: no such heading", "a.md: #code: no such heading",
                "docs/deep/c.md: b.md: no such file"]
    assert found == expected, found


if __name__ == "__main__":
    self_test()
    faults = list(broken(sys.argv[1]))
    print("\n".join(faults) or "links_test: every link leads somewhere")
    sys.exit(1 if faults else 0)
