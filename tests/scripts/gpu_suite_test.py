#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu_suite.sh against stand-ins of its tools: its control flow, deadlines and result files, without a GPU.

    tests/scripts/gpu_suite_test.py           quick
    tests/scripts/gpu_suite_test.py Sweep     cut off at every half second of a run, in three ways
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = pathlib.Path(__file__).resolve().parent
TOOLS = ["nvidia-smi", "nvcc", "cmake", "ninja", "ctest", "compute-sanitizer", "ncu", "nsys"]
TORCH = '''
# As much of PyTorch as the benchmark asks for: everything is there, does nothing and costs nothing. A clock that ticks when it is
# read keeps warm-ups short.
import itertools, sys, time

class Anything:
    __version__ = "2.0"
    def __init__(self, *_, **known): self.__dict__.update(known)
    def __getattr__(self, name): return ANYTHING
    def __call__(self, *_, **__): return ANYTHING
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def __mro_entries__(self, bases): return (Anything,)  # what a class may derive from
    def __float__(self): return 1.0
    def __getitem__(self, key): return ANYTHING
    def __setitem__(self, key, value): pass
    def __iter__(self): return iter(())
    __matmul__ = __mul__ = __truediv__ = __rtruediv__ = __call__

ANYTHING = Anything()
number = lambda value: lambda *_: value
tensor = Anything(numel=number(1 << 20), element_size=number(4))
event = Anything(elapsed_time=number(2.0))
cuda = Anything(is_available=number(True), get_device_name=number("a stand-in"), mem_get_info=number((1 << 30, 1 << 30)),
                memory_allocated=number(0), max_memory_allocated=number(1000), Event=lambda *_, **__: event)
backends = Anything(cudnn=Anything(version=number(9)))
sys.modules["torch"] = Anything(cuda=cuda, backends=backends, version=Anything(cuda="13.0"), float16="float16", bfloat16="bfloat16",
                                float32="float32", randn=lambda *_, **__: tensor)
time.perf_counter = itertools.count(0, 0.01).__next__
'''


class Tree:
    """A folder with the suite, its tools and nothing else."""

    def __init__(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.temporary.name)
        for folder in ("tools", "scripts", "python", "benchmarks/results", "out"):
            (self.root / folder).mkdir(parents=True)
        for file in [*(ROOT / "scripts").glob("gpu_suite*"), *(ROOT / "benchmarks").glob("*.py")]:
            shutil.copy(file, self.root / file.relative_to(ROOT))
        for tool in TOOLS:
            shutil.copy(HERE / "stand_in.sh", self.root / "tools" / tool)
            (self.root / "tools" / tool).chmod(0o755)
        (self.root / "python/torch.py").write_text(TORCH)
        self.result, self.calls = self.root / "out/suite.json", self.root / "calls"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _ in range(400):  # children of a killed suite still use the folder for a moment
            if not any(self.is_here(process) for process in pathlib.Path("/proc").glob("[0-9]*")):
                break
            time.sleep(0.05)
        self.temporary.cleanup()

    def is_here(self, process):
        try:
            return os.readlink(process / "cwd").startswith(str(self.root))
        except OSError:
            return False

    def start(self, *arguments, fault="", delay=0, **env):
        self.calls.write_text("")
        return subprocess.Popen(
            ["bash", "scripts/gpu_suite.sh", *map(str, arguments)], cwd=self.root, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, env=os.environ | {
                "PATH": f"{self.root}/tools:{os.environ['PATH']}", "PYTHONPATH": str(self.root / "python"), "FAULT": fault,
                "PYTHONDONTWRITEBYTECODE": "1", "HALFSTEP_PYTHON": sys.executable, "HALFSTEP_COMMIT": "stand-in",
                "CALLS": str(self.calls), "DELAY": str(delay), "OUT": str(self.root / "out"), **env})

    def run(self, *arguments, **options):
        process = self.start(*arguments, **options)
        reader = threading.Thread(target=self.read_along, args=(process,))
        reader.start()
        self.output = process.communicate()[0]
        reader.join()
        self.data = json.loads(self.result.read_text()) if self.result.exists() else {}
        return process.returncode

    def read_along(self, process):
        """Continuously reads the results that would be left if the run were cut off now."""
        self.reads, self.unreadable, seen = 0, None, None
        while process.poll() is None and self.unreadable is None:
            try:
                now = os.stat(self.result)
                if (now.st_ino, now.st_mtime_ns, now.st_size) != seen:
                    json.loads(self.result.read_text())
                    seen = now.st_ino, now.st_mtime_ns, now.st_size
                    self.reads += 1
            except FileNotFoundError:
                if self.reads:
                    self.unreadable = "the file was gone"
            except ValueError as e:
                self.unreadable = str(e)
            time.sleep(0.0005)

    def states(self):
        return {p: e["state"] for p, e in self.data["parts"].items()}

    def step(self, name):
        return next(s for s in self.data["steps"] if s["name"] == name)

    def called(self, *words):
        return [line for line in self.calls.read_text().splitlines() if all(w in line for w in words)]


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


class Quick(unittest.TestCase):
    def setUp(self):
        self.tree = Tree()
        self.addCleanup(self.tree.__exit__)

    def test_dry_run_of_each_part_runs_nothing(self):
        for part in ("smoke", "test", "bench", "sanitize", "build", "questions", "scaling"):
            self.assertEqual(self.tree.run("--part", part, "--dry-run"), 0, self.tree.output)
            self.assertIn("--build", self.tree.output)
            # Each step says how long it should take, and the part has their sum.
            sums = re.findall(rf"^{part} +(\d+) s$", self.tree.output, re.MULTILINE)
            steps = [int(s) for s in re.findall(rf" {part}: +(\d+) s: ", self.tree.output)]
            self.assertGreater(min(steps), 0)
            self.assertEqual(sums, [str(sum(steps))])
            if part == "questions":  # one command of seven minutes, of which 15 s unpack the programs and 6 s end the suite
                self.assertLessEqual(sum(steps), 420 - 15 - 6)
        self.assertEqual(self.tree.run("--dry-run"), 0)
        self.assertIn("HALFSTEP_CUDA_BLAS=plain", self.tree.output)
        self.assertEqual(list((self.tree.root / "out").iterdir()), [])
        self.assertEqual(self.tree.calls.read_text(), "")

    def test_all_parts_pass(self):
        t = self.tree
        self.assertEqual(t.run("--deadline", 120), 0, t.output)
        self.assertIsNone(t.unreadable)
        self.assertGreater(t.reads, 40)
        self.assertEqual(t.states(), dict.fromkeys(["smoke", "test", "bench", "sanitize"], "passed"))
        self.assertEqual([e["name"] for e in t.data["build"]], ["configure", "program", "tests"])
        self.assertIn("-DHALFSTEP_CUDA_HEADERS=OFF", t.called("cmake -S")[0])
        self.assertEqual(t.step("products mlp_512 float16")["result"]["products"][0]["rung"], "fused")
        self.assertIn("NaN: 1", t.step("probe of the library's mask")["result"]["lines"][0])
        # What cannot be known without a GPU comes first, in the order in which it can be run.
        names = [s["name"] for s in t.data["steps"] if s["part"] == "smoke"]
        first = [f"products {case} {dtype}" for case in ("mlp_w4095", "mlp_513") for dtype in ("float16", "bfloat16")]
        first += ["kernels mlp_4096 float16", "attention at odd lengths", "kernels ResNet-18 channels_last float16"]
        begin = names.index(first[0])
        self.assertEqual(names[begin:begin + len(first)], first)
        self.assertLess(begin, 4)
        self.assertEqual(t.step("attention at odd lengths")["result"]["passed"], 3)
        self.assertIn("channels_last", t.step("kernels ResNet-18 channels_last float16")["command"])
        kernels = t.step("kernels mlp_4096 float16")["result"]
        self.assertEqual([k["kernel"] for k in kernels["kernels"]], ["cast", "gemm", "gemm", "mse", "sgd"])
        self.assertEqual(kernels["sum_us"], 12.5)
        smoke = t.step("bench")["result"]
        self.assertEqual([c["case"] for c in smoke["cases"]], ["mlp_4096", "mlp_512", "mlp_3x256"])
        self.assertEqual(t.step("uploads")["result"], {"bench": "uploads"})
        engines = t.step("cuDNN's engines")["result"]
        self.assertEqual((engines["plans"], len(engines["refused_when_run"])), (2, 1))
        self.assertIn("312.5 ms", engines["slowest_to_make"][0])
        self.assertEqual(t.step("cuDNN's convolutions, attention and recurrent networks")["result"]["passed"], 8)
        self.assertIn("HALFSTEP_CUDA_DNN=plain", t.step("convolutions by unfolding")["command"])
        self.assertEqual(t.step("convolutions")["result"]["rows"][0]["first_ms"], 300)
        nets = t.step("nets")["result"]["nets"]
        self.assertEqual(len(nets), 10)  # five nets in two dtypes
        self.assertEqual(set(nets[0]["ms"]), {"halfstep", "halfstep_recorded", "halfstep_channels_last", "torch_eager",
                                              "torch_compile", "torch_max_autotune", "torch_graph", "torch_channels_last",
                                              "torch_channels_last+compile"})
        self.assertEqual({r["variant"] for r in smoke["cases"][0]["rows"]}, {"fp16", "bf16", "fp16_tuned", "bf16_tuned"})
        self.assertEqual(smoke["rates"]["of"], "H100")
        bench = json.loads(next((t.root / "benchmarks/results").glob("*-nvidia-h100-80gb-hbm3.json")).read_text())
        self.assertEqual(len(bench["cases"]), 6)
        self.assertTrue(any(r["variant"] == "fp16_compile" for r in bench["cases"][0]["rows"]))
        self.assertEqual(sorted(p.name for p in (t.root / "out").iterdir() if p.suffix == ".log"), ["build.log", "suite.log"])
        # Steps that passed are not run again while the sources are the same.
        self.assertEqual(t.run("--part", "test", "--part", "sanitize"), 0)
        self.assertEqual(t.called("test_cuda"), [])
        (t.root / "halfstep.h").write_text("// new\n")
        self.assertEqual(t.run("--part", "test"), 0)
        self.assertEqual(len(t.called("test_cuda ")), 2)  # built, and run

    def test_questions_have_a_result_each(self):
        t = self.tree
        self.assertEqual(t.run("--part", "questions", "--deadline", 120), 0, t.output)
        self.assertEqual(t.states(), {"questions": "passed"})
        self.assertEqual([s["name"] for s in t.data["steps"]], [
            "clocks", "devices", "copy and product rates", "kernels GPT-2 float16", "kernels ResNet-18 channels_last float16",
            "kernels ResNet-18 channels_last bfloat16", "first layer", "nets", "PyTorch: GPT-2 compiled",
            "PyTorch: ResNet-18 compiled", "MLPs", "verify digits_mlp", "verify digits_resnet", "verify digits_lstm",
            "attention at odd lengths", "PyTorch: products of 8 bits"])
        for step in t.data["steps"]:
            self.assertIn("result", step, step["name"])
        for word in ("CrossEntropyLoss", "AdamW", "clip_grad_norm"):
            self.assertIn(word, t.step("kernels GPT-2 float16")["command"])
        self.assertEqual(t.step("kernels GPT-2 float16")["result"]["count"], 5)
        self.assertIn("--first-layer", t.called("bench_convolutions")[-1])
        nets = {(r["row"], r["dtype"]): r["ms"] for r in t.step("nets")["result"]["nets"]}
        self.assertEqual(set(nets["GPT-2 small, seq 1024, batch 8", "float16"]), {"halfstep", "halfstep_recorded", "torch_eager"})
        self.assertEqual(len(nets), 8)
        compiled = t.step("PyTorch: GPT-2 compiled")["result"]["nets"]
        self.assertEqual([set(r["ms"]) for r in compiled], [{"torch_compile", "torch_graph", "torch_max_autotune"}])
        self.assertEqual({r["variant"] for r in t.step("MLPs")["result"]["cases"][0]["rows"]},
                         {"fp16", "bf16", "fp16_tuned", "bf16_tuned", "fp16_graph", "bf16_graph", "fp16_compile"})
        self.assertEqual(len(t.step("PyTorch: products of 8 bits")["result"]["products"]), 5)

    def test_what_it_trains_needs_no_file_but_its_config(self):
        self.assertEqual(self.tree.run("--part", "questions", "--dry-run"), 0)
        named = set(re.findall(r"configs/(\w+)\.json", self.tree.output))
        self.assertEqual(len(named), 3)
        for name in named:
            text = ""
            while name:  # a config and those that it extends
                config = (ROOT / "configs" / f"{name}.json").read_text()
                text += config
                name = next(iter(re.findall(r'"extends": "(\w+)\.json"', config)), "")
            self.assertEqual(set(re.findall(r'"type": "(Digits|Text|CSV|MNIST|CIFAR10|Images|Series|Arrays)"', text)), {"Digits"})

    def test_wrong_options_end_it_before_anything_runs(self):
        t = self.tree
        empty = t.root / "empty"
        for arguments, env, why in (
                (["--deadline", "0"], {}, "takes 0.1 or more, got 0"),
                (["--deadline", "nan"], {}, "takes 0.1 or more, got nan"),
                (["--deadline", "soon"], {}, "invalid number value: 'soon'"),
                (["--jobs", "0"], {}, "takes 1 or more, got 0"),
                ([], {"HALFSTEP_JOBS": "all"}, "invalid number value: 'all'"),
                (["--part", "90-real"], {}, "invalid choice: '90-real'"),
                (["--programs", empty, "--part", "questions", "--dry-run"], {}, f"no {empty}/halfstep, which part questions runs"),
                (["--programs", empty, "--part", "scaling"], {}, f"there is no {empty}/benchmarks/nets, which part scaling runs"),
                (["--pack", empty / "x/y.zst"], {}, "y.zst"),
                (["--pack", t.root / "y.zst", "--programs", t.root], {}, "--pack builds its own programs"),
                (["--part", "build"], {"OUT": str(t.root / "scripts/gpu_suite.sh/out")}, "OUT=FOLDER names another place")):
            with self.subTest(arguments=arguments, env=env):
                if "--programs" in arguments and "--pack" in arguments and not shutil.which("zstd"):
                    continue
                self.assertEqual(t.run(*arguments, **env), 2, t.output)
                self.assertIn(why, t.output)
                self.assertNotIn("Traceback", t.output)
                self.assertEqual(t.calls.read_text(), "")

    def test_scaling_needs_no_gpu(self):
        t = self.tree
        code = t.run("--part", "scaling", fault="no GPU")
        self.assertEqual(code, 0 if os.cpu_count() >= 16 else 2, t.output)
        for step in t.data["steps"]:
            threads = int(step["name"].split()[0])
            self.assertEqual(step["state"], "passed" if threads <= os.cpu_count() else "incomplete", step)
        self.assertEqual([s["name"] for s in t.data["steps"]], [f"{n} threads" for n in (1, 2, 4, 8, 16)])
        self.assertEqual([e["name"] for e in t.data["build"]], ["configure", "nets"])  # and no other program
        rows = t.step("1 threads")["result"]["rows"]
        self.assertEqual(len({r["row"] for r in rows}), 5)
        self.assertTrue(all("ratio" in r for r in rows))

    def test_a_pack_has_the_programs(self):
        if not shutil.which("zstd"):
            self.skipTest("no zstd")
        t, file = self.tree, self.tree.root / "programs.tar.zst"
        self.assertEqual(t.run("--pack", file, fault="no GPU"), 0, t.output)
        self.assertIn("-DCMAKE_CUDA_ARCHITECTURES=90-real", t.called("cmake -S")[0])
        self.assertIn("MB, 6 files", t.output)
        listed = subprocess.run(f"zstd -dc --long=30 {file} | tar -t", shell=True, capture_output=True, text=True).stdout.split()
        for program in ("halfstep", "tests/test_cuda", "tests/test_cuda_kernels", "benchmarks/nets",
                        "benchmarks/bench_convolutions"):
            self.assertIn("./" + program, listed)

    def test_copied_programs_are_run_and_nothing_is_built(self):
        t, copied = self.tree, self.tree.root / "build-of-another"
        self.assertEqual(t.run("--part", "test", "--programs", copied), 2, t.output)
        self.assertIn(f"there is no {copied}/tests/test_cuda, which part test runs", t.output)
        for program in ("halfstep", "tests/test_cuda", "tests/test_cuda_kernels"):
            (copied / program).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(HERE / "stand_in.sh", copied / program)
            (copied / program).chmod(0o755)
        self.assertEqual(t.run("--part", "test", "--part", "sanitize", "--programs", copied), 0, t.output)
        self.assertEqual(t.called("cmake") + t.called("ctest"), [])
        self.assertEqual([s["name"] for s in t.data["steps"]][:2], ["cuda", "cuda.kernels"])
        self.assertEqual(len(t.called("test_cuda --test-case=with HALFSTEP_SYNC=1")), 1)
        self.assertEqual(len(t.called("test_cuda_kernels")), 1)

    def test_another_gpu_has_its_own_floors(self):
        floors = {}
        for gpu in ("NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA L4", "NVIDIA GeForce RTX 4090", "NVIDIA Oddity"):
            self.tree.run("--part", "smoke", "--again", GPU=gpu)
            result = self.tree.step("bench")["result"]
            floors[result["rates"]["of"]] = result["cases"][0]["rows"][0]["floor_ms"]
        self.assertEqual(list(floors), ["H200", "A100-SXM4-80GB", "L4", "RTX 4090", "measured here"])
        self.assertAlmostEqual(floors["H200"], 1.61, 2)
        self.assertEqual(len(set(floors.values())), 5)

    def test_faults(self):
        for fault, part, state, code, why in (
                ("no package", "smoke", "not run", 1, "vendor_deps"),
                ("not compiled", "smoke", "not run", 1, "program: failed"),
                ("tests not compiled", "smoke", "not run", 1, "tests: failed"),
                ("skipped", "test", "failed", 1, "SKIPPED"),
                ("failing cuda", "test", "failed", 1, "exit status 1"),
                ("plain products", "smoke", "failed", 1, "2 products ran on the plain kernel"),
                ("plain products", "bench", "failed", 1, "exit status 1"),
                ("crashing", "bench", "failed", 1, "exit status 1"),
                ("no profiler", "smoke", "incomplete", 2, "no profiler"),
                ("racecheck", "sanitize", "failed", 1, "ERROR SUMMARY: 3 errors"),
                ("no sanitizer", "sanitize", "incomplete", 2, "Device not supported")):
            with self.subTest(fault):
                self.assertEqual(self.tree.run("--part", part, fault=fault), code, self.tree.output)
                self.assertEqual(self.tree.states(), {part: state})
                self.assertIn(why, json.dumps(self.tree.data))
                self.assertIn(why, self.tree.output)
        # Steps that do not need the tests run without them.
        self.tree.run("--part", "smoke", fault="tests not compiled")
        self.assertEqual(self.tree.step("bench")["state"], "passed")
        if not os.path.exists("/dev/nvidia0"):
            self.assertEqual(self.tree.run(fault="no GPU"), 2)
            self.assertEqual(set(self.tree.states().values()), {"not run"})
            self.assertEqual(self.tree.run("--part", "build", fault="no GPU"), 0)

    def test_what_hangs_is_cut_off_with_its_children(self):
        for deadline in 4, 12, 36:  # a busy machine takes longer to reach the step that hangs
            began = time.monotonic()
            self.assertEqual(self.tree.run("--deadline", deadline, fault="hanging cuda", delay=0.02), 2, self.tree.output)
            self.assertLess(time.monotonic() - began, 2 * deadline + 1)  # it ignores SIGTERM
            if {s["name"]: s["state"] for s in self.tree.data["steps"]}.get("cuda", "not run") != "not run":
                break
        self.assertEqual(self.tree.step("cuda")["state"], "cut off")
        self.assertFalse([line for line in self.tree.called("sleeper") if alive(line.split()[1])])

    def test_sanitizers_take_plain_products_where_the_library_makes_noise(self):
        self.tree.run("--part", "sanitize")
        commands = {s["name"].split()[0]: s["command"] for s in self.tree.data["steps"]}
        self.assertEqual(["HALFSTEP_CUDA_BLAS=plain" in c for c in commands.values()], [False, True, True, False])
        self.assertEqual(list(commands), ["memcheck", "racecheck", "initcheck", "synccheck"])


class Sweep(unittest.TestCase):
    def cut_off(self, at, how):
        """The results of a run that was cut off `at` seconds after its first result."""
        with Tree() as t:
            # Steps take long enough that no machine is through with them at the first moment.
            process = t.start(*(["--deadline", at] if how == "deadline" else []), delay=0.2)
            if how != "deadline":
                while not t.result.exists() and process.poll() is None:
                    time.sleep(0.005)
                time.sleep(at)
                process.send_signal(how)
            began = time.monotonic()
            code = process.wait()
            took = time.monotonic() - began
            process.stdout.close()
            return at, how, code, took, json.loads(t.result.read_text())

    def test_it_leaves_a_readable_result_whenever_it_is_cut_off(self):
        runs = [(0.5 * i, how) for how in (signal.SIGKILL, signal.SIGTERM, "deadline") for i in range(how == "deadline", 17)]
        ended = {}
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for at, how, code, took, data in pool.map(lambda run: self.cut_off(*run), runs):
                with self.subTest(at=at, how=str(how)):
                    self.assertEqual(data["format"], 1)
                    states = [s["state"] for s in data["steps"]]
                    if how != signal.SIGKILL:  # it wrote its last word itself
                        self.assertIn(code, (0, 2))
                        self.assertIn(data["state"], ("done", "stopped"))
                        self.assertEqual(data["exit"], code)
                        self.assertFalse({"running", "waiting", "failed"} & set(states), states)
                    self.assertLess(took, (at if how == "deadline" else 0) + 8)
                    ended.setdefault(str(how), []).append(states.count("passed"))
        for how, passed in ended.items():  # the later it is cut off, the more it has
            self.assertLess(min(passed), 4, how)
            self.assertGreater(max(passed), 4, how)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + (sys.argv[1:] or ["Quick"]))
