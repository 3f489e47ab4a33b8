# SPDX-License-Identifier: Apache-2.0
"""The steps of each part of gpu_suite.py, and how their output is read."""
import dataclasses
import datetime
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import records  # noqa: E402
from mlp_tables import print_products, print_tables  # noqa: E402
from torch_nets import GPU_NETS  # noqa: E402


def use_build(folder):
    global BUILD, PROGRAM, KERNEL_TESTS, TESTS
    tests = folder / "tests"
    BUILD, PROGRAM, KERNEL_TESTS, TESTS = folder, folder / "halfstep", tests / "test_cuda_kernels", tests / "test_cuda"


use_build(ROOT / "build/gpu")
SMOKE_CASES = {"mlp_4096": (4096, 4096, 3), "mlp_512": (512, 4096, 3), "mlp_3x256": (128, 256, 3)}
# Rows of an odd length: no 16-byte loads, and the library has few kernels for them.
ODD_CASES = {"mlp_w4095": (512, 4095, 3), "mlp_513": (513, 4096, 3)}
RESNET, GPT2 = "ResNet-18 224, batch 64", "GPT-2 small, seq 1024, batch 8"
COMPARE_NETS = [sys.executable, "-u", "benchmarks/compare_torch_nets.py"]
SCALED = "encoder block|ResNet-18 224, batch 4|lstm 2x256|MLP 784-512-512-10"  # nets of the CPU's scaling
GPU_STATE = "name,compute_cap,driver_version,memory.total,clocks.sm,clocks.mem,power.draw,temperature.gpu"
UNFOLD = {"HALFSTEP_CUDA_DNN": "plain"}
PLAIN = {"HALFSTEP_CUDA_BLAS": "plain"} | UNFOLD
# The libraries' own kernels read and rewrite bytes that belong to nobody, which these two take for faults of ours.
SANITIZERS = {"memcheck": {}, "racecheck": PLAIN, "initcheck": PLAIN, "synccheck": {}}


@dataclasses.dataclass
class Step:
    part: str
    name: str
    command: list
    needs: str = ""        # program, nets or tests: has to be built before
    quiet: bool = False    # times are taken: not while a compiler runs
    limit: float = 120     # seconds, at most
    expect: float = 5      # seconds on an H100 beside 16 cores; --dry-run prints them and their sum
    least: float = 3       # with less than these it is not begun
    share: float = 1       # of the time that is left, at most
    env: dict = dataclasses.field(default_factory=dict)
    read: object = None    # (output, exit status) -> fields of the result's entry: result, state, why
    file: object = None    # a result that the command writes while it runs
    show: object = None    # prints a result
    expand: object = None  # (suite) -> the steps in place of this one, once its needs are there
    entry: object = None   # in suite.json


def benchmarks(*names):
    return [BUILD / "benchmarks" / name for name in names]


def packed_programs():
    return [PROGRAM, TESTS, KERNEL_TESTS, *benchmarks("nets", "bench_convolutions", "bench_uploads")]


def programs_of(part):
    """Returns the programs that a part runs."""
    if part == "scaling":
        return benchmarks("nets")
    if part == "questions":
        return [PROGRAM, TESTS, *benchmarks("nets", "bench_convolutions")]
    if part in ("test", "sanitize"):
        return [TESTS, KERNEL_TESTS]
    return [PROGRAM, *benchmarks("nets", "bench_convolutions")] if part == "bench" else packed_programs()


# ---- the machine

def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def find_tools():
    """Maps a program's name to its path, or to nothing. The toolkit is often installed without being on PATH."""
    folders = [os.environ.get(v, "") + "/bin" for v in ("CUDA_HOME", "CUDA_PATH")] + ["/usr/local/cuda/bin"]
    for pattern in ("/usr/local/cuda-*/bin", "/opt/nvidia/nsight-*/*", "/opt/nvidia/nsight-*/*/bin"):
        folders += sorted(glob.glob(pattern), reverse=True)
    path = os.pathsep.join([os.environ.get("PATH", ""), os.path.dirname(sys.executable), *folders])
    return {name: shutil.which(name, path=path) for name in
            ("nvidia-smi", "nvcc", "cmake", "ninja", "ctest", "compute-sanitizer", "ncu", "nsys")} | {"python": sys.executable}


def gpu_is_there(tools):
    listed = output_of(tools["nvidia-smi"], "-L") if tools["nvidia-smi"] else ""
    return listed.startswith("GPU") or os.path.exists("/dev/nvidia0")


# ---- the build

def build_stages(suite, wanted):
    """Yields the build as (its result, step). The program comes first: many steps can run while the tests are compiled."""
    if not wanted:
        return
    cmake = suite.tools["cmake"] or "cmake"
    generator = ["-G", "Ninja"] if suite.tools["ninja"] else []
    has_cuda = "ON" if suite.tools["nvcc"] or wanted != {"nets"} else "OFF"  # nets alone run on the CPU, too
    # No emulator: it is for machines without a GPU, and a third of the build.
    yield "", Step("build", "configure", [
        cmake, "-S", ".", "-B", BUILD, *generator, "-DCMAKE_BUILD_TYPE=Release", f"-DHALFSTEP_CUDA={has_cuda}",
        "-DHALFSTEP_TESTS=ON", "-DHALFSTEP_APPS=ON", "-DHALFSTEP_BENCHMARKS=ON", "-DHALFSTEP_EXAMPLES=OFF",
        "-DHALFSTEP_CUDA_HEADERS=OFF", *suite.cmake_arguments], limit=300, expect=10, read=read_configure)

    def stage(name, expect, targets):
        return name, Step("build", name, [cmake, "--build", BUILD, "-j", suite.a.jobs, "--target", *targets], limit=3600,
                          expect=expect)
    if "program" in wanted:
        yield stage("program", 130, ["halfstep_program"])
    if "nets" in wanted:
        yield stage("nets", 110, ["bench_nets"])
    if "tests" in wanted:
        yield stage("tests", 80, ["test_cuda", "test_cuda_kernels", "bench_uploads", "bench_convolutions", "bench_nets"])
    if "all" in wanted:
        yield stage("all", 300, ["all"])


def read_configure(output, code):
    missing = re.search(r'Could not find a package configuration file provided by "\w+"|Could NOT find \w+|No CUDA backend: .*'
                        r"|Could not find \w+ using", output)
    if code and missing:
        return {"state": "failed", "why": f"{missing.group().strip()}: see docs/build.md, On a machine with a GPU "
                                          "(scripts/vendor_deps.sh makes the folder deps/ that travels with the sources)"}
    return {"result": [line.partition("halfstep: ")[2] for line in output.splitlines() if "halfstep: " in line]}


# ---- reading output

def last_json(output):
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    return None


def read_json_line(output, code):
    result = last_json(output)
    return {} if result is None else {"result": result}


def read_doctest(output, code):
    """Returns the number of test cases that passed. A program that ran none has failed."""
    skipped = re.search(r"^SKIPPED: .*", output, re.MULTILINE)
    if skipped:
        return {"state": "failed", "why": f"there is a GPU, and yet: {skipped.group()}"}
    counts = re.search(r"test cases: +(\d+) \| +(\d+) passed \| +(\d+) failed", output)
    if not counts:
        return {"result": {"last": output.splitlines()[-1:]}}
    total, passed, failed = map(int, counts.groups())
    found = {"result": {"cases": total, "passed": passed, "failed": failed}}
    return found if total or code else found | {"state": "incomplete", "why": "this build has no such test"}


def read_probe(output, code):
    """Returns the library's ReLU mask at +0, -0 and NaN, as the test prints it."""
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith(("[doctest]", "==="))]
    found = read_doctest(output, code)
    return found | {"result": found.get("result", {}) | {"lines": lines}}


def read_plans(output, code):
    """Returns the library's plans as the tests print them: how many, the slowest to make, the least exact."""
    lines = [line for line in output.splitlines() if ", engine " in line]
    made = sorted(((float(m.group(1)), line) for line in lines if (m := re.search(r"made in ([\d.]+) ms", line))), reverse=True)
    found = read_doctest(output, code)
    return found | {"result": found.get("result", {}) | {
        "plans": len(lines), "refused_when_run": [line for line in lines if "CUDNN_STATUS_SUCCESS" not in line][:20],
        "slowest_to_make": [line for _, line in made[:10]]}}


def read_convolutions(output, code):
    start = output.find("{")
    return {"result": json.loads(output[start:])} if code == 0 and start >= 0 else {}


def show_convolutions(result):
    for row in result["rows"]:
        layout = "channels last" if row["channels_last"] else "rows"
        print(f"  {row['layer']:<22}{row['dtype']:<10}{layout:<15}{row['direction']:<9}{row['ms']:>9.4f} ms "
              f"{row['tflop_s']:>8.2f} TFLOP/s, first {row['first_ms']:.1f} ms")


def show_nets(result):
    for row in result["nets"]:
        print(f"  {row['row']:<34}{row['dtype']:<10}" + "  ".join(f"{side} {ms:.2f}" for side, ms in row["ms"].items()))
    for note in result["notes"]:
        print(f"  {note}")


def read_nets(output, code):
    found = read_json_line(output, code)
    return found | ({"state": "incomplete", "why": "not everything could be measured: see the notes in its result"} if code == 2
                    else {})


def read_bench(output, code):
    """Reads a run of `bench mlp --json`: the code on which the products of its arm ran."""
    result = last_json(output)
    if result is None:
        return {}
    arm = result["arms"][0]
    if "refused" in arm:
        return {"result": arm, "state": "incomplete", "why": arm["refused"].splitlines()[0]}
    kept = {k: arm[k] for k in ("products", "plain_products", "losses") if k in arm}
    if kept.get("plain_products"):
        return {"result": kept, "state": "failed", "why": f"{kept['plain_products']} products ran on the plain kernel"}
    if "products" not in kept and not code:
        return {"result": kept, "state": "incomplete", "why": "this halfstep does not say how its products ran"}
    return {"result": kept}


def read_kernels(output, code):
    """Returns the kernels of the last step, in order, from the table of ncu or that of nsys."""
    import csv
    rows, head = [], None
    for cells in csv.reader(line for line in output.splitlines() if line.startswith('"') or line.count(",") > 8):
        if "Kernel Name" in cells or "Duration (ns)" in cells:
            head = cells
        elif head and len(cells) == len(head):
            row = dict(zip(head, cells))
            value, unit = row.get("Metric Value") or row.get("Duration (ns)"), row.get("Metric Unit", "ns")
            us = float(value.replace(",", "")) * {"s": 1e6, "m": 1e3, "u": 1}.get(unit[:1], 1e-3)
            rows.append({"kernel": row.get("Kernel Name") or row.get("Name", ""), "us": round(us, 3),
                         "grid": row.get("Grid Size") or row.get("GrdX"), "block": row.get("Block Size") or row.get("BlkX")})
    if not rows:
        return {"state": "incomplete", "why": "no profiler could read the kernels: see suite.log"}
    # The steps are equal: the last one is the sequence that is repeated three times at the end, before the program's final work.
    names = [r["kernel"] for r in rows]
    step = next((rows[end - p:end] for end in range(len(rows), max(len(rows) - 9, 0), -1) for p in range(4, end // 3 + 1)
                 if names[end - p:end] == names[end - 2 * p:end - p] == names[end - 3 * p:end - 2 * p]), rows)
    return {"state": "passed", "why": "" if code == 0 else f"the profiler ended with {code}",
            "result": {"kernels": step, "count": len(step), "sum_us": round(sum(r["us"] for r in step), 1), "recorded": len(rows)}}


def show_kernels(result):
    for row in result["kernels"][:24]:
        print(f"  {row['us']:>10.2f} us  {row['grid'] or '':<18}{row['kernel'][:90]}")
    print(f"  {result['sum_us']:>10.2f} us in {result['count']} kernels")


def read_sanitizer(output, code):
    if "Device not supported" in output:
        return {"state": "incomplete", "why": "compute-sanitizer does not work on this machine: Device not supported"}
    found = read_doctest(output, code)
    summary = re.findall(r"^=+ (.*SUMMARY: .*)", output, re.MULTILINE)
    if code == 86:
        found |= {"state": "failed", "why": summary[-1] if summary else "errors were found"}
    return found


# ---- the parts

def mlp(case, arms, steps, *more):
    batch, width, layers = case
    return [PROGRAM, "bench", "mlp", "--device", "cuda", "--arms", arms, "--batch", batch, "--width", width, "--layers", layers,
            "--batches", 1, "--epochs", steps, "--warmup", 1, "--inner", 1, "--json", *more]


def resnet_step():
    """Returns the line that asks the benchmark of nets for a few steps of ResNet-18 in channels_last."""
    net = next(n for n in GPU_NETS if n["name"] == RESNET)
    return json.dumps({"model": net["config"], "input": net["input"], "dtype": "float16", "train": True, "seconds": 0,
                       "device": "cuda", "channels_last": True})


def profile(tools, command, given=""):
    """Returns the command under the available profiler: each kernel's time in a table of ncu or nsys. `given`: a line of input."""
    words = " ".join(str(w) for w in command)
    feed = f"printf '%s\\n' '{given}' | " if given else ""
    ways = []
    if tools["ncu"]:  # leaves the clocks as they are
        ways.append(f"{feed}'{tools['ncu']}' --clock-control none --csv --print-units base --metrics gpu__time_duration.sum "
                    + words)
    if tools["nsys"]:
        report = BUILD / "profile"
        ways.append(f"{{ {feed}'{tools['nsys']}' profile --force-overwrite true -o '{report}' {words} >'{report}.log' && "
                    f"'{tools['nsys']}' stats --force-export true --report cuda_gpu_trace --format csv '{report}.nsys-rep'; }}")
    return ["sh", "-c", " || ".join(ways) or "echo neither ncu nor nsys was found; exit 2"]


def compare(suite, name, *arguments, **fields):
    file = suite.out / name
    command = [sys.executable, "-u", "benchmarks/compare_torch_cuda.py", "--binary", PROGRAM, "--out", file,
               "--source", suite.data["source"], *arguments]
    return dict(command=command, file=file, read=read_compare, needs="program", quiet=True, **fields)


def read_compare(output, code):
    return {"state": "incomplete", "why": "not everything could be measured: see the notes in its result"} if code == 2 else {}


def smoke(suite):
    def step(name, command, **fields):
        return Step("smoke", name, command, **fields)
    torch = ("import json, torch; seen = torch.cuda.is_available() and torch.cuda.get_device_name(); "
             "print(json.dumps({'torch': torch.__version__, 'gpu': seen}))")
    steps = [
        step("gpu", [suite.tools["nvidia-smi"] or "nvidia-smi", f"--query-gpu={GPU_STATE}", "--format=csv"], limit=30,
             read=lambda output, code: {"result": output.splitlines()}),
        # Read from the disk while the compilers run, so that it is in memory when it is timed.
        step("pytorch", [sys.executable, "-c", torch], read=lambda output, code:
             {"state": "incomplete", "why": "no PyTorch: halfstep is measured alone"} if code else read_json_line(output, code)),
        step("devices", [PROGRAM, "devices", "--json"], needs="program", limit=60, read=read_json_line)]
    def products(cases):
        return [step(f"products {name} {arm}", mlp(case, arm, 3), needs="program", limit=60, read=read_bench,
                     env={"HALFSTEP_TUNE_FILE": ""}, show=lambda result, name=name, arm=arm:
                     print_products({"case": name, "rows": [result | {"variant": arm}]}))
                for name, case in cases.items() for arm in ("float16", "bfloat16")]

    def kernels(name, command, needs, given=""):
        return step(f"kernels {name}", profile(suite.tools, command, given), needs=needs, limit=90, expect=15, read=read_kernels,
                    show=show_kernels, env={"HALFSTEP_TUNE_FILE": ""})

    def kernels_of(name, arm):
        return kernels(f"{name} {arm}", mlp(SMOKE_CASES[name], arm, 4, "--graph", "off"), "program")
    # First what cannot be known without a GPU: the library's kernels for odd rows, its attention, and the time of our kernels, with
    # the update's and a gradient scaler's among them.
    steps += products(ODD_CASES)
    steps += [kernels_of("mlp_4096", "float16"),
              step("attention at odd lengths", [TESTS, "--test-case=attention's gradients at lengths*"], needs="tests", limit=60,
                   read=read_doctest),
              kernels("ResNet-18 channels_last float16", [BUILD / "benchmarks/nets"], "tests", resnet_step())]
    steps += products(SMOKE_CASES)
    steps += [kernels_of(name, arm) for name, arm in (("mlp_4096", "bfloat16"), ("mlp_512", "float16"), ("mlp_3x256", "float16"))]
    steps += [
        step("uploads", [BUILD / "benchmarks/bench_uploads"], needs="tests", quiet=True, limit=60, read=read_json_line),
        step("products' tests", [KERNEL_TESTS, "--source-file=*gemm_test.cpp,*relu_mask_test.cpp", "--test-case-exclude=probe*"],
             needs="tests", limit=120, read=read_doctest),
        step("cuDNN's engines", [KERNEL_TESTS, "--source-file=*cudnn_engines_test.cpp,*cudnn_rnn_weights_test.cpp"], needs="tests",
             limit=300, expect=60, read=read_plans, env={"HALFSTEP_SHOW_PLANS": "1"}),
        step("cuDNN's convolutions, attention and recurrent networks", [TESTS, "--source-file=*dnn_test.cpp,*recurrent_test.cpp"],
             needs="tests", limit=200, expect=30, read=read_doctest),
        step("probe of the library's mask", [KERNEL_TESTS, "--test-case=probe*"], needs="tests", limit=30, read=read_probe,
             show=lambda result: print("\n".join(f"  {line}" for line in result["lines"]))),
        step("bench", **compare(suite, "smoke_bench.json", "--rounds", 1, "--samples", 20, "--stream-only",
                                *[w for name in SMOKE_CASES for w in ("--case", name)],
                                "--halfstep-variants", "fp16,bf16,fp16_tuned,bf16_tuned", "--torch-variants", "fp16,bf16",
                                "--budget", 150, limit=200, expect=40, show=print_tables))]
    return steps


def copied_tests(label):
    """Returns what ctest would list."""
    synced = ["env", "HALFSTEP_SYNC=1", TESTS, "--test-case=with HALFSTEP_SYNC=1*"]
    commands = {"cuda": {"cuda": [TESTS, "--test-suite-exclude=sanitize"], "cuda.kernels": [KERNEL_TESTS], "cuda.sync": synced},
                "sanitize": {"cuda.sanitize": [TESTS, "--test-suite=sanitize"]}}
    return [{"name": name, "command": command} for name, command in commands[label].items()]


def ctest_steps(suite, part, label, make):
    """Yields a step for each ctest test of the label, with ctest's commands, one by one, so that each leaves a result."""
    command = [suite.tools["ctest"] or "ctest", "--test-dir", BUILD, "-L", f"^{label}$", "--show-only=json-v1"]

    def expand(suite):
        if suite.a.dry_run:
            return [step for test in copied_tests(label) for step in make(test["name"], test["command"])]
        listed = copied_tests(label) if suite.a.programs else json.loads(output_of(*map(str, command)) or '{"tests": []}')["tests"]
        steps = []
        for test in listed:
            env = next((p["value"] for p in test.get("properties", []) if p["name"] == "ENVIRONMENT"), [])
            for step in make(test["name"], test["command"]) if "command" in test else []:
                step.env = dict(e.split("=", 1) for e in env) | step.env
                steps.append(step)
        return steps or [Step(part, f"tests of label {label}", ["sh", "-c", "echo ctest lists none; exit 1"])]
    return Step(part, f"tests of label {label}", command, needs="tests", expand=expand)


def test(suite):
    def make(name, command):
        return [Step("test", name, command, needs="tests", limit=400, expect=100, read=read_doctest, env={"OMP_NUM_THREADS": "2"})]
    steps = [ctest_steps(suite, "test", "cuda", make)]
    if suite.a.cpu_tests:
        command = [suite.tools["ctest"] or "ctest", "--test-dir", BUILD, "-L", "^cpu$", "-j", suite.a.jobs, "--timeout", 240,
                   "--no-tests=error", "--output-on-failure"]
        steps.append(Step("test", "label cpu", command, needs="all", limit=900, expect=150))
    return steps


def bench(suite):
    # A machine that loses its sanitizers to the last benchmarks has lost more than one that loses a benchmark.
    share = 0.65 if "sanitize" in suite.parts else 1

    def keep(result):
        gpu = re.sub("[^a-z0-9]+", "-", (result["gpu_before"].get("name") or "cuda").lower()).strip("-")
        ended = bool(result["gpu_after"])
        for folder in [suite.out] + [ROOT / "benchmarks/results"] * ended:
            records.save(folder / f"{datetime.date.today().isoformat()}-{gpu}.json", result)
        print_tables(result)

    def expand(suite):  # the budget is known once it begins
        budget = round(max(0, suite.left() * share * 0.9))
        return [Step("bench", "compare_torch_cuda", **compare(suite, "bench.json", "--budget", budget), limit=3600, share=share,
                     least=30, expect=300, show=keep)]
    def expand_nets(suite):
        budget = round(max(0, min(300, suite.left() * share * 0.35)))
        command = [sys.executable, "-u", "benchmarks/compare_torch_nets.py", "--binary", BUILD / "benchmarks/nets",
                   "--device", "cuda", "--budget", budget]
        return [Step("bench", "nets", command, needs="tests", quiet=True, limit=420, least=30, expect=200,
                     share=share * 0.5, read=read_nets, show=show_nets)]

    def convolutions(name, env):
        return Step("bench", name, [BUILD / "benchmarks/bench_convolutions"], needs="tests", quiet=True, limit=60, expect=15,
                    env=env, read=read_convolutions, show=show_convolutions)
    return [convolutions("convolutions", {}), convolutions("convolutions by unfolding", UNFOLD),
            Step("bench", "nets", [], needs="tests", quiet=True, expand=expand_nets),
            Step("bench", "compare_torch_cuda", [], needs="program", quiet=True, expand=expand)]


def questions(suite):
    """What ten minutes on a GPU answer, with programs that were built before; each step leaves a result of its own."""
    def step(name, expect, command, **fields):
        return Step("questions", name, command, expect=expect, limit=fields.pop("limit", expect * 1.5 + 10), **fields)

    def kernels(name, expect, case):
        return step(f"kernels {name}", expect, profile(suite.tools, [BUILD / "benchmarks/nets"], json.dumps(case)), needs="tests",
                    read=read_kernels, show=show_kernels, env={"HALFSTEP_TUNE_FILE": ""})

    def nets(name, expect, *arguments):
        command = [*COMPARE_NETS, "--binary", BUILD / "benchmarks/nets", "--device", "cuda", "--seconds", 0.3,
                   "--budget", round(0.9 * expect), *arguments]
        return step(name, expect, command, needs="tests", quiet=True, read=read_nets, show=show_nets)

    def case(name, dtype, **more):
        net = next(n for n in GPU_NETS if n["name"] == name)
        return {"model": net["config"], "input": net["input"], "dtype": dtype, "train": True, "seconds": 0, "device": "cuda",
                **({"training": net["training"]} if "training" in net else {}), **more}
    rates = ("import sys, json; sys.path.insert(0, 'benchmarks'); import torch, torch_mlp; "
             "print(json.dumps(torch_mlp.ceilings(torch)))")
    big = RESNET.replace("64", "256")
    return [
        step("clocks", 2, [suite.tools["nvidia-smi"] or "nvidia-smi", f"--query-gpu={GPU_STATE}", "--format=csv"],
             read=lambda output, code: {"result": output.splitlines()}),
        step("devices", 5, [PROGRAM, "devices", "--json"], needs="program", read=read_json_line),
        step("copy and product rates", 8, [sys.executable, "-c", rates], quiet=True, read=read_json_line),
        kernels("GPT-2 float16", 35, case(GPT2, "float16")),
        *(kernels(f"ResNet-18 channels_last {dtype}", 15, case(big, dtype, channels_last=True))
          for dtype in ("float16", "bfloat16")),
        step("first layer", 20, [BUILD / "benchmarks/bench_convolutions", "--first-layer", "--batch", 256, "--rounds", 10],
             needs="tests", quiet=True, read=read_convolutions, show=show_convolutions),
        nets("nets", 80, "--match", f"{GPT2}|ResNet|lstm", "--variants", "eager,channels_last"),
        nets("PyTorch: GPT-2 compiled", 70, "--match", GPT2, "--dtypes", "bfloat16", "--torch-alone", "--variants",
             "compile,graph,max_autotune"),
        nets("PyTorch: ResNet-18 compiled", 40, "--match", big, "--torch-alone", "--variants", "channels_last+compile"),
        step("MLPs", 45, **compare(suite, "questions_mlp.json", "--rounds", 1, "--samples", 20, "--stream-only",
                                   "--case", "mlp_4096", "--case", "mlp_512", "--budget", 40, show=print_tables,
                                   *("--halfstep-variants", "fp16,bf16,fp16_tuned,bf16_tuned"),
                                   *("--torch-variants", "fp16_graph,bf16_graph,fp16_compile"))),
        *(step(f"verify {name}", expect, [PROGRAM, "verify", f"configs/{name}.json", "--set", "device=cuda", "--json"],
               needs="program", read=read_verify)
          for name, expect in (("digits_mlp", 6), ("digits_resnet", 10), ("digits_lstm", 9))),
        step("attention at odd lengths", 20, [TESTS, "--test-case=attention's gradients at lengths*"], needs="tests",
             read=read_doctest),
        step("PyTorch: products of 8 bits", 15, [sys.executable, "benchmarks/torch_scaled_mm.py", "--seconds", 0.1], quiet=True,
             read=read_json_line)]


def read_verify(output, code):
    """Equal bits or not; the certificate, less the hashes of the steps."""
    found = read_json_line(output, code)
    return {"result": {k: v for k, v in found["result"].items() if k != "steps"}} if "result" in found else found


def scaling(suite):
    """Nets beside PyTorch on 1, 2, 4, 8 and 16 threads of the CPU, as far as the machine has so many cores."""
    steps = []
    for threads in (1, 2, 4, 8, 16):
        file = suite.out / f"scaling_{threads}.json"
        command = [*COMPARE_NETS, "--binary", BUILD / "benchmarks/nets", "--threads", threads, "--rounds", 3, "--seconds", 0.3,
                   "--match", SCALED, "--json", file]
        steps.append(Step("scaling", f"{threads} threads", command, needs="nets", quiet=True, limit=180, expect=60, file=file))
    cores = os.cpu_count()
    few = [s for s in steps if int(s.name.split()[0]) > cores and not suite.a.dry_run]
    for step in few:
        step.command, step.file, step.needs, step.read = ["true"], None, "", lambda output, code: {
            "state": "incomplete", "why": f"this machine has {cores} cores"}
    return steps


def sanitize(suite):
    tool = suite.tools["compute-sanitizer"]
    if not tool and not suite.a.dry_run:
        return [Step("sanitize", "compute-sanitizer", [], read=lambda output, code:
                     {"state": "incomplete", "why": "compute-sanitizer was not found (it comes with the CUDA toolkit)"})]
    command = [tool or "compute-sanitizer", "--error-exitcode", 86, "--print-limit", 20, "--tool"]
    return [ctest_steps(suite, "sanitize", "sanitize", lambda name, test, kind=kind, env=env: [
        Step("sanitize", f"{kind} {name}", command + [kind] + test, needs="tests", limit=200, expect=60, env=env,
             read=read_sanitizer)])
        for kind, env in SANITIZERS.items()]


STEPS = {"smoke": smoke, "test": test, "bench": bench, "sanitize": sanitize, "questions": questions, "scaling": scaling}
