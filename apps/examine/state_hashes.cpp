// SPDX-License-Identifier: Apache-2.0
#include "apps/examine/state_hashes.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "amp/step/run_state.h"
#include "framework/backend/backend.h"

namespace halfstep::app {
namespace {

// Returns the elements' bytes in row-major order. Takes a view, because a copy of the tensor would be an event in a log of
// kernels.
std::string bytes_of(const TensorView& v, Device device) {
  const size_t size = size_of(v.dtype), count = size_t(v.numel());
  std::string out(count * size, '\0');
  if (count == 0) return out;
  int64_t low = 0, high = 0;
  for (int d = 0; d < v.shape.size(); ++d) (v.strides[d] < 0 ? low : high) += v.strides[d] * (v.shape[d] - 1);
  std::string memory(size_t(high - low + 1) * size, '\0');
  backend_for(device).copy_to_host(static_cast<const char*>(v.data) + low * int64_t(size), memory.data(), memory.size());
  if (v.is_contiguous()) return memory;
  Dims at = Dims::filled(v.shape.size(), 0);
  int64_t from = -low;
  for (size_t i = 0; i < count; ++i) {
    out.replace(i * size, size, memory, size_t(from) * size, size);
    for (int d = v.shape.size() - 1; d >= 0; --d) {
      from += v.strides[d];
      if (++at[d] < v.shape[d]) break;
      from -= v.strides[d] * v.shape[d];
      at[d] = 0;
    }
  }
  return out;
}

}  // namespace

StateHashes state_hashes(const CheckpointContents& contents, const Module& model) {
  std::set<std::string> parameters;
  for (const NamedTensor& p : model.named_parameters()) parameters.insert(p.name);
  std::map<std::string, TensorMap> parts{{"parameters", {}}, {"buffers", {}}, {"kept", {}}, {"optimizer", {}}};
  for (const auto& [name, t] : contents.model) parts[parameters.contains(name) ? "parameters" : "buffers"][name] = t;
  for (const auto& [name, t] : contents.state) parts[name.starts_with("kept.") ? "kept" : "optimizer"][name] = t;
  StateHashes out;
  for (const auto& [part, tensors] : parts) out[part] = sha256(tensors);
  for (const char* part : {"scaler", "schedule", "generator", "loader"})
    out[part] = sha256(contents.meta->contains(part) ? contents.meta[part].dump() : "none");
  return out;
}

std::string hash_of(const StateHashes& parts) {
  Sha256 hash;
  for (const auto& [part, digest] : parts) hash.update(joined(part, ' ', digest, '\n'));
  return hash.hex();
}

std::optional<StateDifference> first_difference(const StateTrace& first, const StateTrace& other,
                                                const std::vector<std::string>& parts) {
  const auto is_compared = [&](const std::string& part) {
    return parts.empty() || std::find(parts.begin(), parts.end(), part) != parts.end();
  };
  for (const auto& [step, states] : other) {
    const auto same_step = first.find(step);
    if (same_step == first.end()) return StateDifference{step, {}};
    StateDifference out{step, {}};
    for (const auto& [part, hash] : states) {
      const auto before = same_step->second.find(part);
      if (is_compared(part) && (before == same_step->second.end() || before->second != hash)) out.parts.push_back(part);
    }
    if (!out.parts.empty()) return out;
  }
  if (!first.empty() && (other.empty() || other.rbegin()->first < first.rbegin()->first))
    return StateDifference{other.empty() ? first.begin()->first : other.rbegin()->first + 1, {}};
  return {};
}

std::optional<std::string> first_difference(const KernelHashes& first, const KernelHashes& other) {
  using Calls = std::map<std::pair<std::string, std::string>, std::vector<const LoggedKernel*>>;
  const auto by_kind = [](const KernelHashes& log) {
    Calls out;
    for (const LoggedKernel& k : log) out[{k.text, k.shapes}].push_back(&k);
    return out;
  };
  Calls of_first = by_kind(first), of_other = by_kind(other);
  std::optional<std::string> uneven;
  std::map<std::pair<std::string, std::string>, size_t> seen;
  for (size_t i = 0; i < first.size(); ++i) {
    const LoggedKernel& k = first[i];
    const std::pair kind(k.text, k.shapes);
    const auto &calls = of_first[kind], &other_calls = of_other[kind];
    const std::string text = joined(k.text, " (kernel ", i + 1, " of ", first.size(), ")");
    const size_t call = seen[kind]++;
    if (calls.size() == other_calls.size() && k.writes != other_calls[call]->writes) return text;
    if (calls.size() != other_calls.size() && !uneven)
      uneven = joined(text, " is called ", calls.size(), " times, then ", other_calls.size());
  }
  if (!uneven && first.size() != other.size()) uneven = joined(first.size(), " kernels are called, then ", other.size());
  return uneven;
}

void RunTracer::begin_batch(int64_t step, const Batch& batch) {
  if (!batch_) batch_.emplace();
  for (const Tensor* t : {&batch.input, &batch.target}) batch_->update(sha256(*t));
  if (kernel_log_ || !(is_witnessed_ || step == log_step_)) return;
  kernel_log_.emplace(device_, nullptr, KernelLog::Look::kernels);
  if (step == log_step_) kernel_log_->on_event([this](const KernelEvent& e, std::span<const TensorView> w) { add_kernel(e, w); });
}

void RunTracer::end_step(int64_t step, Session& session) {
  kernel_log_.reset();
  CheckpointContents state =
      halfstep::pack(RunParts{*session.model, session.optimizer.get(), &session.scaler, session.schedule.get()});
  const LoaderState at = session.train->state();
  state.meta["loader"] = {{"epoch", at.epoch}, {"next_batch", at.next_batch}};
  StateHashes& hashes = states_[step] = state_hashes(state, *session.model);
  hashes["batch"] = batch_ ? batch_->hex() : "";
  batch_.reset();
}

void RunTracer::add_kernel(const KernelEvent& e, std::span<const TensorView> writes) {
  LoggedKernel out;
  out.text = joined(name(e.pass), " of ", e.op, e.kernel == e.op ? "" : joined(" (", e.kernel, ")"),
                    e.layer ? joined(" in ", *e.layer) : "");
  for (const TensorView& v : writes) {
    out.shapes += joined(v.dtype, v.shape);
    out.writes.push_back(sha256(bytes_of(v, device_)));
  }
  kernels_.push_back(std::move(out));
}

}  // namespace halfstep::app
