// SPDX-License-Identifier: Apache-2.0
// Transforms of raw values on their way into a batch. image_transforms.h has those of images.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/options.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

struct Batch;         // framework/data/sets/dataset.h
class MoveTransform;  // framework/data/transforms/image_transforms.h

// y = scale x + shift, in float.
struct Affine {
  float scale = 1, shift = 0;
  float of(float x) const { return scale * x + shift; }
};

// y = (x - mean) / std for x in [0, 1]. The default keeps x.
struct Normalize {
  double mean = 0, std = 1;

  // Returns the values of a preset with one channel: "mnist" or "fashion_mnist". Throws ValueError for another name.
  static Normalize preset(std::string_view name);
  // Returns the map for pixels 0..255, where x = pixel / 255. Throws ValueError unless std > 0.
  Affine for_u8() const;
};

// y = (x - mean) / std, in float; one pair for all values, or one per channel, which is dimension 1 of a batch.
struct ChannelScaling {
  std::vector<float> mean, std;
  float of(float x, size_t channel) const {
    const size_t c = mean.size() == 1 ? 0 : channel;
    return (x - mean[c]) / std[c];
  }
};

// The arguments of a transform's random numbers, and facts about the batch.
struct Draws {
  uint64_t seed = 0;
  int64_t epoch = 0;
  std::span<const int64_t> indices = {};  // of the samples in the data set; empty on Device::meta
  int transform_index = 0;                // index of the transform in the list
  int64_t classes = 0;                    // of the data set
  bool writable = false;                  // no other code reads the input, so the transform may write to it and return it
  std::span<const int64_t> repeats = {};  // how often each sample was drawn before in the epoch; empty: none was
};

// The random numbers of one sample: Philox with a key from the seed, the epoch and the place (and from the number of draws before
// in the epoch, if there were any), and a counter that begins at the sample's index. At most 2^18 numbers; the draws of indices up
// to 2^46 do not overlap.
class SampleRandom {
 public:
  SampleRandom(const Draws& draws, size_t sample);
  uint32_t bits();
  double uniform();                         // [0, 1), a multiple of 2^-53
  double uniform(double low, double high);  // [low, high)
  int64_t integer(int64_t n);               // [0, n), n < 2^32
  bool chance(double p) { return uniform() < p; }
  double normal();
  double beta(double alpha);  // Beta(alpha, alpha)

 private:
  double gamma(double alpha);
  uint64_t key_, block_;
  uint32_t ready_[4];
  int next_ = 4;
};

// A transform of each batch of a data set: transformed() of framework/data/sets/dataset.h. Several threads may call it at once,
// each with its own batch. One that is a function of the inputs alone overrides operator(), any other apply().
class Transform {
 public:
  virtual ~Transform() = default;
  // Transforms `input`, [B, ...] float32, without writing to it. Returns float32 [B, ...] for the same B samples. The other sizes
  // must be a function of the input's: a call on Device::meta determines them.
  virtual Tensor operator()(const Tensor& input) const;
  // Transforms the whole batch including targets, with random numbers. Like above, but may write to the input if draws.writable;
  // class targets i64 [B] may become float32 [B, draws.classes], shares of each class.
  virtual Batch apply(const Batch& batch, const Draws& draws) const;

  // Returns whether it draws random numbers; then it is for training only.
  virtual bool is_random() const { return false; }
  // Returns the Normalize that it equals, if any; a data set of bytes can apply it while it converts them to floats.
  virtual std::optional<Normalize> as_normalize() const { return {}; }
  // Return the moves or scaling that it equals, if any; neighbours in a list then run in one pass.
  virtual const MoveTransform* as_moves() const { return nullptr; }
  virtual const ChannelScaling* as_scaling() const { return nullptr; }
};

// A transform of class Base that checks and keeps its options O.
template <ClassName type, class O, class Base = Transform>
class ListedTransform : public Base {
 public:
  using Options = O;
  static constexpr const char* kName = type.text;
  explicit ListedTransform(O options) : options_(std::move(options)) { check_options(kName, options_); }

 protected:
  O options_;
};

// Normalize as a transform of any float32 values: one pair, or one per channel.
struct NormalizeOptions {
  std::vector<double> mean{0.0}, std{1.0};
  static const OptionList<NormalizeOptions>& list();
  void(check)(std::string_view name) const;  // throws ValueError for counts that differ or are 0
};
class NormalizeTransform : public ListedTransform<"Normalize", NormalizeOptions> {
 public:
  explicit NormalizeTransform(const Options& options);
  explicit NormalizeTransform(const Normalize& normalize)
      : NormalizeTransform(std::vector{normalize.mean}, std::vector{normalize.std}) {}
  NormalizeTransform(const std::vector<double>& mean, const std::vector<double>& std)
      : NormalizeTransform(Options{.mean = mean, .std = std}) {}
  // Returns the usual numbers of "mnist", "fashion_mnist", "cifar10", "cifar100" or "imagenet". Throws ValueError for another
  // name.
  static NormalizeTransform preset(std::string_view name);

  Tensor operator()(const Tensor& input) const override;
  std::optional<Normalize> as_normalize() const override;
  const ChannelScaling* as_scaling() const override { return &scaling_; }

 private:
  ChannelScaling scaling_;
};
std::vector<std::string_view> normalize_presets();

// PyTorch's ToTensor, which does nothing: data sets convert pixels to float32 in [0, 1] themselves (bytes in arrays: see
// ByteMeaning in arrays.h). It exists for configs that name it.
class ToTensor : public Transform {
 public:
  Tensor operator()(const Tensor& input) const override { return input; }
};

}  // namespace halfstep
