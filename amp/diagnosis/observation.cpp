// SPDX-License-Identifier: Apache-2.0
#include "amp/diagnosis/observation.h"

#include <algorithm>
#include <cmath>

#include "amp/autocast/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/backend/backend.h"
#include "framework/math/tally.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

constexpr double kLargestFloat16 = 65504;
constexpr int kExponentBias = 127;  // of float32, by whose exponents values are tallied

// Returns the number of rows of a parameter to copy: all, or as many as fit.
int64_t copied_rows(const Tensor& p, size_t max_bytes) {
  const size_t bytes = p.nbytes();
  return bytes <= max_bytes ? p.size(0) : std::max<int64_t>(1, int64_t(double(p.size(0)) * double(max_bytes) / double(bytes)));
}
Tensor first_rows(const Tensor& t, int64_t rows) { return t.dim() == 0 ? t : t.narrow(0, 0, rows); }

bool has_scaled_gradient(const Tensor& p) { return p.impl()->autograd && p.impl()->autograd->scaled; }

// Counts the values of a gradient. Subtracts `shift` from the exponents: the values are multiplied by 2^shift.
void count_gradient(const Tensor& g, int shift, TensorObservation& out) {
  out.gradient = g.dtype();
  const auto numel = double(g.numel());
  if (g.numel() == 0) return;
  const Tensor row = Tensor::empty({math::kTallyAll}, {.dtype = DType::i64, .device = g.device()});
  backend_for(g.device()).tally(g.view(), true, row.view());
  const std::vector<int64_t> counts = row.to_vector<int64_t>();
  out.zero = double(counts[math::kTallyZero]) / numel;
  out.subnormal = double(counts[math::kTallySubnormal]) / numel;
  out.overflow = double(counts[math::kTallyNan] + counts[math::kTallyPositiveInf] + counts[math::kTallyNegativeInf]) / numel;
  const auto begin = counts.begin() + math::kTallyExponents;
  const auto first = std::find_if(begin, counts.end(), [](int64_t count) { return count > 0; });
  if (first == counts.end()) return;
  const auto end = std::find_if(counts.rbegin(), counts.rend(), [](int64_t count) { return count > 0; }).base();
  out.exponents = {int(first - begin) - kExponentBias - shift, {first, end}};
}

// Returns the share of elements with a gradient that did not change.
double unchanged_share(const Tensor& before, const Tensor& now, const Tensor& with_gradient, int64_t count) {
  const Tensor same = logical_and(now == before, with_gradient);
  return double(count_nonzero(same).item<int64_t>()) / double(count);
}

}  // namespace

StepObserver::StepObserver(Module& module, Device device, double scale, int64_t part, size_t most_bytes)
    // Report no room if the backward recomputes activations: the log takes them for gradients.
    : module_(module), device_(device), scale_(scale), has_room_(!module.any_recomputes()) {
  copy_part(part, most_bytes);
}

void StepObserver::copy_part(int64_t part, size_t most_bytes) {
  const NoGrad off;
  const std::vector<Tensor> params = module_.parameters();
  std::vector<std::vector<size_t>> parts;  // lists of tensors that fit into memory together
  size_t bytes = 0;
  for (size_t i = 0; i < params.size(); ++i) {
    if (!params[i].requires_grad()) continue;
    const size_t more = std::min(params[i].nbytes(), most_bytes);
    if (parts.empty() || bytes + more > most_bytes) parts.emplace_back(), bytes = 0;
    parts.back().push_back(i);
    bytes += more;
  }
  if (parts.empty()) return;
  try {
    for (const size_t i : parts[size_t(part) % parts.size()]) {
      const int64_t rows = params[i].dim() == 0 ? 1 : copied_rows(params[i], most_bytes);
      before_.push_back({i, rows, first_rows(params[i].detach(), rows).clone()});
    }
  } catch (const MemoryError&) { before_.clear(); }  // leave the memory to the step
}

void StepObserver::open() { log_.emplace(device_, nullptr, KernelLog::Look::gradients); }

void StepObserver::close() {
  if (log_) largest_ = std::max(largest_, log_->largest_gradient());
  log_.reset();
}

Observation StepObserver::finish(bool updated) {
  close();
  const NoGrad off;
  Observation out{.scale = scale_, .updated = updated};
  if (has_room_ && largest_ > 0 && std::isfinite(largest_)) out.room = std::log2(kLargestFloat16 / largest_);
  const std::vector<NamedTensor> all = module_.named_parameters();
  for (size_t i = 0; i < all.size(); ++i) {
    const Tensor &p = all[i].tensor, &g = p.raw_grad();
    if (!g.defined()) continue;
    TensorObservation t{.name = all[i].name, .stored = p.dtype()};
    count_gradient(g, has_scaled_gradient(p) ? std::ilogb(scale_) : 0, t);
    const auto copy = std::find_if(before_.begin(), before_.end(), [&](const OldValues& c) { return c.parameter == i; });
    if (updated && copy != before_.end()) {
      const Tensor moves = first_rows(g, copy->rows) != 0.0, now = first_rows(p.detach(), copy->rows);
      t.with_gradient = count_nonzero(moves).item<int64_t>();
      if (t.with_gradient > 0) {
        t.lost = unchanged_share(copy->values, now, moves, t.with_gradient);
        const Tensor low = autocast::shadow_of(p);
        // In a process's first step no copy existed before it: round the old values here.
        if (low.defined())
          t.lost_16 = unchanged_share(copy->values.to(low.dtype()), first_rows(low, copy->rows), moves, t.with_gradient);
      }
      t.update = relative_change({copy->values}, {now});
    }
    out.tensors.push_back(std::move(t));
  }
  before_.clear();
  return out;
}

std::optional<double> relative_change(const Tensors& before, const Tensors& now) {
  const NoGrad off;
  double change = 0, size = 0;
  const auto square_of = [](const Tensor& t) { return std::pow(norm(t).item<double>(), 2); };
  const auto wide = [](const Tensor& t) { return is_half(t.dtype()) ? t.detach().to(DType::f32) : t.detach(); };
  for (size_t i = 0; i < now.size(); ++i) {
    const Tensor old = wide(before[i]);
    change += square_of(wide(now[i]) - old);
    size += square_of(old);
  }
  if (!std::isfinite(change) || !(size > 0)) return {};
  return std::sqrt(change / size);
}

}  // namespace halfstep
