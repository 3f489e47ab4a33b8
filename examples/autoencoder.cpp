// SPDX-License-Identifier: Apache-2.0
// An autoencoder of generated digits: the target of each image is the image itself, and all that passes between is a code of a few
// numbers.
//   autoencoder [--dtype float16|bfloat16|float32] [--code 8] [--epochs 12] [--size 8000]
// It is compared with the best linear code of the same width (principal components of the same images).
#include <numeric>
#include <string>

#include "examples/claim.h"
#include "halfstep.h"

using namespace halfstep;

namespace {

struct Options {
  DType dtype = DType::f16;
  int64_t code = 8, epochs = 12, size = 8000, batch = 64;
};

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i], value = argv[i + 1];
    if (key == "--dtype") o.dtype = parse_dtype(value).value();
    if (key == "--code") o.code = std::stoll(value);
    if (key == "--epochs") o.epochs = std::stoll(value);
    if (key == "--size") o.size = std::stoll(value);
  }
  return o;
}

// All images of a split, [n, 784].
Tensor images_of(Split split, int64_t size) {
  const DigitsDataset digits({.split = split, .size = size});
  std::vector<int64_t> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), int64_t(0));
  return digits.batch(all).input.reshape({size, -1});
}

// Orthonormal columns that span the same space (Gram and Schmidt, twice, since once is not exact in float32).
Tensor orthonormal(const Tensor& columns) {
  Tensors out;
  for (int64_t j = 0; j < columns.size(1); ++j) {
    Tensor v = columns.select(1, j);
    for (int pass = 0; pass < 2; ++pass)
      for (const Tensor& u : out) v = v - u * (u * v).sum();
    out.push_back(v / sqrt(v.square().sum()));
  }
  return stack(out, 1);
}

// The mean square error on `held_out` of the mean image plus `code` principal components of `images`, by subspace iteration.
double linear_error(const Tensor& images, const Tensor& held_out, int64_t code) {
  const NoGrad off;
  const Tensor mean = images.mean({0}, true), centred = images - mean;
  const Tensor covariance = matmul(centred.transpose(0, 1), centred);
  Tensor basis = orthonormal(randn({images.size(1), code}));
  for (int i = 0; i < 50; ++i) basis = orthonormal(matmul(covariance, basis));
  const Tensor rest = held_out - mean;
  return (rest - matmul(matmul(rest, basis), basis.transpose(0, 1))).square().mean().item<double>();
}

}  // namespace

int main(int argc, char** argv) {
  const Options o = parse(argc, argv);
  manual_seed(0);
  const Tensor images = images_of(Split::train, o.size), held_out = images_of(Split::test, 1000);
  const double linear = linear_error(images, held_out, o.code);

  const int64_t pixels = images.size(1), hidden = 256;
  Sequential net{Linear(pixels, hidden), ReLU(), Linear(hidden, o.code),  //
                 Linear(o.code, hidden), ReLU(), Linear(hidden, pixels), Sigmoid()};
  const MSELoss loss_fn;
  AdamW optimizer(net.parameters(), {.lr = 0.004});
  CosineAnnealingLR schedule(optimizer, o.epochs * (o.size / o.batch), 0, 20);
  GradScaler scaler({.enabled = o.dtype == DType::f16});
  const auto error_of = [&](const Tensor& x) {
    const NoGrad off;
    const Autocast region(Device::cpu, if_half(o.dtype));
    return loss_fn(net(x), x).item<double>();
  };
  const double before = error_of(held_out);
  int64_t skipped = 0;
  for (int64_t epoch = 0; epoch < o.epochs; ++epoch) {
    const Tensor order = randperm(o.size);
    for (int64_t begin = 0; begin + o.batch <= o.size; begin += o.batch) {
      const Tensor x = index_select(images, 0, order.narrow(0, begin, o.batch));
      optimizer.zero_grad();
      Tensor loss;
      {
        const Autocast region(Device::cpu, if_half(o.dtype));
        loss = loss_fn(net(x), x);  // the target is the input
      }
      scaler.scale(loss).backward();
      skipped += scaler.step(optimizer).overflow();
      scaler.update();
      schedule.step();
    }
    if ((epoch + 1) % 4 == 0) std::cout << "epoch " << epoch + 1 << ": error on held-out digits " << error_of(held_out) << '\n';
  }
  const double after = error_of(held_out);
  std::cout << o.dtype << ", a code of " << o.code << " numbers: error " << before << " -> " << after << "; linear " << linear
            << "; " << skipped << " steps skipped\n";
  claim(after < 0.8 * linear, "the error is far below that of the best linear code");
  claim(skipped < 10, "few steps are skipped");
  return failed_claims;
}
