// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "framework/backend/kernel_log.h"

namespace halfstep {
namespace {

bool writes_nan(const KernelEvent& e) {
  return std::any_of(e.writes.begin(), e.writes.end(), [](const KernelWrite& w) { return w.counts.nan > 0; });
}
bool is_not_finite(const KernelRead& r) { return r.counts && r.counts->any_not_finite(); }

// Returns whether the kernel passes on infinities of its inputs.
bool passes_on(const KernelEvent& e) {
  static const auto& kernels = *new std::set<std::string, std::less<>>{"fill", "where", "copy", "add", "sub", "mul"};
  return kernels.contains(e.kernel);
}

// Finds infinities that were written on purpose, such as those of a mask.
class IntendedInfinities {
 public:
  explicit IntendedInfinities(const KernelLog& log) : log_(log) {
    for (int id = 0; id < int(log.events().size()); ++id) {
      const KernelEvent& e = log.events()[size_t(id)];
      if (!e.any_not_finite() || writes_nan(e) || !passes_on(e)) continue;
      const bool any = std::any_of(e.reads.begin(), e.reads.end(), is_not_finite);
      const bool all_intended =
          std::all_of(e.reads.begin(), e.reads.end(), [&](const KernelRead& r) { return !is_not_finite(r) || are_read_by(r); });
      if ((any && all_intended) || (e.kernel == "fill" && e.reads.empty())) events_.insert(id);
    }
  }
  // Return whether the infinities that an event wrote, that a producer (KernelRead) wrote, or that a kernel reads are intended.
  bool are_written_by_event(int id) const { return events_.contains(id); }
  bool are_written_by(int producer) const { return producer <= -2 ? log_.is_on_purpose(producer) : are_written_by_event(producer); }
  // Accepts a number, a constant that no observed kernel wrote, and values of intended and finite producers alone.
  bool are_read_by(const KernelRead& r) const {
    const auto accepted = [&](int p) { return are_written_by(p) || (p >= 0 && !log_.events()[size_t(p)].any_not_finite()); };
    return r.number || (r.counts->nan == 0 && std::all_of(r.producers.begin(), r.producers.end(), accepted));
  }

 private:
  const KernelLog& log_;
  std::set<int> events_;
};

// Follows the values of `sink` that are not finite through the events that wrote them, back to where they begin.
class OriginSearch {
 public:
  OriginSearch(const KernelLog& log, const Tensor& sink) : log_(log), intended_(log) {
    for (const int p : log.producers_of(sink)) follow(p);
    while (!todo_.empty()) {
      const int id = todo_.back();
      todo_.pop_back();
      visit(id);
    }
  }

  Origin origin() const {
    Origin out;
    if (nan_born_ >= 0) out.nan_born = nan_born_;
    if (!origins_.empty()) {
      out.event = *origins_.begin();
      const KernelEvent& e = log_.events()[size_t(out.event)];
      out.planted = !intended_.are_written_by_event(out.event) && std::any_of(e.reads.begin(), e.reads.end(), is_not_finite);
    } else if (!roots_.empty()) {
      out.root = log_.root_name(*roots_.begin());
      for (const int r : roots_)  // prefers inputs: their values can spoil a weight, but not the reverse
        if (log_.root_name(r).starts_with("input")) out.root = log_.root_name(r);
    } else if (!unexplained_.empty()) {
      out.event = *unexplained_.begin();
    }
    return out;
  }

 private:
  void follow(int producer) {
    if (producer <= -2)
      roots_.insert(producer);
    else if (producer >= 0 && log_.events()[size_t(producer)].any_not_finite() && seen_.insert(producer).second)
      todo_.push_back(producer);
  }

  void visit(int id) {
    const KernelEvent& e = log_.events()[size_t(id)];
    const bool nan_in =
        std::any_of(e.reads.begin(), e.reads.end(), [](const KernelRead& r) { return r.counts && r.counts->nan > 0; });
    bool any = false, by_numbers = true, on_purpose = false, followed_any = false;
    for (const KernelRead& r : e.reads) {
      if (!is_not_finite(r) || (writes_nan(e) && nan_in && r.counts->nan == 0)) continue;  // a NaN comes from a NaN
      any = true;
      by_numbers = by_numbers && r.number;
      if (r.number) continue;
      bool explained = r.producers.empty() && r.counts->nan == 0;  // a constant
      on_purpose = on_purpose || explained;
      for (const int p : r.producers) {
        if (intended_.are_written_by(p)) {
          explained = on_purpose = true;
        } else if (p <= -2 || log_.events()[size_t(p)].any_not_finite()) {
          follow(p);
          explained = followed_any = true;
        }
      }
      if (!explained) unexplained_.insert(id);
    }
    if (!any || by_numbers || (on_purpose && !followed_any)) origins_.insert(id);
    if (writes_nan(e) && !nan_in && any) nan_born_ = nan_born_ < 0 ? id : std::min(nan_born_, id);
  }

  const KernelLog& log_;
  const IntendedInfinities intended_;
  std::vector<int> todo_;  // events to visit
  std::set<int> seen_, origins_, roots_;
  std::set<int> unexplained_;  // events that read values that are not finite and that no logged event wrote
  int nan_born_ = -1;
};

}  // namespace

Origin origin_of(const KernelLog& log, const Tensor& sink) { return OriginSearch(log, sink).origin(); }

}  // namespace halfstep
