// SPDX-License-Identifier: Apache-2.0
// Formats a profile as tables and as JSON.
#include <algorithm>
#include <functional>
#include <iomanip>
#include <map>
#include <utility>

#include "apps/terminal/quantity_text.h"
#include "apps/train/profile.h"
#include "framework/base/check.h"
#include "framework/base/text_stream.h"

namespace halfstep::app {
namespace {

constexpr size_t kMostRows = 20;        // of a table; profile.json has all
constexpr double kLeastShare = 0.0005;  // of the step, below which a row is omitted

std::string milliseconds_text(double seconds) {
  const double ms = seconds * 1e3;
  TextWriter out;
  out << std::fixed << std::setprecision(ms >= 100 ? 1 : ms >= 1 ? 2 : 3) << ms << " ms";
  return out.str();
}
std::string percent_text(double share) {
  TextWriter out;
  out << std::fixed << std::setprecision(1) << 100 * share << " %";
  return out.str();
}
// Formats a rate in units of 10^9 for each second.
std::string rate_text(double amount, double seconds) {
  return amount > 0 && seconds > 0 ? number_text(amount / seconds * 1e-9, 3) : "";
}

std::string count_of(double count, const char* unit) { return joined(number_text(count, 6), " ", unit, count == 1 ? "" : "s"); }

struct Total {
  double seconds = 0, calls = 0;
  double floor_seconds = 0, seconds_with_floor = 0;  // seconds_with_floor: of the rows that have a floor
  void add(const ProfileRow& row) {
    seconds += row.seconds, calls += row.calls;
    if (row.work) floor_seconds += row.work->floor_seconds, seconds_with_floor += row.seconds;
  }
};
std::string floor_text(const Total& t) {
  return t.seconds_with_floor > 0 && t.floor_seconds > 0 ? percent_text(t.floor_seconds / t.seconds_with_floor) : "";
}

// Appends a table of the calls of each name, sorted by time.
void add_totals_table(std::vector<std::string>& lines, const StepProfile& p, const std::string& title,
                      const std::function<std::string(const ProfileRow&)>& name_of) {
  std::map<std::string, Total> sums;
  for (const ProfileRow& row : p.rows) sums[name_of(row)].add(row);
  std::vector<std::pair<std::string, Total>> order(sums.begin(), sums.end());
  std::ranges::stable_sort(order, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  const auto small = std::ranges::find_if(order, [&](const auto& o) { return o.second.seconds < kLeastShare * p.seconds; });
  const size_t shown = std::min(size_t(small - order.begin()), kMostRows);
  size_t width = title.size() + 2;
  for (size_t i = 0; i < shown; ++i) width = std::max(width, order[i].first.size() + 2);
  const auto line = [&](const std::string& name, const std::string& calls, const std::string& time, const std::string& share,
                        const std::string& floor) {
    TextWriter out;
    out << std::left << std::setw(int(width)) << name << std::right << std::setw(7) << calls << std::setw(12) << time
        << std::setw(9) << share << std::setw(12) << floor;
    lines.push_back(out.str());
  };
  lines.push_back("");
  line(title, "calls", "time", "share", "floor/time");
  for (size_t i = 0; i < shown; ++i) {
    const auto& [name, t] = order[i];
    line(name, number_text(t.calls, 6), milliseconds_text(t.seconds), percent_text(t.seconds / p.seconds), floor_text(t));
  }
}

// Appends a table of calls, sorted by time, with the rest and the time between them.
void add_calls_table(std::vector<std::string>& lines, const StepProfile& p) {
  const auto small = std::ranges::find_if(p.rows, [&](const ProfileRow& row) { return row.seconds < kLeastShare * p.seconds; });
  const size_t shown = std::min(size_t(small - p.rows.begin()), kMostRows);
  size_t layer = 7, op = 4;
  for (size_t i = 0; i < shown; ++i) {
    layer = std::max(layer, p.rows[i].call.layer.size() + 2);
    op = std::max(op, p.rows[i].call.op.size() + 2);
  }
  const auto line = [&](std::string_view pass, const std::string& of, const std::string& what, const std::string& calls,
                        const std::string& time, const std::string& share, const std::string& flops, const std::string& bytes,
                        const std::string& floor) {
    TextWriter out;
    out << std::left << std::setw(10) << pass << std::setw(int(layer)) << of << std::setw(int(op)) << what << std::right
        << std::setw(6) << calls << std::setw(12) << time << std::setw(9) << share << std::setw(10) << flops << std::setw(8)
        << bytes << std::setw(12) << floor;
    lines.push_back(out.str());
  };
  line("pass", "layer", "op", "calls", "time", "share", "GFLOP/s", "GB/s", "floor/time");
  for (size_t i = 0; i < shown; ++i) {
    const ProfileRow& r = p.rows[i];
    const PlannedWork work = r.work.value_or(PlannedWork{});
    line(r.is_wait ? "wait" : name(r.call.pass), r.call.layer, r.call.op, number_text(r.calls, 6), milliseconds_text(r.seconds),
         percent_text(r.seconds / p.seconds), rate_text(work.flops, r.seconds), rate_text(work.bytes, r.seconds),
         work.floor_seconds > 0 ? percent_text(work.floor_seconds / r.seconds) : "");
  }
  double rest = 0;
  for (size_t i = shown; i < p.rows.size(); ++i) rest += p.rows[i].seconds;
  if (rest >= kLeastShare * p.seconds)
    line("", "", joined(p.rows.size() - shown, " more"), "", milliseconds_text(rest), percent_text(rest / p.seconds), "", "", "");
  line("", "", "between", "", milliseconds_text(p.between), percent_text(p.between / p.seconds), "", "", "");
}

// Appends a table of a GPU's kernels, sorted by time.
void add_kernels_table(std::vector<std::string>& lines, const StepProfile& p) {
  const auto small = std::ranges::find_if(p.kernels, [&](const KernelRow& row) { return row.seconds < kLeastShare * p.seconds; });
  const size_t shown = std::min(size_t(small - p.kernels.begin()), kMostRows);
  const auto line = [&](const std::string& calls, const std::string& time, const std::string& share, std::string name) {
    constexpr size_t kMostLetters = 68;  // of a name, which makes lines of 100 columns
    if (name.size() > kMostLetters) name = name.substr(0, kMostLetters - 3) + "...";
    TextWriter out;
    out << std::right << std::setw(7) << calls << std::setw(12) << time << std::setw(9) << share << "  " << name;
    lines.push_back(out.str());
  };
  lines.push_back("");
  line("calls", "time", "share", "kernel");
  for (size_t i = 0; i < shown; ++i) {
    const KernelRow& row = p.kernels[i];
    line(number_text(row.calls, 6), milliseconds_text(row.seconds), percent_text(row.seconds / p.seconds), row.name);
  }
}

}  // namespace

std::vector<std::string> profile_lines(const StepProfile& p) {
  std::vector<std::string> lines;
  Total all;
  for (const ProfileRow& row : p.rows) all.add(row);
  std::string head = joined("profile: ", count_of(double(p.steps), "step"), " of ", milliseconds_text(p.seconds), " (",
                            milliseconds_text(p.fastest), " to ", milliseconds_text(p.slowest), "), ",
                            percent_text(p.in_calls / p.seconds), " of it in calls");
  if (p.plain_seconds > 0) head += joined("; without the profile ", milliseconds_text(p.plain_seconds));
  if (p.plain_seconds > 0 && p.seconds > p.plain_seconds)
    head += joined(", to which it adds ", percent_text(p.seconds / p.plain_seconds - 1));
  lines.push_back(head);
  if (!p.kernels.empty())
    lines.push_back(joined("GPU:     it runs kernels and copies in ", percent_text(p.busy / p.seconds),
                           " of the step; in the rest it waits for the program"));
  if (all.floor_seconds > 0)
    lines.push_back(joined("floor:   ", milliseconds_text(all.floor_seconds),
                           " by the measured rates of this machine for the products and bytes of the plan: ",
                           percent_text(all.floor_seconds / p.seconds), " of the step"));
  if (p.left_out > 0)
    lines.push_back(joined("         ", p.left_out, " calls beyond the first ", StepProfiler::kMostSpans, " were left out"));
  lines.push_back("");
  add_calls_table(lines, p);
  add_totals_table(lines, p, "op", [](const ProfileRow& row) { return row.call.op; });
  add_totals_table(lines, p, "layer", [](const ProfileRow& row) {
    return !row.call.layer.empty()             ? row.call.layer
           : row.is_wait                       ? "(waits)"
           : row.call.pass == StepPass::update ? "(update)"
                                               : "(none)";
  });
  if (!p.kernels.empty()) add_kernels_table(lines, p);
  if (!p.no_kernels.empty()) lines.insert(lines.end(), {"", "kernels are not listed: " + p.no_kernels});
  return lines;
}

Json profile_json(const StepProfile& p) {
  Json rows = Json::array();
  for (const ProfileRow& r : p.rows) {
    Json row = {{"pass", r.is_wait ? "wait" : std::string(name(r.call.pass))},
                {"layer", r.call.layer},
                {"op", r.call.op},
                {"calls", r.calls},
                {"seconds", r.seconds}};
    if (r.work) row.update({{"flops", r.work->flops}, {"bytes", r.work->bytes}, {"floor_seconds", r.work->floor_seconds}});
    rows.push_back(std::move(row));
  }
  Json kernels = Json::array();
  for (const KernelRow& r : p.kernels) kernels.push_back({{"name", r.name}, {"calls", r.calls}, {"seconds", r.seconds}});
  return {{"steps", p.steps},
          {"step_seconds", {{"median", p.seconds}, {"fastest", p.fastest}, {"slowest", p.slowest}}},
          {"step_seconds_without_profile", p.plain_seconds > 0 ? Json(p.plain_seconds) : Json()},
          {"seconds_in_calls", p.in_calls},
          {"seconds_between", p.between},
          {"spans_left_out", p.left_out},
          {"seconds_of_kernels", p.kernels.empty() ? Json() : Json(p.busy)},
          {"calls", rows},
          {"kernels", kernels}};
}

}  // namespace halfstep::app
