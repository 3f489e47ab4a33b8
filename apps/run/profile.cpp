// SPDX-License-Identifier: Apache-2.0
#include "apps/run/profile.h"

#include <zlib.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "framework/backend/backend.h"
#include "framework/base/check.h"
#include "framework/io/atomic_file.h"

namespace halfstep::app {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

bool is_row(const ProfileSpan& span) { return span.depth == 0 && span.kind != SpanKind::step && span.kind != SpanKind::part; }

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

PlannedCalls planned_calls(const std::vector<LedgerCall>& calls, MachineRates& rates) {
  PlannedCalls out;
  for (const LedgerCall& call : calls) {
    const bool update = call.pass == LedgerPass::update;
    PlannedWork& work = out[{call.pass, update ? "" : call.layer, update ? "optimizer" : call.op}];
    work.flops += call.flops();
    work.bytes += call.bytes_read + call.bytes_written;
    work.floor_seconds += rates.floor_seconds(call);
    for (const LedgerCast& c : call.casts) {
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
  began_ = Clock::now();
  if (!timed_by_call) return;
  if (!first_) first_ = began_;
  scope_ = std::make_unique<ProfileScope>(device_, kSpans - spans_);
  step_ = std::make_unique<ProfileEntry>(SpanKind::step, "step");
}

void StepProfiler::end() {
  if (!open_) return;
  open_ = false;
  step_.reset();
  backend_for(device_).synchronize();
  const double seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  if (scope_) {
    Taken taken{scope_->spans(), seconds, std::chrono::duration_cast<std::chrono::nanoseconds>(began_ - *first_).count()};
    spans_ += taken.spans.size();
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
  out.left_out = left_out_;
  out.plain_seconds = median(plain_);
  std::vector<double> whole, inside, outside;
  struct Sum {
    double calls = 0, seconds = 0;
  };
  std::map<std::pair<CallName, bool>, std::vector<Sum>> sums;
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
    whole.push_back(taken_[i].seconds);
    inside.push_back(sum);
    outside.push_back(taken_[i].seconds - sum);
  }
  out.in_calls = median(inside), out.between = median(outside);
  out.seconds = median(whole);
  if (!whole.empty())
    std::tie(out.fastest, out.slowest) = std::pair(*std::ranges::min_element(whole), *std::ranges::max_element(whole));
  for (const auto& [name, steps] : sums) {
    std::vector<double> calls, seconds;
    for (const Sum& s : steps) calls.push_back(s.calls), seconds.push_back(s.seconds);
    ProfileRow row{name.first, name.second, median(calls), median(seconds), {}};
    if (const auto planned = planned_.find(name.first); planned != planned_.end()) row.work = planned->second;
    out.rows.push_back(std::move(row));
  }
  std::ranges::stable_sort(out.rows, std::greater<>(), &ProfileRow::seconds);
  return out;
}

std::string StepProfiler::trace(int process) const {
  std::string out = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  const auto event = [&](const Json& e) { out += (out.ends_with("[\n") ? "" : ",\n") + e.dump(); };
  const bool on_device = !device_.is_cpu();
  event({{"name", "process_name"}, {"ph", "M"}, {"pid", process}, {"tid", 0}, {"args", {{"name", joined("rank ", process)}}}});
  event({{"name", "thread_name"}, {"ph", "M"}, {"pid", process}, {"tid", 0}, {"args", {{"name", "calls"}}}});
  if (on_device) event({{"name", "thread_name"}, {"ph", "M"}, {"pid", process}, {"tid", 1}, {"args", {{"name", joined(device_)}}}});
  constexpr const char* categories[] = {"step", "pass", "op", "cast", "wait"};
  for (const Taken& step : taken_) {
    for (const ProfileSpan& span : step.spans) {
      Json args = {{"pass", name(span.pass)}};
      if (span.layer) args["layer"] = *span.layer;
      Json inputs = Json::array();
      for (const ProfileSpan::Operand& o : span.inputs) inputs.push_back(joined(o.dtype, o.shape));
      if (!inputs.empty()) args["inputs"] = inputs;
      Json e = {{"name", span.name}, {"cat", categories[size_t(span.kind)]}, {"ph", "X"}, {"pid", process}, {"tid", 0}};
      e["ts"] = double(step.at + span.begin) * 1e-3;
      e["dur"] = double(span.end - span.begin) * 1e-3;
      e["args"] = args;
      event(e);
      if (!on_device || span.device_end == 0) continue;
      e["tid"] = 1;
      e["ts"] = double(step.at) * 1e-3 + span.device_begin * 1e6;
      e["dur"] = (span.device_end - span.device_begin) * 1e6;
      event(e);
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
