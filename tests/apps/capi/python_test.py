#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python/halfstep against the program: python_test.py PROGRAM LIBRARY SOURCE. pytest runs it too, with the newest build of this
checkout."""
import copy
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

try:
    import numpy
except ImportError:
    print(f"SKIPPED: {sys.executable} has no numpy")
    sys.exit(0)

SOURCE = os.path.abspath(os.path.join(__file__, "../../../.."))
if __name__ == "__main__":
    os.environ["HALFSTEP_PROGRAM"], os.environ["HALFSTEP_LIBRARY"], SOURCE = map(os.path.abspath, sys.argv[1:4])
sys.path.insert(0, os.path.join(SOURCE, "python"))
import halfstep  # noqa: E402

PROGRAM, LIBRARY = halfstep.program.find_program(), os.path.abspath(halfstep._lib._name)


class Python(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp()
        for file in ("train.csv", "val.csv", "trees.json"):
            shutil.copy(os.path.join(SOURCE, "tests/compat/0.1.0", file), cls.dir)
        cls.halfstep("train", "trees.json", "--quiet")
        cls.run_dir = os.path.join(cls.dir, "trees")
        cls.x = numpy.linspace(-2, 2, 70 * 5, dtype=numpy.float32).reshape(70, 5)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir)

    @classmethod
    def halfstep(cls, *arguments):
        return subprocess.run([PROGRAM, *arguments], cwd=cls.dir, check=True, capture_output=True, text=True).stdout

    def test_answers_are_those_of_the_program(self):
        numpy.save(os.path.join(self.dir, "x.npy"), self.x)
        lines = [json.loads(line) for line in self.halfstep("predict", "trees", "x.npy", "--json", "--probabilities").splitlines()]
        model = halfstep.open(self.run_dir)
        self.assertEqual(model.classes, ["alder", "birch", "cedar"])
        self.assertEqual(model.answers, "probabilities")
        self.assertEqual((model.input, model.output), ((5,), (3,)))
        self.assertEqual(model.form["source"]["kind"], "table")
        y = model(self.x)
        expected = numpy.array([[line["probabilities"][name] for name in model.classes] for line in lines], numpy.float32)
        self.assertTrue(numpy.array_equal(y, expected))
        raw = model(self.x, raw=True)
        shares = numpy.exp(raw) / numpy.exp(raw).sum(axis=1, keepdims=True)
        self.assertTrue(numpy.allclose(shares, y, atol=1e-6))

    def test_the_library_of_a_build_beside_the_module_is_found(self):
        checkout = os.path.join(self.dir, "a [checkout]")
        os.makedirs(os.path.join(checkout, "build", "mine"))
        shutil.copytree(os.path.join(SOURCE, "python", "halfstep"), os.path.join(checkout, "python", "halfstep"))
        os.symlink(LIBRARY, os.path.join(checkout, "build", "mine", "libhalfstep_predict.so.0"))
        environment = {k: v for k, v in os.environ.items() if k != "HALFSTEP_LIBRARY"}
        environment["PYTHONPATH"] = os.path.join(checkout, "python")
        said = subprocess.run([sys.executable, "-c", "import halfstep; print(halfstep.__version__)"], env=environment, cwd="/",
                              check=True, capture_output=True, text=True).stdout
        self.assertEqual(said.strip(), halfstep.__version__)

    def test_arrays_of_other_kinds(self):
        with halfstep.open(self.run_dir, device="cpu") as model:
            y = model(self.x)
            self.assertTrue(numpy.array_equal(model(self.x[3]), model(self.x[3:4])[0]))
            self.assertTrue(numpy.array_equal(model(self.x.astype(numpy.float64)), y))
            self.assertTrue(numpy.array_equal(model(numpy.asfortranarray(self.x)), y))
            self.assertTrue(numpy.array_equal(model(self.x.tolist()), y))
            self.assertTrue(numpy.array_equal(model(numpy.ones((2, 5), int)), model(numpy.ones((2, 5)))))
            self.assertEqual(model(self.x[:0]).shape, (0, 3))

    def test_numbers_in_other_units(self):
        x = numpy.zeros((40, 4, 4), numpy.uint8)
        x[::2] = 200
        numpy.savez(os.path.join(self.dir, "p.npz"), x=x, y=numpy.arange(40) % 2)
        self.halfstep("init", "p.npz", "--out", "p.json")
        self.halfstep("train", "p.json", "--quiet", "--set", "train.epochs=1")
        model = halfstep.open(os.path.join(self.dir, "runs/p"))
        self.assertEqual(model.form["source"]["bytes"], "pixels")
        self.assertEqual(model(x / 255).shape, (40, 2))
        with self.assertRaisesRegex(halfstep.Error, r"pixels in \[0, 1\], got int64 from 0 to 200"):
            model(x)
        numpy.savez(os.path.join(self.dir, "m.npz"), x=x // 200, y=numpy.arange(40) % 2)  # 0 and 1 are no pixels
        self.halfstep("init", "m.npz", "--out", "m.json")
        self.halfstep("train", "m.json", "--quiet", "--set", "train.epochs=1")
        model = halfstep.open(os.path.join(self.dir, "runs/m"))
        self.assertEqual(model.form["source"]["bytes"], "numbers")
        self.assertTrue(numpy.array_equal(model(x // 200), model(x / 200)))
        with self.assertRaisesRegex(halfstep.Error, "the training data had numbers from 0 to 1, got int64 from 0 to 200"):
            model(x)

    def test_errors(self):
        model = halfstep.open(self.run_dir)
        for wrong in (numpy.zeros((2, 6)), numpy.zeros(3), numpy.zeros((1,) * 9), 1.0):
            with self.assertRaisesRegex(halfstep.Error, r"of shape \[5\], got"):
                model(wrong)
        with self.assertRaisesRegex(halfstep.Error, "no/such/run"):
            halfstep.open("no/such/run")
        with self.assertRaisesRegex(halfstep.Error, "ampp"):
            halfstep.open(self.run_dir, ampp=True)
        with self.assertRaisesRegex(halfstep.Error, "got -1"):
            halfstep.threads(-1)
        model.close()
        model.close()
        with self.assertRaisesRegex(halfstep.Error, "closed|NULL"):
            model(self.x)

    def test_a_copy_opens_the_model_again(self):
        model = halfstep.open(self.run_dir, averages=False)
        other = halfstep.open(self.run_dir)
        for made in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            self.assertTrue(numpy.array_equal(made(self.x), model(self.x)))
            made.close()
        self.assertTrue(numpy.array_equal(other(self.x), model(self.x)))
        code = ("import pickle, sys, numpy, halfstep; m = pickle.load(open(sys.argv[1], 'rb'));"
                "numpy.save(sys.argv[2], m(numpy.load(sys.argv[3])))")
        with open(os.path.join(self.dir, "m.pickle"), "wb") as file:
            pickle.dump(model, file)
        numpy.save(os.path.join(self.dir, "in.npy"), self.x)
        subprocess.run([sys.executable, "-c", code, "m.pickle", "out.npy", "in.npy"], cwd=self.dir, check=True,
                       env=os.environ | {"PYTHONPATH": os.path.join(SOURCE, "python")})
        self.assertTrue(numpy.array_equal(numpy.load(os.path.join(self.dir, "out.npy")), model(self.x)))

    def test_what_is_no_number_is_refused(self):
        model = halfstep.open(self.run_dir)
        for wrong, says in ((numpy.zeros((1, 5), "m8[s]"), "timedelta64"), (numpy.full((1, 5), "2"), "<U1"),
                            ([[1, None, 0, 0, 1]], "object"), (numpy.zeros((1, 5), complex), "complex"),
                            (numpy.full((1, 5), 2**63, numpy.uint64), "below 2\\*\\*63, got 9223372036854775808")):
            with self.assertRaisesRegex(halfstep.Error, says):
                model(wrong)
        for count in (2**32 + 3, -(2**33)):
            with self.assertRaisesRegex(halfstep.Error, "2147483647"):
                halfstep.threads(count)
        with self.assertRaisesRegex(halfstep.Error, "zero bytes"):
            halfstep.open(self.run_dir + "\0more")

    def test_columns_are_scaled_before_they_are_float32(self):
        meter = 41_234_567 + 0.25 * numpy.random.default_rng(0).permutation(60)[:, None]
        with open(os.path.join(self.dir, "t.csv"), "w", encoding="utf-8") as file:
            file.write("meter,y\n" + "".join(f"{m},{m - 41_234_567}\n" for m in meter[:, 0]))
        self.halfstep("init", "t.csv", "--target", "y", "--out", "t.json")
        self.halfstep("train", "t.json", "--quiet", "--set", "train.epochs=2")
        lines = [json.loads(line) for line in self.halfstep("predict", "runs/t", "t.csv", "--json").splitlines()]
        expected = numpy.array([line["values"][0] for line in lines])
        self.assertEqual(len(set(expected)), 60)
        model = halfstep.open(os.path.join(self.dir, "runs/t"))
        self.assertTrue(numpy.allclose(model(meter)[:, 0], expected, rtol=1e-6))
        self.assertFalse(numpy.allclose(model(meter.astype(numpy.float32))[:, 0], expected, rtol=1e-3))
        whole = numpy.round(meter).astype(int)
        self.assertTrue(numpy.array_equal(model(whole), model(whole.astype(float))))
        numpy.save(os.path.join(self.dir, "t.npy"), meter)
        self.assertEqual(len(set(self.halfstep("predict", "runs/t", "t.npy").splitlines())), 60)

    def test_threads_share_a_model(self):
        model = halfstep.open(self.run_dir)
        expected, wrong = model(self.x), []

        def work():
            for _ in range(50):
                if not numpy.array_equal(model(self.x), expected):
                    wrong.append(1)

        workers = [threading.Thread(target=work) for _ in range(8)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        self.assertEqual(wrong, [])
        self.assertEqual(halfstep.threads(1), 1)
        self.assertTrue(numpy.array_equal(model(self.x), expected))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
