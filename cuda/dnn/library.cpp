// SPDX-License-Identifier: Apache-2.0
#include "cuda/dnn/library.h"

#include <limits>

#include "cuda/blas/matmul.h"
#include "cuda/blas/tuning_cache.h"
#include "cuda/launches.h"
#include "cuda/recording.h"
#include "cuda/runtime.h"
#include "framework/backend/dnn.h"
#include "framework/backend/workspace.h"
#include "framework/base/check.h"
#include "framework/base/log.h"
#include "framework/base/number_text.h"

namespace halfstep::cuda::dnn {
namespace {

constexpr size_t kTimed = 4;  // most plans timed for one kind of work

// Returns what a choice depends on besides the kind of work; tuning results are stored under it.
const std::string& machine() {
  static const std::string text = describe_device() + ", " + cudnn_version();
  return text;
}

std::string text_of(const Work& work) {
  std::string out = work.name;
  for (int64_t w : work.key) out += ' ' + std::to_string(w);
  return out;
}

[[noreturn]] void throw_not_prepared(const std::string& what) {
  throw NotPrepared("[record] " + what + " is used for the first time, which cannot be recorded for replay");
}

}  // namespace

bool is_refusal(cudnnStatus_t status) {
  return status >= CUDNN_STATUS_BAD_PARAM && status < CUDNN_STATUS_EXECUTION_FAILED;  // arguments, support, or internal errors
}

Library* Library::create() {
  const Cudnn* const dnn = find_cudnn();
  if (!dnn) return nullptr;
  cudnnHandle_t handle = nullptr;
  const cudnnStatus_t status = dnn->cudnnCreate(&handle);
  if (status == CUDNN_STATUS_SUCCESS) return new Library(handle);
  logging::info("[cudnn] convolutions run as matrix products, as " + cudnn_version() +
                " does not work on this device: " + dnn->cudnnGetErrorString(status));
  return nullptr;
}

Library* Library::find(const Queue& q) {
  static std::mutex mutex;
  static bool was_created = false;
  static Library* instance = nullptr;  // never destroyed: the driver may be gone before static objects are
  const std::lock_guard lock(mutex);
  if (!was_created && q.recording) throw_not_prepared("cuDNN");
  if (!std::exchange(was_created, true)) instance = create();
  return instance;
}

cudnnHandle_t Library::handle(const Queue& q) {
  check_cudnn(cudnn().cudnnSetStream(handle_, q.stream), "cudnnSetStream");
  return handle_;
}

Library::Entry& Library::prepare(const Queue& q, const Work& work) {
  if (Entry* const cached = cache_.find(work.key)) return *cached;
  if (q.recording) throw_not_prepared(work.name);
  Entry entry;
  std::string problem;
  try {
    entry.plans = std::make_shared<Plans>(work.graph(), target_, work.rules);
    if (!entry.plans->chosen(target_)) {
      problem = entry.plans->problem().empty() ? "no engine that is allowed" : entry.plans->problem();
      entry.plans.reset();
    }
  } catch (const DeviceError& e) {  // the library cannot express it
    problem = e.what();
    problem.resize(std::min(problem.size(), problem.find('\n')));
  }
  if (entry.plans) {
    const Plan& plan = *entry.plans->chosen(target_);
    logging::debug("[cudnn] " + text_of(work) + ": engine " + std::to_string(plan.engine().number) + " of " +
                   std::to_string(entry.plans->proposed()) + " proposed, workspace " + std::to_string(plan.workspace()) + " bytes");
  } else {
    logging::debug("[cudnn] " + text_of(work) + ": declined (" + problem + ")");
  }
  Entry& kept = cache_.put(work.key, std::move(entry));
  if (kept.plans && work.alternative && dnn_options().benchmark) tune(q, work, kept);
  return kept;
}

cudnnStatus_t Library::execute(const Queue& q, const Work& work, const Entry& entry, const Plan& plan) {
  const Workspace space(Device::cuda, size_t(plan.workspace()));
  return plan.run(handle(q), entry.plans->graph(), work.memory, space.data());
}

void Library::tune(const Queue& q, const Work& work, Entry& entry) {
  constexpr const char* kLibrary = "cudnn";
  constexpr const char* kOther = "unfold";
  const std::string text = text_of(work);
  if (const auto stored = recall_tuning(machine(), text)) {
    entry.slower = stored->rung == kOther;
    if (entry.slower) return;
    const Plan* const plan = stored->rung == kLibrary ? entry.plans->at(size_t(stored->candidate), target_) : nullptr;
    if (plan && plan->engine().number == stored->algorithm) return entry.plans->choose(size_t(stored->candidate));
  }
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const auto timed = [&](const std::function<void()>& way) {
    try {
      return time_of(q, way);
    } catch (const MemoryError&) { return kNever; }
  };
  TuningResult best{.rung = kOther, .ms = timed(work.alternative)};
  for (size_t i = 0; i < kTimed; ++i) {
    const Plan* const plan = entry.plans->at(i, target_);
    if (!plan) break;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    const double ms = timed([&] {
      if (work.copies) work.copies();
      if (status == CUDNN_STATUS_SUCCESS) status = execute(q, work, entry, *plan);
    });
    if (status == CUDNN_STATUS_SUCCESS && ms < best.ms) best = {kLibrary, int(i), int(plan->engine().number), ms};
  }
  if (best.ms < kNever) remember_tuning(machine(), text, best);
  logging::debug("[cudnn] " + text + ": " + best.rung + " is fastest, " + fixed_text(best.ms, 6) + " ms");
  entry.slower = best.rung == kOther;
  if (!entry.slower) entry.plans->choose(size_t(best.candidate));
}

// Restricts an entry to plans that need less than `workspace`, for which there is no memory. Returns false if there are none.
bool Library::restrict_workspace(const Work& work, Entry& entry, int64_t workspace) {
  logging::warn_once(
      "[cudnn] device memory is short: some plans with less workspace, or none of the library's, take the place of the first "
      "choice, which may take longer; the log has them at level debug");
  Rules rules = work.rules;
  rules.workspace = workspace - 1;
  entry.plans = std::make_shared<Plans>(work.graph(), target_, rules);
  const Plan* const plan = entry.plans->chosen(target_);
  logging::debug("[cudnn] " + text_of(work) + ": no memory for a workspace of " + std::to_string(workspace) + " bytes, " +
                 (plan ? "but perhaps for " + std::to_string(plan->workspace()) : "declined"));
  if (!plan) entry.plans.reset();
  return plan;
}

bool Library::prepares(const Queue& q, const Work& work) {
  const std::lock_guard lock(mutex);
  return prepare(q, work).plans != nullptr;
}

Outcome Library::run(const Queue& q, const Work& work) {
  const std::lock_guard lock(mutex);
  Entry& entry = prepare(q, work);
  if (launch_watcher) {
    for (const void* p : work.memory) launch_watcher->uses_fixed(p);
  }
  while (entry.plans && !entry.slower) {
    const Plan* const plan = entry.plans->chosen(target_);
    if (!plan) {
      logging::debug("[cudnn] " + text_of(work) + ": declined (" + entry.plans->problem() + ")");
      entry.plans.reset();
      break;
    }
    cudnnStatus_t status;
    try {
      status = execute(q, work, entry, *plan);
    } catch (const MemoryError&) {
      if (!restrict_workspace(work, entry, plan->workspace()) && work.is_only_way) throw;
      continue;
    }
    if (status == CUDNN_STATUS_SUCCESS) {
      entry.plans->free_others();
      keep_in_recording(entry.plans);
      return Outcome::computed;
    }
    if (q.recording || !is_refusal(status)) check_cudnn(status, "cudnnBackendExecute");
    entry.plans->refuse(cudnn().cudnnGetErrorString(status));
  }
  return entry.slower ? Outcome::slower : Outcome::declined;
}

}  // namespace halfstep::cuda::dnn
