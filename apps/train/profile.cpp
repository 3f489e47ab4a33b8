// SPDX-License-Identifier: Apache-2.0
#include "apps/train/profile.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iomanip>
#include <map>
#include <set>
#include <utility>
#include <zlib.h>

#include "framework/backend/backend.h"
#include "framework/base/check.h"
#include "framework/base/text_stream.h"
#include "framework/io/files/atomic_file.h"

namespace halfstep::app {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

bool is_row(const ProfileSpan& span) { return span.depth == 0 && span.kind != SpanKind::step && span.kind != SpanKind::part; }

// Returns the seconds in which at least one kernel runs.
double busy_seconds(const std::vector<ProfileKernel>& by_time) {
  int64_t sum = 0, until = 0;
  for (const ProfileKernel& k : by_time) {
    sum += std::max<int64_t>(0, k.end - std::max(k.begin, until));
    until = std::max(until, k.end);
  }
  return double(sum) * 1e-9;
}

CallName name_of(const ProfileSpan& span) { return {span.pass, span.layer ? *span.layer : "", span.name}; }

std::string zipped(const std::string& text) {
  z_stream z{};
  check<IoError>(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK, "profile", "zlib cannot compress");
  std::string out(deflateBound(&z, text.size()), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = uInt(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = uInt(out.size());
  const int end = deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  check<IoError>(end == Z_STREAM_END, "profile", "zlib stopped before the end");
  return out;
}

}  // namespace

PlannedCalls planned_calls(const std::vector<LoggedCall>& calls, MachineRates& rates) {
  PlannedCalls out;
  for (const LoggedCall& call : calls) {
    const bool update = call.pass == StepPass::update;
    PlannedWork& work = out[{call.pass, update ? "" : call.layer, update ? "optimizer" : call.op}];
    work.flops += call.flops();
    work.bytes += call.bytes_read + call.bytes_written;
    work.floor_seconds += rates.floor_seconds(call);
    for (const LoggedCast& c : call.casts) {
      if (c.shadow) continue;
      const double bytes = double(c.elements) * double(size_of(c.from) + size_of(c.to));
      PlannedWork& cast = out[{call.pass, call.layer, "autocast"}];
      cast.bytes += bytes;
      cast.floor_seconds += rates.copy_seconds(bytes);
      work.bytes -= bytes;
    }
  }
  return out;
}

void StepProfiler::begin() {
  if (open_ || done()) return;
  open_ = true;
  backend_for(device_).synchronize();
  const bool timed_by_call = seen_ >= kWarmUp && (seen_ - kWarmUp) % 2 == 1;
  if (timed_by_call) scope_ = std::make_unique<ProfileScope>(device_, kSpans - spans_);  // costs time on a GPU
  began_ = Clock::now();
  if (!timed_by_call) return;
  if (!first_) first_ = began_;
  step_ = std::make_unique<CallScope>(SpanKind::step, "step");
}

void StepProfiler::end() {
  if (!open_) return;
  open_ = false;
  step_.reset();
  backend_for(device_).synchronize();
  const double seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  if (scope_) {
    ProfiledStep taken{scope_->spans(), scope_->kernels(), seconds,
                       std::chrono::duration_cast<std::chrono::nanoseconds>(began_ - *first_).count()};
    spans_ += taken.spans.size() + taken.kernels.size();
    no_kernels_ = scope_->no_kernels();
    const bool cut = scope_->left_out() > 0;
    full_ = cut || spans_ >= kSpans;
    if (!cut || taken_.empty()) {
      left_out_ = scope_->left_out();
      taken_.push_back(std::move(taken));
    }
    scope_.reset();
  } else if (seen_ >= kWarmUp) {
    plain_.push_back(seconds);
  }
  ++seen_;
}

void StepProfiler::cancel() {
  step_.reset();
  scope_.reset();
  open_ = false;
}

StepProfile StepProfiler::result() const {
  StepProfile out;
  out.steps = taken_.size();
  out.left_out = left_out_, out.no_kernels = no_kernels_;
  out.plain_seconds = median(plain_);
  std::vector<double> whole, inside, outside, busy;
  struct Sum {
    double calls = 0, seconds = 0;
  };
  std::map<std::pair<CallName, bool>, std::vector<Sum>> sums;
  std::map<std::string, std::vector<Sum>> kernels;
  for (size_t i = 0; i < taken_.size(); ++i) {
    double sum = 0;
    for (const ProfileSpan& span : taken_[i].spans) {
      if (!is_row(span)) continue;
      std::vector<Sum>& of = sums[{name_of(span), span.kind == SpanKind::wait}];
      of.resize(taken_.size());
      of[i].calls += 1;
      of[i].seconds += span.seconds();
      sum += span.seconds();
    }
    for (const ProfileKernel& k : taken_[i].kernels) {
      std::vector<Sum>& of = kernels[k.name];
      of.resize(taken_.size());
      of[i].calls += 1;
      of[i].seconds += double(k.end - k.begin) * 1e-9;
    }
    busy.push_back(busy_seconds(taken_[i].kernels));
    whole.push_back(taken_[i].seconds);
    inside.push_back(sum);
    outside.push_back(taken_[i].seconds - sum);
  }
  out.in_calls = median(inside), out.between = median(outside);
  out.seconds = median(whole), out.busy = median(busy);
  if (!whole.empty())
    std::tie(out.fastest, out.slowest) = std::pair(*std::ranges::min_element(whole), *std::ranges::max_element(whole));
  const auto medians = [](const std::vector<Sum>& steps) {
    std::vector<double> calls, seconds;
    for (const Sum& s : steps) calls.push_back(s.calls), seconds.push_back(s.seconds);
    return Sum{median(calls), median(seconds)};
  };
  for (const auto& [name, steps] : sums) {
    const Sum sum = medians(steps);
    ProfileRow row{name.first, name.second, sum.calls, sum.seconds, {}};
    if (const auto planned = planned_.find(name.first); planned != planned_.end()) row.work = planned->second;
    out.rows.push_back(std::move(row));
  }
  std::ranges::stable_sort(out.rows, std::greater<>(), &ProfileRow::seconds);
  for (const auto& [name, steps] : kernels) {
    const Sum sum = medians(steps);
    out.kernels.push_back({name, sum.calls, sum.seconds});
  }
  std::ranges::stable_sort(out.kernels, std::greater<>(), &KernelRow::seconds);
  return out;
}

std::string StepProfiler::trace(int process) const {
  std::string out = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  const auto event = [&](const Json& e) { out += (out.ends_with("[\n") ? "" : ",\n") + e.dump(); };
  const auto name_row = [&](int row, const std::string& text) {
    event({{"name", "thread_name"}, {"ph", "M"}, {"pid", process}, {"tid", row}, {"args", {{"name", text}}}});
  };
  // Appends a span. begin, duration: microseconds.
  const auto span = [&](const std::string& name, const char* category, int row, double begin, double duration, const Json& args) {
    event({{"name", name},
           {"cat", category},
           {"ph", "X"},
           {"pid", process},
           {"tid", row},
           {"ts", begin},
           {"dur", duration},
           {"args", args}});
  };
  constexpr int kCalls = 0, kDevice = 1;
  std::map<uint32_t, int> streams;  // streams and their rows
  const bool on_device = !device_.is_cpu();
  event({{"name", "process_name"}, {"ph", "M"}, {"pid", process}, {"tid", 0}, {"args", {{"name", joined("rank ", process)}}}});
  name_row(kCalls, "calls");
  if (on_device) name_row(kDevice, joined(device_));
  constexpr const char* categories[] = {"step", "pass", "op", "cast", "wait"};
  for (const ProfiledStep& step : taken_) {
    for (const ProfileSpan& s : step.spans) {
      Json args = {{"pass", name(s.pass)}};
      if (s.layer) args["layer"] = *s.layer;
      Json inputs = Json::array();
      for (const ProfileSpan::Operand& o : s.inputs) inputs.push_back(joined(o.dtype, o.shape));
      if (!inputs.empty()) args["inputs"] = inputs;
      const char* const category = categories[size_t(s.kind)];
      span(s.name, category, kCalls, double(step.start_ns + s.begin) * 1e-3, double(s.end - s.begin) * 1e-3, args);
      if (on_device && s.device_end != 0)
        span(s.name, category, kDevice, double(step.start_ns) * 1e-3 + s.device_begin * 1e6, (s.device_end - s.device_begin) * 1e6,
             args);
    }
    for (const ProfileKernel& k : step.kernels) {
      const auto [stream, is_new] = streams.try_emplace(k.stream, kDevice + 1 + int(streams.size()));
      if (is_new) name_row(stream->second, joined(device_, " stream ", k.stream));
      Json args = Json::object();
      if (k.span >= 0) {
        const ProfileSpan& of = step.spans[size_t(k.span)];
        args = {{"pass", name(of.pass)}, {"op", of.name}};
        if (of.layer) args["layer"] = *of.layer;
      }
      span(k.name, "kernel", stream->second, double(step.start_ns + k.begin) * 1e-3, double(k.end - k.begin) * 1e-3, args);
    }
  }
  return out + "\n]}\n";
}

void write_profile(const std::filesystem::path& folder, const StepProfiler& profiler) {
  const std::filesystem::path inside = folder / "profile";
  std::error_code fault;
  std::filesystem::create_directories(inside, fault);
  check<IoError>(!fault, "profile", "cannot make ", inside.string(), ": ", fault.message());
  atomic_write(inside / "profile.json", profile_json(profiler.result()).dump(1) + "\n");
  atomic_write(inside / "trace.json.gz", zipped(profiler.trace()));
}

// Formats a profile as tables and as JSON.

namespace {

constexpr size_t kRows = 20;       // of a table; profile.json has all
constexpr double kLeast = 0.0005;  // share of the step below which a row is omitted

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

std::string plural(double n, const char* what) { return joined(number_text(n, 6), " ", what, n == 1 ? "" : "s"); }

struct Total {
  double seconds = 0, calls = 0, floor = 0, floored = 0;  // floored: seconds of rows with a floor
  void add(const ProfileRow& row) {
    seconds += row.seconds, calls += row.calls;
    if (row.work) floor += row.work->floor_seconds, floored += row.seconds;
  }
};
std::string floor_text(const Total& t) { return t.floored > 0 && t.floor > 0 ? percent_text(t.floor / t.floored) : ""; }

// Appends a table of the calls of each name, sorted by time.
void totals_table(std::vector<std::string>& lines, const StepProfile& p, const std::string& title,
                  const std::function<std::string(const ProfileRow&)>& name_of) {
  std::map<std::string, Total> sums;
  for (const ProfileRow& row : p.rows) sums[name_of(row)].add(row);
  std::vector<std::pair<std::string, Total>> order(sums.begin(), sums.end());
  std::ranges::stable_sort(order, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  const auto small = std::ranges::find_if(order, [&](const auto& o) { return o.second.seconds < kLeast * p.seconds; });
  const size_t shown = std::min(size_t(small - order.begin()), kRows);
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

void calls_table(std::vector<std::string>& lines, const StepProfile& p) {
  const auto small = std::ranges::find_if(p.rows, [&](const ProfileRow& row) { return row.seconds < kLeast * p.seconds; });
  const size_t shown = std::min(size_t(small - p.rows.begin()), kRows);
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
    line(r.wait ? "wait" : name(r.call.pass), r.call.layer, r.call.op, number_text(r.calls, 6), milliseconds_text(r.seconds),
         percent_text(r.seconds / p.seconds), rate_text(work.flops, r.seconds), rate_text(work.bytes, r.seconds),
         work.floor_seconds > 0 ? percent_text(work.floor_seconds / r.seconds) : "");
  }
  double rest = 0;
  for (size_t i = shown; i < p.rows.size(); ++i) rest += p.rows[i].seconds;
  if (rest >= kLeast * p.seconds)
    line("", "", joined(p.rows.size() - shown, " more"), "", milliseconds_text(rest), percent_text(rest / p.seconds), "", "", "");
  line("", "", "between", "", milliseconds_text(p.between), percent_text(p.between / p.seconds), "", "", "");
}

void kernels_table(std::vector<std::string>& lines, const StepProfile& p) {
  const auto small = std::ranges::find_if(p.kernels, [&](const KernelRow& row) { return row.seconds < kLeast * p.seconds; });
  const size_t shown = std::min(size_t(small - p.kernels.begin()), kRows);
  const auto line = [&](const std::string& calls, const std::string& time, const std::string& share, std::string name) {
    constexpr size_t kName = 68;  // makes lines of 100 columns
    if (name.size() > kName) name = name.substr(0, kName - 3) + "...";
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
  std::string head =
      joined("profile: ", plural(double(p.steps), "step"), " of ", milliseconds_text(p.seconds), " (", milliseconds_text(p.fastest),
             " to ", milliseconds_text(p.slowest), "), ", percent_text(p.in_calls / p.seconds), " of it in calls");
  if (p.plain_seconds > 0) head += joined("; without the profile ", milliseconds_text(p.plain_seconds));
  if (p.plain_seconds > 0 && p.seconds > p.plain_seconds)
    head += joined(", to which it adds ", percent_text(p.seconds / p.plain_seconds - 1));
  lines.push_back(head);
  if (!p.kernels.empty())
    lines.push_back(joined("GPU:     it runs kernels and copies in ", percent_text(p.busy / p.seconds),
                           " of the step; in the rest it waits for the program"));
  if (all.floor > 0)
    lines.push_back(joined("floor:   ", milliseconds_text(all.floor),
                           " by the measured rates of this machine for the products and bytes of the plan: ",
                           percent_text(all.floor / p.seconds), " of the step"));
  if (p.left_out > 0)
    lines.push_back(joined("         ", p.left_out, " calls beyond the first ", StepProfiler::kSpans, " were left out"));
  lines.push_back("");
  calls_table(lines, p);
  totals_table(lines, p, "op", [](const ProfileRow& row) { return row.call.op; });
  totals_table(lines, p, "layer", [](const ProfileRow& row) {
    return !row.call.layer.empty()               ? row.call.layer
           : row.wait                            ? "(waits)"
           : row.call.pass == StepPass::update ? "(update)"
                                                 : "(none)";
  });
  if (!p.kernels.empty()) kernels_table(lines, p);
  if (!p.no_kernels.empty()) lines.insert(lines.end(), {"", "kernels are not listed: " + p.no_kernels});
  return lines;
}

Json profile_json(const StepProfile& p) {
  Json rows = Json::array();
  for (const ProfileRow& r : p.rows) {
    Json row = {{"pass", r.wait ? "wait" : std::string(name(r.call.pass))},
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
