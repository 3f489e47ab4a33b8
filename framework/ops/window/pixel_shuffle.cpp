// SPDX-License-Identifier: Apache-2.0
// Moves elements by reshape and permute, whose gradients are the op's.
#include "framework/ops/window/pixel_shuffle.h"

#include "framework/ops/core/registry.h"
#include "framework/ops/ops.h"
#include "framework/ops/window/windows.h"

namespace halfstep {
namespace {

constexpr OpInfo kShuffleInfo{
    .name = "pixel_shuffle", .doc = "[..., C r^2, H, W] to [..., C, H r, W r]; made of permute", .dtypes = DTypeSet::any};
constexpr OpInfo kUnshuffleInfo{
    .name = "pixel_unshuffle", .doc = "[..., C, H r, W r] to [..., C r^2, H, W]; made of permute", .dtypes = DTypeSet::any};
constexpr OpInfo kChannelInfo{
    .name = "channel_shuffle", .doc = "channels of all groups in turn; made of permute", .dtypes = DTypeSet::any};

// Returns f(x as [N, C, H, W], C, H, W) with the leading dimensions restored.
template <class F>
Tensor on_images(std::string_view op, const Tensor& x, const F& f) {
  check<ShapeError>(x.dim() >= 3, op, "input must be [..., C, H, W], got ", x.shape());
  const int64_t c = x.size(-3), h = x.size(-2), w = x.size(-1);
  int64_t n = 1;
  for (int d = 0; d < x.dim() - 3; ++d) n *= x.size(d);
  const Tensor y = f(x.reshape({n, c, h, w}), c, h, w);
  Shape shape = x.shape();
  for (int d = 1; d <= 3; ++d) shape[shape.size() - d] = y.size(-d);
  return y.reshape(shape);
}
void check_factor(std::string_view op, int64_t r) {
  check<ValueError>(r >= 1 && r <= kMostWindow, op, "the factor must be between 1 and ", kMostWindow, ", got ", r);
}

}  // namespace

Tensor pixel_shuffle(const Tensor& x, int64_t r) {
  check_factor("pixel_shuffle", r);
  return on_images("pixel_shuffle", x, [&](const Tensor& t, int64_t c, int64_t h, int64_t w) {
    check<ShapeError>(c % (r * r) == 0, "pixel_shuffle", "channels must be a multiple of ", r, "^2, got ", x.shape());
    const int64_t n = t.size(0), less = c / (r * r);
    return t.reshape({n, less, r, r, h, w}).permute({0, 1, 4, 2, 5, 3}).reshape({n, less, h * r, w * r});
  });
}

Tensor pixel_unshuffle(const Tensor& x, int64_t r) {
  check_factor("pixel_unshuffle", r);
  return on_images("pixel_unshuffle", x, [&](const Tensor& t, int64_t c, int64_t h, int64_t w) {
    check<ShapeError>(h % r == 0 && w % r == 0, "pixel_unshuffle", "height and width must be multiples of ", r, ", got ",
                      x.shape());
    const int64_t n = t.size(0);
    return t.reshape({n, c, h / r, r, w / r, r}).permute({0, 1, 3, 5, 2, 4}).reshape({n, c * r * r, h / r, w / r});
  });
}

Tensor channel_shuffle(const Tensor& x, int64_t groups) {
  check<ShapeError>(x.dim() >= 3, "channel_shuffle", "input must be [N, C, ...], got ", x.shape());
  check<ValueError>(groups >= 1 && x.size(1) % groups == 0, "channel_shuffle", "groups must divide the channels of ", x.shape(),
                    ", got ", groups);
  int64_t inner = 1;
  for (int d = 2; d < x.dim(); ++d) inner *= x.size(d);
  return x.reshape({x.size(0), groups, x.size(1) / groups, inner}).transpose(1, 2).reshape(x.shape());
}

void add_pixel_shuffle(OpList& list) {
  list.add(kShuffleInfo, [](Args& a) { return pixel_shuffle(a.tensor(0), a.integer("upscale_factor")); });
  list.add(kUnshuffleInfo, [](Args& a) { return pixel_unshuffle(a.tensor(0), a.integer("downscale_factor")); });
  list.add(kChannelInfo, [](Args& a) { return channel_shuffle(a.tensor(0), a.integer("groups")); });
}

}  // namespace halfstep
