// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "framework/backend/kernel_log.h"

namespace halfstep {
namespace {

bool writes_nan(const KernelEvent& e) {
  return std::any_of(e.writes.begin(), e.writes.end(), [](const KernelWrite& w) { return w.counts.nan > 0; });
}
bool is_bad(const KernelRead& r) { return r.counts && r.counts->any_not_finite(); }

// Returns whether the kernel passes on infinities of its inputs.
bool hands_on(const KernelEvent& e) {
  static const auto& kernels = *new std::set<std::string, std::less<>>{"fill", "where", "copy", "add", "sub", "mul"};
  return kernels.contains(e.kernel);
}

// Finds infinities that were written on purpose, such as those of a mask.
class Planted {
 public:
  explicit Planted(const KernelLog& log) : log_(log) {
    for (int id = 0; id < int(log.events().size()); ++id) {
      const KernelEvent& e = log.events()[size_t(id)];
      if (!e.any_not_finite() || writes_nan(e) || !hands_on(e)) continue;
      const bool all = std::all_of(e.reads.begin(), e.reads.end(), [&](const KernelRead& r) { return !is_bad(r) || read(r); });
      const bool any = std::any_of(e.reads.begin(), e.reads.end(), is_bad);
      if ((any && all) || (e.kernel == "fill" && e.reads.empty())) events_.insert(id);
    }
  }
  bool event(int id) const { return events_.contains(id); }
  bool producer(int p) const { return p <= -2 ? log_.is_on_purpose(p) : event(p); }
  // Accepts a number, a constant that no observed kernel wrote, and values of intended and finite producers alone.
  bool read(const KernelRead& r) const {
    const auto fine = [&](int p) { return producer(p) || (p >= 0 && !log_.events()[size_t(p)].any_not_finite()); };
    return r.number || (r.counts->nan == 0 && std::all_of(r.producers.begin(), r.producers.end(), fine));
  }

 private:
  const KernelLog& log_;
  std::set<int> events_;
};

class Walk {
 public:
  Walk(const KernelLog& log, const Tensor& sink) : log_(log), planted_(log) {
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
      out.planted = !planted_.event(out.event) && std::any_of(e.reads.begin(), e.reads.end(), is_bad);
    } else if (!roots_.empty()) {
      out.root = log_.root_name(*roots_.begin());
      for (const int r : roots_)  // what came from outside explains a weight, not the other way round
        if (log_.root_name(r).starts_with("input")) out.root = log_.root_name(r);
    } else if (!lost_.empty()) {
      out.event = *lost_.begin();
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
      if (!is_bad(r) || (writes_nan(e) && nan_in && r.counts->nan == 0)) continue;  // a NaN comes from a NaN
      any = true;
      by_numbers = by_numbers && r.number;
      if (r.number) continue;
      bool known = r.producers.empty() && r.counts->nan == 0;
      on_purpose = on_purpose || known;
      for (const int p : r.producers) {
        if (planted_.producer(p)) {
          known = on_purpose = true;
        } else if (p <= -2 || log_.events()[size_t(p)].any_not_finite()) {
          follow(p);
          known = followed_any = true;
        }
      }
      if (!known) lost_.insert(id);  // nobody was seen to write it
    }
    if (!any || by_numbers || (on_purpose && !followed_any)) origins_.insert(id);
    if (writes_nan(e) && !nan_in && any) nan_born_ = nan_born_ < 0 ? id : std::min(nan_born_, id);
  }

  const KernelLog& log_;
  const Planted planted_;
  std::vector<int> todo_;
  std::set<int> seen_, origins_, roots_, lost_;
  int nan_born_ = -1;
};

}  // namespace

Origin origin_of(const KernelLog& log, const Tensor& sink) { return Walk(log, sink).origin(); }

}  // namespace halfstep
