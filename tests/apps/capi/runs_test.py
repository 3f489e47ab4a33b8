#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""halfstep.train, Run and generate: runs_test.py PROGRAM LIBRARY. pytest runs it too, with the newest build of this checkout, or
with an installed package where HALFSTEP_TEST_INSTALLED is set."""
import gc
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

try:
    import numpy
except ImportError:
    print(f"SKIPPED: {sys.executable} has no numpy")
    sys.exit(0)

SOURCE = (pathlib.Path(__file__).resolve() / "../../../..").resolve()
if __name__ == "__main__" and len(sys.argv) > 2:
    os.environ["HALFSTEP_PROGRAM"], os.environ["HALFSTEP_LIBRARY"] = map(os.path.abspath, sys.argv[1:3])
if not os.environ.get("HALFSTEP_TEST_INSTALLED"):
    sys.path.insert(0, str(SOURCE / "python"))
import halfstep  # noqa: E402

CONFIG = {"name": "tiny", "output_dir": "r", "device": "cpu", "model": {"type": "Linear", "out_features": "auto"},
          "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 0.1}, "metrics": ["confusion_matrix"],
          "data": {"train": {"type": "Random", "num_batches": 3, "input_shape": [4], "classes": 3},
                   "val": {"type": "Random", "num_batches": 2, "input_shape": [4], "classes": 3}, "loader": {"batch_size": 8}},
          "train": {"epochs": 4}, "logging": {"every": 1}}
LONG = {"train.epochs": 1000000}


class Runs(unittest.TestCase):
    def setUp(self):
        before = os.getcwd()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, before)
        os.chdir(folder.name)
        pathlib.Path("tiny.json").write_text(json.dumps(CONFIG))

    def test_lines_come_while_the_run_trains(self):
        training = halfstep.train("tiny.json", {"train": {"epochs": 5}, "optimizer.lr": numpy.float32(0.5), "output_dir": "a b"})
        self.assertIsNone(training.run)
        lines = list(training)
        self.assertEqual(training.code, 0)
        self.assertEqual(list(training), [])
        run = training.run
        self.assertEqual(run.metrics(), lines)
        self.assertEqual((run.config["train"]["epochs"], run.config["optimizer"]["lr"]), (5, 0.5))
        self.assertEqual(run.record()["summary"], training.result)
        self.assertEqual(training.result["output_dir"], "a b")
        self.assertEqual([line["step"] for line in lines if "train/loss" in line], list(range(1, 16)))
        # The first line is there long before the last one is written.
        with halfstep.train("tiny.json", LONG) as training:
            self.assertEqual(next(training)["step"], 1)
            self.assertIsNone(training.code)

    def test_a_run_in_its_folder(self):
        list(halfstep.train("tiny.json"))
        run = halfstep.Run("r")
        steps, values = run.values("val/accuracy")
        self.assertEqual(steps.tolist(), [3, 6, 9, 12])
        self.assertEqual(values.shape, (4,))
        matrix = run.confusion()
        self.assertEqual((matrix.shape, matrix.sum()), ((3, 3), 16))
        self.assertAlmostEqual(matrix.trace() / 16, values[-1])
        self.assertEqual(run.record()["ending"], "finished")
        self.assertEqual(halfstep.open(run).output, (3,))
        list(halfstep.train("tiny.json", {"train.epochs": 5}, resume=run))
        self.assertEqual(run.values("val/accuracy")[0].tolist(), [3, 6, 9, 12, 15])
        with open("r/metrics.jsonl", "a", encoding="utf-8") as file:
            file.write('{"step": 16, "odd": {"at": 2}, "odd/loss": null}\n{"odd/loss": 1.5}\n')
        with self.assertRaisesRegex(halfstep.Error, "'odd' is no number, but {'at': 2}"):
            run.values("odd")
        self.assertEqual([len(part) for part in run.values("odd/loss")], [1, 1])
        with open("r/metrics.jsonl", "a", encoding="utf-8") as file:
            file.write('{"step": 13, "train/lo')  # being written
        self.assertEqual(run.metrics()[-2]["step"], 16)
        with self.assertRaisesRegex(halfstep.Error, "no line of metrics.jsonl has 'val/f1'; they have .*val/accuracy"):
            run.values("val/f1")
        list(halfstep.train("tiny.json", {"metrics": [], "output_dir": "n"}))
        with self.assertRaisesRegex(halfstep.Error, "no confusion matrix"):
            halfstep.Run("n").confusion()
        with self.assertRaisesRegex(halfstep.Error, "no/such/config.resolved.json"):
            halfstep.Run("no/such")

    def test_errors_are_the_programs(self):
        with self.assertRaisesRegex(halfstep.Error, "optimizer.lrr.*did you mean") as caught:
            next(halfstep.train("tiny.json", {"optimizer.lrr": 1}))
        self.assertEqual(caught.exception.code, 2)
        with self.assertRaisesRegex(halfstep.Error, "diverged") as caught:
            training = halfstep.train("tiny.json", {"optimizer.lr": 1e39, "train.epochs": 50})
            list(training)
        self.assertEqual(caught.exception.code, 4)
        self.assertEqual((str(training.run.folder), training.run.record()["ending"]), ("r", "failed"))
        self.assertEqual(training.run.config["optimizer"]["lr"], 1e39)
        list(halfstep.train("tiny.json", overwrite=True))
        with self.assertRaises(halfstep.Error) as caught:  # the folder has a run
            training = halfstep.train("tiny.json")
            list(training)
        self.assertEqual(caught.exception.code, 2)
        self.assertIsNone(training.run)

    def test_leaving_early_saves(self):
        with halfstep.train("tiny.json", LONG) as training:
            for line in training:
                if line["step"] >= 20:
                    break
        self.assertEqual((training.code, training.run.record()["ending"]), (75, "requeue"))
        step = training.result["steps_applied"]
        self.assertGreaterEqual(step, 20)
        training.close()
        self.assertEqual(list(training), [])
        # The next run continues it; the end of the object stops that one.
        iterator = iter(halfstep.train("tiny.json", LONG, resume="auto"))
        self.assertEqual(next(iterator)["step"], step + 1)
        del iterator
        gc.collect()
        record = halfstep.Run("r").record()
        self.assertEqual((record["ending"], record["starts"][1]["step"]), ("requeue", step))
        # Another one's signal is an error of that code.
        training = halfstep.train("tiny.json", LONG, overwrite=True)
        next(training)
        training._process.send_signal(signal.SIGUSR1)
        with self.assertRaises(halfstep.Error) as caught:
            list(training)
        self.assertEqual(caught.exception.code, 75)

    def test_what_is_no_config_is_refused(self):
        with self.assertRaisesRegex(halfstep.Error, "--help"):  # a file of that name
            list(halfstep.train("--help"))
        with self.assertRaisesRegex(halfstep.Error, "no \"=\", got 'name=x'"):
            halfstep.train("tiny.json", {"name=x": 1})
        with self.assertRaisesRegex(halfstep.Error, "-h"):
            halfstep.generate("-h")
        circle = []
        circle.append(circle)
        for value, says in ((float("nan"), "without NaN"), ({"a": [numpy.float64("inf")]}, "without NaN"),
                            (circle, "those of JSON"), ({3 + 4j}, "those of JSON"),
                            (["x\ud834"], "must be UTF-8"), (b"runs/\xff", "must be UTF-8")):
            with self.assertRaisesRegex(halfstep.Error, f"name: .*{says}"):
                halfstep.train("tiny.json", {"name": value})
        training = halfstep.train("tiny.json", {"name": "\u65e5 \U0001d11e", "output_dir": pathlib.Path("r\u00e9")})
        list(training)
        self.assertEqual(training.run.config["name"], "\u65e5 \U0001d11e")
        self.assertEqual(os.listdir("r\u00e9"), os.listdir(training.run.folder))
        with self.assertRaisesRegex(halfstep.Error, "into a config file"):
            halfstep.train("tiny.json", {"name": "x" * 200_000})
        for text in ("a\0b", "a\ud834"):
            with self.assertRaises(halfstep.Error):
                halfstep.generate("r", text)
        before = os.environ.get("HALFSTEP_PROGRAM")
        try:
            os.environ["HALFSTEP_PROGRAM"] = os.getcwd()  # a folder
            for call in (lambda: halfstep.train("tiny.json"), lambda: halfstep.generate("r")):
                with self.assertRaisesRegex(halfstep.Error, "HALFSTEP_PROGRAM can name the program"):
                    call()
        finally:
            os.environ.pop("HALFSTEP_PROGRAM")
            if before:
                os.environ["HALFSTEP_PROGRAM"] = before

    def test_a_run_that_is_stopped_before_it_begins(self):
        for delay in (0, 0.005, 0.01, 0.02, 0.04, 0.08):
            with halfstep.train("tiny.json", LONG, overwrite=True) as training:
                time.sleep(delay)
            self.assertTrue(training.run is None or training.run.record()["ending"] == "requeue")

    def test_stderr_that_nobody_reads(self):
        script = ("import halfstep, sys\nclass Broken:\n    def write(self, text): raise RuntimeError\n    def flush(self): pass\n"
                  "sys.stderr = None if sys.argv[1] == 'none' else Broken()\n"
                  "print(len(list(halfstep.train('tiny.json', {'train.epochs': 900, 'logging.every': 1000}, progress=True,"
                  " overwrite=True))))")
        for kind in ("none", "broken"):
            done = subprocess.run([sys.executable, "-c", script, kind], env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
                                  capture_output=True, text=True, timeout=120, check=True)
            self.assertGreater(int(done.stdout), 0)

    def test_a_slow_reader_does_not_stop_the_run(self):
        with halfstep.train("tiny.json", {"train.epochs": 400}) as training:  # lines of more bytes than a pipe holds
            self.assertGreater(training._process.wait(timeout=120) + 1, 0)
            self.assertEqual(sum("train/loss" in line for line in training), 1200)

    def interrupted(self, signals):
        """Runs a Python that trains, and sends SIGINT to it alone when the run is under way."""
        script = f"import halfstep\nfor line in halfstep.train('tiny.json', {LONG!r}):\n    print(line['step'], flush=True)\n"
        path = os.pathsep.join(sys.path)
        child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 env=os.environ | {"PYTHONPATH": path}, start_new_session=True,
                                 # A shell ignores SIGINT for what it starts in the background, and so would the child.
                                 preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        child.stdout.readline()
        for _ in range(signals):
            child.send_signal(signal.SIGINT)
            time.sleep(0.2)
        reader = threading.Thread(target=child.stdout.read)  # so that it does not wait for us
        reader.start()
        said = child.stderr.read()
        reader.join()
        return child.wait(), said

    def test_ctrl_c_saves(self):
        code, said = self.interrupted(1)
        self.assertEqual(code, -signal.SIGINT)
        self.assertIn("KeyboardInterrupt", said)
        run = halfstep.Run("r")
        self.assertIn(run.record()["ending"], ("interrupted", "requeue"))  # the latter if Python was in the loop's body
        self.assertTrue((run.folder / "latest").exists())
        next(halfstep.train("tiny.json", LONG, resume="auto"))

    def test_generate(self):
        pathlib.Path("novel.txt").write_text("the cat sat on the mat. " * 200)
        program = halfstep.program.find_program()
        subprocess.run([program, "init", "novel.txt", "--out", "novel.json"], check=True, capture_output=True)
        list(halfstep.train("novel.json", {"train.epochs": 1, "output_dir": "n"}))
        text = halfstep.generate("n", "the cat", length=5, seed=3)
        self.assertEqual(text, halfstep.generate("n", "the cat", length=5, seed=3))
        self.assertGreater(len(text), 0)
        long = "the cat sat on the mat. " * 10_000  # more than an argument may have
        pathlib.Path("long.txt").write_text(long)
        said = subprocess.run([program, "generate", "n", "--prompt-file", "long.txt", "--length=5", "--json"], check=True,
                              capture_output=True).stdout
        self.assertEqual(halfstep.generate("n", long, length=5), json.loads(said)["text"])
        with self.assertRaisesRegex(halfstep.Error, "temperature"):
            halfstep.generate("n", temperature=-1)

    def test_the_module_is_short(self):
        for file in SOURCE.glob("python/halfstep/*.py"):
            self.assertLessEqual(len(file.read_text(encoding="utf-8").splitlines()), 200, file)

    def test_mypy(self):
        try:
            import mypy.api
        except ImportError:
            self.skipTest("no mypy")
        said, _, code = mypy.api.run(["--strict", "--cache-dir=/dev/null", str(SOURCE / "python/halfstep")])
        self.assertEqual(code, 0, said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
