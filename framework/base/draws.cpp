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
  const int64_t each = count / t_part->rows;
  Draw out{generator.reserve(each * t_part->total)};
  out.state.offset += uint64_t(each * t_part->first / 4);
  out.skip = each * t_part->first % 4;
  return out;
}

}  // namespace halfstep
