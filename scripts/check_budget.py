#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows how long the parts of the last whole check (.ci/run) took, and holds the sum to its budget.

    scripts/check_budget.py [RECORD]           exits 1 if the sum is over the budget; RECORD: build/check_times.tsv
    scripts/check_budget.py --show [RECORD]    prints the parts as well, and judges nothing
    scripts/check_budget.py --self-test

The budget is for two cores: 20 minutes where the compiler's cache had most objects, 45 where it had not.
"""
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
HIT, MISS = ("direct_cache_hit", "preprocessed_cache_hit"), "cache_miss"
WARM, COLD = 20 * 60, 45 * 60


def parts(record):
    """Returns [(part, seconds)] of a record."""
    rows = [line.split("\t") for line in record.read_text(encoding="utf-8").splitlines()]
    return [(name, int(seconds)) for name, seconds in rows]


def objects(build):
    """Returns how many objects the last builds took from the compiler's cache, and how many they asked for."""
    hits = misses = 0
    for log in build.glob("*/ccache.log"):
        lines = log.read_text(encoding="utf-8").splitlines()
        hits += sum(line in HIT for line in lines)
        misses += lines.count(MISS)
    return hits, hits + misses


def minutes(seconds):
    return f"{seconds // 60}:{seconds % 60:02}"


def judge(record, show):
    """Prints what the parts took, and returns 1 if that is too long."""
    found, (hits, asked) = parts(record), objects(record.parent)
    budget = WARM if 2 * hits > asked else COLD
    total = sum(seconds for _, seconds in found)
    if show:
        for name, seconds in found:
            print(f"  {name:20}{minutes(seconds):>6}")
    over = total > budget
    print(f"check_budget: the whole check took {minutes(total)}, {'over' if over else 'within'} its budget of {minutes(budget)}; "
          f"{hits} of {asked} objects came from the compiler's cache")
    return int(over and not show)


def self_test():
    """Tests itself on made-up records."""
    for seconds, hits, misses, expected in ((WARM, 90, 10, 0), (WARM + 1, 90, 10, 1), (WARM + 1, 10, 90, 0), (COLD + 1, 10, 90, 1),
                                            (COLD, 0, 0, 0)):
        with tempfile.TemporaryDirectory() as folder:
            build = pathlib.Path(folder)
            (build / "asan").mkdir()
            log = "# a.cpp\n" + "direct_cache_hit\n" * hits + "cache_miss\n" * misses
            (build / "asan/ccache.log").write_text(log, encoding="utf-8")
            record = build / "check_times.tsv"
            record.write_text(f"rules\t1\nsanitizers tests\t{seconds - 1}\n", encoding="utf-8")
            if judge(record, False) != expected or judge(record, True):
                print(f"check_budget: {seconds} s with {hits} of {hits + misses} objects was judged wrongly")
                return 1
    return 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    show = arguments[:1] == ["--show"]
    paths = arguments[1:] if show else arguments
    if len(paths) > 1 or (paths and paths[0].startswith("-")):
        print(f"check_budget.py: takes --show, --self-test and the path of a record, got {' '.join(arguments)}", file=sys.stderr)
        return 2
    record = pathlib.Path(paths[0]) if paths else ROOT / "build/check_times.tsv"
    if not record.is_file():
        print(f"SKIPPED: check_budget: there is no {record}, which .ci/run writes")
        return 0
    return judge(record, show)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
