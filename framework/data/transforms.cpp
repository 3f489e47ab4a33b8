#include "framework/data/transforms.h"

#include "framework/base/check.h"

namespace halfstep {

Normalize Normalize::preset(std::string_view name) {
  check<ValueError>(name == "mnist", "Normalize", "the presets are \"mnist\", got \"", name, '"');
  return {.mean = 0.1307, .std = 0.3081};
}

Affine Normalize::for_u8() const {
  check<ValueError>(std > 0, "Normalize", "std must be positive, got ", std);
  return {.scale = float(1 / (255 * std)), .shift = float(-mean / std)};
}

}  // namespace halfstep
