// SPDX-License-Identifier: Apache-2.0
// What the exporter says of a model, and what it refuses. Whether runtimes compute the same is onnx_check.py's question.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "framework/autograd/grad_mode.h"
#include "framework/interchange/onnx_export.h"
#include "framework/interchange/protobuf.h"
#include "framework/io/files/atomic_file.h"
#include "framework/ops/ops.h"
#include "layers/layers.h"
#include "layers/module/export.h"

using namespace halfstep;

namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "halfstep-onnx-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path); }
};

// A message of protocol buffers as its fields in order: numbers, and strings or messages.
struct Field {
  int number;
  uint64_t value = 0;
  std::string bytes{};
};
std::vector<Field> fields(const std::string& message) {
  std::vector<Field> out;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t v = 0;
    for (int shift = 0;; shift += 7) {
      REQUIRE(at < message.size());
      const auto byte = uint8_t(message[at++]);
      v |= uint64_t(byte & 0x7f) << shift;
      if (byte < 0x80) return v;
    }
  };
  while (at < message.size()) {
    const uint64_t key = varint();
    Field f{int(key >> 3)};
    if ((key & 7) == 0) f.value = varint();
    if ((key & 7) == 2) {
      const size_t size = varint();
      REQUIRE(at + size <= message.size());
      f.bytes = message.substr(at, size);
      at += size;
    }
    if ((key & 7) == 5) at += 4;
    out.push_back(f);
  }
  return out;
}
std::vector<std::string> all(const std::string& message, int number) {
  std::vector<std::string> out;
  for (const Field& f : fields(message))
    if (f.number == number) out.push_back(f.bytes);
  return out;
}

struct File {
  std::vector<std::string> ops, constants;
  std::string input_dim;
};
File read(const fs::path& path) {
  const std::string graph = all(read_file(path), 7).at(0);
  File out;
  for (const std::string& node : all(graph, 1)) out.ops.push_back(all(node, 4).at(0));
  for (const std::string& tensor : all(graph, 5)) out.constants.push_back(all(tensor, 8).at(0));
  const std::string type = all(all(graph, 11).at(0), 2).at(0);
  out.input_dim = all(all(all(all(type, 1).at(0), 2).at(0), 1).at(0), 2).at(0);
  return out;
}

using OneTensor = std::function<Tensor(const Tensor&)>;
OnnxSummary write(const OneTensor& f, const Tensor& example) {
  const Folder folder;
  return export_onnx(folder.path / "m.onnx", [&](const Tensors& in) { return Tensors{f(in[0])}; }, {}, {example});
}

}  // namespace

TEST_CASE("fields of protocol buffers are the bytes of their specification") {
  CHECK(ProtoWriter().integer(1, 150).str() == "\x08\x96\x01");
  CHECK(ProtoWriter().bytes(2, "testing").str() == "\x12\x07testing");
  CHECK(ProtoWriter().message(3, ProtoWriter().integer(1, 150)).str() == "\x1a\x03\x08\x96\x01");
  CHECK(ProtoWriter().integer(1, -1).str() == std::string("\x08") + std::string(9, '\xff') + "\x01");
  CHECK(ProtoWriter().real(2, 1.0f).str() == std::string("\x15\0\0\x80\x3f", 5));
  CHECK(ProtoWriter().length(16, 300).str() == "\x82\x01\xac\x02");
}

TEST_CASE("a model's file has its layers as nodes, its parameters by name and a free batch dimension") {
  const Folder folder;
  Sequential net{Linear(4, 8), ReLU(), Dropout(0.5), Linear(8, 3), Softmax(1)};
  net.train();
  net[3]->eval();
  const OnnxSummary made = export_onnx(folder.path / "m.onnx", net, randn({5, 4}), {.metadata = {{"a", "b"}}});
  CHECK(net.training());  // as before
  CHECK(!net[3]->training());
  CHECK(int64_t(fs::file_size(folder.path / "m.onnx")) == made.bytes);

  const File file = read(folder.path / "m.onnx");
  CHECK(file.ops == std::vector<std::string>{"Gemm", "Relu", "Gemm", "Softmax", "Identity"});
  CHECK(file.constants == std::vector<std::string>{"0.weight", "0.bias", "3.weight", "3.bias"});
  CHECK(file.input_dim == "batch");
  CHECK(all(all(read_file(folder.path / "m.onnx"), 14).at(0), 2) == std::vector<std::string>{"b"});
}

TEST_CASE("a model of two arguments and two results") {
  const Folder folder;
  const Tensor x = randn({4, 3}), y = randn({4, 3});
  const OnnxFunction f = [](const Tensors& in) { return Tensors{in[0] + in[1], (in[0] * in[1]).sum(1)}; };
  export_onnx(folder.path / "m.onnx", f, {}, {x, y}, {.input_names = {"left", "right"}});
  const std::string graph = all(read_file(folder.path / "m.onnx"), 7).at(0);
  std::vector<std::string> ends;
  for (const int field : {11, 12})
    for (const std::string& e : all(graph, field)) ends.push_back(all(e, 1).at(0));
  CHECK(ends == std::vector<std::string>{"left", "right", "output0", "output1"});
}

TEST_CASE("what depends on the input by something that is no op is refused, with op and layer") {
  const Tensor x = randn({4, 4});
  const auto refuses = [&](const char* why, const OneTensor& f) {
    CAPTURE(why);
    CHECK_THROWS_WITH_AS(write(f, x), doctest::Contains(why), ExportError);
  };
  refuses("read on the host", [](const Tensor& t) { return t * t.sum().item<double>(); });
  refuses("read on the host", [](const Tensor& t) { return t.select(0, 0).sum().item<double>() > 0 ? relu(t) : sigmoid(t); });
  refuses("read on the host", [](const Tensor& t) { return t + from_vector(t.to_vector<float>(), t.shape(), Device::cpu); });
  refuses("random draw", [](const Tensor& t) { return t + randn({4}); });
  refuses("number of samples", [](const Tensor& t) { return t / double(t.size(0)); });
  refuses("does not depend", [](const Tensor& t) { return zeros({t.size(0), 1}); });
  refuses("different things", [](const Tensor& t) { return t.size(0) == 2 ? relu(t) : sigmoid(t); });
  refuses("different things", [](const Tensor& t) { return t.size(0) == 2 ? relu(relu(t)) : relu(t); });
  refuses("written in place", [](const Tensor& t) {
    const Tensor y = t * 2;
    y.select(1, 0).add_(1);
    return relu(y);
  });
  refuses("written in place", [](const Tensor& t) {
    const Tensor y = zeros({t.size(0), 4});
    y.narrow(1, 0, 2).copy_(t.narrow(1, 0, 2));
    return relu(y);
  });
  refuses("no form in ONNX: op cumsum", [](const Tensor& t) { return cumsum(t, 1); });
  refuses("no multiple", [](const Tensor& t) { return t.narrow(0, 0, t.size(0) - 1); });

  struct Odd : ModuleOf<Odd> {
    Part<Linear> inner = add("inner", Linear(4, 4));
    Tensor forward(const Tensor& t) { return cumsum(inner(t), 1); }
  };
  const Folder folder;
  Sequential odd{{{"odd", Odd()}}};
  CHECK_THROWS_WITH_AS(export_onnx(folder.path / "m.onnx", odd, x), doctest::Contains("op cumsum of layer odd"), ExportError);
  CHECK(!fs::exists(folder.path / "m.onnx"));
  CHECK_THROWS_WITH_AS(write([](const Tensor& t) { return relu(t.to(DType::bf16)); }, x), doctest::Contains("bfloat16"),
                       ExportError);
  CHECK_THROWS_WITH_AS(write([](const Tensor& t) { return one_hot(t, 4); }, zeros({3, 2}, {.dtype = DType::i64})),
                       doctest::Contains("values must differ"), ExportError);
}

TEST_CASE("what has a form is exported: sums over samples, writes to a whole tensor, two sizes from the samples") {
  const Tensor x = randn({4, 4});
  CHECK(write([](const Tensor& t) { return t - t.mean(0, true); }, x).ops.at("ReduceMean") == 1);
  CHECK(write([](const Tensor& t) { return matmul(t, t.t()).reshape({t.size(0), t.size(0)}); }, x).ops.contains("MatMul"));
  const OnnxSummary in_place = write(
      [](const Tensor& t) {
        const Tensor y = t * 2;
        y.add_(1);
        return relu(y);
      },
      x);
  CHECK(in_place.ops == std::map<std::string, int64_t>{{"Add", 1}, {"Identity", 2}, {"Mul", 1}, {"Relu", 1}});
  CHECK(write([](const Tensor& t) { return t + ones({t.size(0), 1}); }, x).ops.contains("Expand"));
  CHECK(write([](const Tensor& t) { return swapaxes(t, 0, 1).flip({0}).t(); }, ones({2, 3})).ops.contains("Slice"));
}

TEST_CASE("an op without a row is exported as the ops that it is made of") {
  const auto ops = [](const OneTensor& f, const Tensor& x) {
    std::set<std::string> out;
    for (const auto& [op, count] : write(f, x).ops) out.insert(op);
    return out;
  };
  const Tensor x = rand({4, 6});
  CHECK(ops([](const Tensor& t) { return silu(t); }, x) == std::set<std::string>{"Identity", "Mul", "Sigmoid"});
  CHECK(ops([](const Tensor& t) { return logaddexp(t, t * 2); }, x).contains("Exp"));
  CHECK(ops([](const Tensor& t) { return huber_loss(t, t * 2, Reduction::none); }, x).contains("Where"));
  CHECK_THROWS_WITH_AS(write([](const Tensor& t) { return digamma(t); }, x), doctest::Contains("no form in ONNX: op digamma"),
                       ExportError);
}

TEST_CASE("large tensors lie in a file beside the model, each where it can be mapped") {
  const Folder folder;
  Sequential net{Linear(40, 80), ReLU(), Linear(80, 40)};
  const OnnxSummary one = export_onnx(folder.path / "one.onnx", net, randn({2, 40}));
  const OnnxSummary two = export_onnx(folder.path / "two.onnx", net, randn({2, 40}), {.external = true});
  CHECK(!fs::exists(folder.path / "one.onnx.data"));
  CHECK(fs::file_size(folder.path / "two.onnx") < 2000);
  CHECK(fs::file_size(folder.path / "two.onnx.data") == 4096 * 4 + 12800);  // 12,800 bytes, to a multiple of 4096, 12,800
  CHECK(one.ops == two.ops);
  CHECK(two.bytes == int64_t(fs::file_size(folder.path / "two.onnx") + fs::file_size(folder.path / "two.onnx.data")));
}
