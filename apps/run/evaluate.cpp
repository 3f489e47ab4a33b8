#include "apps/run/evaluate.h"

#include <chrono>

#include "amp/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"

namespace halfstep::app {

EvalResult evaluate(Module& module, const Loss& loss, DataLoader& loader, Device device, std::optional<DType> low) {
  const auto start = std::chrono::steady_clock::now();
  const NoGrad no_grad;
  const bool training = module.training();
  module.eval();
  EvalResult out;
  const bool classes = loader.dataset().classes() > 0;
  int64_t correct = 0;
  for (const Batch& batch : loader) {
    const auto [input, target] = on_device(batch, device);
    Tensor output, value;
    {
      const Autocast region(device, low.value_or(DType::bf16), low.has_value());
      output = module(input);
      value = loss(output, target);
    }
    const int64_t n = input.size(0);
    out.loss += value.item<double>() * double(n);
    out.samples += n;
    if (classes) correct += eq(argmax(output, -1), target).sum().item<int64_t>();
  }
  module.train(training);
  out.loss /= double(out.samples);
  if (classes) out.accuracy = double(correct) / double(out.samples);
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

Batch on_device(const Batch& batch, Device device) {
  if (batch.input.device() == device && batch.target.device() == device) return batch;
  const MemoryScope scope(MemoryTag::data);
  return {batch.input.to(device), batch.target.to(device)};
}

}  // namespace halfstep::app
