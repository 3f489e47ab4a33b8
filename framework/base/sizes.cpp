// SPDX-License-Identifier: Apache-2.0
#include "framework/base/sizes.h"

#include "framework/base/check.h"

namespace halfstep {

Dims Sizes::each(int count, std::string_view layer, std::string_view argument, int64_t least) const {
  check<ValueError>(is_number() || values_.size() == count, layer, argument, " must be one number or ", count, ", got ", values_);
  for (int64_t v : values_) check<ValueError>(v >= least, layer, argument, " must be >= ", least, ", got ", v);
  return values_.size() == count ? values_ : Dims::filled(count, values_[0]);
}

}  // namespace halfstep
