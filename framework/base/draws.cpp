// SPDX-License-Identifier: Apache-2.0
#include "framework/base/draws.h"

#include <utility>

namespace halfstep {
namespace {

thread_local std::optional<BatchRows> t_part;

}  // namespace

DrawsOf::DrawsOf(const std::optional<BatchRows>& part) : saved_(std::exchange(t_part, part)) {}
DrawsOf::~DrawsOf() { t_part = saved_; }
const std::optional<BatchRows>& DrawsOf::current() { return t_part; }

Draw draw(Generator& generator, int64_t count) {
  const bool in_parts = t_part && t_part->rows > 0 && count % t_part->rows == 0 && &generator == &default_generator();
  if (!in_parts) return {generator.reserve(count)};
  const int64_t per_row = count / t_part->rows, skipped = per_row * t_part->first;
  Draw out{generator.reserve(per_row * t_part->total)};
  out.state.offset += uint64_t(skipped / Generator::kBlockSize);
  out.skip = skipped % Generator::kBlockSize;
  return out;
}

}  // namespace halfstep
