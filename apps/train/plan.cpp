// SPDX-License-Identifier: Apache-2.0
#include "apps/train/plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <ostream>
#include <sstream>

#include "apps/session/meta_step.h"
#include "apps/session/ranks.h"
#include "apps/terminal/cells.h"
#include "apps/terminal/quantity_text.h"

namespace halfstep::app {
namespace {

Json tag_bytes(const MemoryStats& memory) {
  Json out = Json::object();
  for (int i = 0; i < kMemoryTagCount; ++i) out[name(MemoryTag(i))] = memory.peak_by_tag[size_t(i)];
  return out;
}

std::string tag_text(const MemoryStats& memory) {
  std::string out;
  for (int i = 0; i < kMemoryTagCount; ++i) {
    const size_t bytes = memory.peak_by_tag[size_t(i)];
    if (bytes > 0) out += (out.empty() ? "" : ", ") + std::string(name(MemoryTag(i))) + " " + bytes_text(double(bytes));
  }
  return out;
}

std::string shape_text(const LoggedTensor& t) {
  return t.given == t.dtype ? joined(t.dtype, t.shape) : joined(t.given, ">", t.dtype, t.shape);
}

std::string place_of(const LoggedCall& call) {
  return joined(call.op, call.layer.empty() ? "" : " of " + call.layer, ", ", name(call.pass));
}

Json tensors(const std::vector<LoggedTensor>& list) {
  Json out = Json::array();
  for (const LoggedTensor& t : list) out.push_back(shape_text(t));
  return out;
}

std::array<double, kDTypeCount> flops_by_dtype(const std::vector<LoggedCall>& calls) {
  std::array<double, kDTypeCount> sum{};
  for (const LoggedCall& call : calls)
    for (const MatrixProduct& p : call.products) sum[size_t(p.dtype)] += p.flops();
  return sum;
}

// Returns the casts that the call computes: kept 16-bit copies of weights need none.
int64_t casts_of(const LoggedCall& call) {
  return std::count_if(call.casts.begin(), call.casts.end(), [](const LoggedCast& c) { return !c.shadow; });
}

Json flops_json(const std::array<double, kDTypeCount>& flops) {
  Json out = Json::object();
  for (size_t i = 0; i < flops.size(); ++i)
    if (flops[i] > 0) out[std::string(name(DType(i)))] = flops[i];
  return out;
}

}  // namespace

std::array<double, kDTypeCount> StepPlan::flops() const { return flops_by_dtype(calls); }
double StepPlan::total_flops() const {
  const auto by_dtype = flops();
  return std::accumulate(by_dtype.begin(), by_dtype.end(), 0.0);
}
double StepPlan::low_share() const {
  const auto by_dtype = flops();
  return total_flops() > 0 ? (by_dtype[size_t(DType::f16)] + by_dtype[size_t(DType::bf16)]) / total_flops() : 0;
}
int64_t StepPlan::casts() const {
  int64_t sum = 0;
  for (const LoggedCall& call : calls) sum += casts_of(call);
  return sum;
}
double StepPlan::cast_bytes() const {
  double bytes = 0;
  for (const LoggedCall& call : calls) {
    for (const LoggedCast& c : call.casts)
      if (!c.shadow) bytes += double(c.elements) * double(size_of(c.from) + size_of(c.to));
  }
  return bytes;
}

StepPlan plan_step(const Config& config, int64_t batch, int ranks) {
  StepPlan plan;
  plan.name = config.name;
  plan.device = config.device;
  plan.low = config.low;
  plan.layers = config.layers;
  if (ranks > 1) check_for_ranks(config);
  plan.batch = part_of_rank(planned_batch(config, batch), ranks);
  plan.ranks = ranks;
  MetaGroup group(0, ranks);
  plan.recomputation = choose_recomputation(config, plan.batch, ranks > 1 ? &group : nullptr);

  MetaStep step(config, plan.batch, plan.recomputation ? plan.recomputation->plan.modules : std::vector<std::string>(), ranks);
  plan.parameters = step.model().parameter_count();
  Allocator& memory = allocator(Device::meta);
  memory.reset_peak();
  step.run();
  plan.first_step = step.peak();
  plan.sent_bytes = -step.sent_bytes();  // of the first step, since the sum below is of both
  memory.reset_peak();
  {
    const OpLogScope log(Device::meta);
    step.run();
    plan.calls = log.calls();
  }
  plan.later_steps = step.peak();
  plan.sent_bytes += step.sent_bytes();
  for (LoggedCall& call : plan.calls) call.live -= step.others().live, call.peak -= step.others().live;
  const auto reached = std::find_if(plan.calls.begin(), plan.calls.end(),
                                    [&](const LoggedCall& call) { return call.peak == plan.later_steps.peak; });
  plan.peak_call = size_t(reached - plan.calls.begin());
  return plan;
}

void print_summary(std::ostream& out, const StepPlan& plan, size_t width) {
  out << plan.name << " on " << plan.device << ", batch " << plan.batch
      << (plan.ranks > 1 ? joined(" on rank 0 of ", plan.ranks) : std::string()) << ", "
      << (plan.low ? joined("mixed ", *plan.low) : std::string("float32")) << '\n';
  Cells cells{{"name", "layer", "output", "parameters", "dtype"}};
  for (const LayerRow& row : plan.layers)
    cells.push_back({row.name, row.what, joined(row.output), std::to_string(row.parameters), joined(row.dtype)});
  print_cells(out, cells, {.width = width, .shortened = {1, 0}, .right = {3}});
  out << "parameters  " << plan.parameters << '\n'
      << "first step  peak " << plan.first_step.peak << " bytes: " << tag_text(plan.first_step) << '\n'
      << "later       peak " << plan.later_steps.peak << " bytes: " << tag_text(plan.later_steps) << '\n';
  if (plan.peak_call < plan.calls.size()) out << "            reached in " << place_of(plan.calls[plan.peak_call]) << '\n';
  if (plan.ranks > 1) out << "ranks       " << bytes_text(plan.sent_bytes) << " sent by each in a step\n";
  if (plan.recomputation) out << "recomputed  " << text(*plan.recomputation) << '\n';
  out << "operations  " << number_text(plan.total_flops() / 1e9, 4) << " GFLOP a step";
  const auto flops = plan.flops();
  for (size_t i = 0; i < flops.size(); ++i)
    if (flops[i] > 0) out << ", " << number_text(100 * flops[i] / plan.total_flops(), 4) << " % in " << DType(i);
  out << "\ncasts       " << plan.casts() << " a step, " << bytes_text(plan.cast_bytes()) << " read and written\n";
}

Json plan_json(const StepPlan& plan) {
  Json layers = Json::array();
  for (const LayerRow& row : plan.layers) {
    layers.push_back({{"name", row.name},
                      {"layer", row.what},
                      {"output", std::vector<int64_t>(row.output.begin(), row.output.end())},
                      {"parameters", row.parameters},
                      {"dtype", joined(row.dtype)}});
  }
  const auto sum = [&](auto member) {
    return std::accumulate(plan.calls.begin(), plan.calls.end(), 0.0,
                           [&](double s, const LoggedCall& call) { return s + call.*member; });
  };
  Json out{{"name", plan.name},
           {"device", joined(plan.device)},
           {"batch", plan.batch},
           {"amp", plan.low ? Json(joined(*plan.low)) : Json()},
           {"parameters", plan.parameters},
           {"layers", layers},
           {"memory",
            {{"first_step", {{"peak_bytes", plan.first_step.peak}, {"by_purpose", tag_bytes(plan.first_step)}}},
             {"later_steps", {{"peak_bytes", plan.later_steps.peak}, {"by_purpose", tag_bytes(plan.later_steps)}}}}},
           {"flops", flops_json(plan.flops())},
           {"flops_in_16_bits", plan.low_share()},
           {"casts", plan.casts()},
           {"cast_bytes", plan.cast_bytes()},
           {"bytes_read", sum(&LoggedCall::bytes_read)},
           {"bytes_written", sum(&LoggedCall::bytes_written)}};
  if (plan.peak_call < plan.calls.size()) out["memory"]["later_steps"]["reached_in"] = place_of(plan.calls[plan.peak_call]);
  if (plan.ranks > 1) out["ranks"] = {{"size", plan.ranks}, {"rank", 0}, {"sent_bytes", int64_t(plan.sent_bytes)}};
  if (plan.recomputation) out["recomputation"] = to_json(*plan.recomputation);
  return out;
}

namespace {

Json attributes_json(const Attributes& attributes) {
  Json out = Json::object();
  for (const Attribute& a : attributes) std::visit([&](const auto& v) { out[std::string(a.name)] = v; }, a.value);
  return out;
}

}  // namespace

Json calls_json(const StepPlan& plan) {
  Json list = Json::array();
  for (const LoggedCall& call : plan.calls) {
    Json casts = Json::array();
    for (const LoggedCast& c : call.casts)
      casts.push_back(joined(c.from, ">", c.to, " of ", c.elements, c.shadow ? ", kept copy" : ""));
    list.push_back({{"pass", name(call.pass)},
                    {"layer", call.layer},
                    {"op", call.op},
                    {"policy", name(call.policy)},
                    {"compute", joined(call.compute)},
                    {"reason", call.reason},
                    {"attributes", attributes_json(call.attributes)},
                    {"inputs", tensors(call.inputs)},
                    {"outputs", tensors(call.outputs)},
                    {"casts", casts},
                    {"saved", tensors(call.saved)},
                    {"flops", flops_json(flops_by_dtype({call}))},
                    {"bytes_read", call.bytes_read},
                    {"bytes_written", call.bytes_written},
                    {"live_bytes", call.live}});
  }
  return list;
}

std::string plan_text(const StepPlan& plan) {
  std::string text = plan_json(plan).dump(1);
  text.resize(text.size() - 2);  // without the last line, "}"
  text += ",\n \"calls\": [";
  const Json calls = calls_json(plan);
  for (size_t i = 0; i < calls.size(); ++i) text += (i ? ",\n  " : "\n  ") + calls[i].dump();
  return text + "\n ]\n}\n";
}

namespace {

double saved_bytes(const LoggedCall& call) {
  double bytes = 0;
  for (const LoggedTensor& t : call.saved) bytes += double(numel(t.shape)) * double(size_of(t.dtype));
  return bytes;
}

bool moves_nothing(const LoggedCall& call) {
  return call.flops() == 0 && call.bytes_read == 0 && call.bytes_written == 0 && saved_bytes(call) == 0 && casts_of(call) == 0;
}

std::string bytes_or_dash(double bytes) { return bytes > 0 ? bytes_text(bytes) : "-"; }

// Returns distinct reasons: "cross_entropy: computes in float32 and reads 16 bits; reduction=mean". Backward calls add none.
std::vector<std::string> reasons_of(const StepPlan& plan) {
  std::vector<std::pair<std::string, std::string>> found;  // reasons, and the ops they apply to
  for (const LoggedCall& call : plan.calls) {
    if (moves_nothing(call) || call.reason == "as its forward") continue;
    const std::string why = call.reason + (call.attributes.empty() ? "" : "; ") + text(call.attributes), op(call.op);
    const auto same = std::find_if(found.begin(), found.end(), [&](const auto& f) { return f.first == why; });
    if (same == found.end())
      found.emplace_back(why, op);
    else if (std::string ops = ", " + same->second + ','; ops.find(", " + op + ',') == std::string::npos)
      same->second += ", " + op;
  }
  std::vector<std::string> out;
  for (const auto& [why, ops] : found) out.push_back(ops + ": " + why);
  return out;
}

}  // namespace

void print_calls(std::ostream& out, const StepPlan& plan, size_t width) {
  const bool has_reasons = width == 0;                                                                // in the table
  constexpr size_t kLayer = 1, kOp = 2, kFlops = 4, kRead = 5, kWritten = 6, kSaved = 7, kCasts = 8;  // columns
  Cells cells{{"pass", "layer", "op", "dtype", "MFLOP", "read", "written", "saved", "casts"}};
  if (has_reasons) cells[0].emplace_back("why");
  std::map<std::string, int64_t> omitted;  // calls that move nothing, by op
  std::string pass;
  for (const LoggedCall& call : plan.calls) {
    if (moves_nothing(call)) {
      ++omitted[std::string(call.op)];
      continue;
    }
    const std::string own(name(call.pass));
    cells.push_back({has_reasons || own != pass ? own : "", call.layer, std::string(call.op), joined(call.compute),
                     call.flops() > 0 ? number_text(call.flops() / 1e6, 4) : "-", bytes_or_dash(call.bytes_read),
                     bytes_or_dash(call.bytes_written), bytes_or_dash(saved_bytes(call)), std::to_string(casts_of(call))});
    if (has_reasons) cells.back().push_back(call.reason + (call.attributes.empty() ? "" : "; ") + text(call.attributes));
    pass = own;
  }
  print_cells(out, cells,
              {.width = width,
               .left_out = {kCasts, kSaved, kRead},
               .shortened = {kLayer, kOp},
               .right = {kFlops, kRead, kWritten, kSaved, kCasts}});
  if (!has_reasons) {
    out << "why\n";
    for (const std::string& line : reasons_of(plan)) out << "  " << line << '\n';
  }
  if (omitted.empty()) return;
  int64_t calls = 0;
  std::string names;
  for (const auto& [op, count] : omitted) calls += count, names += joined(names.empty() ? "" : ", ", op, ' ', count);
  out << calls << (calls == 1 ? " more call moves" : " more calls move") << " no bytes: " << names << '\n';
}

}  // namespace halfstep::app
