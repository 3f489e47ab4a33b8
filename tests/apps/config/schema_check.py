#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of configs in an independent validator (python3-jsonschema): schema_check.py HALFSTEP CONFIGS_FOLDER"""
import json
import pathlib
import re
import subprocess
import sys

try:
    import jsonschema
except ImportError:
    sys.exit("SKIPPED: no jsonschema in this Python (apt install python3-jsonschema)")

COMMENTS = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


def read(path):
    return json.loads(COMMENTS.sub(lambda m: m[1] or " ", path.read_text()))


def main():
    program, folder = sys.argv[1:]
    schema = json.loads(subprocess.run([program, "schema"], check=True, capture_output=True, text=True).stdout)
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)
    configs = {path: read(path) for path in sorted(pathlib.Path(folder).rglob("*.json"))}
    assert len(configs) > 15, "no configs in " + folder
    faults = 0
    for path, config in configs.items():
        for error in validator.iter_errors(config):
            print(f"{path}: {'.'.join(map(str, error.path))}: {error.message}")
            faults += 1
    # One unknown key in each object of each config, in turn; but of one that extends another, a part may be without its type.
    planted = missed = 0
    for path, config in ((p, c) for p, c in configs.items() if "extends" not in c):
        stack = [config]
        while stack:
            part = stack.pop()
            values = part.values() if isinstance(part, dict) else part
            stack += [v for v in values if isinstance(v, (dict, list))]
            if isinstance(part, dict):
                part["no such key"] = 1
                planted += 1
                if validator.is_valid(config):
                    missed += 1
                    print(f"{path}: an unknown key is not found beside {list(part)[:-1]}")
                del part["no such key"]
    print(f"{len(configs)} configs, {faults} refused; {planted} unknown keys planted, {missed} missed")
    sys.exit(1 if faults or missed else 0)


main()
