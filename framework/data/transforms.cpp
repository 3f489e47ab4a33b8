#include "framework/data/transforms.h"

#include "framework/base/check.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

void check_std(double std) { check<ValueError>(std > 0, "Normalize", "std must be positive, got ", std); }

}  // namespace

Normalize Normalize::preset(std::string_view name) {
  check<ValueError>(name == "mnist", "Normalize", "the presets are \"mnist\", got \"", name, '"');
  return {.mean = 0.1307, .std = 0.3081};
}

Affine Normalize::for_u8() const {
  check_std(std);
  return {.scale = float(1 / (255 * std)), .shift = float(-mean / std)};
}

NormalizeTransform::NormalizeTransform(const Normalize& normalize) : normalize_(normalize) { check_std(normalize_.std); }

Tensor NormalizeTransform::operator()(const Tensor& input) const { return (input - normalize_.mean) / normalize_.std; }

}  // namespace halfstep
