// SPDX-License-Identifier: Apache-2.0
#include "apps/train/profile.h"

#include <zlib.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "framework/backend/backend.h"
#include "framework/base/check.h"
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
      span(s.name, category, kCalls, double(step.at + s.begin) * 1e-3, double(s.end - s.begin) * 1e-3, args);
      if (on_device && s.device_end != 0)
        span(s.name, category, kDevice, double(step.at) * 1e-3 + s.device_begin * 1e6, (s.device_end - s.device_begin) * 1e6, args);
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
      span(k.name, "kernel", stream->second, double(step.at + k.begin) * 1e-3, double(k.end - k.begin) * 1e-3, args);
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

}  // namespace halfstep::app
