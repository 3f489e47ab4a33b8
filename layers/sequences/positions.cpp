// SPDX-License-Identifier: Apache-2.0
#include "layers/sequences/positions.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <vector>

#include "framework/autograd/grad_mode.h"
#include "framework/base/fork_mutex.h"
#include "layers/sequences/decode.h"

namespace halfstep {
namespace {

// Returns the rows of `table` [max_len, d_model] to add to x.
Tensor rows_for(const Module& self, const char* layer, const Tensor& table, const Tensor& x, bool batch_first) {
  check_rank(layer, x, 2, 3);
  const bool batched = x.dim() == 3;
  const int64_t length = x.size(batched && batch_first ? 1 : 0), most = table.size(0), width = table.size(1);
  check<ShapeError>(x.size(-1) == width, layer, "the last dimension must be d_model, ", width, ", got ", x.shape());
  const int64_t before = DecodeScope::count(self, length);
  check<ShapeError>(before + length <= most, layer, "takes at most max_len, ", most,
                    ", positions, with batch_first=", batch_first ? "true" : "false", ", got ", x.shape(),
                    before > 0 ? joined(" behind ", before, " others") : "");
  const Tensor rows = table.narrow(0, before, length);
  return batched && !batch_first ? rows.unsqueeze(1) : rows;
}

// Returns PositionalEncoding's sines and cosines, [max_len, 1, d_model].
Tensor waves(int64_t max_len, int64_t d_model) {
  const Shape shape{max_len, 1, d_model};
  if (default_device().is_meta()) return Tensor::empty(shape);
  const Tensor out = Tensor::empty(shape, {.device = Device::cpu});
  float* at = out.data_ptr<float>();
  for (int64_t i = 0; i < max_len; ++i) {
    for (int64_t j = 0; j < d_model; ++j) {
      const double angle = double(i) * std::pow(10000.0, -double(j / 2 * 2) / double(d_model));
      *at++ = float(j % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }
  return out.to(default_device());
}

Tensor random_rows(int64_t max_len, int64_t d_model, Generator* generator) {
  check_arguments("PositionEmbedding", PositionEmbedding::arguments(), max_len, d_model);
  MemoryScope tag(MemoryTag::parameters);
  const Tensor out = Tensor::empty({max_len, d_model});
  normal_(out, 0, 0.02, generator);
  return out;
}

template <class O>
Option<O> batch_first_of() {
  return option("batch_first", &O::batch_first, "[N, L, E]; false: [L, N, E]").if_changed();
}
}  // namespace

HALFSTEP_OPTIONS(PositionalEncodingOptions, option("dropout", &O::dropout, "probability").at_least(0).at_most(1),
                 option("max_len", &O::max_len, "positions, at most").at_least(1), batch_first_of<O>())
HALFSTEP_OPTIONS(PositionEmbeddingOptions, batch_first_of<O>())
HALFSTEP_OPTIONS(RotaryEmbeddingOptions, option("base", &O::base, "slowest turn, in 2 pi positions").above(0).if_changed(),
                 option("interleaved", &O::interleaved, "pairs are neighbours; else from both halves").if_changed())

HALFSTEP_ARGUMENTS(PositionalEncoding, argument("d_model", "width of the input").at_least(1))
HALFSTEP_ARGUMENTS(PositionEmbedding, argument("max_len", "positions, at most").at_least(1),
                   argument("d_model", "width of the input").at_least(1))
HALFSTEP_ARGUMENTS(RotaryEmbedding, argument("dim", "features of the input, an even number").at_least(1))

PositionalEncoding::PositionalEncoding(Integer width, const PositionalEncodingOptions& o) : batch_first_(o.batch_first) {
  const int64_t d_model = width;
  check_options(kName, o);
  check_arguments(kName, arguments(), d_model);
  dropout = add("dropout", Dropout(o.dropout));
  MemoryScope tag(MemoryTag::parameters);
  pe = register_buffer("pe", waves(o.max_len, d_model));
}

Tensor PositionalEncoding::forward(const Tensor& x) {
  return dropout(x + rows_for(*this, "PositionalEncoding", pe.select(1, 0), x, batch_first_));
}

PositionEmbedding::PositionEmbedding(Integer max_len, Integer d_model, const PositionEmbeddingOptions& o, Generator* generator)
    : weight(register_parameter("weight", random_rows(max_len, d_model, generator))), batch_first_(o.batch_first) {}

Tensor PositionEmbedding::forward(const Tensor& x) { return x + rows_for(*this, "PositionEmbedding", weight, x, batch_first_); }

std::string PositionEmbedding::describe() const {
  return Repr("PositionEmbedding").arg(weight.size(0)).arg(weight.size(1)).options(PositionEmbeddingOptions{batch_first_}).str();
}

RotaryEmbedding::RotaryEmbedding(Integer width, const RotaryEmbeddingOptions& o) : dim_(width), options_(o) {
  const int64_t dim = dim_;
  check_arguments(kName, arguments(), dim);
  check<ValueError>(dim % 2 == 0, kName, "dim must be even, got ", dim);
  check_options(kName, o);
}

// Computes angles in float64: those of distant positions are large, and only the remainder modulo 2 pi counts.
RotaryEmbedding::Rotation RotaryEmbedding::rotation(const Tensor& positions, DType dtype) const {
  const NoGrad off;
  std::vector<double> speeds;
  for (int64_t j = 0; j < dim_ / 2; ++j) speeds.push_back(std::pow(options_.base, -2 * double(j) / double(dim_)));
  const Tensor angles =
      positions.to(DType::f64).unsqueeze(-1) * from_vector(speeds, {dim_ / 2}, Device::cpu).to(positions.device());
  return {cos(angles).to(dtype), sin(angles).to(dtype)};
}

// Several threads may run one model. Does not hold the lock while it makes a table: the device may be busy with the recording of
// another thread, which may want the lock.
RotaryEmbedding::Rotation RotaryEmbedding::cached_rotation(int64_t first, int64_t end, Device device, DType dtype) {
  static constinit ForkMutex guard;
  const auto length = [&] { return cached_.empty() ? 0 : cached_.back().cos.size(0); };
  int64_t cached_length = 0;
  {
    const std::lock_guard lock(guard);
    if (!cached_.empty() && (cached_[0].cos.device() != device || cached_[0].cos.dtype() != dtype)) cached_.clear();
    cached_length = length();
    if (cached_length >= end) return cached_.back();
  }
  // Double the size when it grows, so that decoding token by token rarely recomputes, and all former tables together are no longer
  // than the last.
  const int64_t count = first > 0 ? 2 * end : std::max(end, 2 * cached_length);
  Rotation made = rotation(arange(double(count), {.dtype = DType::i64, .device = device}), dtype);
  const std::lock_guard lock(guard);
  if (length() < count) cached_.push_back(made);
  return made;
}

Tensor RotaryEmbedding::rotate(const Tensor& x, const Tensor& positions, int64_t first) {
  check<ShapeError>(x.dim() >= 2 && x.size(-1) >= dim_, "RotaryEmbedding", "needs [..., L, width] with a width of dim, ", dim_,
                    ", or more, got ", x.shape());
  check<DTypeError>(x.is_floating_point(), "RotaryEmbedding", "needs a floating input, got ", x.dtype());
  const int64_t length = x.size(-2);
  const DType wide = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  Rotation turns;
  if (positions.defined()) {
    turns = rotation(positions, wide);
  } else {
    const Rotation table = cached_rotation(first, first + length, x.device(), wide);
    turns = {table.cos.narrow(0, first, length), table.sin.narrow(0, first, length)};
  }
  const Tensor rotated_part = x.narrow(-1, 0, dim_);
  const Tensors pairs = options_.interleaved ? unbind(unflatten(rotated_part, -1, {dim_ / 2, 2}), -1) : chunk(rotated_part, 2, -1);
  const Tensor a = pairs[0] * turns.cos - pairs[1] * turns.sin, b = pairs[1] * turns.cos + pairs[0] * turns.sin;
  check<ShapeError>(a.dim() == x.dim() && a.numel() * 2 == rotated_part.numel(), "RotaryEmbedding",
                    "positions must broadcast to the dimensions before the last of ", x.shape(), ", got ",
                    positions.defined() ? positions.shape() : Shape{length});
  const Tensor out = (options_.interleaved ? flatten(stack({a, b}, -1), -2) : cat({a, b}, -1)).to(x.dtype());
  return x.size(-1) == dim_ ? out : cat({out, x.narrow(-1, dim_, x.size(-1) - dim_)}, -1);
}

Tensor RotaryEmbedding::forward(const Tensor& x) { return rotate(x, {}, x.dim() >= 2 ? DecodeScope::count(*this, x.size(-2)) : 0); }

std::pair<Tensor, Tensor> RotaryEmbedding::forward(const Tensor& q, const Tensor& k, const Tensor& positions) {
  const int64_t first = positions.defined() || k.dim() < 2 ? 0 : DecodeScope::count(*this, k.size(-2));
  return {rotate(q, positions, first), rotate(k, positions, first)};
}

std::string RotaryEmbedding::describe() const { return Repr(kName).arg(dim_).options(options_).str(); }

}  // namespace halfstep
