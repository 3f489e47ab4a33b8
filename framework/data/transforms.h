// SPDX-License-Identifier: Apache-2.0
// What happens to raw values on their way into a batch. The transforms of images are in image_transforms.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "framework/tensor/tensor.h"

namespace halfstep {

struct Batch;         // framework/data/dataset.h
class MoveTransform;  // framework/data/image_transforms.h

// y = scale x + shift, in float.
struct Affine {
  float scale = 1, shift = 0;
  float of(float x) const { return scale * x + shift; }
};

// y = (x - mean) / std for x in [0, 1]. The default leaves x as it is.
struct Normalize {
  double mean = 0, std = 1;

  // "mnist": mean 0.1307, std 0.3081. Throws ValueError for another name.
  static Normalize preset(std::string_view name);
  // For pixels 0..255, where x = pixel / 255. Throws ValueError unless std > 0.
  Affine for_u8() const;
};

// y = (x - mean) / std, in float; one pair for all values, or one for each channel, which is dimension 1 of a batch.
struct ChannelScaling {
  std::vector<float> mean, std;
  float of(float x, size_t channel) const {
    const size_t c = mean.size() == 1 ? 0 : channel;
    return (x - mean[c]) / std[c];
  }
};

// What the random numbers of a transform are a function of, and what else it may know of a batch.
struct Draws {
  uint64_t seed = 0;
  int64_t epoch = 0;
  std::span<const int64_t> indices = {};  // of the batch's samples in the data set; empty on Device::meta
  int place = 0;                          // of the transform in the list
  int64_t classes = 0;                    // of the data set
  bool writable = false;                  // no other code reads the input: it may be written into and returned
  std::span<const int64_t> repeats = {};  // how often each sample was drawn before in the epoch; empty: none was
};

// The random numbers of one sample: Philox with a key made of the seed, the epoch and the place (and of the number of draws before
// in the epoch, if there were any), and a counter that begins at the sample's index. At most 2^18 numbers; the draws of indices up
// to 2^46 do not meet.
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

// Something done to each batch of a data set: transformed() of framework/data/dataset.h. Several threads may call it at once, each
// with a batch of its own. One that is a function of the inputs alone overrides operator(), any other apply().
class Transform {
 public:
  virtual ~Transform() = default;
  // `input`: [B, ...] float32, which is not to be written into. Returns float32 [B, ...] for the same B samples. The other sizes
  // are a function of the input's: they are found by calling it on Device::meta.
  virtual Tensor operator()(const Tensor& input) const;
  // The whole batch, targets too, with random numbers. Input as above, but that it may be written into where draws.writable; class
  // targets i64 [B] may become float32 [B, draws.classes], shares of each class.
  virtual Batch apply(const Batch& batch, const Draws& draws) const;

  // Does it draw random numbers? Then it is for training alone.
  virtual bool is_random() const { return false; }
  // Where it does no more than this, a data set of bytes can do it while it turns them into floats.
  virtual std::optional<Normalize> as_normalize() const { return {}; }
  // Where it does no more than these, neighbours in a list are done in one pass.
  virtual const MoveTransform* as_moves() const { return nullptr; }
  virtual const ChannelScaling* as_scaling() const { return nullptr; }
};

// Normalize as a transform of any values, float32.
class NormalizeTransform : public Transform {
 public:
  explicit NormalizeTransform(const Normalize& normalize);
  // One pair, or one for each channel. Throws ValueError for counts that differ or are 0, and unless std > 0.
  NormalizeTransform(const std::vector<double>& mean, const std::vector<double>& std);
  // The usual numbers of "mnist", "fashion_mnist", "cifar10", "cifar100" and "imagenet". Throws ValueError for another name.
  static NormalizeTransform preset(std::string_view name);

  Tensor operator()(const Tensor& input) const override;
  std::optional<Normalize> as_normalize() const override;
  const ChannelScaling* as_scaling() const override { return &scaling_; }

 private:
  std::vector<double> mean_, std_;
  ChannelScaling scaling_;
};
std::vector<std::string_view> normalize_presets();

// PyTorch's ToTensor, for configs that carry it over: data sets make float32 in [0, 1] of pixels themselves (of bytes in arrays,
// see ByteMeaning in arrays.h), so nothing is left.
class ToTensor : public Transform {
 public:
  Tensor operator()(const Tensor& input) const override { return input; }
};

}  // namespace halfstep
