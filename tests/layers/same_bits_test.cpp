// SPDX-License-Identifier: Apache-2.0
// Drawn numbers and first values of weights have the same bits on every CPU: the digests were recorded on x86-64.
#include <doctest/doctest.h>

#include <functional>

#include "framework/io/files/checksum.h"
#include "framework/ops/ops.h"
#include "layers/layers.h"
#include "layers/module/init.h"

using namespace halfstep;

namespace {

void begins(const std::string& what, const TensorMap& tensors, const std::string& digest) {
  const std::string whole = sha256(tensors);
  CHECK_MESSAGE(whole.substr(0, 16) == digest, what);
}

// Digest of a tensor that `fill` has filled after the seed 7.
void fills(const std::string& what, DType dtype, const Shape& shape, const std::function<void(const Tensor&)>& fill,
           const std::string& digest) {
  manual_seed(7);
  const Tensor t = Tensor::empty(shape, {.dtype = dtype});
  fill(t);
  begins(what, {{"t", t}}, digest);
}

void starts(const Module& module, const std::string& digest) {
  TensorMap state;
  for (const auto& [name, tensor] : module.state_dict()) state[name] = tensor;
  begins(module.describe(), state, digest);
}

}  // namespace

TEST_CASE("one seed draws the same numbers on every CPU") {
  const auto uniform = [](const Tensor& t) { init::uniform_(t, -0.37, 1.3); };
  const auto normal = [](const Tensor& t) { init::normal_(t, 0.21, 1.7); };
  fills("uniform, float32", DType::f32, {5003}, uniform, "0c6fa54611e21661");
  fills("uniform, float64", DType::f64, {5003}, uniform, "4fd57f2fdab6c1f6");
  fills("uniform, bfloat16", DType::bf16, {5003}, uniform, "5aba377e0c68289c");
  fills("normal, float32", DType::f32, {5003}, normal, "deeb00e74001edb3");
  fills("normal, float64", DType::f64, {5003}, normal, "fa5ed0237c56b895");
  fills("normal, float16", DType::f16, {5003}, normal, "02c766bab2638167");
  manual_seed(7);
  begins("randint, randperm, dropout, bernoulli",
         {{"randint", randint(-5, 1000, {4001})}, {"randperm", randperm(3001)}, {"dropout", dropout(ones({4001}), 0.3)},
          {"bernoulli", bernoulli(full({4001}, 0.7))}},
         "82259ee0af9099eb");
}

TEST_CASE("one seed gives initialisers the same bits on every CPU") {
  const Shape shape{40, 24, 3};
  const auto fill = [&](const std::string& what, const std::function<void(const Tensor&)>& with, const std::string& digest) {
    fills(what, DType::f32, what.starts_with("sparse") ? Shape{90, 70} : shape, with, digest);
  };
  fill("trunc_normal_", [](const Tensor& t) { init::trunc_normal_(t, 0, 0.02, -0.03, 0.05); }, "271eb8a02e802ad8");
  fill("xavier_uniform_", [](const Tensor& t) { init::xavier_uniform_(t, 1.3); }, "d1844ed45a6fe430");
  fill("xavier_normal_", [](const Tensor& t) { init::xavier_normal_(t); }, "ade470c15d63713a");
  fill("kaiming_uniform_", [](const Tensor& t) { init::kaiming_uniform_(t, 2.236); }, "f2beab6b1c283c39");
  fill("kaiming_normal_", [](const Tensor& t) { init::kaiming_normal_(t, {.mode = "fan_out", .nonlinearity = "relu"}); },
       "c1cd22ab53ccdbb8");
  fill("orthogonal_", [](const Tensor& t) { init::orthogonal_(t, 1.4); }, "d86f8fc3dd93a44f");
  fill("sparse_", [](const Tensor& t) { init::sparse_(t, 0.3); }, "91d3136797250c4e");
}

TEST_CASE("one seed gives layers the same first weights on every CPU") {
  manual_seed(7);
  starts(Linear(70, 50), "c6c37bbb92f5c738");
  starts(Bilinear(7, 9, 11), "40b4e33f0dca4e42");
  starts(Conv2d(6, 16, 3), "6b042db03caeac9b");
  starts(ConvTranspose1d(6, 10, 4), "0a7d4828aac6266a");
  starts(Embedding(60, 40), "8472bf04e383b689");
  starts(LSTM(20, 30, {.num_layers = 2}), "8e32c5d9a25709b3");
  starts(MultiheadAttention(32, 4), "c3e0a57d0f65db97");
  starts(TransformerEncoderLayer(32, 4), "fff8e55467bede3f");
  starts(BatchNorm2d(6), "a719cd4fa19b6caf");
}
