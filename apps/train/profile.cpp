// SPDX-License-Identifier: Apache-2.0
#include "apps/train/profile.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "framework/backend/backend.h"
#include "framework/base/check.h"
#include "framework/io/files/atomic_file.h"

namespace halfstep::app {
namespace {

constexpr double kNanosecond = 1e-9;  // in seconds

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Returns whether a span is a call or a wait of its own, which a row counts.
bool is_row(const ProfileSpan& span) { return span.depth == 0 && span.kind != SpanKind::step && span.kind != SpanKind::part; }

// Returns the seconds in which at least one kernel runs. by_begin: kernels in the order of their begins, in nanoseconds.
double busy_seconds(const std::vector<ProfileKernel>& by_begin) {
  int64_t sum = 0, until = 0;
  for (const ProfileKernel& k : by_begin) {
    sum += std::max<int64_t>(0, k.end - std::max(k.begin, until));
    until = std::max(until, k.end);
  }
  return double(sum) * kNanosecond;
}

// Calls of one name in one step.
struct StepSum {
  double calls = 0, seconds = 0;
};

// Adds a call to its name's sum for step `i` of `steps`.
void add_call(std::vector<StepSum>& sums, size_t i, size_t steps, double seconds) {
  sums.resize(steps);
  sums[i].calls += 1;
  sums[i].seconds += seconds;
}

StepSum median(const std::vector<StepSum>& sums) {
  std::vector<double> calls, seconds;
  for (const StepSum& sum : sums) calls.push_back(sum.calls), seconds.push_back(sum.seconds);
  return {median(calls), median(seconds)};
}

CallName name_of(const ProfileSpan& span) { return {span.pass, span.layer ? *span.layer : "", span.name}; }

std::string gzipped(const std::string& text) {
  z_stream z{};
  constexpr int kLevel = 6, kGzipWindowBits = 15 + 16, kMemoryLevel = 8;  // zlib's defaults; 16 more than a window: gzip's header
  check<IoError>(deflateInit2(&z, kLevel, Z_DEFLATED, kGzipWindowBits, kMemoryLevel, Z_DEFAULT_STRATEGY) == Z_OK, "profile",
                 "zlib cannot compress");
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
  if (is_open_ || done()) return;
  is_open_ = true;
  backend_for(device_).synchronize();
  const bool timed_by_call = ended_steps_ >= kWarmUpSteps && (ended_steps_ - kWarmUpSteps) % 2 == 1;
  if (timed_by_call) profile_scope_.emplace(device_, kMostSpans - span_count_);  // costs time on a GPU
  began_ = Clock::now();
  if (!timed_by_call) return;
  if (!first_began_) first_began_ = began_;
  step_scope_.emplace(SpanKind::step, "step");
}

void StepProfiler::end() {
  if (!is_open_) return;
  is_open_ = false;
  step_scope_.reset();
  backend_for(device_).synchronize();
  const double seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  if (profile_scope_) {
    ProfiledStep taken{profile_scope_->spans(), profile_scope_->kernels(), seconds,
                       std::chrono::duration_cast<std::chrono::nanoseconds>(began_ - *first_began_).count()};
    span_count_ += taken.spans.size() + taken.kernels.size();
    no_kernels_ = profile_scope_->no_kernels();
    const bool cut = profile_scope_->left_out() > 0;
    is_full_ = cut || span_count_ >= kMostSpans;
    if (!cut || profiled_.empty()) {
      left_out_ = profile_scope_->left_out();
      profiled_.push_back(std::move(taken));
    }
    profile_scope_.reset();
  } else if (ended_steps_ >= kWarmUpSteps) {
    plain_seconds_.push_back(seconds);
  }
  ++ended_steps_;
}

void StepProfiler::cancel() {
  step_scope_.reset();
  profile_scope_.reset();
  is_open_ = false;
}

StepProfile StepProfiler::result() const {
  StepProfile out;
  out.steps = profiled_.size();
  out.left_out = left_out_, out.no_kernels = no_kernels_;
  out.plain_seconds = median(plain_seconds_);
  std::vector<double> whole, inside, outside, busy;
  std::map<std::pair<CallName, bool>, std::vector<StepSum>> calls;  // bool: a wait
  std::map<std::string, std::vector<StepSum>> kernels;
  for (size_t i = 0; i < profiled_.size(); ++i) {
    double in_calls = 0;
    for (const ProfileSpan& span : profiled_[i].spans) {
      if (!is_row(span)) continue;
      add_call(calls[{name_of(span), span.kind == SpanKind::wait}], i, profiled_.size(), span.seconds());
      in_calls += span.seconds();
    }
    for (const ProfileKernel& k : profiled_[i].kernels)
      add_call(kernels[k.name], i, profiled_.size(), double(k.end - k.begin) * kNanosecond);
    busy.push_back(busy_seconds(profiled_[i].kernels));
    whole.push_back(profiled_[i].seconds);
    inside.push_back(in_calls);
    outside.push_back(profiled_[i].seconds - in_calls);
  }
  out.in_calls = median(inside), out.between = median(outside);
  out.seconds = median(whole), out.busy = median(busy);
  if (!whole.empty())
    std::tie(out.fastest, out.slowest) = std::pair(*std::ranges::min_element(whole), *std::ranges::max_element(whole));
  for (const auto& [name, steps] : calls) {
    const StepSum sum = median(steps);
    ProfileRow row{name.first, name.second, sum.calls, sum.seconds, {}};
    if (const auto planned = planned_.find(name.first); planned != planned_.end()) row.work = planned->second;
    out.rows.push_back(std::move(row));
  }
  std::ranges::stable_sort(out.rows, std::greater<>(), &ProfileRow::seconds);
  for (const auto& [name, steps] : kernels) {
    const StepSum sum = median(steps);
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
  constexpr int kCalls = 0, kDevice = 1;  // rows of the trace; streams follow
  constexpr double kNsToUs = 1e-3, kSecondsToUs = 1e6;
  std::map<uint32_t, int> streams;  // streams and their rows
  const bool on_device = !device_.is_cpu();
  event({{"name", "process_name"}, {"ph", "M"}, {"pid", process}, {"tid", 0}, {"args", {{"name", joined("rank ", process)}}}});
  name_row(kCalls, "calls");
  if (on_device) name_row(kDevice, joined(device_));
  constexpr const char* categories[] = {"step", "pass", "op", "cast", "wait"};
  for (const ProfiledStep& step : profiled_) {
    for (const ProfileSpan& s : step.spans) {
      Json args = {{"pass", name(s.pass)}};
      if (s.layer) args["layer"] = *s.layer;
      Json inputs = Json::array();
      for (const ProfileSpan::Operand& o : s.inputs) inputs.push_back(joined(o.dtype, o.shape));
      if (!inputs.empty()) args["inputs"] = inputs;
      const char* const category = categories[size_t(s.kind)];
      span(s.name, category, kCalls, double(step.start_ns + s.begin) * kNsToUs, double(s.end - s.begin) * kNsToUs, args);
      if (on_device && s.device_end != 0)
        span(s.name, category, kDevice, double(step.start_ns) * kNsToUs + s.device_begin * kSecondsToUs,
             (s.device_end - s.device_begin) * kSecondsToUs, args);
    }
    for (const ProfileKernel& k : step.kernels) {
      const auto [stream, is_new] = streams.try_emplace(k.stream, kDevice + 1 + int(streams.size()));
      if (is_new) name_row(stream->second, joined(device_, " stream ", k.stream));
      Json args = Json::object();
      if (k.span >= 0) {
        const ProfileSpan& launcher = step.spans[size_t(k.span)];
        args = {{"pass", name(launcher.pass)}, {"op", launcher.name}};
        if (launcher.layer) args["layer"] = *launcher.layer;
      }
      span(k.name, "kernel", stream->second, double(step.start_ns + k.begin) * kNsToUs, double(k.end - k.begin) * kNsToUs, args);
    }
  }
  return out + "\n]}\n";
}

void write_profile(const std::filesystem::path& folder, const StepProfiler& profiler) {
  const std::filesystem::path subfolder = folder / "profile";
  std::error_code fault;
  std::filesystem::create_directories(subfolder, fault);
  check<IoError>(!fault, "profile", "cannot make ", subfolder.string(), ": ", fault.message());
  atomic_write(subfolder / "profile.json", profile_json(profiler.result()).dump(1) + "\n");
  atomic_write(subfolder / "trace.json.gz", gzipped(profiler.trace()));
}

}  // namespace halfstep::app
