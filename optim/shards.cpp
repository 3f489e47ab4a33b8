// SPDX-License-Identifier: Apache-2.0
#include "optim/shards.h"

#include <algorithm>
#include <cmath>

#include "amp/autocast/autocast.h"
#include "framework/backend/backend.h"

namespace halfstep {
namespace {

constexpr int64_t kAlign = 16;  // elements: kernels prefer parts that begin at a cache line

int64_t aligned(int64_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

// Returns n elements of a tensor from element `from` on, in the order of its memory.
TensorView elements_of(const Tensor& t, int64_t from, int64_t n) {
  return {static_cast<char*>(t.view().data) + from * int64_t(size_of(t.dtype())), t.dtype(), {n}, {1}};
}

// Copies that one kernel makes.
struct Copies {
  std::vector<TensorView> from, to;
  void run(Device device) {
    if (!from.empty()) backend_for(device).copy_all(from, to, nullptr);
    from.clear(), to.clear();
  }
};

}  // namespace

Shards::Shards(ProcessGroup& group, bool whole_tensors, const ShardOptions& options)
    : group_(group), whole_tensors_(whole_tensors), stage_bytes_(options.stage_mb * 1024 * 1024) {
  check<ValueError>(options.stage_mb > 0, "optimizer.shard", "stage_mb must be > 0, got ", options.stage_mb);
}

void Shards::add(const std::vector<Tensor>& parameters) {
  const size_t first = lines_.size();
  for (const Tensor& p : parameters) {
    size_t line = first;
    while (line < lines_.size() && (lines_[line].dtype != p.dtype() || lines_[line].device != p.device())) ++line;
    if (line == lines_.size()) lines_.push_back({p.dtype(), p.device()});
    ParameterLine& l = lines_[line];
    l.params.push_back(places_.size());
    places_.push_back({line, l.length, p.numel(), p.format()});
    l.length += aligned(p.numel());
  }
  for (size_t line = first; line < lines_.size(); ++line) set_bounds(lines_[line]);
}

// Sets the bounds of the ranks' ranges: equal shares, or the nearest beginnings of parameters.
void Shards::set_bounds(ParameterLine& line) const {
  const int64_t ranks = group_.size(), share = aligned((line.length + ranks - 1) / ranks);
  line.bounds = {0};
  for (int64_t r = 1; r < ranks; ++r) {
    int64_t at = std::min(r * share, line.length);
    if (whole_tensors_) {
      int64_t nearest = line.length;
      for (const size_t i : line.params) {
        if (std::abs(places_[i].begin - at) < std::abs(nearest - at)) nearest = places_[i].begin;
      }
      at = nearest;
    }
    line.bounds.push_back(at);
  }
  line.bounds.push_back(line.length);
}

Shards::ElementRange Shards::range_of(size_t param, int rank) const {
  const ParameterPlace& p = places_[param];
  const std::vector<int64_t>& bounds = lines_[p.line].bounds;
  const auto inside = [&](int64_t bound) { return std::clamp(bound - p.begin, int64_t(0), p.numel); };
  return {inside(bounds[size_t(rank)]), inside(bounds[size_t(rank) + 1])};
}

Tensor Shards::part(size_t param, const Tensor& t, int rank) const {
  const ElementRange r = range_of(param, rank);
  if (r.size() == places_[param].numel) return t;
  return t.alias({r.size()}, {1}, r.size() > 0 ? r.begin : 0);
}

void Shards::check_format(size_t param, const Tensor& parameter) const {
  check<ValueError>(whole_tensors_ || parameter.format() == places_[param].format, "optimizer", "the memory format of parameter ",
                    param, " changed, but ranks share its states in the order of its memory",
                    Help{"lay the module out before the optimizer is sharded"});
}

void Shards::gather(const std::vector<Tensor>& parameters) {
  for (ParameterLine& line : lines_) gather(line, parameters);
  for (const Tensor& p : parameters) {
    const Tensor shadow = autocast::shadow_of(p);
    if (shadow.defined())
      backend_for(p.device()).copy(in_memory_order(p.view(), p.format()), in_memory_order(shadow.view(), p.format()));
  }
}

// Sends a piece of every rank's range at a time.
void Shards::gather(ParameterLine& line, const std::vector<Tensor>& parameters) {
  const auto ranks = int64_t(group_.size());
  int64_t longest = 0;
  for (size_t r = 0; r < size_t(ranks); ++r) longest = std::max(longest, line.bounds[r + 1] - line.bounds[r]);
  if (longest == 0) return;
  const auto room = int64_t(stage_bytes_ / double(int64_t(size_of(line.dtype)) * ranks));
  const int64_t piece = std::min(longest, std::max(kAlign, room / kAlign * kAlign));
  if (!line.sent.defined()) {
    const MemoryScope tag(MemoryTag::workspace);
    line.sent = Tensor::empty({piece}, {.dtype = line.dtype, .device = line.device});
    line.received = Tensor::empty({piece * ranks}, {.dtype = line.dtype, .device = line.device});
    backend_for(line.device).fill(line.sent.view(), 0);  // including gaps between parameters
  }
  // Calls f(parameter, its elements, their place in the piece) for the part of a rank's range that begins at `from`.
  const auto for_each_part = [&](size_t rank, int64_t from, const auto& f) {
    const int64_t low = line.bounds[rank] + from, high = std::min(low + piece, line.bounds[rank + 1]);
    const auto ends_before = [&](size_t i, int64_t at) { return places_[i].begin + places_[i].numel <= at; };
    auto i = std::lower_bound(line.params.begin(), line.params.end(), low, ends_before);
    for (; i != line.params.end() && places_[*i].begin < high; ++i) {
      const ParameterPlace& p = places_[*i];
      const int64_t begin = std::max(low, p.begin), end = std::min(high, p.begin + p.numel);
      if (begin < end) f(parameters[*i], ElementRange{begin - p.begin, end - p.begin}, begin - low);
    }
  };
  const auto own_rank = size_t(group_.rank());
  Copies copies;
  for (int64_t from = 0; from < longest; from += piece) {
    for_each_part(own_rank, from, [&](const Tensor& p, const ElementRange& r, int64_t at) {
      copies.from.push_back(elements_of(p, r.begin, r.size()));
      copies.to.push_back(elements_of(line.sent, at, r.size()));
    });
    copies.run(line.device);
    group_.wait(group_.all_gather(line.sent, line.received));
    for (size_t rank = 0; rank < size_t(ranks); ++rank) {
      if (rank == own_rank) continue;
      for_each_part(rank, from, [&](const Tensor& p, const ElementRange& r, int64_t at) {
        copies.from.push_back(elements_of(line.received, int64_t(rank) * piece + at, r.size()));
        copies.to.push_back(elements_of(p, r.begin, r.size()));
      });
    }
    copies.run(line.device);
  }
}

}  // namespace halfstep
