// SPDX-License-Identifier: Apache-2.0
#include "cuda/dnn/rnn.h"

#include <algorithm>
#include <memory>
#include <string>

#include "cuda/dnn/library.h"
#include "cuda/dnn/rnn_descriptor.h"
#include "cuda/launches.h"
#include "cuda/recording.h"
#include "cuda/runtime.h"
#include "framework/backend/dnn.h"
#include "framework/backend/workspace.h"
#include "framework/base/check.h"
#include "framework/base/log.h"

namespace halfstep::cuda::dnn {
namespace {

enum Mode : size_t { kInference, kTraining, kBackward, kModes };

// The library's objects for a network and the lengths of its sequences.
struct PreparedNetwork {
  std::shared_ptr<RnnPlan> plan;  // null: declined; recordings keep it
  WeightLayout weights;
  size_t workspace[kModes] = {}, reserve = 0;  // bytes
  bool has_run[kModes] = {};
};

// Used under the library's mutex. Never destroyed: the driver may be gone before static objects are.
struct RnnCache {
  Cache<PreparedNetwork> prepared;
  Cache<WeightLayout> layouts;
};
RnnCache& rnn_cache() {
  static RnnCache* const instance = new RnnCache;
  return *instance;
}

std::string text_of(const PlanKey& key) {
  std::string out = "a recurrent network";
  for (int64_t n : key) out += ' ' + std::to_string(n);
  return out;
}

// Throws NotPrepared in a recording.
void check_not_recording(const Queue& q) {
  if (q.recording) throw NotPrepared("[record] a recurrent network runs for the first time, which cannot be recorded for replay");
}

// Throws DeviceError if the library declines the network, or needs more workspace than is allowed.
PreparedNetwork prepare(const Queue& q, Library& library, const RnnProblem& problem) {
  PreparedNetwork out;
  const cudnnHandle_t handle = library.handle(q);
  auto plan = std::make_shared<RnnPlan>(problem, handle);
  const PlanKey network = problem.network_key();
  const WeightLayout* layout = rnn_cache().layouts.find(network);
  if (!layout) layout = &rnn_cache().layouts.put(network, weight_layout(problem, *plan, handle));
  out.weights = *layout;
  for (const Mode mode : {kInference, kTraining}) {
    size_t reserve = 0;
    check_cudnn(cudnn().cudnnGetRNNTempSpaceSizes(handle, plan->rnn.raw(),
                                                  mode == kTraining ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE,
                                                  plan->x.raw(), &out.workspace[mode], &reserve),
                "cudnnGetRNNTempSpaceSizes");
    out.reserve = std::max(out.reserve, reserve);
  }
  out.workspace[kBackward] = out.workspace[kTraining];
  const int64_t most = int64_t(*std::max_element(out.workspace, out.workspace + kModes)), allowed = dnn_options().workspace;
  if (most > allowed) {
    logging::warn_once(
        "[cudnn] recurrent networks for which the library would take more workspace than performance.cudnn_workspace allows run "
        "step "
        "by step, which takes longer; the log has their sizes at level debug");
    fail<DeviceError>("cudnn", "its workspace would be of ", most, " bytes, more than the ", allowed, " that it may take");
  }
  out.plan = std::move(plan);
  return out;
}

// A call of the library: holds the lock, and the library's data for the network. Null if it declines.
class Call {
 public:
  Call(const Queue& q, const RecurrentArgs& args) : q_(q) {
    if (args.dtype == DType::bf16 && capability() < 80) return;
    const RnnProblem problem{args, args.dtype == DType::f32 && allow_tf32() && capability() >= 80};
    if (!problem.is_for_the_library()) return;
    library_ = Library::find(q);
    if (!library_ || !cudnn().has_rnn) return;
    lock_ = std::unique_lock(library_->mutex);
    PlanKey key = problem.key();
    key.push_back(dnn_options().workspace);
    entry_ = rnn_cache().prepared.find(key);
    if (!entry_) {
      check_not_recording(q);
      try {
        entry_ = &rnn_cache().prepared.put(key, prepare(q, *library_, problem));
        logging::debug("[cudnn] " + text_of(key) + ": workspace " + std::to_string(entry_->workspace[kTraining]) +
                       " bytes, reserve " + std::to_string(entry_->reserve) + " bytes");
      } catch (const DeviceError& e) { decline(key, e); } catch (const MemoryError& e) {
        decline(key, e);
      }
    }
  }
  // Returns the data; null: declined.
  const PreparedNetwork* operator->() const { return entry_; }
  explicit operator bool() const { return entry_ && entry_->plan; }

  // Runs f(handle, workspace, its bytes), which returns the library's status. Returns false if the library declines after all,
  // from now on, as it does for a forward without memory for its workspace.
  template <class F>
  bool run(Mode mode, const RecurrentTensors& t, const RecurrentGradients& g, const char* name, const F& f) {
    if (!entry_->has_run[mode]) check_not_recording(q_);
    if (launch_watcher) {
      for (const TensorView* v :
           {&t.x, &t.weights, &t.h, &t.c, &t.y, &t.h_out, &t.c_out, &t.reserve, &g.y, &g.h, &g.c, &g.dx, &g.dh, &g.dc, &g.dweights})
        if (v->data) launch_watcher->uses_fixed(v->data);
    }
    const size_t bytes = entry_->workspace[mode];
    std::optional<Workspace> space;
    try {
      space.emplace(Device::cuda, bytes);
    } catch (const MemoryError&) {
      if (mode == kBackward) throw;  // nothing else can read the state that the forward saved
      logging::warn_once(
          "[cudnn] device memory is short: recurrent networks for whose workspace there is none run step by step, which takes "
          "longer");
      entry_->plan.reset();
      return false;
    }
    const cudnnStatus_t status = f(library_->handle(q_), static_cast<void*>(space->data()), bytes);
    if (status == CUDNN_STATUS_SUCCESS) {
      keep_in_recording(entry_->plan);
      return entry_->has_run[mode] = true;
    }
    if (q_.recording || !is_refusal(status)) check_cudnn(status, name);
    logging::debug(std::string("[cudnn] ") + name + ": declined (" + cudnn().cudnnGetErrorString(status) + ")");
    entry_->plan.reset();
    return false;
  }

 private:
  void decline(const PlanKey& key, const Error& e) {
    const std::string message = e.what();
    logging::debug("[cudnn] " + text_of(key) + ": declined (" + message.substr(0, message.find('\n')) + ")");
    entry_ = &rnn_cache().prepared.put(key, PreparedNetwork());
  }

  const Queue& q_;
  Library* library_ = nullptr;
  PreparedNetwork* entry_ = nullptr;
  std::unique_lock<std::recursive_mutex> lock_;
};

size_t bytes_of(const TensorView& v) { return size_t(v.numel()) * size_of(v.dtype); }

}  // namespace

std::optional<RecurrentSpaces> recurrent_spaces(const Queue& q, const RecurrentArgs& args) {
  const Call call(q, args);
  if (!call) return {};
  return RecurrentSpaces{call->weights.elements, call->weights.offsets, int64_t(call->reserve), q.recording};
}

bool recurrent(const Queue& q, const RecurrentArgs& args, const RecurrentTensors& t) {
  Call call(q, args);
  if (!call) return false;
  const bool training = t.reserve.data != nullptr, lstm = args.cell == Cell::lstm;
  return call.run(
      training ? kTraining : kInference, t, {}, "cudnnRNNForward", [&](cudnnHandle_t handle, void* space, size_t bytes) {
        const RnnPlan& p = *call->plan;
        return cudnn().cudnnRNNForward(handle, p.rnn.raw(), training ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE, nullptr,
                                       p.x.raw(), t.x.data, p.y.raw(), t.y.data, p.h.raw(), t.h.data, t.h_out.data,
                                       lstm ? p.c.raw() : nullptr, t.c.data, t.c_out.data, bytes_of(t.weights), t.weights.data,
                                       bytes, space, training ? bytes_of(t.reserve) : 0, t.reserve.data);
      });
}

// Computes the data's gradients first: that call stores in the reserve what the weights' call reads.
bool recurrent_backward(const Queue& q, const RecurrentArgs& args, const RecurrentTensors& t, const RecurrentGradients& g) {
  Call call(q, args);
  if (!call) return false;
  const bool lstm = args.cell == Cell::lstm;
  const char* const name = "the backward of a recurrent network";
  return call.run(kBackward, t, g, name, [&](cudnnHandle_t handle, void* space, size_t bytes) {
    const RnnPlan& p = *call->plan;
    const cudnnStatus_t status = cudnn().cudnnRNNBackwardData_v8(
        handle, p.rnn.raw(), nullptr, p.y.raw(), t.y.data, g.y.data, p.x.raw(), g.dx.data, p.h.raw(), t.h.data, g.h.data, g.dh.data,
        lstm ? p.c.raw() : nullptr, t.c.data, g.c.data, g.dc.data, bytes_of(t.weights), t.weights.data, bytes, space,
        bytes_of(t.reserve), t.reserve.data);
    if (status != CUDNN_STATUS_SUCCESS || !g.dweights.data) return status;
    return cudnn().cudnnRNNBackwardWeights_v8(handle, p.rnn.raw(), CUDNN_WGRAD_MODE_ADD, nullptr, p.x.raw(), t.x.data, p.h.raw(),
                                              t.h.data, p.y.raw(), t.y.data, bytes_of(g.dweights), g.dweights.data, bytes, space,
                                              bytes_of(t.reserve), t.reserve.data);
  });
}

}  // namespace halfstep::cuda::dnn
