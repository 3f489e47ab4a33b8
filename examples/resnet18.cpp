// SPDX-License-Identifier: Apache-2.0
// ResNet-18 (resnet18.h): a narrow one learns generated digits in mixed precision. The published one runs on the meta device, which
// computes nothing: this checks its names and shows the memory of a training step.
//
//   resnet18 [f16 | bf16 | f32] [SAMPLES]    f16 trains with a GradScaler
#include "examples/resnet18.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "examples/claim.h"
#include "framework/tensor/memory.h"

double accuracy(Module& model, const Dataset& data, std::optional<DType> dtype) {
  const NoGrad off;
  model.eval();
  double right = 0;
  const auto set = std::make_shared<TensorDataset<>>(static_cast<const TensorDataset<>&>(data));
  for (const Batch& b : DataLoader(set, {.batch_size = 100})) {
    const Autocast region(Device::cpu, dtype);
    right += (model(b.input).argmax(1) == b.target).sum().item();
  }
  model.train();
  return right / double(data.size());
}

int main(int argc, char** argv) {
  const std::string given = argc > 1 ? argv[1] : "f16";
  const DType dtype = given == "f16" ? DType::f16 : given == "bf16" ? DType::bf16 : DType::f32;
  const int64_t samples = argc > 2 ? std::atoi(argv[2]) : 3200;
  manual_seed(1);
  ResNet18 net(10, 8, 1);
  SGD opt(net.parameters(), {.lr = 0.05, .momentum = 0.9, .weight_decay = 5e-4});
  GradScaler scaler({.enabled = dtype == DType::f16});
  const CrossEntropyLoss loss;
  TrainStep step(net, loss, opt, scaler, nullptr, {.amp = if_half(dtype)});
  const auto digits = std::make_shared<DigitsDataset>(DigitsOptions{.size = samples});
  DataLoader loader(digits, {.batch_size = 32, .shuffle = true, .drop_last = true});
  double first = 0, last = 0;
  int64_t steps = 0;
  for (const Batch& b : loader) {
    last = step(b.input, b.target).loss.item();
    if (steps++ == 0) first = last;
  }
  const double share = accuracy(net, DigitsDataset({.split = Split::test, .size = 500}), if_half(dtype));
  std::cout << given << ": loss " << first << " -> " << last << " in " << steps << " steps, " << 100 * share
            << " % of test digits\n";
  claim(last < 0.7 * first, "the loss falls");
  claim(share > 0.5, "most digits are recognised");

  const DefaultDevice meta(Device::meta);
  ResNet18 published;
  std::stringstream names, listed;
  for (const NamedTensor& t : published.state_tensors()) names << t.name << ' ' << t.tensor.shape() << '\n';
  listed << std::ifstream("examples/resnet18.txt").rdbuf();  // run it from the root of the sources
  claim(names.str() == listed.str(), "names and shapes are torchvision's");
  claim(published.parameter_count() == 11689512, "11,689,512 parameters");
  for (const DType low : {DType::f32, DType::f16, DType::bf16}) {
    SGD sgd(published.parameters(), {.lr = 0.1, .momentum = 0.9});
    GradScaler scale({.enabled = low == DType::f16});
    TrainStep train(published, loss, sgd, scale, nullptr, {.device = Device::meta, .amp = if_half(low)});
    const Tensor images = zeros({32, 3, 224, 224}), classes = zeros(32, {.dtype = DType::i64});
    train(images, classes);
    allocator(Device::meta).reset_peak();
    train(images, classes);
    std::cout << "ResNet-18, SGD, 32 x 3 x 224 x 224, " << low << ": " << (allocator(Device::meta).stats().peak >> 20)
              << " MiB at the peak of a step\n";
    published.zero_grad();
  }
  return failed_claims;
}
