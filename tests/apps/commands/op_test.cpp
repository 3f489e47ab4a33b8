// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <set>

#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

Tensor numbers(const Shape& shape) { return (arange(0, double(numel(shape)), 1) * 0.25 - 1.0).reshape(shape); }

}  // namespace

TEST_CASE("op: results and weighted gradients go to the file") {
  TempDir dir;
  const Tensor x = numbers({3, 4}), w = numbers({2, 4}), b = numbers({2}), weight = numbers({3, 2});
  save_safetensors(dir / "in.safetensors", {{"0", x}, {"1", w}, {"2", b}, {"w", weight}});
  const Ran r = run(dir, "op linear --in in.safetensors --grad --out out.safetensors --json");
  CAPTURE(r.err);
  REQUIRE(r.code == 0);
  CHECK(r.json()["ok"] == true);
  const auto got = load_safetensors(dir / "out.safetensors").tensors;
  CHECK(got.at("out").to_vector<double>() == linear(x, w, b).to_vector<double>());
  CHECK(got.at("grad.0").to_vector<double>() == mm(weight, w).to_vector<double>());
  CHECK(got.at("grad.1").to_vector<double>() == mm(weight.t(), x).to_vector<double>());
  CHECK(got.at("grad.2").to_vector<double>() == sum(weight, {0}).to_vector<double>());

  const Ran plain = run(dir, "op linear --in in.safetensors --autocast bfloat16");
  CHECK(plain.code == 0);
  CHECK(plain.out.starts_with("out  bfloat16  [3,2]\ntensor([["));
  CHECK(plain.out.ends_with("dtype=bfloat16)\n"));
}

TEST_CASE("op: lists, several outputs, arguments left out, attributes") {
  TempDir dir;
  save_safetensors(dir / "list.safetensors", {{"0.0", numbers({2, 3})}, {"0.1", numbers({2, 1})}});
  const Ran cat = run(dir, R"(op cat --in list.safetensors --attrs '{"dim":1}' --grad --out cat.safetensors)");
  CAPTURE(cat.err);
  CHECK(cat.out == R"(out  float32  [2,4]
tensor([[-1.0000, -0.7500, -0.5000, -1.0000],
        [-0.2500,  0.0000,  0.2500, -0.7500]])
grad.0.0  float32  [2,3]
tensor([[1., 1., 1.],
        [1., 1., 1.]])
grad.0.1  float32  [2,1]
tensor([[1.],
        [1.]])
)");
  save_safetensors(dir / "large.safetensors", {{"0", numbers({5, 13})}});
  CHECK(run(dir, "op relu --in large.safetensors").out == "out  float32  [5,13]\n");  // 65 elements are for the file

  save_safetensors(dir / "x.safetensors", {{"0", numbers({2, 3})}, {"w.0", numbers({2})}});
  const Ran max = run(dir, R"(op max --in x.safetensors --attrs '{"dim":1}' --grad)");
  CHECK(contains(max.out, "out.0  float32  [2]\ntensor([-0.5000,  0.2500])\nout.1  int64  [2]\ntensor([2, 2])\n"));
  CHECK(contains(max.out, "\ngrad.0  float32  [2,3]\ntensor("));
}

TEST_CASE("op: errors are the op's, with the program's exit codes") {
  TempDir dir;
  save_safetensors(dir / "bad.safetensors", {{"0", numbers({2, 3})}, {"1", numbers({2, 3})}});
  const Ran shape = run(dir, "op mm --in bad.safetensors");
  CHECK(shape.code == 1);
  CHECK(contains(shape.err, "[mm] "));
  CHECK(contains(run(dir, "op conv2dd").err, "there is no op 'conv2dd'\nhelp: did you mean 'conv2d'?"));
  CHECK(contains(run(dir, "op conv").err, "help: `halfstep ops` lists them, such as 'conv1d', 'conv2d', 'conv3d'"));
  CHECK(contains(run(dir, "op xyzzy").err, "help: `halfstep ops` lists them\n"));
  CHECK(run(dir, "op mm --attrs '[1]'").code == 2);
  CHECK(run(dir, "op mm --autocast float64").code == 2);
  CHECK(run(dir, "op").code == 2);
  save_safetensors(dir / "one.safetensors", {{"0", numbers({2, 3})}});
  CHECK(contains(run(dir, R"(op unsqueeze --in one.safetensors --attrs '{"dims": 0}')").err,
                 "[unsqueeze] argument 'dim' is missing\nhelp: 'dims' is given: did you mean 'dim'?"));
  save_safetensors(dir / "names.safetensors", {{"weight", numbers({2, 3})}});
  CHECK(contains(run(dir, "op relu --in names.safetensors").err, "tensor 'weight' of names.safetensors is no argument"));
}

TEST_CASE("op --batch: one answer a line, whatever fails") {
  TempDir dir;
  save_safetensors(dir / "x.safetensors", {{"0", numbers({2, 3})}});
  write(
      dir / "calls.jsonl",
      R"({"op": "relu", "in": "x.safetensors", "attrs": {}, "autocast": null, "device": "cpu", "grad": true, "out": "o.safetensors"}
{"op": "mm", "in": "x.safetensors"}
{"op": "relu", "in": "absent.safetensors"}
{"op": "nothing"}
{"op": "relu", "speed": 1}
{"op": "relu", "autocast": "float32"}

not JSON
{"op": "exp", "in": "x.safetensors", "autocast": "float16"}
)");
  const Ran r = run(dir, "op --batch calls.jsonl");
  CHECK(r.code == 0);
  std::istringstream lines(r.out);
  std::vector<Json> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(Json::parse(line));
  REQUIRE(answers.size() == 8);
  CHECK(answers[0].dump() == R"({"ok":true,"outputs":[{"name":"out","dtype":"float32","shape":[2,3]},)"
                             R"({"name":"grad.0","dtype":"float32","shape":[2,3]}]})");
  const std::vector<std::string> types = {"", "ValueError", "IoError", "ValueError", "ConfigError", "ConfigError", "ConfigError"};
  for (size_t i = 1; i < types.size(); ++i) {
    CAPTURE(answers[i].dump());
    CHECK(answers[i]["ok"] == false);
    CHECK(answers[i]["type"] == types[i]);
    CHECK(answers[i]["error"].get<std::string>().front() == '[');
  }
  CHECK(answers[7]["outputs"][0]["dtype"] == "float32");
}

TEST_CASE("op: what no line may be is refused in our words, and the next line is answered") {
  TempDir dir;
  const std::string deep = R"({"op": "relu", "attrs": {"a": )" + std::string(58'000, '[') + std::string(58'000, ']') + "}}\n";
  std::ofstream(dir / "calls.jsonl", std::ios::binary) << deep << R"({"op": "exp", "attrs": {"a": 1e400}})" << '\n'
                                                       << R"({"op": "a\u0000b"})" << '\n'
                                                       << R"({"op": "exp"})" << '\0' << "x\n"
                                                       << R"({"op": "exp", "attrs": [1]})" << '\n'
                                                       << R"({"op": "exp", "in": ")" << std::string(5000, 'x') << R"("})" << '\n'
                                                       << R"({"op": {"a": )" << std::string(2000, '1') << "}}\n{\n"
                                                       << R"({"op": "arange", "attrs": {"end": 3}})";
  const Ran r = run(dir, "op --batch calls.jsonl");
  CHECK(r.code == 0);
  std::istringstream lines(r.out);
  std::vector<Json> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(Json::parse(line));
  REQUIRE(answers.size() == 9);
  const std::vector<std::string> expected = {"values nest more than 200 levels deep",
                                             "the number 1e400 is too large for a double",
                                             "a string holds a NUL character",
                                             "a NUL byte",
                                             "attrs must be a JSON object, got [1]",
                                             "File name too long",
                                             "too large for a double",
                                             "unexpected end of input"};
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(answers[i].dump());
    CHECK(answers[i]["ok"] == false);
    CHECK(contains(answers[i]["error"], expected[i]));
    CHECK_FALSE(contains(answers[i]["error"], "json.exception"));
  }
  CHECK(answers[8]["ok"] == true);

  CHECK(run(dir, "op relu --attrs '" + std::string(50'000, '[') + "'").code == 2);
  CHECK(contains(run(dir, R"(op relu --attrs '{"a": 1e400}')").err,
                 "[op] attrs must be JSON: the number 1e400 is too large for a double in column 7"));
  const Ran endless = run(dir, "op --batch /dev/zero");
  CHECK(endless.code == 3);
  CHECK(contains(endless.err, "a line of a batch must not have more than 16777216 bytes"));
  CHECK(run(dir, "op --batch .").code == 3);
}

TEST_CASE("validate ends with 2 and an answer for whatever it is given") {
  TempDir dir;
  write(dir / "big.json", R"({"seed":1e400})");
  const Ran r = run(dir, "validate big.json /dev/full . $(printf 'a%.0s' $(seq 300)) --json");
  CHECK(r.code == 2);
  CHECK(contains(r.err, "[config] big.json:1:9: the number 1e400 is too large for a double"));
  CHECK(contains(r.err, "/dev/full: it is a device"));
  CHECK(contains(r.err, "File name too long"));
  CHECK(contains(run(dir, "validate $(printf '\\377') --json").out, "\"valid\":false"));
}

TEST_CASE("ops lists all ops in the words of the autocast lists") {
  TempDir dir;
  const Json j = run(dir, "ops --json").json();
  std::map<std::string, Json> by_name;
  for (const Json& op : j["ops"]) by_name[op["name"]] = op;
  CHECK(by_name["mm"]["policy"] == "lower");
  CHECK(by_name["exp"]["policy"] == "fp32");
  CHECK(by_name["sum"]["policy"] == "fp32");
  CHECK(by_name["atan2"]["policy"] == "promote");
  CHECK(by_name["add"]["policy"] == "builtin_promote");
  CHECK(by_name["eq"]["policy"] == "builtin_promote");
  CHECK(by_name["where"]["policy"] == "builtin_promote");
  CHECK(by_name["relu"]["policy"] == "keep");
  CHECK(by_name["eq"]["differentiable"] == false);
  CHECK(by_name["__pow__"]["alias_of"] == "pow");
  CHECK(by_name["exp"]["dtypes"] ==
        Json({"float16", "bfloat16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool"}));
  CHECK(by_name["softmax"]["dtypes"] == Json({"float16", "bfloat16", "float32", "float64"}));
  CHECK(contains(run(dir, "ops").out, "logsigmoid"));
}

TEST_CASE("op: a wrong argument is named with what may be there") {
  TempDir dir;
  save_safetensors(dir / "x.safetensors", {{"0", numbers({2, 3, 4})}, {"1", numbers({3})}});
  save_safetensors(dir / "one.safetensors", {{"0", numbers({3, 4})}});
  const auto error = [&](const std::string& op, const std::string& attrs, const char* file = "one") {
    const Ran r = run(dir, "op " + op + " --in " + file + ".safetensors --attrs '" + attrs + "'");
    CHECK(r.code != 0);
    return r.err;
  };
  const std::string help = "help: besides tensors, which are given by place, it takes ";
  CHECK(contains(error("norm", R"({"sorter": [0, 1]})"), help + "dim, dtype, keepdim, p"));
  CHECK(contains(error("relu", R"({"inplace": true})"), "[relu] has no argument 'inplace'\n" + help + "nothing"));
  CHECK(contains(error("norm", R"({"p": "nuk"})"), R"('p' must be a number, "inf", "-inf", "fro" or "nuc", got "nuk")"));
  CHECK(contains(error("lp_pool1d", R"({"norm_type": "two", "kernel_size": 2})"),
                 R"('norm_type' must be a number, "inf", "-inf" or "nan", got "two")"));
  CHECK(contains(error("linalg_matrix_rank", "{}", "x"),
                 "tolerances must be numbers, or tensors with one for each matrix of [2, 3, 4], got [3]"));
  CHECK(contains(error("norm", R"({"p": Infinity})"), R"(true, false, null, "inf" and "nan" are written so)"));
}
