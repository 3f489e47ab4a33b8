// SPDX-License-Identifier: Apache-2.0
// A Wasserstein GAN with a gradient penalty (Gulrajani et al. 2017) on generated digits, in mixed precision. The critic's loss
// contains the norm of its gradient with respect to its input, so backward goes through a backward.
//   wgan_gp [--dtype float16|bfloat16|float32] [--steps 300]
// The distance between generated and held-out digits is measured by their energy distance, 2 E|x - y| - E|x - x'| - E|y - y'|.
#include <numeric>
#include <string>

#include "examples/claim.h"
#include "halfstep.h"

using namespace halfstep;

namespace {

constexpr int64_t kBatch = 64, kNoise = 16, kHidden = 128, kCriticSteps = 5;

// Images of a split, [n, 784].
Tensor images_of(Split split, int64_t size) {
  const DigitsDataset digits({.split = split, .size = size});
  std::vector<int64_t> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), int64_t(0));
  return digits.batch(all).input.reshape({size, -1});
}

// E|x - y| over all pairs of rows.
double mean_distance(const Tensor& x, const Tensor& y) {
  const Tensor squares = x.square().sum({1}, true) + y.square().sum({1}) - 2.0 * matmul(x, y.transpose(0, 1));
  return sqrt(relu(squares)).mean().item<double>();
}
double energy_distance(const Tensor& x, const Tensor& y) {
  const NoGrad off;
  return 2 * mean_distance(x, y) - mean_distance(x, x) - mean_distance(y, y);
}

}  // namespace

int main(int argc, char** argv) {
  DType dtype = DType::f16;
  int64_t steps = 300;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i], value = argv[i + 1];
    if (key == "--dtype") dtype = parse_dtype(value).value();
    if (key == "--steps") steps = std::stoll(value);
  }
  const bool amp = dtype != DType::f32;
  manual_seed(0);
  const Tensor images = images_of(Split::train, 4000), held_out = images_of(Split::test, 500);
  const int64_t pixels = images.size(1);
  Sequential generator{Linear(kNoise, kHidden), ReLU(), Linear(kHidden, kHidden), ReLU(), Linear(kHidden, pixels), Sigmoid()};
  Sequential critic{Linear(pixels, kHidden), LeakyReLU(0.2), Linear(kHidden, kHidden), LeakyReLU(0.2), Linear(kHidden, 1)};
  Adam generator_steps(generator.parameters(), {.lr = 1e-3, .betas = {0, 0.9}});
  Adam critic_steps(critic.parameters(), {.lr = 1e-3, .betas = {0, 0.9}});
  const bool scaled = dtype == DType::f16;
  GradScaler generator_scaler({.enabled = scaled}), critic_scaler({.enabled = scaled});
  int64_t skipped = 0;
  double norm = 0;  // of the critic's gradients, lately

  const auto real_batch = [&] { return index_select(images, 0, randint(0, images.size(0), {kBatch})); };
  const auto generated = [&](int64_t n) {
    const Autocast region(Device::cpu, dtype, amp);
    return generator(randn({n, kNoise})).to(DType::f32);
  };
  const auto train_critic = [&] {
    critic_steps.zero_grad();
    const Tensor real = real_batch(), fake = [&] {
      const NoGrad off;
      return generated(kBatch);
    }();
    const Tensor share = rand({kBatch, 1});
    Tensor between = share * real + (1.0 - share) * fake;
    between.set_requires_grad(true);
    Tensor scores, loss;
    {
      const Autocast region(Device::cpu, dtype, amp);
      loss = critic(fake).to(DType::f32).mean() - critic(real).to(DType::f32).mean();
      scores = critic(between);
    }
    // In float16 these gradients, too, would be lost without a scale; it is taken out again before they enter the penalty.
    const Tensor gradient =
        grad({critic_scaler.scale(scores.sum())}, {between}, {}, {.create_graph = true})[0] * (1 / critic_scaler.get_scale());
    const Tensor norms = sqrt(gradient.square().sum({1}) + 1e-12);
    loss = loss + 10.0 * (norms - 1.0).square().mean();
    critic_scaler.scale(loss).backward();
    const bool overflow = critic_scaler.step(critic_steps).overflow();
    critic_scaler.update();
    skipped += overflow;
    if (!overflow) norm = 0.9 * norm + 0.1 * norms.mean().item<double>();
  };
  const auto distance = [&] {
    const NoGrad off;
    return energy_distance(generated(500), held_out);
  };

  const double before = distance();
  for (int64_t step = 1; step <= steps; ++step) {
    for (int64_t i = 0; i < kCriticSteps; ++i) train_critic();
    generator_steps.zero_grad();
    Tensor loss;
    {
      const Autocast region(Device::cpu, dtype, amp);
      loss = -critic(generated(kBatch)).to(DType::f32).mean();
    }
    generator_scaler.scale(loss).backward();
    skipped += generator_scaler.step(generator_steps).overflow();
    generator_scaler.update();
    if (step % 100 == 0) std::cout << "step " << step << ": energy distance " << distance() << ", |gradient| " << norm << '\n';
  }
  const double after = distance(), floor = energy_distance(images.narrow(0, 0, 500), held_out);
  std::cout << dtype << ": energy distance " << before << " -> " << after << " (of real digits " << floor << "), |gradient| "
            << norm << ", " << skipped << " steps skipped\n";
  claim(after < 0.2 * before, "what is generated comes near the digits");
  claim(norm > 0.7 && norm < 1.3, "the penalty holds the critic's gradient near 1");
  claim(skipped < 40, "few steps are skipped");
  return failed_claims;
}
