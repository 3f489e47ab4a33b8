#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that files include only what their level in the source tree allows, and a few rules of the project.

    scripts/check_layers.py [ROOT]      prints "file:line: rule" for each violation; exits 1 when there is one
    scripts/check_layers.py --self-test plants one violation of each rule in a temporary tree and checks that it is found

Levels: a file includes only headers of its own level or of a lower one.

    8  apps, examples, benchmarks                     tests may look anywhere, and nobody includes a test; tests/ mirrors the tree
       torch                                          nobody includes it but examples/torch
       apps: schema < catalog < config < terminal < record < session < use < train < examine < start < report < sweep
             < export < capi < commands
    7  amp: diagnosis < step; and halfstep.h, the header for users
    6  layers | optim                                 neighbours: neither includes the other
    5  framework/ops, framework/io, framework/data, framework/parallel, framework/interchange
       framework/ops: core < elementwise < shape < index < reduce < linalg < recurrent < window < loss
    4  framework/autograd, amp/autocast
    3  framework/backend, framework/comm | cuda       only framework/backend/registry.cpp may include cuda/
    2  framework/tensor
    1  framework/math
    0  framework/base, amp/policy                     no tensors
"""
import os
import re
import subprocess
import sys
import tempfile

from cpp_sizes import sizes

# Path prefix -> level; the longest match counts. tests are above all.
LEVELS = {
    "framework/base/": 0, "amp/policy/": 0,
    "framework/math/": 1,
    "framework/tensor/": 2,
    "framework/backend/": 3, "framework/comm/": 3, "cuda/": 3,
    "framework/autograd/": 4, "amp/autocast/": 4,
    "framework/ops/": 5, "framework/io/": 5, "framework/data/": 5, "framework/parallel/": 5,
    "framework/distributions/": 5, "framework/interchange/": 5,
    "layers/": 6, "optim/": 6,
    "amp/diagnosis/": 7, "amp/step/": 7, "amp/amp.h": 7, "halfstep.h": 7,
    "apps/": 8, "examples/": 8, "benchmarks/": 8, "torch/": 8,
    "tests/": 9,
}
FOLDERS = [  # subfolders of one level: a file includes only headers of its own subfolder or of an earlier one
    [f"framework/ops/{folder}/" for folder in ("core", "elementwise", "shape", "index", "reduce", "linalg", "recurrent", "window",
                                           "loss")],
    ["amp/diagnosis/", "amp/step/"],
    [f"apps/{folder}/" for folder in ("schema", "catalog", "config", "terminal", "record", "session", "use", "train", "examine",
                                      "start", "report", "sweep", "export", "capi", "commands")],
]
# Folders of tests/ that mirror no folder of the tree: every other one is named as what it tests, tests/ops/index/
TESTS_OF_THEIR_OWN = {
    "consumer": "a program outside the tree that uses the installed package",
    "emulators": "CUDA's kernels on the CPU, as source and as PTX, and libraries in place of NVIDIA's, with their own tests",
    "fuzz": "harnesses for what comes from outside", "parity": "comparisons with PyTorch",
    "ranks": "what several processes do together", "support": "what every test program links",
}
CODE = (".h", ".c", ".cpp", ".cu", ".cuh", ".def")
TEXT = CODE + (".py", ".sh", ".md", ".json", ".cmake", ".txt", ".in")
LICENSED = CODE + (".py", ".sh", ".cmake", ".cmake.in", ".h.in", "CMakeLists.txt")
# What may be committed at the top, and what never, since a command makes it.
AT_THE_TOP = {".ci", ".clang-format", ".gitignore", "CHANGELOG.md", "CITATION.cff", "CMakeLists.txt", "CMakePresets.json",
              "CONTRIBUTING.md", "LICENSE", "NOTICE", "README.md", "SECURITY.md", "amp", "apps", "benchmarks", "configs", "cuda",
              "docs", "examples", "framework", "halfstep.h", "layers", "optim", "python", "scripts", "tests", "torch"}
MADE = (".whl", ".o", ".a", ".so", ".pyc", ".deb")
SKIPPED_FOLDERS = {"runs", "deps", "__pycache__"}
SKIPPED_AT_THE_TOP = {"build"}

CUDA_DOOR = {"framework/backend/registry.cpp"}  # the one registration call
CUDA_HEADER = re.compile(r"^(cuda|cublas|cudnn|curand|cusolver|cusparse|cufft|cupti|nccl|nvtx3?/|nvml|nvrtc|cub/|thrust/|"
                         r"cooperative_groups|device_launch_parameters|mma\.h)")
# Written by CMake. The first changes with each commit, so that only one file may include it.
OF_COMMIT, ITS_READER = "generated/halfstep_version.h", "apps/terminal/build_info.cpp"
GENERATED = {OF_COMMIT, "generated/halfstep_release.h", "generated/report_page.h",
             "generated/elementwise_names.def", "generated/pointwise_names.def"}

MAX_LINES = 600  # of a file, without the line of the license
MAX_FUNCTION = 60  # lines of a function, from brace to brace; tests, examples and benchmarks may have longer ones
MAX_MEMBERS = 15  # data members of a class; a struct is a record, whose fields are what it is for
MAX_COLUMNS = 132  # of code, but for the tables of rows
WIDE_ALLOWED = {  # file -> how many of its lines hold a text that cannot be broken
    "scripts/cmake/HalfstepToolchain.cmake": 1, "tests/emulators/CMakeLists.txt": 3, "tests/scripts/stand_in.sh": 4,
}
LICENSE = "SPDX-License-Identifier: Apache-2.0"  # in the first line, or below "#!"
LONG_FILES = {  # file -> why it may be longer
    "framework/tensor/tensor.h": "one class with a line for each method of PyTorch's Tensor",
}

# file: function -> why it may be longer
LONG_FUNCTIONS = {
    "apps/export/torch_classes.cpp: torch_classes": "a table of texts", "framework/ops/core/op_policy.cpp: calls_others": "a table",
    "cuda/kernels/norm/norm_sums.cu: __launch_bounds__": "one kernel, whose stages share registers",
    "cuda/dnn/conv.cpp: convolve_as_given": "one request to a library, field by field",
    "framework/interchange/onnx_file.cpp: OnnxFile::save": "the fields of one message, in their order",
    "optim/two_pass.cpp: Adafactor::step": "the formulas of one update",
    "optim/optimizer_state.cpp: Optimizer::load_options": "checks of one stored state, which gather all problems before they throw",
    "optim/optimizer_state.cpp: Optimizer::load_states": "the same",
    **{name: "steps of one reading, which share most of their variables" for name in (
        "framework/data/tables/csv.cpp: CsvDataset::parse", "framework/data/tables/series_rows.cpp: read_series",
        "apps/commands/predict.cpp: predict", "apps/start/init_arrays.cpp: init_arrays",
        "apps/start/init_pictures.cpp: init_pictures", "apps/start/init_table.cpp: init_table")},
}
# file: class -> why it may have more
LARGE_CLASSES = {
    "amp/step/step_recorder.h: StepRecorder": "the memory that a recorded step reads and writes, piece by piece",
    "framework/backend/kernel_log.h: KernelLog": "the events of a step with all that names their inputs",
    "framework/comm/host_worker.h: HostGroup::Worker": "a queue with its results, under one lock",
    "framework/data/tables/csv_table.h: CsvTable": "a file's bytes with what was found in one pass over them",
    "framework/ops/linalg/attention.cpp: Attention": "the sizes of one call",
    "optim/optimizer.h: Optimizer": "groups, states and followers, which every optimizer has",
}

# The one road into autocast: only this file may call what casts an op's inputs, everything else goes through its apply_policy().
ROAD = "framework/ops/core/call.cpp"
OFF_ROAD = re.compile(r"\bautocast::apply\(")

# What a thread-local variable changes, no signature says. So docs/tour.md has a table of them: | `variable`, `file` | ...
THREAD_LOCAL = re.compile(r"\bthread_local\b[^;={(]*?(\w+)\s*[;={(]")
THREAD_LOCAL_TABLE = "docs/tour.md"
THREAD_LOCAL_ROW = re.compile(r"^\| `(\w+)`, `([\w]+\.(?:h|cpp|cu|cuh))` \|")

# Places of saved tensors have names (framework/ops/core/call.h).
SAVED_BY_NUMBER = re.compile(r"\bctx\.saved\(\d|\bsaved_count\(\) *[<>]=? *\d")

# Of a vector wider than the instruction set's, GCC makes code that goes through memory. blocks.cpp names the instruction set.
WIDE_VECTOR = re.compile(r"\bvector_size\((64|128|kLanes)\)")
WIDE_VECTORS = "framework/backend/cpu/gemm/blocks.cpp"

# The program's locale changes what these read and write.
OF_LOCALE = re.compile(r"\b(?:strto(?:f|d|ld)|atof|sto(?:f|d|ld)|v?f?s?scanf|[io]?stringstream|setlocale|locale::global)\b(?! *,)"
                       r'|"[^"]*%[-+#0 ]*(?:\d+|\*)?(?:\.(?:\d+|\*))?[lL]?[aAeEfFgG](?![a-zA-Z])')
OF_LOCALE_ALLOWED = {"framework/base/number_text.h", "framework/base/number_text.cpp", "framework/base/text_stream.h"}

# A static object that exit() destroys while threads, or destructors of other static objects, still compute.
DESTROYED = re.compile(r"^\s*(?:static |thread_local |inline |const )*(?:static|thread_local|const) (?:static |const )*std::"
                       r"(?:string|vector|deque|list|(?:unordered_)?(?:multi)?(?:map|set)|shared_ptr|unique_ptr|function|any)\b"
                       r"[^&*()]*[ >]\w+ *(?:;|=[^=]|\{)")

# Words about the place the code was written in, which mean nothing to its readers.
WORKPLACE = re.compile(r"(?<![\w.])/(work|home|root)/\w|\bshared/(design|spec)\b|\b(design|spec)/\w+\.md\b|"
                       r"\b(this|our|my) (session|sandbox|workplace)\b|\bthe (brief|lead engineer|workplace)\b", re.IGNORECASE)
WORKPLACE_EXEMPT = {"scripts/check_layers.py"}

# Words that make a riddle of a sentence: say "is in", "prints", "knows", "continues", "anyone who", "frees" instead.
RIDDLE = re.compile(r"(?<!\.)\b(stands|told|tells?|go(es)? on|whoever|lets? go|of one's own|what is made small|"
                    r"is one of these, too)\b", re.IGNORECASE)
RIDDLES_ALLOWED = {"scripts/check_layers.py": 4}  # file -> how many lines may have one

# Standard headers by the names that call for them. What another standard header brings along is an accident of a library's
# version: a file includes these itself, or one of the project's headers that it includes does.
STANDARD = {header: re.compile(rf"\b(?:{names})\b") for header, names in {
    "algorithm": r"std::(?:clamp|(?:stable_|partial_|is_)?sort|find(?:_if(?:_not)?)?|(?:any|all|none)_of|count(?:_if)?|fill(?:_n)?"
                 r"|copy(?:_n|_if)?|(?:min|max|minmax)(?:_element)?|reverse|rotate|transform|unique|remove_if|lower_bound"
                 r"|upper_bound|equal|mismatch|search|generate|replace|for_each|nth_element|ranges::\w+)(?=[(<])",
    "array": "std::array", "atomic": r"std::(?:atomic\w*|memory_order\w*)",
    "bit": "std::(?:bit_cast|countl_zero|countr_zero|popcount|bit_width)",
    "cerrno": "errno", "chrono": "std::chrono", "climits": "(?:U?INT|U?LONG|CHAR)_(?:MAX|MIN|BIT)",
    "cmath": r"std::(?:sqrt|exp|exp2|log|log2|log1p|expm1|pow|abs|isnan|isinf|isfinite|floor|ceil|round|nearbyint|rint|fma|tanh"
             r"|sin|cos|erf|ldexp|frexp|signbit|copysign|hypot|nextafter|trunc|fmod)(?=\()",
    "condition_variable": "std::condition_variable", "cstdint": r"u?int(?:8|16|32|64|ptr)_t",
    "cstdio": "std::(?:printf|fprintf|snprintf|fopen|fclose|FILE|fread|fwrite|fflush|fputs|puts)",
    "cstdlib": "std::(?:getenv|abort|exit|_Exit|strto[dfl]+|ato[fi]|malloc|free|aligned_alloc)",
    "cstring": "std::(?:mem(?:cpy|set|cmp|move|chr)|str(?:len|n?cmp|error|chr|str))", "ctime": "std::(?:time_t|tm|strftime)",
    "deque": "std::deque", "filesystem": "std::filesystem", "fstream": "std::[io]?fstream",
    "functional": "std::(?:function|less|greater|hash|reference_wrapper|ref|cref|equal_to|invoke)",
    "iomanip": "std::(?:setw|setprecision|setfill|quoted)", "iostream": "std::(?:cout|cerr|cin)",
    "iterator": "std::(?:back_inserter|istreambuf_iterator|make_move_iterator|inserter|distance)", "limits": "std::numeric_limits",
    "list": "std::list", "map": "std::(?:multi)?map", "memory": "std::(?:unique_ptr|shared_ptr|weak_ptr|make_unique|make_shared)",
    "mutex": "std::(?:mutex|lock_guard|unique_lock|scoped_lock|once_flag|call_once)", "numeric": "std::(?:accumulate|iota|gcd|lcm)",
    "optional": "std::(?:optional|nullopt)", "random": r"std::(?:mt19937\w*|uniform_\w+|random_device)",
    "set": "std::(?:multi)?set",
    "span": "std::span", "sstream": "std::[io]?stringstream", "string": "std::(?:string|to_string|sto[dil]+)",
    "string_view": "std::string_view", "system_error": "std::(?:errc|error_code|system_error)",
    "thread": "std::(?:j?thread|this_thread)",
    "tuple": "std::(?:tuple|make_tuple|tie|apply)", "type_traits":
        r"std::(?:is_\w+_v|enable_if_t|conditional_t|remove_\w+_t|remove_cvref_t|decay_t|common_type_t"
        r"|make_(?:un)?signed_t|invoke_result_t)",
    "unordered_map": "std::unordered_map", "unordered_set": "std::unordered_set",
    "utility": "std::(?:move|forward|pair|swap|exchange|declval|index_sequence)",
    "variant": "std::(?:variant|visit|get_if|monostate)",
    "vector": "std::vector",
}.items()}
ALSO = {  # what the standard, or every library there is, promises of a header
    "algorithm": {"utility"}, "filesystem": {"chrono", "string", "system_error"}, "fstream": {"string"}, "functional": {"utility"},
    "map": {"utility"}, "memory": {"utility"}, "sstream": {"string"}, "stdexcept": {"string"}, "string": {"string_view", "utility"},
    "tuple": {"utility"}, "unordered_map": {"utility"}, "vector": {"utility"}, "array": {"utility"}, "optional": {"utility"},
    "set": {"utility"},
    "iostream": {"string"}, "variant": {"utility"}, "stdint.h": {"cstdint"}, "string.h": {"cstring"}, "deque": {"utility"},
}
NOT_CODE = re.compile(r'//.*|"(?:\\.|[^"\\\n])*"')

# What a namespace contains: types, the namespaces around them, and the braces that end both.
SCOPES = re.compile(r"\bnamespace\s+((?:inline\s+)?[\w:]*)\s*\{|(?:(?:struct|class|union)\s+(?:alignas\([^)]*\)\s*)?"
                    r"|enum\s+(?:class\s+)?)([A-Za-z_]\w*)\s*(?:final\s*)?(?::[^:;{][^;{]*)?\{|\{|\}")
NOT_TYPES = re.compile(r'R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|' r"'(?:\\.|[^'\\\n])*'|"
                       r'^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*',
                       re.DOTALL | re.MULTILINE)

# A guard: a type that is not copied and whose destructor puts something back. One without a name ends at once, so that its
# constructors are [[nodiscard]], also those of a type derived from it.
UNCOPIED = re.compile(r"^[ \t]*(\w+)\(const \1&\) = delete;", re.MULTILINE)
DERIVED = re.compile(r"^[ \t]*(?:struct|class) (\w+)(?: final)? : (?:public )?(\w+) \{", re.MULTILINE)

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def level_of(path):
    best = max((p for p in LEVELS if path.startswith(p)), key=len, default=None)
    return None if best is None else LEVELS[best]


def check_include(root, path, quote, target):
    """Yields the rules that the inclusion of `target` by `path` breaks."""
    if not path.startswith(("cuda/", "tests/emulators/")) and CUDA_HEADER.match(target) and not target.startswith("cuda/"):
        yield f"{target} is a CUDA header: only cuda/ and its emulator include those"
        return
    if target.startswith(("torch/", "ATen/", "c10/")) and not path.startswith(("torch/", "examples/torch/", "tests/torch/")):
        yield f"{target}: only examples/torch and tests/torch include the room of libtorch's names"
    if target == OF_COMMIT and path != ITS_READER:
        yield f"{target}: each commit would compile this file again; call the functions of {ITS_READER[:-4]}.h"
    if quote == "<" or target in GENERATED:
        return
    own = level_of(path)
    if own == 9 and not os.path.exists(os.path.join(root, target)):
        beside = os.path.join(os.path.dirname(path), target)
        if os.path.exists(os.path.join(root, beside)):
            return  # a test's own header may be named from its folder
    other = level_of(target)
    if other is None or not os.path.exists(os.path.join(root, target)):
        yield f'"{target}" is not a path from the repository root'
        return
    if own is None:
        return  # reported once for the file
    if target.startswith("cuda/") and not path.startswith(("cuda/", "tests/")) and path not in CUDA_DOOR:
        yield f"{target}: nobody includes cuda/ but {', '.join(sorted(CUDA_DOOR))}"
    if other > own:
        yield f"{target} is of level {other}, above this file's level {own}"
    for folders in FOLDERS:
        at = {which: next((i for i, folder in enumerate(folders) if name.startswith(folder)), None)
              for which, name in ((0, path), (1, target))}
        if at[0] is not None and at[1] is not None and at[1] > at[0]:
            yield f"{target}: {folders[at[0]][:-1]} comes before {folders[at[1]][:-1]} and does not include it"
    for a, b in (("layers/", "optim/"), ("optim/", "layers/")):
        if path.startswith(a) and target.startswith(b):
            yield f"{target}: {a[:-1]} and {b[:-1]} are neighbours and do not include each other"


def mirrors_nothing(root, path):
    """Returns the folder of tests/ that has no counterpart in the tree, or None."""
    folder = os.path.dirname(path)[len("tests/"):]
    if not path.startswith("tests/") or folder.split("/")[0] in TESTS_OF_THEIR_OWN:
        return None
    there = any(os.path.isdir(os.path.join(root, above, folder)) for above in ("", "framework"))
    return None if folder and there else os.path.dirname(path)


def standard_headers(root, path, known):
    """Returns the standard headers that a file includes, itself or by headers of the project."""
    if path not in known:
        known[path] = set()  # for headers that include each other
        try:
            with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
                includes = [found.groups() for found in map(INCLUDE.match, file) if found]
        except OSError:
            return known[path]
        for quote, target in includes:
            if quote == "<":
                known[path] |= {target} | ALSO.get(target, set())
            else:
                beside = os.path.join(os.path.dirname(path), target)
                known[path] |= standard_headers(root, target if os.path.exists(os.path.join(root, target)) else beside, known)
    return known[path]


def missing_headers(root, path, lines, known):
    """Yields (line, rule) for the first name of each standard header that is used and not included."""
    missing = {h: name for h, name in STANDARD.items() if h not in standard_headers(root, path, known)}
    in_text = False  # of a raw string over several lines
    for number, line in enumerate(lines, 1):
        if in_text:
            if ')"' not in line:
                continue
            line = line.split(')"', 1)[1]
        code = NOT_CODE.sub("", line)
        in_text = 'R"(' in line and ')"' not in line.split('R"(')[-1]
        if "std::" not in code and "_t" not in code and "errno" not in code and "_M" not in code:
            continue
        for header in [h for h, name in missing.items() if name.search(code)]:
            yield number, f"{missing.pop(header).search(code).group()} is of <{header}>, which is not included"


def named_types(text):
    """Yields (name, line) of each type that a file defines in a named namespace."""
    text = NOT_TYPES.sub(lambda found: "\n" * found.group().count("\n"), text)
    scopes = []  # of each open brace: the namespace, or None
    for found in SCOPES.finditer(text):
        if found.group() == "}":
            del scopes[-1:]
            continue
        if found.group(2) and None not in scopes and "" not in scopes:
            yield "::".join([*scopes, found.group(2)]), text.count("\n", 0, found.start()) + 1
        scopes.append(None if found.group(1) is None else found.group(1).replace("inline", "").strip())


def guards(text):
    """Yields (name, begin, end) of each guard of a file: where its definition begins and its deleted copy is."""
    for found in UNCOPIED.finditer(text):
        name = found.group(1)
        heads = list(re.finditer(rf"\b(?:class|struct) {name}\b[^;{{]*\{{", text[:found.start()]))
        if heads and re.search(rf"(?<!virtual )~{name}\(", text[heads[-1].end():]):
            yield name, heads[-1].start(), found.start()


def unmarked(name, text, begin, end):
    """Yields the lines of a type's constructors that are not [[nodiscard]]."""
    for found in re.finditer(rf"(?:^|[{{;}}])([^\n;{{}}/~]*?)\b{name}\((?!const {name}&|{name}&&)", text[begin:end], re.MULTILINE):
        before = found.group(1).strip()
        if re.fullmatch(r"(?:\[\[nodiscard\]\]|explicit|constexpr|inline|\s)*", before) and "[[nodiscard]]" not in before:
            yield text.count("\n", 0, begin + found.start(1)) + 1


def too_large(path, text):
    """Yields (line, rule) for functions that are too long, and for classes with too many data members."""
    for kind, name, line, size in sizes(text):
        if kind == "function" and size > MAX_FUNCTION and f"{path}: {name}" not in LONG_FUNCTIONS:
            yield line, (f"{name} has {size} lines, over {MAX_FUNCTION}: split it, or give the reason in LONG_FUNCTIONS of "
                         "scripts/check_layers.py")
        if kind == "class" and size > MAX_MEMBERS and f"{path}: {name}" not in LARGE_CLASSES:
            yield line, (f"{name} has {size} data members, over {MAX_MEMBERS}: make a class of each task, or give the reason in "
                         "LARGE_CLASSES of scripts/check_layers.py")


def files(root):
    for folder, subfolders, names in os.walk(root):
        skipped = SKIPPED_FOLDERS | (SKIPPED_AT_THE_TOP if folder == root else set())
        subfolders[:] = sorted(f for f in subfolders if f not in skipped and (not f.startswith(".") or f == ".ci"))
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")
            if name.endswith(TEXT) or path.startswith(".ci/"):
                yield path


def strays(paths):
    """Returns the committed files that are in no room of the tree."""
    return [path for path in paths if path.split("/")[0] not in AT_THE_TOP or path.endswith(MADE)]


def committed(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True, check=False)
    return listed.stdout.split("\0")[:-1] if os.path.exists(os.path.join(root, ".git")) else []


def public_headers(root):
    """Yields where the table of public headers in docs/build.md differs from what is installed as public."""
    installs, page = os.path.join(root, "scripts/cmake/HalfstepInstall.cmake"), os.path.join(root, "docs/build.md")
    if not os.path.exists(installs) or not os.path.exists(page):
        return
    with open(installs, encoding="utf-8") as file:
        listed = set(re.search(r"set\(public_headers ([^)]*)\)", file.read()).group(1).split())
    with open(page, encoding="utf-8") as file:
        table = set(re.findall(r"^\| `([\w/]+\.h)` \|", file.read(), re.MULTILINE))
    for header in sorted(table ^ (listed | {"halfstep_app.h", "halfstep_predict.h"})):
        yield "docs/build.md", 1, f"{header} is public in one of this table and {installs[len(root) + 1:]}, not in both"


def thread_local_rows(root):
    """Returns the lines of the table of thread-local variables: {(variable, file's name): line}."""
    path = os.path.join(root, THREAD_LOCAL_TABLE)
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        rows = [(THREAD_LOCAL_ROW.match(line), number) for number, line in enumerate(file, 1)]
    return {row.groups(): number for row, number in rows if row}


def violations(root):
    """Returns all violations as (path, line, rule)."""
    listed, seen = thread_local_rows(root), set()
    found, known, types, guarding, derived = [], {}, {}, set(), []
    found += [(path, 1, "a command left this file behind, or AT_THE_TOP of scripts/check_layers.py lacks its folder")
              for path in strays(committed(root))]
    found += public_headers(root)
    for path in files(root):
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
        is_code, riddles, wide = path.endswith(CODE), 0, 0
        is_narrow = path.endswith(LICENSED) and not path.endswith(".def")
        if is_code and level_of(path) is None:
            found.append((path, 1, "this file has no level: add its folder to the list of levels in scripts/check_layers.py"))
        lost = mirrors_nothing(root, path) if is_code else None
        if lost:
            found.append((path, 1, f"{lost} mirrors no folder of the tree: move it, or name it in TESTS_OF_THEIR_OWN "
                          "of scripts/check_layers.py"))
        if path.endswith(LICENSED) and "/corpus/" not in path and not any(LICENSE in line for line in lines[:2]):
            found.append((path, 1, f"has no line with {LICENSE}"))
        if is_code and len(lines) > MAX_LINES + 1 and path not in LONG_FILES:
            found.append((path, len(lines),
                          f"over {MAX_LINES} lines: split it, or give the reason in LONG_FILES of scripts/check_layers.py"))
        if path.endswith((".h", ".cpp", ".cuh", ".cu")) and not path.startswith(("tests/", "examples/", "benchmarks/")):
            found += [(path, line, rule) for line, rule in too_large(path, "\n".join(lines))]
            for name, line in named_types("\n".join(lines)):
                first = types.setdefault(name, path)
                if first != path:
                    found.append((path, line, f"{name} is defined in {first} too"))
        if is_code and not path.startswith(("tests/", "examples/", "benchmarks/")):
            text = "\n".join(lines)
            for name, begin, end in guards(text):
                guarding.add(name)
                found += [(path, line, UNMARKED) for line in unmarked(name, text, begin, end)]
            derived += [(path, text, d) for d in DERIVED.finditer(text)]
        if is_code and not path.endswith(".def"):  # what includes a table of rows has their types
            found += [(path, number, rule) for number, rule in missing_headers(root, path, lines, known)]
        for number, line in enumerate(lines, 1):
            include = INCLUDE.match(line) if is_code else None
            if include:
                found += [(path, number, rule) for rule in check_include(root, path, *include.groups())]
            if is_code and path != ROAD and not path.startswith("tests/") and OFF_ROAD.search(line):
                found.append((path, number, f"autocast::apply is called in {ROAD} only: call apply_policy()"))
            if is_code and path != WIDE_VECTORS and not path.startswith("tests/") and WIDE_VECTOR.search(line):
                found.append((path, number,
                              "a CPU may have no vectors so wide: use Lanes in with_lanes (framework/backend/cpu/lanes.h)"))
            local = THREAD_LOCAL.search(NOT_CODE.sub("", line)) if is_code and not path.startswith("tests/") else None
            if local:
                seen.add((local.group(1), os.path.basename(path)))
                if (local.group(1), os.path.basename(path)) not in listed:
                    found.append((path, number, f"thread_local {local.group(1)} is not in the table of {THREAD_LOCAL_TABLE}: "
                                  "pass an argument, or add a row with its writer, its reader and what it changes"))
            if is_code and not path.startswith(("tests/", "examples/", "benchmarks/")) and path not in OF_LOCALE_ALLOWED \
                    and OF_LOCALE.search(line.split("//")[0]):
                found.append((path, number, "the program's locale changes this: use framework/base/number_text.h or text_stream.h"))
            if is_code and path.startswith(("framework/", "layers/", "optim/", "amp/")) and \
                    (DESTROYED.search(line) and (line.startswith(("const ", "static ", "thread_local ")) or "static " in line)):
                found.append((path, number,
                              "exit() destroys this while threads may use it: static auto& x = *new ..., or of_this_thread()"))
            if is_code and path.startswith("framework/ops/") and SAVED_BY_NUMBER.search(line):
                found.append((path, number,
                              "a saved tensor is read by number: name its place by an enum, or read a single one by saved()"))
            wide += is_narrow and len(line) > MAX_COLUMNS
            if is_narrow and len(line) > MAX_COLUMNS and wide > WIDE_ALLOWED.get(path, 0):
                found.append((path, number, f"{len(line)} columns, over {MAX_COLUMNS}: wrap the line"))
            riddle = RIDDLE.search(line)
            riddles += riddle is not None
            if riddle and riddles > RIDDLES_ALLOWED.get(path, 0):
                found.append((path, number, f'"{riddle.group()}" makes a riddle of the sentence: say it in plain words'))
            word = None if path in WORKPLACE_EXEMPT else WORKPLACE.search(line)
            if word:
                found.append((path, number, f'"{word.group(0)}" speaks of the place the code was written in'))
    found += [(THREAD_LOCAL_TABLE, line, f"no thread_local {name} is in {file}: delete its row")
              for (name, file), line in listed.items() if (name, file) not in seen]
    for path, text, d in derived:
        if d.group(2) in guarding:
            end = re.compile(r"\};").search(text, d.end())
            found += [(path, line, UNMARKED) for line in unmarked(d.group(1), text, d.start(), end.end() if end else len(text))]
    return found


UNMARKED = "a guard without a name ends at once: its constructors are [[nodiscard]]"
UNLICENSED = "#pragma once\n// text\n"  # the planted file that gets no line of the license
PLANTED = [  # path, text, part of the rule expected; None: legal
    ("scripts/cmake/HalfstepInstall.cmake", "# " + LICENSE + "\nset(public_headers halfstep.h\n    layers/nn.h)\n", None),
    ("docs/build.md", "| `halfstep.h` | all |\n| `optim/optim.h` | no |\n| `layers/nn.h` | layers |\n| `halfstep_app.h` | 1 |\n"
     "| `halfstep_predict.h` | 2 |\n", "optim/optim.h is public in one of this table and"),
    ("framework/base/a.h", "#pragma once\n", None),
    ("framework/base/up.cpp", '#include "framework/tensor/a.h"\n', "is of level 2, above this file's level 0"),
    ("framework/tensor/a.h", '#include "framework/base/a.h"\n', None),
    ("framework/tensor/cuda.cpp", "#include <cuda_runtime.h>\n", "only cuda/ and its emulator"),
    ("framework/math/blas.h", "#  include <cublasLt.h>\n", "only cuda/ and its emulator"),
    ("framework/backend/registry.cpp", '#include "cuda/a.h"\n', None),
    ("framework/backend/other.cpp", '#include "cuda/a.h"\n', "nobody includes cuda/"),
    ("framework/autograd/a.h", '#include "amp/policy/policy.h"\n#include "amp/autocast/autocast.h"\n', None),
    ("framework/autograd/up.cpp", '#include "amp/step/grad_scaler.h"\n', "is of level 7, above this file's level 4"),
    ("framework/ops/relative.cpp", '#include "registry.h"\n', "not a path from the repository root"),
    ("framework/ops/side_road.cpp", "bool b = autocast::apply(name, policy, in, advice);\n", "call apply_policy()"),
    ("framework/ops/core/call.cpp", "bool b = autocast::apply(name, policy, in, advice);\n", None),
    ("framework/ops/saved.cpp", "Tensor x = ctx.saved(), y = ctx.saved(kY);\n", None),
    ("framework/backend/cpu/wide.cpp", "typedef float V __attribute__((vector_size(64)));\n", "no vectors so wide"),
    ("framework/base/listed.cpp", "thread_local constinit T* listed{};  // thread_local too\n", None),
    ("framework/base/hidden.cpp", "static thread_local Map<int, T> hidden(1);\n",
     "thread_local hidden is not in the table"),
    ("docs/tour.md", "| variable | what it changes |\n| --- | --- |\n| `listed`, `listed.cpp` | a, b |\n"
     "| `gone`, `listed.cpp` | a |\n", "no thread_local gone is in listed.cpp"),
    ("framework/ops/saved_by_number.cpp", "Tensor y = ctx.saved(1);\n", "a saved tensor is read by number"),
    ("framework/ops/absent.cpp", '#include "framework/ops/absent.h"\n', "not a path from the repository root"),
    ("framework/io/locale.cpp", '#include <cstdlib>\ndouble v = std::strtod("1", nullptr);\n', "the program's locale changes this"),
    ("apps/locale.cpp", 'auto s = formatted("%.3e", 0.5);\n', "the program's locale changes this"),
    ("apps/no_locale.cpp", 'auto s = formatted("%04d %s", a % b, "100 % of it");  // std::stod\n', None),
    ("optim/at_exit.cpp", "#include <map>\nstatic const std::map<int, int> all{{1, 2}};\n", "exit() destroys this"),
    ("optim/kept.cpp", "#include <map>\nstatic const auto& all = *new std::map<int, int>{{1, 2}};\n", None),
    ("framework/ops/long.cpp", "\n" * 601, "over 600 lines"),
    ("framework/ops/not_long.cpp", "\n" * 600, None),
    ("layers/long.cpp", "struct A {\n  A() : b{1}, c(2) {\n" + "  f({}, \"}\");\n" * 60 + "  }\n  int b, c;\n};\n",
     "c has 62 lines, over 60"),
    ("layers/lambda.cpp",
     "void f(int x = 1) {\n" + "  g([] { return 1; });\n" * 58 + "}\nint rows[] = {\n" + "  1,\n" * 80 + "};\n", None),
    ("optim/long.cpp", "int\nO::f()\n    const {\n" + "  // text }\n" * 60 + "}\n", "O::f has 62 lines, over 60"),
    ("layers/large.h", "#pragma once\nclass Large {\n public:\n  void f(int a, int b);\n\n private:\n"
     "  int a_ = g(1, 2), *b_, c_[2];\n"
     "  struct { int x, y; } d_;\n  struct Own { int z; };\n  enum { e, f };\n  static int s_;\n" +
     "".join(f"  T<int, U<int>> m{i}_{{1, 2}};\n" for i in range(12)) + "};\n", "Large has 16 data members, over 15"),
    ("layers/not_large.h", "#pragma once\nclass Fits {\n" + "".join(f"  int m{i}_ = 0;\n" for i in range(15)) +
     "  using X = int;\n  friend class Y;\n  template <class T>\n  T get() const { int x; return x; }\n};\nstruct Record {\n" +
     "".join(f"  int m{i};\n" for i in range(40)) + "};\n", None),
    ("tests/ops/long_test.cpp", "TEST_CASE() {\n" + "  f();\n" * 100 + "}\n", None),
    ("framework/elsewhere/a.cpp", "\n", "has no level"),
    ("amp/policy/policy.h", '#include "framework/base/a.h"\n', None),
    ("amp/policy/policy.cpp", '#include "framework/tensor/a.h"\n', "is of level 2, above this file's level 0"),
    ("amp/autocast/autocast.h", '#include "framework/tensor/a.h"\n', None),
    ("amp/step/grad_scaler.h", '#include "optim/a.h"\n', None),
    ("amp/new_part.h", "\n", "has no level"),
    ("cuda/a.h", '#include <cuda_runtime.h>\n#include "framework/backend/registry.cpp"\n', None),
    ("cuda/up.cu", '#include "framework/ops/relative.cpp"\n', "is of level 5, above this file's level 3"),
    ("layers/a.h", '#include "framework/autograd/a.h"\n', None),
    ("layers/side.cpp", '#include "optim/a.h"\n', "neighbours"),
    ("optim/a.h", '#include "framework/tensor/a.h"\n', None),
    ("optim/side.cpp", '#include "layers/a.h"\n', "neighbours"),
    ("optim/up.cpp", '#include "apps/a.h"\n', "is of level 8, above this file's level 6"),
    ("apps/a.h", '#include "amp/step/grad_scaler.h"\n#include <CLI/CLI.hpp>\n#include "generated/halfstep_release.h"\n', None),
    ("apps/terminal/build_info.cpp", '#include "generated/halfstep_version.h"\n', None),
    ("apps/version.cpp", '#include "generated/halfstep_version.h"\n', "each commit would compile this file again"),
    ("apps/schema/a.h", "#pragma once\n", None),
    ("torch/nn/a.h", '#include "layers/a.h"\n', None),
    ("apps/commands/room.cpp", "#include <torch/torch.h>\n", "only examples/torch and tests/torch include the room"),
    ("benchmarks/room.cpp", '#include "torch/nn/a.h"\n', "only examples/torch and tests/torch include the room"),
    ("layers/room.h", "#pragma once\n#include <ATen/ATen.h>\n", "only examples/torch and tests/torch include the room"),
    ("examples/torch/a.cpp", "#include <torch/torch.h>\n", None),
    ("apps/catalog/a.h", '#include "apps/schema/a.h"\n', None),
    ("apps/schema/up.cpp", '#include "apps/catalog/a.h"\n', "apps/schema comes before apps/catalog"),
    ("apps/build/up.cpp", '#include "tests/ops/a.h"\n', "is of level 9, above this file's level 8"),
    ("apps/test.cpp", '#include "tests/ops/a.h"\n', "is of level 9, above this file's level 8"),
    ("tests/ops/a.h", '#include "apps/a.h"\n#include "cuda/a.h"\n', None),
    ("tests/ops/a_test.cpp", '#include "a.h"\n', None),
    ("tests/fuzz/a.cpp", "\n", None),
    ("tests/ops/elsewhere/a_test.cpp", "\n", "tests/ops/elsewhere mirrors no folder"),
    ("tests/a_test.cpp", "\n", "tests mirrors no folder"),
    ("layers/std.h", "#pragma once\n#include <algorithm>\n#include <cstdint>\n#include <vector>\n", None),
    ("layers/std.cpp", '#include "layers/std.h"\nstd::vector<int64_t> v(std::min(1, 2));  // std::optional, "std::map"\n', None),
    ("layers/no_std.cpp",
     '#include "layers/std.h"\nconst char* s = "\\"std::map";\nint64_t x = std::numeric_limits<int64_t>::max();\n',
     "of <limits>, which is not included"),
    ("layers/clamp.cpp", '#include <vector>\nint x = std::clamp(1, 2, 3);\n', "of <algorithm>, which is not included"),
    ("framework/io/names.h", "namespace halfstep {\nstruct Twice {};\nnamespace {\nstruct Own {};\n}\n"
     "namespace io {\nstruct Once {};\n}\n}\n", None),
    ("layers/names.h", "namespace halfstep {\nnamespace {\nstruct Own {};\n}\nstruct Once {};\nstruct Twice;\n}\n", None),
    ("layers/twice.h", "namespace halfstep {\nclass Twice final : Base {\n};\n}\n",
     "halfstep::Twice is defined in framework/io/names.h too"),
    ("layers/free.h", UNLICENSED, "has no line with SPDX"),
    ("layers/guard.h", "#pragma once\nclass Kept {\n public:\n  [[nodiscard]] explicit Kept(int x);\n  ~Kept();\n"
     "  Kept(const Kept&) = delete;\n  void use() { other.Kept(1); }\n};\n"
     "struct Also : Kept { [[nodiscard]] Also() : Kept(1) {} };\n"
     "class Base {\n public:\n  Base(int x);\n  virtual ~Base();\n  Base(const Base&) = delete;\n};\n"
     "struct Value {\n  Value(int x);\n};\n", None),
    ("layers/no_mark.h", "#pragma once\nclass Lost {\n public:\n  explicit Lost(int x);\n  ~Lost();\n"
     "  Lost(const Lost&) = delete;\n};\n", "its constructors are [[nodiscard]]"),
    ("layers/derived_mark.h", "#pragma once\nstruct Third : Kept { Third() : Kept(1) {} };\n",
     "its constructors are [[nodiscard]]"),
    ("layers/second_mark.h", "#pragma once\nclass Two {\n public:\n  [[nodiscard]] Two();\n  Two(int x) : Two() { f(x); }\n"
     "  ~Two();\n  Two(const Two&) = delete;\n};\n", "its constructors are [[nodiscard]]"),
    ("docs/a.md", "measured in /" + "work/x\n", "the place the code was written in"),
    ("README.md", "docs/a.md, ~/x, https://host/home/page\n", None),
    ("docs/riddle.md", "what the file " + "tells\n", "makes a riddle of the sentence"),
    ("layers/riddle.h", "#pragma once\n// Who" + "ever comes\n", "makes a riddle of the sentence"),
    ("scripts/seek.py", "at = log.tell()  # understands, tell" + "tale\n", None),
    ("layers/wide.h", "#pragma once\n//" + " word" * 30 + "\n", "columns, over 132"),
    ("layers/wide.def", "//" + " word" * 30 + "\n", None),
]


def self_test():
    wrong = []
    with tempfile.TemporaryDirectory() as root:
        for path, text, _ in PLANTED:
            os.makedirs(os.path.dirname(os.path.join(root, path)) or root, exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                licensed = path.endswith(LICENSED) and text != UNLICENSED
                file.write((f"// {LICENSE}\n" if licensed else "") + text)
        found = violations(root)
        for path, _, expected in PLANTED:
            rules = [rule for where, _, rule in found if where == path]
            as_expected = not rules if expected is None else len(rules) == 1 and expected in rules[0]
            if not as_expected:
                wrong.append(f"{path}: expected {expected or 'no violation'}, got {rules or 'none'}")
    if strays(["README.md", "six-1.16.0.whl", "layers/linear.o", "layers/linear.h"]) != ["six-1.16.0.whl", "layers/linear.o"]:
        wrong.append("files that a command left behind are not found")
    print("\n".join(wrong) if wrong else f"check_layers: all {len(PLANTED)} planted files judged as they should be")
    return 1 if wrong else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    root = arguments[0] if arguments else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    found = violations(os.path.abspath(root))
    for path, line, rule in found:
        print(f"{path}:{line}: {rule}")
    print(f"check_layers: {len(found)} violation(s)" if found else "check_layers: every include is of an allowed level")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
