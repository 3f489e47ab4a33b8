// SPDX-License-Identifier: Apache-2.0
// One seed, the same bits on any number of threads: of every kind of work that threads share, and of nets in training.
#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/ops/core/registry.h"
#include "halfstep.h"
#include "tests/backend/buffers.h"

using namespace halfstep;
using Json = nlohmann::json;

namespace {

std::string bytes_of(const Tensor& t) {
  const Tensor dense = t.detach().contiguous();
  return {static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()};
}

// What run() makes on one thread, 2, 3 and 8 must make as well. Returns the number of bytes.
size_t check_threads(const std::function<std::string()>& run) {
  const testing::ByShape cut;
  set_num_threads(1);
  const std::string alone = run();
  for (const int threads : {2, 3, 8}) {
    CAPTURE(threads);
    set_num_threads(threads);
    const std::string shared = run();
    CHECK(shared.size() == alone.size());
    CHECK_MESSAGE(shared == alone, "other bits than one thread makes");
  }
  return alone.size();
}

// in: shapes of normal numbers; {"shape": s, "below": n} are integers, "t": true lies transposed, "last": true in channels_last.
struct OpRow {
  std::string op, in, attrs = "{}";
  bool backward = true;
};

// The outputs of an op and the gradients of its inputs.
std::string row_bytes(const OpRow& row, DType dtype) {
  manual_seed(5);
  std::vector<TensorArgument> in;
  Tensors wanted;
  for (const Json& spec : Json::parse(row.in)) {
    TensorArgument& a = in.emplace_back();
    if (spec.is_null()) continue;
    const Json& dims = spec.is_array() ? spec : spec.at("shape");
    const Shape shape(std::span<const int64_t>(dims.get<std::vector<int64_t>>()));
    if (spec.is_object() && spec.contains("below")) {
      a.one = randint(0, spec["below"].get<int64_t>(), shape);
      continue;
    }
    a.one = randn(shape).to(dtype);
    if (spec.is_object() && spec.value("t", false)) a.one = a.one.transpose(-1, -2).contiguous().transpose(-1, -2);
    if (spec.is_object() && spec.value("last", false)) a.one = a.one.to(MemoryFormat::channels_last);
    a.one = a.one.detach();
    if (row.backward) wanted.push_back(a.one.set_requires_grad());
  }
  std::string all;
  Tensors out, gradients;
  for (const Tensor& t : invoke(row.op, in, Json::parse(row.attrs))) {
    all += bytes_of(t);
    if (!t.requires_grad()) continue;
    out.push_back(t);
    gradients.push_back(randn(t.shape()).to(t.dtype()));
  }
  if (out.empty()) return all;
  for (const Tensor& g : grad(out, wanted, gradients, {.allow_unused = true}))
    if (g.defined()) all += bytes_of(g);
  return all;
}

void check_rows(std::initializer_list<OpRow> rows, std::initializer_list<DType> dtypes) {
  for (const OpRow& row : rows) {
    for (const DType dtype : dtypes) {
      CAPTURE(row.op);
      CAPTURE(row.in);
      CAPTURE(row.attrs);
      CAPTURE(name(dtype));
      CHECK(check_threads([&] { return row_bytes(row, dtype); }) > 0);
    }
  }
}

// Trains a net for some steps; the losses, weights and states.
std::string trained_bytes(const std::function<Sequential()>& make, const std::function<Tensor()>& batch, DType low) {
  manual_seed(11);
  Sequential made = make();
  Sequential* const net = &made;
  net->train();
  AdamW opt(net->parameters(), {.lr = 1e-2});
  std::string all;
  for (int step = 0; step < 4; ++step) {
    const Tensor x = batch();
    Tensor y;
    {
      const Autocast region(Device::cpu, low == DType::f32 ? DType::bf16 : low, low != DType::f32);
      y = (*net)(x);
    }
    {
      const InferenceMode inference;  // weights that are laid out for many calls
      net->eval();
      for (int call = 0; call < 2; ++call) all += bytes_of((*net)(x));
      net->train();
    }
    const Tensor loss = mean(square(y.to(DType::f32)));
    loss.backward();
    clip_grad_norm_(net->parameters(), 1.0);
    opt.step();
    opt.zero_grad();
    all += bytes_of(loss);
  }
  for (const NamedTensor& n : net->state_dict()) all += bytes_of(n.tensor);
  for (const auto& [key, t] : opt.state_dict()) all += bytes_of(t);
  return all;
}

}  // namespace

TEST_CASE("threads: sums, moments, scans and order") {
  check_rows({{"sum", "[[300, 501]]"},
              {"sum", "[[300, 501]]", R"({"dim": 0})"},
              {"sum", "[[7, 129, 333]]", R"({"dim": 1})"},
              {"sum", "[[3, 70001]]", R"({"dim": 1})"},
              {"sum", R"([{"shape": [401, 517], "t": true}])", R"({"dim": 1})"},
              {"mean", "[[13, 10007]]", R"({"dim": 0})"},
              {"mean", "[[131, 1009]]", R"({"dim": 1})"},
              {"prod", "[[301, 255]]", R"({"dim": 1})"},
              {"amax", "[[255, 701]]", R"({"dim": 0})"},
              {"amin", "[[255, 701]]", R"({"dim": 1})"},
              {"var", "[[401, 307]]", R"({"dim": 0})"},
              {"var", "[[5, 66000]]", R"({"dim": 1})"},
              {"std", "[[401, 307]]"},
              {"norm", "[[301, 407]]", R"({"dim": 1})"},
              {"norm", "[[301, 407]]"},
              {"logsumexp", "[[301, 407]]", R"({"dim": 0})"},
              {"cumsum", "[[3, 140001]]", R"({"dim": 1})"},
              {"cumsum", "[[301, 403]]", R"({"dim": 0})"},
              {"cumprod", "[[301, 403]]", R"({"dim": 1})"},
              {"sort", "[[301, 403]]", R"({"dim": 1})"},
              {"topk", "[[301, 403]]", R"({"k": 5})"},
              {"median", "[[301, 403]]", R"({"dim": 1})"},
              {"argmax", "[[301, 403]]", R"({"dim": 0})", false}},
             {DType::f32, DType::bf16, DType::f64});
}

TEST_CASE("threads: rows, elements and images") {
  check_rows({{"softmax", "[[301, 403]]", R"({"dim": 1})"},
              {"log_softmax", "[[301, 403]]", R"({"dim": 0})"},
              {"layer_norm", "[[301, 403], [403], [403]]", R"({"normalized_shape": [403]})"},
              {"layer_norm", "[[30, 5003], [5003], [5003]]", R"({"normalized_shape": [5003]})"},
              {"rms_norm", "[[2001, 65], [65]]", R"({"normalized_shape": [65]})"},
              {"group_norm", "[[5, 24, 31, 29], [24], [24]]", R"({"num_groups": 6})"},
              {"group_norm", R"([{"shape": [5, 24, 31, 29], "last": true}, [24], [24]])", R"({"num_groups": 6})"},
              {"batch_norm", "[[9, 37, 23, 19], null, null, [37], [37]]", R"({"training": true})"},
              {"batch_norm", R"([{"shape": [9, 37, 23, 19], "last": true}, null, null, [37], [37]])", R"({"training": true})"},
              {"batch_norm", "[[700, 211], null, null, [211], [211]]", R"({"training": true})"},
              {"batch_norm_add_relu", "[[9, 37, 23, 19], [9, 37, 23, 19], null, null, [37], [37]]", R"({"training": true})"},
              {"cross_entropy", R"([[257, 1001], {"shape": [257], "below": 1001}])"},
              {"mse_loss", "[[301, 403], [301, 403]]"},
              {"gelu", "[[301, 403]]"},
              {"mul", "[[301, 403], [403]]"},
              {"embedding", R"([[500, 65], {"shape": [3001], "below": 500}])"},
              {"index_select", R"([[500, 65], {"shape": [3001], "below": 500}])", R"({"dim": 0})"},
              {"gather", R"([[301, 403], {"shape": [301, 403], "below": 403}])", R"({"dim": 1})"},
              {"scatter_add", R"([[301, 403], {"shape": [301, 403], "below": 301}, [301, 403]])", R"({"dim": 0})"},
              {"max_pool2d", "[[5, 17, 41, 39]]", R"({"kernel_size": 3, "stride": 2, "padding": 1})"},
              {"avg_pool2d", "[[5, 17, 41, 39]]", R"({"kernel_size": 3, "stride": 2})"},
              {"adaptive_avg_pool2d", "[[5, 65, 41, 39]]", R"({"output_size": [3, 2]})"},
              {"interpolate", "[[3, 17, 41, 39]]", R"({"mode": "bilinear", "scale_factor": 2})"}},
             {DType::f32, DType::bf16});
}

TEST_CASE("threads: products") {
  check_rows({{"mm", "[[128, 784], [784, 256]]"},
              {"mm", R"([[300, 500], {"shape": [500, 321], "t": true}])"},
              {"mm", R"([{"shape": [128, 784], "t": true}, [784, 256]])"},
              {"mm", "[[33, 777], [777, 129]]"},
              {"mm", "[[1000, 1000], [1000, 10]]"},
              {"mm", "[[9, 1030], [1030, 2047]]"},
              {"mm", "[[3, 1030], [1030, 1500]]"},
              {"mm", "[[520, 64], [64, 1500]]"},
              {"mv", "[[1500, 1030], [1030]]"},
              {"mv", R"([{"shape": [1500, 1030], "t": true}, [1030]])"},
              {"bmm", "[[3, 130, 300], [3, 300, 140]]"},
              {"bmm", "[[23, 65, 64], [23, 64, 66]]"},
              {"linear", "[[257, 512], [300, 512], [300]]"},
              {"linear", "[[5, 40, 260], [1024, 260], [1024]]"},
              {"scaled_dot_product_attention", "[[2, 3, 130, 32], [2, 3, 130, 32], [2, 3, 130, 32]]"},
              {"cdist", "[[200, 64], [301, 64]]"}},
             {DType::f32, DType::bf16, DType::f16});
  check_rows({{"mm", "[[128, 784], [784, 256]]"}, {"bmm", "[[3, 130, 300], [3, 300, 140]]"}}, {DType::f64});
}

TEST_CASE("threads: convolutions") {
  for (const char* const last : {"false", "true"}) {
    const auto images = [&](const std::string& shape, const std::string& rest) {
      return R"([{"shape": )" + shape + R"(, "last": )" + last + "}, " + rest + "]";
    };
    const std::string in[] = {images("[9, 16, 28, 28]", "[32, 16, 3, 3], [32]"), images("[1, 64, 28, 28]", "[64, 64, 3, 3], [64]"),
                              images("[3, 96, 5, 5]", "[160, 96, 3, 3], null"), images("[5, 3, 40, 40]", "[24, 3, 7, 7], [24]"),
                              images("[8, 24, 20, 20]", "[24, 1, 3, 3], [24]"), images("[33, 24, 20, 20]", "[48, 24, 1, 1], [48]")};
    check_rows({{"conv2d", in[0], R"({"padding": 1})"},
                {"conv2d", in[1], R"({"padding": 1})"},
                {"conv2d", in[2], R"({"padding": 1})"},
                {"conv2d", in[3], R"({"stride": 2, "padding": 3})"},
                {"conv2d", in[4], R"({"padding": 1, "groups": 24})"},
                {"conv2d", in[5]}},
               {DType::f32, DType::bf16, DType::f16});
  }
  check_rows({{"conv1d", "[[9, 16, 300], [32, 16, 5], [32]]"},
              {"conv3d", "[[2, 8, 9, 12, 12], [16, 8, 3, 3, 3], [16]]"},
              {"conv_transpose2d", "[[5, 32, 14, 14], [32, 24, 4, 4], [24]]", R"({"stride": 2, "padding": 1})"}},
             {DType::f32, DType::bf16});
}

TEST_CASE("threads: nets in training") {
  struct Trained {
    std::string what;
    std::function<Sequential()> make;
    std::function<Tensor()> batch;
  };
  const Trained nets[] = {
      {"MLP", [] { return Sequential({Linear(300, 512), ReLU(), Dropout(0.2), LayerNorm(512), Linear(512, 257), GELU()}); },
       [] { return randn({130, 300}); }},
      {"convolutions",
       [] {
         return Sequential({Conv2d(3, 16, 3), BatchNorm2d(16), ReLU(), MaxPool2d(2), Conv2d(16, 32, 3), GroupNorm(4, 32), ReLU(),
                            Flatten(), Linear(32 * 11 * 11, 64)});
       },
       [] { return randn({9, 3, 28, 28}); }},
      {"LSTM", [] { return Sequential({LSTM(40, 96, {.num_layers = 2, .batch_first = true, .output = "last"}), Linear(96, 33)}); },
       [] { return randn({35, 13, 40}); }},
      {"GRU", [] { return Sequential({GRU(40, 96, {.batch_first = true, .bidirectional = true}), Linear(192, 33)}); },
       [] { return randn({70, 9, 40}); }},
      {"transformer",
       [] {
         return Sequential({Embedding(500, 64), TransformerEncoderLayer(64, 4, {.dim_feedforward = 200, .batch_first = true}),
                            Linear(64, 500)});
       },
       [] { return randint(0, 500, {9, 33}); }},
  };
  for (const Trained& net : nets) {
    for (const DType low : {DType::f32, DType::bf16, DType::f16}) {
      CAPTURE(net.what);
      CAPTURE(name(low));
      CHECK(check_threads([&] { return trained_bytes(net.make, net.batch, low); }) > 0);
    }
  }
}
