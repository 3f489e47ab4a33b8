// What happens to raw values on their way into a batch.
#pragma once

#include <string_view>

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

}  // namespace halfstep
