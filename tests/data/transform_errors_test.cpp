// SPDX-License-Identifier: Apache-2.0
// What transforms refuse.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "framework/base/check.h"
#include "framework/data/sets/tensor_dataset.h"
#include "framework/data/transforms/image_transforms.h"
#include "framework/ops/ops.h"
#include "tests/io/files.h"
#include "tests/support/damaged_options.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

template <class T, class... Args>
std::shared_ptr<const Transform> made(Args&&... args) {
  return std::make_shared<T>(std::forward<Args>(args)...);
}

}  // namespace

TEST_CASE("transforms: what does not fit is refused before data is touched") {
  const auto images = std::make_shared<TensorDataset<>>(zeros({6, 2, 8, 8}), zeros({6}, {.dtype = DType::i64}), 3);
  const auto says = [&](std::shared_ptr<const Transform> t, std::shared_ptr<const Dataset> data) {
    try {
      const auto made = transformed(data, {t});
      made->batch(std::vector<int64_t>{0, 1});
    } catch (const Error& e) { return std::string(e.what()); }
    return std::string("nothing");
  };
  CHECK(says(made<RandomCrop>(ImageSize{10, 8}), images)
            .starts_with("[RandomCrop] a crop of [10, 8] does not fit into an image with an edge of 8 pixels"));
  CHECK(contains(says(made<RandomCrop>(ImageSize{10, 8}), images), "pad_if_needed"));
  CHECK(contains(says(made<Pad>(std::array<int64_t, 4>{8, 0, 0, 0}, PadOptions{.mode = PadMode::reflect}), images),
                 "[Pad] padding by 8 and 0 needs more than an edge of 8 pixels to mirror"));
  CHECK(contains(says(made<ColorJitter>(ColorJitterOptions{}), images), "needs images of 1 or 3 channels, got [2, 8, 8]"));
  CHECK(contains(says(made<NormalizeTransform>(NormalizeTransform::preset("imagenet")), images),
                 "has 3 means and deviations, one for each channel, but a sample of shape [2, 8, 8] has 2"));
  CHECK(contains(says(made<RandomErasing>(RandomErasingOptions{.value = {1, 2, 3}}), images),
                 "one for each of the 2 channels, got 3"));
  const auto rows = std::make_shared<TensorDataset<>>(zeros({4, 5}), zeros({4, 1}));
  const std::vector<std::shared_ptr<const Transform>> of_images = {made<RandomCrop>(ImageSize{1, 1}),
                                                                   made<RandomHorizontalFlip>(),
                                                                   made<RandomVerticalFlip>(),
                                                                   made<CenterCrop>(ImageSize{1, 1}),
                                                                   made<Pad>(std::array<int64_t, 4>{}),
                                                                   made<RandomRotation>(std::array<double, 2>{0, 1}),
                                                                   made<RandomAffine>(RandomAffineOptions{}),
                                                                   made<Resize>(std::vector<int64_t>{4}),
                                                                   made<RandomErasing>(),
                                                                   made<ColorJitter>(ColorJitterOptions{})};
  for (const auto& t : of_images) {
    CHECK(contains(says(t, rows), "needs images, samples [C, H, W], got samples of shape [5]"));
    const Batch tokens{zeros({2, 3, 4, 4}, {.dtype = DType::i64}), zeros({2}, {.dtype = DType::i64})};
    CHECK(contains(message_of<DTypeError>([&] { t->apply(tokens, {}); }), "needs images, float32, got int64"));
  }
  CHECK(contains(says(made<Mixup>(), rows), "[Mixup] mixes classes, so it needs data with classes"));
  CHECK(contains(says(made<CutMix>(), rows), "needs images"));
  const Batch tokens{zeros({2, 3}, {.dtype = DType::i64}), zeros({2}, {.dtype = DType::i64})};
  CHECK(contains(message_of<DTypeError>([&] { Mixup().apply(tokens, {.classes = 2}); }), "needs float32 inputs, got int64"));
  const Batch sequences{zeros({2, 3}), zeros({2, 3}, {.dtype = DType::i64})};
  CHECK(contains(message_of<ShapeError>([&] { Mixup().apply(sequences, {.classes = 2}); }),
                 "one class a sample, got targets int64 [2, 3]"));

  const auto rejects = [](const std::function<void()>& make) { return message_of<ValueError>(make); };
  CHECK(contains(rejects([] { RandomCrop({0, 3}); }), "size must be in [1, 16777216], got 0"));
  CHECK(contains(rejects([] { RandomCrop({3, 3}, {.padding = {-1, 0, 0, 0}}); }), "padding must be in [0, 16777216], got -1"));
  CHECK(contains(rejects([] { RandomHorizontalFlip(1.5); }), "p must be in [0, 1], got 1.5"));
  CHECK(contains(rejects([] { RandomRotation({20, 10}); }), "degrees must go from a smaller to a larger number, got [20, 10]"));
  CHECK(contains(rejects([] { RandomErasing({.scale = {0.1, 2}}); }), "scale must be shares in [0, 1], got 2"));
  CHECK(contains(rejects([] { RandomErasing({.ratio = {0, 2}}); }), "ratio must be > 0, got 0"));
  CHECK(contains(rejects([] {
                   ColorJitter({.hue = {{-0.6, 0}}});
                 }),
                 "hue must go from a smaller to a larger number in [-0.5, 0.5]"));
  CHECK(contains(rejects([] { Mixup(0); }), "alpha must be > 0, got 0"));
  CHECK(contains(rejects([] { RandomAffine({.translate = {{0.1, 1.2}}}); }), "translate must be shares in [0, 1], got 1.2"));
  CHECK(contains(rejects([] { Resize({1, 2, 3}); }), "size must have 1 or 2 numbers, got 3"));
  CHECK(contains(rejects([] { NormalizeTransform({0, 1}, {1}); }), "got 2 and 1"));
  CHECK(contains(rejects([] { NormalizeTransform::preset("svhn"); }), "the presets are \"mnist\", \"fashion_mnist\", \"cifar10\""));
}

TEST_CASE("every option of every transform refuses what is outside its domain") {
  int tried = 0;
  const auto add = [&]<class T>(const T* /*type*/, const typename T::Options& usual) {
    tried += check_damaged(T::kName, usual, [](const auto& options) { T made(options); });
  };
  add((NormalizeTransform*)nullptr, {});
  add((RandomCrop*)nullptr, {.size = {2, 2}});
  add((CenterCrop*)nullptr, {.size = {2, 2}});
  add((Pad*)nullptr, {});
  add((RandomHorizontalFlip*)nullptr, {});
  add((RandomVerticalFlip*)nullptr, {});
  add((RandomRotation*)nullptr, {});
  add((RandomAffine*)nullptr, {});
  add((Resize*)nullptr, {.size = {2}});
  add((RandomErasing*)nullptr, {});
  add((ColorJitter*)nullptr, {});
  add((Mixup*)nullptr, {});
  add((CutMix*)nullptr, {});
  CHECK(tried > 30);
}
