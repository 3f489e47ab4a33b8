# SPDX-License-Identifier: Apache-2.0
"""The length of each function and the number of data members of each class in a text of C++, for scripts/check_layers.py.

A scan of braces and semicolons, no parser: what a macro hides is not seen.
"""
import re

NO_CODE = re.compile(r'R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|' r"'(?:\\.|[^'\\\n])*'|"
                     r'^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*', re.DOTALL | re.MULTILINE)
ACCESS = re.compile(r"\b(?:public|private|protected)\s*:(?!:)")
NAMESPACE = re.compile(r"(?:inline\s+)?namespace\b|extern\s+0$")
TYPE = re.compile(r"(?:template\s*<.*>\s*)?(class|struct|union)\b(?:\s+alignas\([^)]*\)|\s*\[\[[^\]]*\]\])*\s*"
                  r"([\w:]*(?:<[^;{]*>)?)\s*(?:final\s*)?(?::(?!:).*)?$", re.DOTALL)
VALUE = re.compile(r"=\s*(?:[^=(]*\[.*)?$", re.DOTALL)  # a variable's initialiser, or a lambda's
NO_MEMBER = re.compile(r"(?:using|typedef|friend|static|template|static_assert|enum|explicit|virtual|operator|requires)\b")
NESTED_TYPE = re.compile(r"(?:class|struct|union)\b[^{]*(?:\{\})?$")


def members(statement):
    """Returns the number of data members that a statement of a class declares; braces were replaced by "{}"."""
    text = ACCESS.sub("", statement).strip()
    if not text or NO_MEMBER.match(text) or NESTED_TYPE.match(text):
        return 0
    text = re.sub(r"^(?:class|struct|union)\b[^{]*\{\}", "Nested ", text)
    text = re.sub(r"\[\[.*?\]\]|alignas\([^)]*\)|->", "", text)
    while re.search(r"<[^<>]*>", text):
        text = re.sub(r"<[^<>]*>", "", text)
    name, equals, value = text.partition("=")
    while re.search(r"\([^()]*\)", value):
        value = re.sub(r"\([^()]*\)", "", value)
    text = re.sub(r"=[^,]*?(?=,\s*[\w*&]+\s*(?:=|\{\}|,|$|\[)|$)", "", name + equals + value, flags=re.DOTALL).replace("{}", "")
    if "(" in text or "operator" in text or not re.search(r"\w\s*[\s*&>]\s*\w", text):
        return 0
    return text.count(",") + 1


def kind_of(head, around, in_call):
    """Returns what a brace opens ("namespace", "function", "class", "struct", "union" or "other") and its name."""
    head = ACCESS.sub("", head).strip()
    if around not in ("namespace", "class", "struct", "union") or in_call:
        return "other", ""
    if NAMESPACE.match(head):
        return "namespace", ""
    found = TYPE.match(head)
    if found:
        return found.group(1), found.group(2)
    name = re.search(r"([\w:~]+)\s*\(", head)
    is_function = name and ")" in head and not VALUE.search(head) and not head.startswith("enum")
    return ("function", name.group(1)) if is_function else ("other", "")


def sizes(text):
    """Returns (kind, name, line, size) of each function, by lines from brace to brace, and of each type, by data members."""
    text = NO_CODE.sub(lambda m: ("0" if m.group()[0] in "\"'R" else "") + "\n" * m.group().count("\n"), text)
    found, line, calls = [], 1, 0
    scopes = [["namespace", "", 1, 0, "", 0]]  # kind, name, line, members, statement so far, calls that are open around it
    for c in text:
        scope = scopes[-1]
        line += c == "\n"
        calls += (c == "(") - (c == ")")
        if c == "{":
            scopes.append([*kind_of(scope[4], scope[0], calls > 0), line, 0, "", calls])
            calls = 0
        elif c == "}" and len(scopes) > 1:
            kind, name, begin, count, _, calls = scopes.pop()
            if kind == "function":
                found.append((kind, name, begin, line - begin + 1))
            elif kind in ("class", "struct", "union"):
                found.append((kind, name, begin, count))
            scopes[-1][4] = "" if kind in ("function", "namespace") else scopes[-1][4] + "{}"
        elif c == ";" and calls == 0:
            scope[3] += members(scope[4]) if scope[0] in ("class", "struct", "union") else 0
            scope[4] = ""
        else:
            scope[4] += c
    return found
