// SPDX-License-Identifier: Apache-2.0
// Every layer of the catalogue on the device: PyTorch's values and gradients, and the same bits when it is recorded.
#include "tests/apps/catalog/layer_goldens.h"
#include "tests/cuda/support.h"

using namespace halfstep;
using namespace halfstep::testing;
using namespace halfstep::app::testing;

namespace {

// Layers for which the backend asks its library of convolutions, recurrent networks and attention.
bool is_for_the_library(const Golden& g) {
  const std::string type = g.type();
  for (const char* part : {"Conv", "RNN", "LSTM", "GRU", "Attention", "Transformer"})
    if (type.find(part) != std::string::npos) return true;
  return false;
}

// y and all gradients of one run.
Tensors step(Module& module, const Tensor& x, const Tensor& weight) {
  const Tensor y = module(x);
  Tensors wanted = module.parameters(), out{y.detach()};
  if (x.requires_grad()) wanted.push_back(x);
  if (!wanted.empty())
    for (const Tensor& g : grad({y}, wanted, {weight})) out.push_back(g);
  return out;
}

std::string all_bytes(const Tensors& tensors) {
  std::string out;
  for (const Tensor& t : tensors) out += bytes(t);
  return out;
}

// y and all gradients on `device`, in a region unless `low` is float32. On the GPU again from a recording: the same bits.
Tensors results(const Golden& g, DType low, Device device) {
  const auto module = make(g, DType::f32, device);
  module->train(!g.random());
  const Tensor x = input(g, DType::f32, device);
  const Autocast region(device, is_half(low) ? low : DType::bf16, is_half(low));
  const Tensor y = (*module)(x), weight = waves(y.shape(), y.dtype()).to(device);
  const Tensors eager = step(*module, x, weight);  // which also makes the preparations that only an eager step can make
  if (device.is_cpu() || !module->is_recordable()) return eager;
  Backend& backend = backend_for(device);
  backend.begin_recording(default_generator());
  Tensors recorded;
  try {
    recorded = step(*module, x, weight);
  } catch (const RecordingError& e) {
    backend.abandon_recording();
    FAIL_CHECK(std::string(e.what()));
    return eager;
  }
  const std::unique_ptr<Recording> recording = backend.end_recording();
  for (int i = 0; i < 2; ++i) {
    recording->replay();
    CHECK(all_bytes(recorded) == all_bytes(eager));
  }
  return eager;
}

void check_on_device(const Golden& g) {
  CAPTURE(g.json.dump());
  check_values(g, *make(g, DType::f32, Device::cuda), DType::f32, kTolerance, Device::cuda);
  results(g, DType::f32, Device::cuda);
}

}  // namespace

TEST_CASE("layers for which there is a library are PyTorch's on the device, also recorded and in a region") {
  const Listening log;
  int layers = 0;
  for (const Golden& g : goldens("layer")) {
    if (!is_for_the_library(g)) continue;
    ++layers;
    check_on_device(g);
    CAPTURE(g.json.dump());
    for (DType low : {DType::f16, DType::bf16}) {
      CAPTURE(name(low));
      if (low == DType::bf16 && backend_for(Device::cuda).describe().find("sm_7") != std::string::npos) continue;
      const Tensors got = results(g, low, Device::cuda), here = results(g, low, Device::cpu);
      std::vector<std::string> names{g.random() ? "e" : "y"};
      for (const NamedTensor& p : make(g, DType::f32)->named_parameters()) names.push_back("g." + p.name);
      names.push_back("g.x");
      REQUIRE(got.size() == names.size());
      for (size_t i = 0; i < names.size(); ++i) {
        CAPTURE(names[i]);
        const Tensor want = g.at(names[i], DType::f64);
        const double worst = distance(got[i], want);  // or as near as the CPU comes in this dtype
        CHECK(worst <= std::max(low == DType::f16 ? 4e-3 : 3e-2, 2 * distance(here[i], want)));
      }
    }
  }
  CHECK(layers > 50);
  if (has_library()) CHECK(log.count("[cudnn] ") > 2 * layers);
  if (has_attention()) CHECK(log.count("[cudnn] attention's gradient") == 2);  // in either dtype
}

TEST_CASE("all other layers are PyTorch's on the device, also recorded") {
  for (const Golden& g : goldens("layer"))
    if (!is_for_the_library(g)) check_on_device(g);
}
