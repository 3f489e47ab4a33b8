// What happens to raw values on their way into a batch.
#pragma once

#include <optional>
#include <string_view>

#include "framework/tensor/tensor.h"

namespace halfstep {

// y = scale x + shift, in float.
struct Affine {
  float scale = 1, shift = 0;
};

// y = (x - mean) / std for x in [0, 1]. The default leaves x as it is.
struct Normalize {
  double mean = 0, std = 1;

  // "mnist": mean 0.1307, std 0.3081. Throws ValueError for another name.
  static Normalize preset(std::string_view name);
  // For pixels 0..255, which stand for x = pixel / 255. Throws ValueError unless std > 0.
  Affine for_u8() const;
};

// Something done to the inputs of each batch of a data set: transformed() of framework/data/dataset.h. Several threads may call it
// at once, each with a batch of its own.
class Transform {
 public:
  virtual ~Transform() = default;
  // `input`: [B, ...] float32, which is not to be written into. Returns float32 [B, ...] for the same B samples. The other sizes
  // are a function of the input's: they are found by calling it on Device::meta.
  virtual Tensor operator()(const Tensor& input) const = 0;
  // Where it does no more than this, a data set of bytes can do it while it turns them into floats.
  virtual std::optional<Normalize> as_normalize() const { return {}; }
};

// Normalize as a transform of any values. Throws ValueError unless std > 0.
class NormalizeTransform : public Transform {
 public:
  explicit NormalizeTransform(const Normalize& normalize);
  Tensor operator()(const Tensor& input) const override;
  std::optional<Normalize> as_normalize() const override { return normalize_; }

 private:
  Normalize normalize_;
};

}  // namespace halfstep
