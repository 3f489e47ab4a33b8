// SPDX-License-Identifier: Apache-2.0
#include "amp/diagnosis/replay.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "amp/autocast/autocast.h"
#include "amp/diagnosis/state_guard.h"
#include "framework/autograd/grad_mode.h"
#include "framework/autograd/leaf_listener.h"
#include "framework/ops/ops.h"
#include "layers/sequences/recurrent.h"

namespace halfstep {
namespace {

// Names the tensors that exist before the step, so that an origin can be one of them.
void name_roots(KernelLog& log, const StepUnderTest& step) {
  for (const NamedTensor& p : step.module.named_parameters()) {
    log.add_root("param:" + p.name, p.tensor);
    log.add_root("copy:" + p.name, autocast::shadow_of(p.tensor));
  }
  for (const NamedTensor& b : step.module.named_buffers())
    log.add_root("buffer:" + b.name, b.tensor, b.tensor.defined() && count_values(b.tensor).nan == 0);
  for (const auto& [name, layer] : stateful_layers(step.module)) {
    log.add_root("kept:h", layer->kept_state().h);
    log.add_root("kept:c", layer->kept_state().c);
  }
  for (const TestedBatch& b : step.batches) {
    for (const Tensor& t : b.inputs) log.add_root("input", t);
    for (const Tensor& t : b.targets) log.add_root("target", t);
  }
}

// Returns "fc1.weight" for "param:fc1.weight" and "copy:fc1.weight"; empty for other roots.
std::string weight_named(const std::string& root) {
  const bool weight = root.starts_with("param:") || root.starts_with("copy:");
  return weight ? root.substr(root.find(':') + 1) : "";
}

std::string layer_of_weight(const std::string& weight) { return weight.substr(0, std::max<size_t>(weight.rfind('.') + 1, 1) - 1); }

// Returns the weight that the kernel reads, perhaps through its cast: several layers may be one op.
std::string weight_of(const KernelLog& log, const KernelEvent& e) {
  const auto weight_among = [&](const KernelRead& r) -> std::string {
    for (const int p : r.producers)
      if (p <= -2 && !weight_named(log.root_name(p)).empty()) return weight_named(log.root_name(p));
    return {};
  };
  for (const KernelRead& r : e.reads) {
    if (const std::string found = weight_among(r); !found.empty()) return found;
    for (const int p : r.producers) {
      if (p < 0 || log.events()[size_t(p)].kernel != "copy") continue;
      for (const KernelRead& cast : log.events()[size_t(p)].reads)
        if (const std::string found = weight_among(cast); !found.empty()) return found;
    }
  }
  return {};
}

// Returns the layer whose output a cast of the forward took, if the event is the backward of that cast.
std::string layer_before(const KernelLog& log, const KernelEvent& e) {
  if (e.pass != StepPass::backward || e.kernel != "copy" || e.writes.empty()) return {};
  for (const KernelEvent& cast : log.events()) {
    const bool reverses = cast.pass == StepPass::forward && cast.kernel == "copy" && cast.layer == e.layer && !cast.reads.empty() &&
                          cast.reads[0].shape == e.writes[0].shape && cast.reads[0].dtype == e.writes[0].dtype;
    if (!reverses) continue;
    for (const int p : cast.reads[0].producers) {
      if (p < 0) continue;
      const KernelEvent& producer = log.events()[size_t(p)];
      const std::string of_weight = layer_of_weight(weight_of(log, producer));
      if (!of_weight.empty() || producer.layer) return of_weight.empty() ? *producer.layer : of_weight;
    }
  }
  return {};
}

// Finds the origin of the bad values of `sink`, a loss or a gradient, unless one is known already.
void find_origin(const KernelLog& log, const Tensor& sink, StepReplayResult& out) {
  if (!sink.defined() || out.origin.is_known()) return;
  out.origin = origin_of(log, sink);
  if (out.origin.event >= 0) {
    out.event = log.events()[size_t(out.origin.event)];
    out.weight = weight_of(log, *out.event);
    out.layer = layer_of_weight(out.weight);
    if (out.layer.empty() && out.event->layer) out.layer = *out.event->layer;
    // The first layer reads the input: of "fc1 to head", layers that are one op, take "fc1".
    if (out.event->op == "autocast") out.layer = out.layer.substr(0, out.layer.find(" to "));
    out.feeding_layer = layer_before(log, *out.event);
  } else {
    out.weight = weight_named(out.origin.root);
    out.layer = layer_of_weight(out.weight);
  }
  if (out.origin.nan_born) out.nan_born = log.events()[size_t(*out.origin.nan_born)];
}

// Runs forward and backward of all batches, and finds the origin of the first loss or gradient that is not finite.
void compute(const StepUnderTest& step, const StepReplay& replay, const KernelLog& log, StepReplayResult& out) {
  const EnableGrad on;
  out.loss_finite = out.gradients_finite = true;
  double weights = 0;
  for (const TestedBatch& b : step.batches) {
    Tensor loss;
    {
      // Do not touch the run's own 16-bit copies in another precision.
      const bool in_own_dtype = replay.low == step.low;
      const Autocast region(step.device, {.dtype = replay.low,
                                          .enabled = replay.low.has_value(),
                                          .cache_enabled = in_own_dtype ? std::nullopt : std::optional(false),
                                          .policies = step.policies});
      loss = b.loss();
    }
    if (b.weight == 0) continue;  // none of its targets counts, so its loss is NaN
    const double value = loss.item<double>();
    out.loss += value * b.weight;
    weights += b.weight;
    if (!std::isfinite(value)) {
      out.loss_finite = false;
      find_origin(log, loss.detach(), out);
    }
    const LowGradients low(step.low_gradients);
    const Tensor seed = no_grad([&] { return full(loss.shape(), replay.scale * b.weight, {.device = step.device}); });
    backward_unheard({loss}, {seed});
  }
  if (weights > 0) out.loss /= weights;
  for (const Tensor& p : step.module.parameters()) {
    const Tensor g = p.raw_grad();
    if (!g.defined() || !count_values(g).any_not_finite()) continue;
    out.gradients_finite = false;
    if (out.loss_finite) find_origin(log, g, out);
  }
}

// Returns the value of a number from its counts.
double number_of(const ValueCounts& c) {
  if (c.nan > 0) return NAN;
  if (c.any_not_finite()) return c.positive_inf > 0 ? INFINITY : -INFINITY;
  return c.negative > 0 ? -c.largest : c.largest;
}

}  // namespace

StepReplayResult replay_step(const StepUnderTest& step, const StepReplay& replay, bool keep_events) {
  StepReplayResult out{.name = replay.name};
  const StateGuard untouched(step.module, replay.low, step.random);
  KernelLog log(step.device, replay.change);
  name_roots(log, step);
  try {
    compute(step, replay, log, out);
  } catch (const MemoryError&) { throw; } catch (const IndexError& e) {
    out.error = e.what();
    out.index_error = true;
  } catch (const Error& e) { out.error = e.what(); }
  for (const KernelEvent& e : log.events()) {
    if (e.pass != StepPass::backward) continue;
    for (const KernelWrite& w : e.writes)
      if (is_half(w.dtype))
        out.peaks.push_back({w.counts.largest, joined(e.op, e.layer ? joined(" of ", layer_phrase(*e.layer)) : "")});
  }
  if (keep_events) out.events = log.events();
  if (replay.keep_gradients)
    for (const Tensor& p : step.module.parameters()) out.gradients.push_back(p.raw_grad());
  return out;
}

std::string layer_phrase(const std::string& layer) {
  const size_t to = layer.find(" to ");
  const std::string last = layer.substr(0, to).substr(layer.substr(0, to).rfind('.') + 1);
  const bool is_number = !last.empty() && last.find_first_not_of("0123456789") == std::string::npos;
  return joined(!is_number ? "" : to == std::string::npos ? "layer " : "layers ", layer);
}

std::string describe(const KernelEvent& e) {
  std::string out = joined(name(e.pass), " of ", e.op, e.kernel == e.op ? "" : joined(" (", e.kernel, ")"));
  if (e.layer) out += joined(" in ", layer_phrase(*e.layer));
  std::string separator = " writes ";
  for (const KernelWrite& w : e.writes) {
    if (!w.counts.any_not_finite()) continue;
    const bool nan = w.counts.nan > 0;
    out += joined(separator, nan ? joined(w.counts.nan, " NaN") : "", nan && w.counts.inf() > 0 ? " and " : "",
                  w.counts.inf() > 0 ? joined(w.counts.inf(), " inf") : "", " of ", w.counts.numel, ' ', w.dtype, " values");
    separator = ", ";
  }
  separator = "; it reads ";
  for (const KernelRead& r : e.reads) {
    if (!r.counts || !is_floating(r.dtype)) continue;
    const ValueCounts& c = *r.counts;
    out += joined(separator, r.number ? joined("the number ", number_of(c))
                                      : joined(r.dtype, r.shape, c.largest > 0 ? joined(" up to ", c.largest) : " all zero"));
    std::string odd;
    const auto add = [&](int64_t n, const char* what) {
      if (n > 0) odd += joined(odd.empty() ? "" : ", ", n, ' ', what);
    };
    if (!r.number) add(c.nan, "NaN"), add(c.inf(), "inf"), add(c.largest > 0 ? c.zero : 0, "zero"), add(c.negative, "negative");
    if (!odd.empty()) out += joined(" (", odd, ")");
    separator = ", ";
  }
  return out;
}

}  // namespace halfstep
