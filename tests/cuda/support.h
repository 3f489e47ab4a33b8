// SPDX-License-Identifier: Apache-2.0
// Helpers of tests on the CUDA device: bytes of tensors, and models on both devices.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "amp/step/train_step.h"
#include "framework/base/log.h"
#include "halfstep.h"

namespace halfstep::testing {

inline constexpr Device kBoth[] = {Device::cpu, Device::cuda};

inline std::string bytes(const Tensor& t) {
  const Tensor here = t.detach().contiguous().to(Device::cpu);
  return {static_cast<const char*>(here.const_data_ptr()), here.nbytes()};
}
inline std::string bytes(const Module& m) {
  std::string out;
  for (const NamedTensor& n : m.state_dict()) out += bytes(n.tensor);
  return out;
}
inline std::string bytes(const Optimizer& o) {
  std::string out;
  for (const auto& [name, t] : o.state_dict()) out += name + ":" + bytes(t) + ";";
  return out;
}
// Returns the current 16-bit copies.
inline std::string shadow_bytes(const Module& m) {
  std::string out;
  for (const Tensor& p : m.parameters()) {
    if (const Tensor shadow = autocast::shadow_of(p); shadow.defined()) out += bytes(shadow) + ";";
  }
  return out;
}

inline Tensors moved(const Tensors& in, Device device) {
  Tensors out;
  for (const Tensor& t : in) out.push_back(t.to(device));
  return out;
}

// Returns the largest difference of two tensors, NaN if there is one.
inline double largest_difference(const Tensor& a, const Tensor& b) {
  const auto x = a.contiguous().to_vector<double>(), y = b.contiguous().to_vector<double>();
  REQUIRE(x.size() == y.size());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (const double d = std::fabs(x[i] - y[i]); !(d <= worst)) worst = d;
  }
  return worst;
}

// Checks that recorded attention of q to itself gives in each replay what the next eager call would give.
inline void check_recorded_attention(const Tensor& q, double dropout) {
  const NoGrad off;
  const auto attention = [&] { return scaled_dot_product_attention(q, q, q, {.dropout_p = dropout}); };
  manual_seed(9);
  const std::string eager[2] = {bytes(attention()), bytes(attention())};
  CHECK((eager[0] != eager[1]) == (dropout > 0));
  manual_seed(9);
  backend_for(Device::cuda).begin_recording(default_generator());
  const Tensor out = attention();
  const std::unique_ptr<Recording> recording = backend_for(Device::cuda).end_recording();
  for (const std::string& want : eager) {
    recording->replay();
    CHECK(bytes(out) == want);
  }
}

// A step in float16 for profiles, which does not record itself.
struct SmallStep {
  Sequential net{Linear(6, 8), ReLU(), Linear(8, 2)};
  MSELoss loss;
  SGD optimizer{net.parameters(), SGDOptions{.lr = 0.1}};
  GradScaler scaler{GradScalerOptions{}};
  TrainStep step{net, loss, optimizer, scaler, nullptr, {.device = Device::cuda, .amp = DType::f16, .graph = GraphMode::off}};
  Tensor x = randn({5, 6}), y = randn({5, 2});
  void operator()() { step(x, y); }
};

inline uint64_t host_reads() { return backend_for(Device::cuda).host_reads(); }

// Collects log lines in its scope: the libraries write one for each new kind of work.
struct Listening {
  Listening() { said.clear(); }
  int count(const std::string& word) const {
    int n = 0;
    for (size_t at = said.find(word); at != std::string::npos; at = said.find(word, at + 1)) ++n;
    return n;
  }
  static inline std::string said;
  logging::Capture capture{[](logging::Level, std::string_view m) { said += std::string(m) + '\n'; }};
};
// Returns whether the device has a library of convolutions and attention; prints the reason if not.
inline bool has_library() {
  if (backend_for(Device::cuda).describe().find(", cuDNN ") != std::string::npos) return true;
  std::puts(("SKIPPED: " + backend_for(Device::cuda).describe()).c_str());
  return false;
}

inline bool has_attention() {
  if (!has_library()) return false;
  if (backend_for(Device::cuda).describe().find("sm_7") == std::string::npos) return true;
  std::puts("SKIPPED: cuDNN has no attention before Ampere");
  return false;
}

// Makes a model with the same weights on every device.
inline std::shared_ptr<Sequential> mlp_model(Device device, double dropout = 0, int64_t width = 24) {
  manual_seed(11);
  auto net = std::make_shared<Sequential>(std::make_shared<Linear>(12, width), std::make_shared<ReLU>());
  if (dropout > 0) net->push_back(std::make_shared<Dropout>(dropout));
  net->push_back(std::make_shared<Linear>(width, width)).push_back(std::make_shared<GELU>("tanh"));
  net->push_back(std::make_shared<Linear>(width, 5));
  net->to(device);
  return net;
}

// Batches of a learnable problem: five classes by the largest of five sums.
struct Batches {
  std::vector<Tensor> inputs, targets;

  Batches(Device device, int count, int64_t size = 16) {
    manual_seed(12);
    const Tensor mix = randn({12, 5});
    for (int i = 0; i < count; ++i) {
      const Tensor x = randn({size, 12});
      inputs.push_back(x.to(device));
      targets.push_back(argmax(mm(x, mix), 1).to(device));
    }
  }
};

}  // namespace halfstep::testing
