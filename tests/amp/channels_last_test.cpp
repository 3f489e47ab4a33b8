// SPDX-License-Identifier: Apache-2.0
// A network whose weights lie in channels_last trains as one whose weights do not, and its state is the same to others.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "framework/backend/op_log.h"
#include "halfstep.h"

using namespace halfstep;

namespace {

constexpr MemoryFormat kLast = MemoryFormat::channels_last;

std::shared_ptr<Sequential> net() {
  manual_seed(3);
  return std::make_shared<Sequential>(make<Conv2d>(3, 8, 3, ConvLayerOptions{.padding = 1}), make<BatchNorm2d>(8), make<ReLU>(),
                                      make<MaxPool2d>(2), make<Conv2d>(8, 16, 3), make<ReLU>(), make<AdaptiveAvgPool2d>(1),
                                      make<Flatten>(), make<Linear>(16, 5));
}

template <class Make>
std::vector<double> trained(Sequential& model, const Make& make, bool amp, int steps = 5) {
  CrossEntropyLoss loss;
  const auto optimizer = make(model);
  GradScaler scaler({.init_scale = 256});
  TrainStep step(model, loss, *optimizer, scaler, nullptr, {.amp = amp ? std::optional(DType::bf16) : std::nullopt});
  Generator random(7);
  const Tensor x = randn({6, 3, 10, 10}, {}, &random), target = remainder(arange(6, {.dtype = DType::i64}), 5);
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) {
    const Tensor l = step(x, target).loss;
    losses.push_back(l.item());
  }
  return losses;
}

}  // namespace

TEST_CASE("training in channels_last gives the losses of training in channels_first") {
  const auto adamw = [](Module& m) { return std::make_unique<AdamW>(m.parameters(), AdamWOptions{.lr = 1e-2}); };
  const auto muon = [](Module& m) { return std::make_unique<Muon>(m.parameters(), MuonOptions{.lr = 1e-2}); };
  const auto lamb = [](Module& m) { return std::make_unique<LAMB>(m.parameters(), LAMBOptions{.lr = 1e-2}); };
  const auto factor = [](Module& m) { return std::make_unique<Adafactor>(m.parameters(), AdafactorOptions{.lr = 1e-2}); };
  const auto check = [](const auto& make, bool amp, double within) {
    const auto rows = net(), last = net();
    last->to(kLast);
    const auto want = trained(*rows, make, amp), got = trained(*last, make, amp);
    for (size_t i = 0; i < want.size(); ++i) CHECK(std::fabs(got[i] - want[i]) < within);
    CHECK(want.back() < want.front());
    for (const NamedTensor& p : last->named_parameters()) {
      if (p.tensor.dim() != 4) continue;
      CAPTURE(p.name);
      CHECK(p.tensor.format() == kLast);
      CHECK(p.tensor.grad().format() == kLast);
      if (amp) CHECK(autocast::shadow_of(p.tensor).format() == kLast);
    }
  };
  check(adamw, false, 1e-4);
  check(adamw, true, 0.05);
  check(lamb, false, 1e-4);
  check(factor, false, 1e-4);
  check(muon, false, 0.05);  // its products are rounded to bfloat16
}

// The backend's calls in a step of a residual network, by op and pass.
std::map<std::string, int> kernels_of(MemoryFormat format, bool amp) {
  const DefaultDevice on(Device::meta);
  const auto conv = [](int64_t in, int64_t out, int64_t size) {
    return make<Conv2d>(in, out, size, ConvLayerOptions{.padding = size / 2});
  };
  const auto block = make<Sequential>(conv(8, 8, 3), make<BatchNorm2d>(8), make<ReLU>(), conv(8, 8, 3), make<GroupNorm>(4, 8));
  Sequential model(conv(3, 8, 7), make<BatchNorm2d>(8), make<ReLU>(), make<MaxPool2d>(2), make<Residual>(block), make<ReLU>(),
                   conv(8, 8, 1), make<InstanceNorm2d>(8, InstanceNormOptions{.affine = true, .track_running_stats = true}),
                   make<GELU>(), make<AvgPool2d>(2), make<Upsample>(InterpolateOptions{.scale_factor = {2.0}, .mode = "bilinear"}),
                   make<AdaptiveAvgPool2d>(1), make<Flatten>(), make<Linear>(8, 5));
  model.to(format);
  AdamW optimizer(model.parameters(), {.lr = 1e-2});
  CrossEntropyLoss loss;
  GradScaler scaler({.init_scale = 256});
  TrainStep step(model, loss, optimizer, scaler, nullptr, {.amp = amp ? std::optional(DType::bf16) : std::nullopt});
  const Tensor x = zeros({6, 3, 16, 16}, {.format = format}), target = zeros({6}, {.dtype = DType::i64});
  step(x, target);
  std::map<std::string, int> kernels;
  const OpLogScope log;
  step(x, target);
  for (const LoggedCall& call : log.calls()) kernels[std::string(name(call.pass)) + " " + call.op] += call.kernels;
  return kernels;
}

TEST_CASE("a step in channels_last makes the calls of one in channels_first: nothing is copied from one format to the other") {
  for (const bool amp : {false, true}) {
    CAPTURE(amp);
    const auto rows = kernels_of(MemoryFormat::contiguous, amp), last = kernels_of(kLast, amp);
    for (const auto& row : last) {
      const std::string& op = row.first;
      CAPTURE(op);
      CHECK(row.second == (rows.contains(op) ? rows.at(op) : 0));
    }
  }
}

TEST_CASE("states, averages and saved files do not know the format") {
  const auto dir = std::filesystem::temp_directory_path() / "halfstep_channels_last";
  std::filesystem::create_directories(dir);
  const auto model = net();
  model->to(kLast);
  CHECK(model->state_dict()[0].tensor.format() == kLast);
  save(*model, dir / "last.safetensors");
  const auto rows = net();
  for (const Tensor& p : rows->parameters()) p.detach().fill_(0);
  load(*rows, dir / "last.safetensors");
  CHECK(rows->parameters()[0].format() == MemoryFormat::contiguous);
  CHECK(rows->parameters()[0].to_vector<double>() == model->parameters()[0].to_vector<double>());
  std::filesystem::remove_all(dir);
}

TEST_CASE("an optimizer's state follows parameters that are laid out anew") {
  const auto model = net();
  AdamW optimizer(model->parameters(), {.lr = 1e-2});
  CrossEntropyLoss loss;
  Generator random(7);
  const Tensor x = randn({6, 3, 10, 10}, {}, &random), target = remainder(arange(6, {.dtype = DType::i64}), 5);
  const auto step = [&](Module& m, Optimizer& o) {
    o.zero_grad();
    const Tensor l = loss(m(x), target);
    l.backward();
    o.step();
    return l.item();
  };
  const auto other = net();
  AdamW plain(other->parameters(), {.lr = 1e-2});
  for (int i = 0; i < 6; ++i) {
    if (i == 3) model->to(kLast);
    CHECK(step(*model, optimizer) == doctest::Approx(step(*other, plain)).epsilon(1e-4));
  }
}
