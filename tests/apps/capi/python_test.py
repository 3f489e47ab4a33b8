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
import types
import unittest
import warnings

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
        cls.x[:, 2:] = numpy.eye(3)[numpy.arange(70) % 3]  # soil: clay, loam or sand

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
            whole = [[4, 2, 0, 1, 0], [5, 3, 1, 0, 0]]
            self.assertTrue(numpy.array_equal(model(numpy.array(whole, int)), model(numpy.array(whole, float))))
            self.assertTrue(numpy.array_equal(model(numpy.array(whole, object)), model(numpy.array(whole, float))))
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
            model(x.astype(int))
        with self.assertRaisesRegex(halfstep.Error, r"got int64 from 0 to 3\n.*divide them by the value of white"):
            model(x.astype(numpy.uint16) // 66)
        with self.assertRaisesRegex(halfstep.Error, r"got int64 from 0 to 51200\n.*such as 65535;"):
            model(x.astype(numpy.uint16) * 256)
        # Bytes are those of the program, also where no pixel is bright.
        for case, pixels in enumerate((x, x[::2] // 50, x // 100, x // 200, x * 0)):
            numpy.save(os.path.join(self.dir, "b.npy"), pixels)
            self.halfstep("predict", "runs/p", "b.npy", "--probabilities", "--out", "b_y.npy")
            expected = numpy.load(os.path.join(self.dir, "b_y.npy"))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self.assertTrue(numpy.array_equal(model(pixels), expected), case)
                self.assertEqual([w.filename for w in caught], [__file__] * (case == 3))
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

    def test_a_copy_has_the_same_weights(self):
        model = halfstep.open(self.run_dir, averages=False)
        other = halfstep.open(self.run_dir)
        for made in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            self.assertTrue(numpy.array_equal(made(self.x), model(self.x)))
            made.close()
            with self.assertRaisesRegex(halfstep.Error, "NULL"):
                made(self.x)
        self.assertTrue(numpy.array_equal(other(self.x), model(self.x)))
        code = ("import pickle, sys, numpy, halfstep; m = pickle.load(open(sys.argv[1], 'rb'));"
                "numpy.save(sys.argv[2], m(numpy.load(sys.argv[3])))")
        with open(os.path.join(self.dir, "m.pickle"), "wb") as file:
            pickle.dump(model, file)
        numpy.save(os.path.join(self.dir, "in.npy"), self.x)
        subprocess.run([sys.executable, "-c", code, "m.pickle", "out.npy", "in.npy"], cwd=self.dir, check=True,
                       env=os.environ | {"PYTHONPATH": os.path.join(SOURCE, "python")})
        self.assertTrue(numpy.array_equal(numpy.load(os.path.join(self.dir, "out.npy")), model(self.x)))

    def test_a_copy_of_a_model_whose_run_goes_on(self):
        def train(*options):
            self.halfstep("train", "trees.json", "--quiet", "--set", "output_dir=more", *options)

        train()
        model = halfstep.open(os.path.join(self.dir, "more"))
        expected, pickled = model(self.x), pickle.dumps(model)
        train("--overwrite")
        self.assertTrue(numpy.array_equal(pickle.loads(pickled)(self.x), expected))  # the same weights, trained again
        train("--overwrite", "--set", "optimizer.lr=0.2", "--set", "checkpoint.keep_last=0")
        self.assertFalse(numpy.array_equal(halfstep.open(os.path.join(self.dir, "more"))(self.x), expected))
        self.assertTrue(numpy.array_equal(copy.deepcopy(model)(self.x), expected))
        self.assertTrue(numpy.array_equal(copy.copy(model)(self.x), expected))
        with self.assertRaisesRegex(halfstep.Error, "made room for another|no such file"):
            pickle.loads(pickled)

    def test_columns_have_the_names_of_the_training_data(self):
        model, names = halfstep.open(self.run_dir), ["height", "leaf", "soil_clay", "soil_loam", "soil_sand"]
        expected = model(self.x)

        class Frame:  # as those of pandas and polars
            def __init__(self, array, columns, **more):
                self.array, self.columns, self.shape = array, columns, array.shape
                self.__dict__.update(more)

            def __array__(self, dtype=None, copy=None):
                return self.array

        others = (["HEIGHT", " leaf", "soil=clay", "soil: loam", "sand"], range(5), numpy.array(names, object),
                  ["remainder__height", "scale__leaf", "hot__soil_clay", "hot__soil_loam", "hot__soil_sand"])
        for fitting in (names, *others):
            self.assertTrue(numpy.array_equal(model(Frame(self.x, fitting)), expected), fitting)
        for order in ([1, 0, 2, 3, 4], [0, 1, 3, 2, 4], [4, 3, 2, 1, 0], [0, 1, 2, 3, 4, 0]):
            columns = [names[i] for i in order[:5]] + ["tree"] * (len(order) - 5)
            with self.assertRaisesRegex(halfstep.Error, r"in its order, got .*; take x\[\['height', 'leaf', 'soil_clay', "):
                model(Frame(self.x[:, order], columns))
        for wrong, lacking in ((["height", "leaf", "soil"], "soil_clay, soil_loam, soil_sand are"),
                               (["a", *names[1:]], "height is"), (names[:4] + ["soil_silt"], "soil_sand is"),
                               (names[:2] + ["soil_sandy_clay"] + names[3:], "soil_clay is"), (names + ["clay"], "soil_clay is")):
            with self.assertRaisesRegex(halfstep.Error, f"but {lacking} not among {wrong[0]}"):
                model(Frame(self.x[:, [0] * len(wrong)], wrong))
        row = types.SimpleNamespace(to_numpy=0, shape=(5,), index=names[::-1], __array__=0)  # of a frame
        with self.assertRaisesRegex(halfstep.Error, "in its order, got soil_sand"):
            model(row)
        self.assertTrue(numpy.array_equal(model(Frame(numpy.array(self.x.tolist(), object), names)), model(self.x.tolist())))
        try:
            import pandas
        except ImportError:
            return
        frame = pandas.DataFrame({"leaf": [1.5, 2.0], "height": pandas.array([4, None], "Int64"), "soil": ["loam", "clay"]})
        frame["soil"] = pandas.Categorical(frame["soil"], ["clay", "loam", "sand"])
        dummies = pandas.get_dummies(frame)
        with self.assertRaisesRegex(halfstep.Error, "take x"):
            model(dummies)
        with self.assertRaisesRegex(halfstep.Error, "NAType.*astype"):
            model(dummies[names])
        self.assertTrue(numpy.array_equal(model(dummies[names].astype(float)),
                                          model([[4, 1.5, 0, 1, 0], [numpy.nan, 2, 1, 0, 0]])))
        self.assertTrue(numpy.array_equal(model(dummies[names].iloc[0]), model([4, 1.5, 0, 1, 0])))

    def test_columns_of_a_series(self):
        with open(os.path.join(self.dir, "s.csv"), "w", encoding="utf-8") as file:
            days = (f"2024-{1 + d // 28:02}-{1 + d % 28:02},{d % 7},{d * 5 % 11}\n" for d in range(84))
            file.write("day,sun,rain\n" + "".join(days))
        self.halfstep("init", "s.csv", "--target", "sun", "--out", "s.json")
        self.halfstep("train", "s.json", "--quiet", "--set", "train.epochs=1")
        model = halfstep.open(os.path.join(self.dir, "runs/s"))
        window = numpy.arange(numpy.prod(model.input), dtype=float).reshape(model.input)
        frame = types.SimpleNamespace(columns=["rain", "sun"], shape=window.shape, __array__=0)
        with self.assertRaisesRegex(halfstep.Error, r"take x\[\['sun', 'rain'\]\]"):
            model(frame)
        self.assertEqual(model(window).shape, model.output)
        with self.assertRaisesRegex(halfstep.Error, "2 of .* inputs are masked, and the model has no rule"):
            model(numpy.ma.masked_less(window, 2))

    def test_masked_numbers_are_missing(self):
        model = halfstep.open(self.run_dir)
        hidden = self.x.copy()
        hidden[3, 1] = -9999
        missing = self.x.copy()
        missing[3, 1] = numpy.nan
        expected, masked = model(missing), numpy.ma.masked_equal(hidden, -9999)
        self.assertFalse(numpy.array_equal(model(hidden), expected))
        self.assertTrue(numpy.array_equal(model(masked), expected))
        self.assertTrue(numpy.array_equal(model(list(masked)), expected))
        self.assertTrue(numpy.array_equal(model(masked[3]), model(missing[3])))
        self.assertTrue(numpy.array_equal(model(masked[:3]), model(missing[:3])))
        whole = numpy.ma.masked_array([[4, 999999, 0, 1, 0]], [[0, 1, 0, 0, 0]])
        self.assertTrue(numpy.array_equal(model(whole), model([[4, numpy.nan, 0, 1, 0]])))
        with self.assertRaisesRegex(halfstep.Error, "3 inputs of soil must be 0"):
            model(numpy.ma.masked_array(self.x[:1], [[0, 0, 1, 1, 1]]))

    def test_what_is_no_category_is_refused(self):
        model = halfstep.open(self.run_dir)
        for wrong in ([.5, .5, 0], [2, 0, 0], [0, 1, 1], [0, 0, 0], [numpy.nan] * 3):
            for raw in (False, True):
                with self.assertRaisesRegex(halfstep.Error, "sample 1: the 3 inputs of soil must be 0, but 1 for its category"):
                    model([[4, 2, 0, 0, 1], [4, 2, *wrong]], raw)

    def test_nan_in_a_category_is_no_other_one_in_onnx(self):
        try:
            import onnxruntime
        except ImportError:
            self.skipTest("no onnxruntime")
        with open(os.path.join(self.dir, "c.csv"), "w", encoding="utf-8") as file:
            rows = (f"{i * i % 17},{'abc'[i % 3]},{['', 'd', 'e'][i % 3]},{i}\n" for i in range(60))
            file.write("size,soil,bed,y\n" + "".join(rows))
        self.halfstep("init", "c.csv", "--target", "y", "--out", "c.json")
        for categories in ("one_hot", "index"):
            self.halfstep("train", "c.json", "--quiet", "--overwrite", "--set", f"data.categories={categories}",
                          "--set", "train.epochs=2")
            self.halfstep("export", "runs/c", "--to", "onnx", "--out", "c.onnx", "--replace")
            session = onnxruntime.InferenceSession(os.path.join(self.dir, "c.onnx"), providers=["CPUExecutionProvider"])
            model, width = halfstep.open(os.path.join(self.dir, "runs/c"), amp=False), 3 if categories == "one_hot" else 1
            known = [[1., 0, 0], [1., 0, 0]] if width == 3 else [[0.], [0.]]
            rows = [[7, *known[0], *known[1]], [7, *known[0]] + [numpy.nan] * width, [7] + [numpy.nan] * width + known[1]]
            y = session.run(None, {"input": numpy.array(rows, numpy.float32)})[0][:, 0]
            self.assertEqual(y[0], y[1])
            self.assertTrue(numpy.isnan(y[2]) and numpy.isfinite(y[0]))
            self.assertTrue(numpy.allclose(model(rows[:2])[:, 0], y[:2], rtol=1e-5))
            with self.assertRaisesRegex(halfstep.Error, "soil must be .*, got NaN"):
                model(rows)

    def test_what_is_no_number_is_refused(self):
        model = halfstep.open(self.run_dir)
        for wrong, says in ((numpy.zeros((1, 5), "m8[s]"), "timedelta64"), (numpy.full((1, 5), "2"), "<U1"),
                            ([[1, None, 0, 0, 1]], "object with NoneType"), ([[1, 2.5, True, "clay", 1]], "<U"),
                            (numpy.array([[1, 2**53 + 1, 0, 0, 1]], object), "at most 2\\*\\*53"),
                            (numpy.zeros((1, 5), complex), "complex"),
                            (numpy.full((1, 5), 2**63, numpy.uint64), "below 2\\*\\*63, got 9223372036854775808")):
            with self.assertRaisesRegex(halfstep.Error, says):
                model(wrong)
        for count in (2**32 + 3, -(2**33), 2.0, "2", None):
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
