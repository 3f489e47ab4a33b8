// SPDX-License-Identifier: Apache-2.0
// torchvision's transforms: goldens of what is deterministic, statistics of what is drawn, and how lists of them run.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <sstream>
#include <string>

#include "framework/base/check.h"
#include "framework/data/loading/loader.h"
#include "framework/data/sets/tensor_dataset.h"
#include "framework/data/transforms/image_transforms.h"
#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/io/files.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

const TensorMap& goldens() {
  static const TensorMap all = load_safetensors(halfstep_source_dir() + "/tests/data/data_goldens.safetensors").tensors;
  return all;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  return (a - b).abs().max().item<double>();
}

// What a transform makes of one image [C, H, W].
Tensor once(const Transform& t, const Tensor& image, const Draws& draws = {}) {
  const int64_t index[] = {0};
  Draws own = draws;
  own.indices = index;
  const Tensor out = t.apply({image.unsqueeze(0), zeros({1}, {.dtype = DType::i64})}, own).input;
  const Tensor shape = t.apply({Tensor::empty(image.unsqueeze(0).shape(), {.device = Device::meta}), Tensor()}, own).input;
  CHECK(shape.shape() == out.shape());
  return out.squeeze(0);
}

using InPlace = void (*)(float*, const Shape&, double);
Tensor adjusted(InPlace adjust, const Tensor& image, double factor) {
  const Tensor out = image.clone();
  adjust(out.data_ptr<float>(), out.shape(), factor);
  return out;
}

Tensor warped(const Tensor& image, const AffineMap& map, const WarpOptions& options) {
  const Tensor out = Tensor::empty(image.shape());
  warp_image(image.data_ptr<float>(), out.data_ptr<float>(), image.shape(), inverse_of(map), options);
  return out;
}

// n bytes images [C, H, W] with the classes 0, 1, 2 in turn.
std::shared_ptr<TensorDataset<>> byte_images(int64_t n, const Shape& sample, Affine affine = {1 / 255.f, 0}) {
  const Tensor x = Tensor::empty(with_batch(n, sample), {.dtype = DType::u8}), y = Tensor::empty({n}, {.dtype = DType::i64});
  for (int64_t i = 0; i < x.numel(); ++i) x.data_ptr<uint8_t>()[i] = uint8_t(i * 2654435761u >> 13);
  for (int64_t i = 0; i < n; ++i) y.data_ptr<int64_t>()[i] = i % 3;
  return std::make_shared<TensorDataset<>>(x, y, 3, affine);
}
std::shared_ptr<TensorDataset<>> float_images(const TensorDataset<>& bytes) {
  std::vector<int64_t> all(size_t(bytes.size()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = int64_t(i);
  const Batch batch = bytes.batch(all);
  return std::make_shared<TensorDataset<>>(batch.input, batch.target, bytes.classes());
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && a.to_vector<double>() == b.to_vector<double>();
}

std::vector<int64_t> counted(int64_t n) {
  std::vector<int64_t> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i) out[i] = int64_t(i);
  return out;
}

template <class T, class... Args>
std::shared_ptr<const Transform> shared(Args&&... args) {
  return std::make_shared<T>(std::forward<Args>(args)...);
}

}  // namespace

TEST_CASE("transforms: torchvision's numbers where nothing is random") {
  int64_t compared = 0;
  for (const auto& golden : goldens()) {
    const std::string& name = golden.first;
    const Tensor& expected = golden.second;
    if (name.starts_with("metric.") || name.starts_with("image.")) continue;
    CAPTURE(name);
    const Tensor image = goldens().at("image." + name.substr(name.size() - 1));
    std::vector<std::string> word;
    std::istringstream words(name);
    for (std::string w; std::getline(words, w, ':');) word.push_back(w);
    word.pop_back();
    double bound = 0;
    Tensor got;
    const auto number = [&](size_t i) { return std::stod(word.at(i)); };
    const auto sizes = [&] {
      std::vector<int64_t> out{std::stoll(word.at(1))};
      if (const size_t x = word[1].find('x'); x != std::string::npos) out.push_back(std::stoll(word[1].substr(x + 1)));
      return out;
    };
    if (word[0] == "pad") {
      PadOptions options{.fill = word[1] == "constant" ? 0.25 : 0};
      REQUIRE(OptionMember<PadMode>::put(options.mode, std::string(word[1])));
      got = once(Pad({1, 2, 3, 4}, options), image);
      const RandomCrop whole({15, 16}, {.padding = {1, 2, 3, 4}, .pad = options});  // as large as what it crops from
      CHECK(same_bits(once(whole, image), got));
    } else if (word[0] == "center_crop") {
      got = once(CenterCrop({sizes()[0], sizes()[1]}), image);
    } else if (word[0] == "resize") {
      got = once(Resize(sizes(), word[2] == "nearest" ? Sampling::nearest : Sampling::bilinear, word[2] == "aa"), image);
      bound = word[2] == "nearest" ? 0 : 1e-6;
    } else if (word[0] == "rotate" || word[0] == "affine") {
      const bool turn = word[0] == "rotate", nearest = word[2] == "nearest";
      const WarpOptions options{nearest ? Sampling::nearest : Sampling::bilinear, !turn ? 0.75 : word.size() > 3 ? 0.5 : 0};
      const AffineMap map =
          turn ? AffineMap{.angle = -number(1)}
               : AffineMap{.angle = number(1), .translate_x = 2, .translate_y = -1, .scale = 1.3, .shear_x = 8, .shear_y = -5};
      got = warped(image, map, options);
      if (turn) CHECK(same_bits(once(RandomRotation({number(1), number(1)}, options), image), got));
      if (!turn) {  // with every range a point, but the translation, which is drawn
        const RandomAffine drawn(
            {.degrees = {number(1), number(1)}, .scale = {{1.3, 1.3}}, .shear = {8, 8, -5, -5}, .warp = options});
        const AffineMap still{.angle = number(1), .scale = 1.3, .shear_x = 8, .shear_y = -5};
        CHECK(same_bits(once(drawn, image), warped(image, still, options)));
      }
      bound = nearest ? 0 : 2e-5;
    } else if (word[0] == "normalize") {
      got = image.size(0) == 3 ? once(NormalizeTransform({0.4, 0.5, 0.6}, {0.2, 0.3, 0.4}), image)
                               : once(NormalizeTransform(Normalize{0.4, 0.2}), image);
      bound = 1e-6;
    } else {
      const InPlace adjust = word[0] == "brightness"   ? adjust_brightness
                             : word[0] == "contrast"   ? adjust_contrast
                             : word[0] == "saturation" ? adjust_saturation
                                                       : adjust_hue;
      got = adjusted(adjust, image, number(1));
      bound = 2e-6;
      const std::array<double, 2> point{number(1), number(1)};
      const ColorJitter jitter({.brightness = word[0] == "brightness" ? std::optional(point) : std::nullopt,
                                .contrast = word[0] == "contrast" ? std::optional(point) : std::nullopt,
                                .saturation = word[0] == "saturation" ? std::optional(point) : std::nullopt,
                                .hue = word[0] == "hue" ? std::optional(point) : std::nullopt});
      CHECK(same_bits(once(jitter, image), got));
    }
    CHECK(largest_difference(got, expected) <= bound);
    ++compared;
  }
  CHECK(compared == 2 * (4 + 5 + 9 + 18 + 12 + 5 + 1));
}

TEST_CASE("transforms: what is random is distributed as it should be" * doctest::test_suite("values")) {
  constexpr int64_t kSamples = 4000;
  const std::vector<int64_t> indices = counted(kSamples);
  const Draws draws{.seed = 3, .epoch = 1, .indices = indices, .classes = 4};
  // A picture whose every pixel says where it was: 16 y + x + 1.
  const Tensor place = (arange(0, 8 * 16).reshape({1, 1, 8, 16}) + 1).expand({kSamples, 1, 8, 16}).to(DType::f32);
  const Tensor target = arange(0, kSamples).to(DType::i64).remainder(4);
  const Batch batch{place, target};
  const auto near = [&](double got, double expected, double sigma) {
    CHECK(std::abs(got - expected) < 4.5 * sigma / std::sqrt(double(kSamples)));
  };

  SUBCASE("RandomCrop") {
    const Tensor out = RandomCrop({8, 16}, {.padding = {3, 3, 3, 3}}).apply(batch, draws).input;
    std::vector<int> at(49);
    for (int64_t i = 0; i < kSamples; ++i) {  // the pixel of the middle identifies the window's place
      const int seen = int(out.select(0, i).select(0, 0).select(0, 3).select(0, 8).item<float>()) - 1;
      ++at.at(size_t((seen / 16) * 7 + seen % 16 - 5));
    }
    double squares = 0;  // chi squared, 48 degrees of freedom
    for (const int n : at) squares += (n - kSamples / 49.0) * (n - kSamples / 49.0) / (kSamples / 49.0);
    CHECK(squares < 95);
    CHECK(squares > 20);
  }
  SUBCASE("flips") {
    for (const double p : {0.0, 0.3, 1.0}) {
      const Tensor x = RandomHorizontalFlip(p).apply(batch, draws).input, y = RandomVerticalFlip(p).apply(batch, draws).input;
      const double flipped_x = x.select(3, 0).select(2, 0).eq(16).sum().item<double>();
      const double flipped_y = y.select(3, 0).select(2, 0).eq(7 * 16 + 1).sum().item<double>();
      near(flipped_x / kSamples, p, std::sqrt(p * (1 - p)) + 1e-9);
      near(flipped_y / kSamples, p, std::sqrt(p * (1 - p)) + 1e-9);
    }
    CHECK(same_bits(RandomHorizontalFlip(1).apply(batch, draws).input, flip(place, {3})));
    CHECK(same_bits(RandomVerticalFlip(1).apply(batch, draws).input, flip(place, {2})));
  }
  SUBCASE("RandomErasing") {
    const Tensor square = ones({kSamples, 2, 20, 20});
    const Tensor out =
        RandomErasing({.p = 0.6, .scale = {0.1, 0.2}, .ratio = {0.5, 2}, .value = {0, 5}}).apply({square, target}, draws).input;
    CHECK(out.select(1, 0).eq(0).sum().item<double>() == out.select(1, 1).eq(5).sum().item<double>());
    const Tensor share = out.select(1, 0).eq(0).to(DType::f64).mean({1, 2});
    near(share.gt(0).to(DType::f64).mean().item<double>(), 0.6, 0.49);
    near(share.sum().item<double>() / kSamples, 0.6 * 0.15, 0.08);
    CHECK(share.max().item<double>() < 0.24);
    CHECK(square.min().item<double>() == 1);  // not written into
    const Tensor noise =
        RandomErasing({.p = 1, .scale = {0.5, 0.5}, .ratio = {1, 1}, .value = {}}).apply({square, target}, draws).input;
    const Tensor drawn = noise.masked_select(noise.ne(1));
    CHECK(std::abs(drawn.mean().item<double>()) < 0.01);
    CHECK(std::abs(drawn.std().item<double>() - 1) < 0.01);
  }
  SUBCASE("ColorJitter") {
    const Tensor grey = full({kSamples, 3, 2, 2}, 0.4);
    const Tensor out = ColorJitter({.brightness = {{0.5, 1.5}}}).apply({grey, target}, draws).input / 0.4;
    near(out.mean().item<double>(), 1, std::sqrt(1.0 / 12));
    near(out.square().mean().item<double>(), 1 + 1.0 / 12, 0.6);
    CHECK(out.max().item<double>() <= 1.5001);
    CHECK(out.max().item<double>() > 1.49);
    CHECK(out.min().item<double>() < 0.51);
  }
  SUBCASE("Mixup") {
    const Tensor x = arange(0, kSamples).to(DType::f32).reshape({kSamples, 1});
    for (const double alpha : {0.2, 1.0, 4.0}) {
      const Batch out = Mixup(alpha).apply({x, target}, draws);
      CHECK(out.target.shape() == Shape{kSamples, 4});
      CHECK(largest_difference(out.target.sum(1), ones({kSamples})) < 1e-6);
      const Tensor lambda = out.target.gather(1, target.unsqueeze(1)).squeeze(1).to(DType::f64);
      near(lambda.mean().item<double>(), 0.5, 0.5);
      const double variance = 0.25 / (2 * alpha + 1);
      near((lambda - 0.5).square().mean().item<double>(), variance, 0.2);
      const Tensor before = roll(x, {1}, Dims{0});
      const Tensor expected = lambda.unsqueeze(1) * x + (1 - lambda.unsqueeze(1)) * before;
      CHECK(largest_difference(out.input.to(DType::f64), expected) < 1e-3);
    }
  }
  SUBCASE("CutMix") {
    const Tensor x = arange(0, kSamples).to(DType::f32).reshape({kSamples, 1, 1, 1}).expand({kSamples, 1, 16, 16}).clone();
    const Batch out = CutMix(1).apply({x, target}, draws);
    const Tensor kept = out.input.eq(x).to(DType::f64).mean({1, 2, 3});
    const Tensor lambda = out.target.gather(1, target.unsqueeze(1)).squeeze(1).to(DType::f64);
    CHECK(largest_difference(kept, lambda) < 1e-6);
    CHECK(out.input.eq(x).to(DType::f64).add(out.input.eq(roll(x, {1}, Dims{0})).to(DType::f64)).min().item<double>() == 1);
    double expected = 0;  // over lambda uniform, and the middle uniform: what falls outside is not cut
    constexpr int kGrid = 10000;
    for (int i = 0; i < kGrid; ++i) {
      const int half = int(0.5 * std::sqrt(1 - (i + 0.5) / kGrid) * 16);
      double edge = 0;
      for (int x = 0; x < 16; ++x) edge += (std::min(x + half, 16) - std::max(x - half, 0)) / 16.0;
      expected += 1 - edge / 16 * edge / 16;
    }
    near(lambda.mean().item<double>(), expected / kGrid, 0.2);
  }
  SUBCASE("RandomRotation and RandomAffine stay within their ranges") {
    const Tensor dot = zeros({kSamples, 1, 9, 9});
    dot.select(3, 8).fill_(1);  // the rightmost column
    const Tensor turned = RandomRotation({90, 90}, {.interpolation = Sampling::bilinear}).apply({dot, target}, draws).input;
    CHECK(largest_difference(turned.select(2, 0), ones({kSamples, 1, 9})) < 1e-5);  // counter-clockwise: on top
    const Tensor moved = RandomAffine({.translate = {{0.25, 0}}}).apply({dot, target}, draws).input.select(2, 4).select(1, 0);
    CHECK(moved.sum(0).gt(0).to_vector<int>() == std::vector<int>{0, 0, 0, 0, 0, 0, 1, 1, 1});  // left by 2 to 0 pixels, or gone
  }
}

TEST_CASE("transforms: random numbers are a function of seed, epoch, index and place") {
  const auto data = byte_images(64, {3, 8, 8});
  const auto list = [] {
    return Transforms{shared<RandomCrop>(ImageSize{8, 8}, RandomCropOptions{.padding = {2, 2, 2, 2}}),
                      shared<RandomHorizontalFlip>(),
                      shared<ColorJitter>(ColorJitterOptions{.brightness = {{0.5, 1.5}}, .hue = {{-0.2, 0.2}}}),
                      shared<RandomErasing>(),
                      shared<RandomRotation>(std::array<double, 2>{-20, 20}),
                      shared<NormalizeTransform>(NormalizeTransform::preset("cifar10"))};
  };
  const auto augmented = transformed(data, list(), 5);
  const std::vector<int64_t> some = {9, 3, 50}, others = {50, 9};
  const Tensor a = augmented->batch(some, 2).input, b = augmented->batch(others, 2).input;
  CHECK(same_bits(a.select(0, 0), b.select(0, 1)));  // whatever is beside it
  CHECK(same_bits(a.select(0, 2), b.select(0, 0)));
  CHECK(!same_bits(a, augmented->batch(some, 3).input));
  CHECK(!same_bits(a, transformed(data, list(), 6)->batch(some, 2).input));
  CHECK(same_bits(augmented->batch(some).input, augmented->batch(some, 0).input));
  Transforms later = list();
  later.insert(later.begin(), shared<ToTensor>());
  CHECK(!same_bits(a, transformed(data, later, 5)->batch(some, 2).input));

  // With Mixup as well, which looks at the batch: any number of workers, and a resume in mid-epoch.
  Transforms mixed = list();
  mixed.push_back(shared<Mixup>(0.4));
  mixed.push_back(shared<CutMix>());
  const auto run = [&](int workers, std::optional<LoaderState> from) {
    DataLoader loader(transformed(data, mixed, 5),
                      {.batch_size = 7, .shuffle = true, .seed = 1, .num_workers = workers, .prefetch = 3});
    if (from) loader.set_state(*from);
    std::vector<Batch> out;
    while (loader.state().epoch < 2) {
      if (auto batch = loader.next()) out.push_back(*batch);
    }
    return out;
  };
  const std::vector<Batch> plain = run(0, {});
  REQUIRE(plain.size() == 20);
  CHECK(!same_bits(plain[0].input, plain[10].input));
  for (const int workers : {1, 2, 5}) {
    const std::vector<Batch> threaded = run(workers, {}), resumed = run(workers, LoaderState{0, 6});
    REQUIRE(threaded.size() == 20);
    REQUIRE(resumed.size() == 14);
    for (size_t i = 0; i < 20; ++i) {
      CHECK(same_bits(threaded[i].input, plain[i].input));
      CHECK(same_bits(threaded[i].target, plain[i].target));
      if (i < 6) continue;
      CHECK(same_bits(resumed[i - 6].input, plain[i].input));
      CHECK(same_bits(resumed[i - 6].target, plain[i].target));
    }
  }
}

TEST_CASE("transforms: one pass over bytes gives the bits of one transform after the other") {
  for (const Affine affine : {Affine{1 / 255.f, 0}, Normalize::preset("mnist").for_u8()}) {
    const auto bytes = byte_images(40, {3, 9, 7}, affine);
    const auto floats = float_images(*bytes);
    const std::vector<Transforms> lists = {
        {shared<RandomCrop>(ImageSize{9, 7}, RandomCropOptions{.padding = {2, 1, 2, 3}}), shared<RandomHorizontalFlip>(),
         shared<NormalizeTransform>(NormalizeTransform::preset("cifar100"))},
        {shared<RandomVerticalFlip>(), shared<RandomCrop>(ImageSize{5, 7}), shared<RandomHorizontalFlip>()},
        {shared<RandomCrop>(ImageSize{8, 8}, RandomCropOptions{.padding = {3, 3, 3, 3}, .pad = {.mode = PadMode::reflect}}),
         shared<RandomHorizontalFlip>()},
        {shared<Pad>(std::array<int64_t, 4>{1, 1, 1, 1}, PadOptions{.fill = 0.5}),
         shared<RandomCrop>(ImageSize{12, 10}, RandomCropOptions{.pad_if_needed = true})},
        {shared<CenterCrop>(ImageSize{12, 3}), shared<NormalizeTransform>(Normalize{0.5, 0.25}), shared<RandomErasing>()},
        {shared<NormalizeTransform>(NormalizeTransform::preset("imagenet")),
         shared<RandomCrop>(ImageSize{9, 7}, RandomCropOptions{.padding = {4, 4, 4, 4}})},
        {shared<RandomErasing>(), shared<RandomHorizontalFlip>(), shared<NormalizeTransform>(Normalize{0.5, 0.25})},
    };
    const std::vector<int64_t> some = {3, 4, 5, 39, 0, 0, 17};
    for (size_t l = 0; l < lists.size(); ++l) {
      CAPTURE(l);
      Batch step = floats->batch(some);
      for (size_t i = 0; i < lists[l].size(); ++i)
        step = lists[l][i]->apply(step, {.seed = 8, .epoch = 4, .indices = some, .transform_index = int(i), .classes = 3});
      const auto fused = transformed(bytes, lists[l], 8);
      CHECK(same_bits(fused->batch(some, 4).input, step.input));
      CHECK(fused->batch(some, 4).target.to_vector<int>() == std::vector<int>{0, 1, 2, 0, 0, 0, 2});
      CHECK(same_bits(transformed(floats, lists[l], 8)->batch(some, 4).input, step.input));
      const auto part = transformed(subset(bytes, {20, 3, 17}), lists[l], 8);
      CHECK(part->batch(std::vector<int64_t>{2, 0}, 4).target.to_vector<int>() == std::vector<int>{2, 2});
    }
    CHECK(float_images(*bytes)->batch(some).input.to_vector<float>() == floats->batch(some).input.to_vector<float>());
  }
}
