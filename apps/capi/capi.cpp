// SPDX-License-Identifier: Apache-2.0
// Implements halfstep_predict.h.
#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "apps/capi/halfstep_predict.h"
#include "apps/catalog/losses.h"
#include "apps/schema/json.h"
#include "apps/use/answer_text.h"
#include "apps/use/array_categories.h"
#include "apps/use/array_inputs.h"
#include "apps/use/predictor.h"
#include "apps/use/wide_inputs.h"
#include "framework/autograd/grad_mode.h"
#include "framework/backend/backend.h"
#include "framework/base/float_state.h"
#include "framework/base/fork_mutex.h"
#include "framework/base/log.h"
#include "framework/base/process_end.h"
#include "generated/halfstep_release.h"

// The type of the caller's handles, which has no definition.
struct hs_model;

namespace {

using namespace halfstep;
using halfstep::app::Json;

constexpr int64_t kMostNumbers = int64_t(1) << 48;    // largest count in a buffer, so that no size overflows
constexpr int64_t kBatch = app::FileOptions().batch;  // as in `halfstep predict`, so that both give the same bits

constexpr int kForkSeconds = 10;  // longest wait of fork() for calls of other threads
constexpr const char* kProcessEnds = "the process is ending, and the library with it";

// Errors with codes of their own: see hs_status.
struct BadArgument : ValueError {
  using ValueError::ValueError;
};
struct BadInput : ValueError {
  using ValueError::ValueError;
};

struct OpenModel {
  app::Predictor predictor;
  Shape output{};  // of one sample
  std::vector<std::string> classes{};
  std::string description{};
  std::string narrow_warning{};   // of inputs in float32; empty: it has their digits
  bool has_wide_answers = false;  // whether float32 does not have the digits of answers
};

// Maps handles to models. A handle is a unique number in the form of a pointer: a closed one is never found again. Calls hold the
// model, so a model that is closed meanwhile lives until they end.
class OpenModels {
 public:
  hs_model* add(std::shared_ptr<OpenModel> model) {
    const std::lock_guard lock(mutex_);
    models_[++last_] = std::move(model);
    return reinterpret_cast<hs_model*>(last_);
  }
  std::shared_ptr<OpenModel> find(hs_model* handle, const char* function) const {
    const std::lock_guard lock(mutex_);
    const auto found = models_.find(reinterpret_cast<uintptr_t>(handle));
    check<BadArgument>(found != models_.end(), function, "model must be open, got ", handle ? "a handle that is closed" : "NULL");
    return found->second;
  }
  std::shared_ptr<OpenModel> take(hs_model* handle) {
    std::shared_ptr<OpenModel> model = find(handle, "hs_close");
    const std::lock_guard lock(mutex_);
    models_.erase(reinterpret_cast<uintptr_t>(handle));
    return model;  // destroyed after the lock is released
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uintptr_t, std::shared_ptr<OpenModel>> models_;
  uintptr_t last_ = 0;
};

// Returns an object that is never destroyed: threads may still run models when the process ends.
OpenModels& open_models() {
  static auto& models = *new OpenModels;
  return models;
}

// Returns the message of this thread's last failure.
std::string& last_error() { return of_this_thread<std::string>(); }

// Stores the message for hs_error, and returns the code.
int store_failure(hs_status code, const char* text) noexcept {
  try {
    last_error() = text;
  } catch (...) { last_error().clear(); }  // no memory even for the message
  return code;
}

// The lock that each call holds. fork() waits for it, so that no other thread is inside a call: the child could deadlock on what
// such a thread held. If the wait takes too long, the child's calls are refused.
pthread_rwlock_t calls_lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
bool fork_has_lock = false;       // fork() got the lock
bool forked_during_call = false;  // in the child, without it
void before_fork() {
  timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += kForkSeconds;
  fork_has_lock = pthread_rwlock_timedwrlock(&calls_lock, &until) == 0;
}
void after_fork() {
  if (fork_has_lock) pthread_rwlock_unlock(&calls_lock);
}
void after_fork_in_child() {
  if (!fork_has_lock) forked_during_call = true;
  calls_lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
}
[[maybe_unused]] const bool is_gate_set = (set_fork_gate({&before_fork, &after_fork, &after_fork_in_child}), true);

// Holds the lock for one call. Throws ValueError in a child that was forked during a call.
class CallScope {
 public:
  [[nodiscard]] CallScope() {
    check<ValueError>(!forked_during_call, "halfstep",
                      "this process was forked while another thread was in the library for more than ", kForkSeconds,
                      " seconds, and cannot use it");
    pthread_rwlock_rdlock(&calls_lock);
  }
  ~CallScope() { pthread_rwlock_unlock(&calls_lock); }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;
};

// Calls `body`; turns an exception into a code, and its message into hs_error's.
template <class Body>
auto guarded(Body body) noexcept -> decltype(body()) {
  int code = HS_FAILED;
  try {
    const CallScope call;
    const FloatState plain;
    return body();
  } catch (const BadArgument& e) { code = store_failure(HS_BAD_ARGUMENT, e.what()); } catch (const BadInput& e) {
    code = store_failure(HS_BAD_INPUT, e.what());
  } catch (const MemoryError& e) { code = store_failure(HS_NO_MEMORY, e.what()); } catch (const std::bad_alloc&) {
    code = store_failure(HS_NO_MEMORY, "[memory] the host has no memory left");
  } catch (const std::exception& e) { code = store_failure(HS_FAILED, e.what()); } catch (...) {
    code = store_failure(HS_FAILED, "[halfstep] unknown failure");
  }
  if constexpr (std::is_pointer_v<decltype(body())>)
    return nullptr;
  else
    return code;
}

// Parses the text of `options` of hs_open.
app::PredictorOptions options_of(const char* text) {
  constexpr const char* kOptions = "hs_open: options";
  app::PredictorOptions out;
  if (!text) return out;
  const Json given = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  check<BadArgument>(given.is_object(), kOptions, "must be NULL or a JSON object, got ", text);
  for (const auto& [key, value] : given.items()) {
    if (key == "device" && value.is_string()) {
      out.device = value.get<std::string>();
    } else if ((key == "amp" || key == "averages") && value.is_boolean()) {
      (key == "amp" ? out.amp : out.averages) = value.get<bool>();
    } else {
      fail<BadArgument>(kOptions, "must be \"device\" with a text, or \"amp\" or \"averages\" with true or false, got \"", key,
                        "\": ", app::line_of(value));
    }
  }
  return out;
}

std::vector<int64_t> sizes_of(const Shape& shape) { return {shape.begin(), shape.end()}; }

// Returns "probabilities", "numbers" or "outputs": see "answers" in halfstep_predict.h.
const char* kind_of_answers(const app::Predictor& p) {
  if (p.form().classes == 0) return "numbers";
  return app::gives_probabilities(p.config().loss) ? "probabilities" : "outputs";
}

// Returns the JSON of hs_describe.
std::string description_of(const OpenModel& model) {
  const app::Predictor& p = model.predictor;
  const Json out = {{"version", HALFSTEP_VERSION},
                    {"checkpoint", p.checkpoint().string()},
                    {"step", p.step()},
                    {"averaged", p.is_averaged()},
                    {"device", joined(p.config().device)},
                    {"loss", p.config().loss["type"]},
                    {"input", sizes_of(p.form().input)},
                    {"dtype", p.form().input_dtype == DType::i64 ? "int64" : "float32"},
                    {"output", sizes_of(model.output)},
                    {"answers", kind_of_answers(p)},
                    {"form", *to_json(p.form())}};
  return app::line_of(out);
}

hs_model* open(const char* path, const char* options) {
  check<BadArgument>(path != nullptr, "hs_open", "path must be a text, got NULL");
  const BeforeEnd before_end;
  check<ValueError>(before_end.allowed(), "hs_open", kProcessEnds);
  static std::mutex one_at_a_time;  // constructing a model seeds the default generator
  const std::lock_guard lock(one_at_a_time);
  const app::PredictorOptions chosen = options_of(options);
  auto model = std::make_shared<OpenModel>(OpenModel{app::Predictor(path, chosen)});
  if (const auto& proof = model->predictor.proof(); proof && chosen.amp) app::check_proof(model->predictor, *proof);
  const DataForm& form = model->predictor.form();
  const Tensor result = model->predictor(zeros(with_batch(1, form.input), {.dtype = form.input_dtype, .device = Device::cpu}));
  check<ValueError>(result.dim() >= 1 && result.size(0) == 1, "hs_open", path,
                    ": the model must give one result for one sample, got ", result.shape());
  model->output = without_batch(result.shape());
  for (int64_t i = 0; i < form.classes; ++i) model->classes.push_back(form.class_name(i));
  model->description = description_of(*model);
  model->narrow_warning = app::narrow_inputs_warning(form, DType::f32);
  model->has_wide_answers = form.classes == 0 && app::needs_double(form);
  hs_model* const out = open_models().add(std::move(model));
  FirstUse::watch_end_after("hs_open");
  return out;
}

// Writes the sizes, unless `to` is null. Returns the number of dimensions.
int write_shape(const Shape& from, int64_t* to) {
  if (to) std::copy(from.begin(), from.end(), to);
  return int(from.size());
}

// Returns the shape of the inputs of hs_run.
Shape shape_of_inputs(const OpenModel& model, const int64_t* sizes, int dims) {
  constexpr const char* kRun = "hs_run";
  check<BadArgument>(sizes != nullptr && dims >= 1, kRun, "shape must have at least one size, got ", sizes ? "none" : "NULL");
  const DataForm& form = model.predictor.form();
  constexpr const char* kTakes = "the model takes inputs [N, ...] of shape ";
  check<BadInput>(dims <= HS_MAX_DIMS, kRun, kTakes, form.input, ", got ", dims, " dimensions");
  const Shape shape(std::span(sizes, size_t(dims)));
  check<BadInput>(shape[0] >= 0 && without_batch(shape) == form.input, kRun, kTakes, form.input, ", got ", shape);
  const int64_t most = kMostNumbers / std::max<int64_t>({1, numel(form.input), numel(model.output)});
  check<BadInput>(shape[0] <= most, kRun, "at most ", most, " samples at once, got ", shape[0]);
  return shape;
}

// Views the inputs of hs_run as a tensor on the caller's memory.
Tensor inputs_of(const OpenModel& model, int dtype, const void* inputs, const Shape& shape) {
  constexpr const char* kRun = "hs_run";
  check<BadArgument>(dtype == HS_FLOAT32 || dtype == HS_INT64 || dtype == HS_FLOAT64, kRun,
                     "dtype must be HS_FLOAT32, HS_INT64 or HS_FLOAT64, got ", dtype);
  const DType given = dtype == HS_INT64 ? DType::i64 : dtype == HS_FLOAT64 ? DType::f64 : DType::f32;
  const DataForm& form = model.predictor.form();
  check<BadArgument>(inputs != nullptr || numel(shape) == 0, kRun, "inputs must point to numbers of shape ", shape, ", got NULL");
  const bool takes_integers = form.input_dtype == DType::i64;
  check<BadInput>(!takes_integers || dtype == HS_INT64, kRun, "the model takes HS_INT64, got ",
                  dtype == HS_FLOAT64 ? "HS_FLOAT64" : "HS_FLOAT32");
  if (takes_integers) {
    const auto* tokens = static_cast<const int64_t*>(inputs);
    const int64_t count = numel(shape), vocabulary = form.vocabulary;
    for (int64_t i = 0; i < count; ++i)
      check<BadInput>(tokens[i] >= 0 && tokens[i] < vocabulary, kRun, "tokens must be in 0..", vocabulary - 1, ", got ", tokens[i]);
  }
  if (numel(shape) == 0) return empty(shape, {.dtype = given, .device = Device::cpu});
  // Models do not write into their inputs.
  return from_blob(const_cast<void*>(inputs), shape, given);
}

// Writes the results of a batch: answers as `halfstep predict` gives them, or the model's outputs.
void write_results(const OpenModel& open, bool as_answers, const Tensor& outputs, float* to) {
  const app::Predictor& model = open.predictor;
  Tensor values = outputs;
  if (as_answers)  // numbers in float64 and shares in float32, as in Predictor
    values = app::answers_of(model.form().classes > 0 ? outputs : outputs.to(DType::f64), model.config().loss, model.form());
  values = values.to(DType::f32).contiguous();
  const auto* from = values.data_ptr<float>();
  std::copy(from, from + values.numel(), to);
}

// Warns, once in a process, where float32 does not have the digits of inputs or answers.
void warn_of_lost_digits(const OpenModel& open, int result, DType dtype) {
  if (dtype == DType::f32 && !open.narrow_warning.empty()) logging::warn_once("hs_run: " + open.narrow_warning);
  if (result == HS_ANSWERS && open.has_wide_answers)
    logging::warn_once(
        "hs_run: float32 does not have the digits of the answers, whose deviation is small against their mean: take HS_OUTPUTS (in "
        "Python raw=True), and compute outputs * std + mean of \"scale\" in the form in float64");
}

int64_t run(hs_model* handle, int result, int dtype, const void* inputs, const int64_t* shape, int dims, float* outputs,
            int64_t capacity) {
  constexpr const char* kRun = "hs_run";
  const BeforeEnd before_end;
  check<ValueError>(before_end.allowed(), kRun, kProcessEnds);
  const std::shared_ptr<OpenModel> model = open_models().find(handle, kRun);
  check<BadArgument>(result == HS_ANSWERS || result == HS_OUTPUTS, kRun, "result must be HS_ANSWERS or HS_OUTPUTS, got ", result);
  const Shape sizes = shape_of_inputs(*model, shape, dims);
  const int64_t samples = sizes[0], width = numel(model->output), numbers = samples * width;
  constexpr const char* kRoom = "outputs must have room for ";  // first: the shape is wrong, if it is larger than the inputs
  check<BadArgument>(outputs != nullptr || numbers == 0, kRun, kRoom, numbers, " numbers, got NULL");
  check<BadArgument>(capacity >= numbers, kRun, kRoom, numbers, " numbers, got ", capacity);
  const NoGrad off;
  const Tensor x = inputs_of(*model, dtype, inputs, sizes);
  try {
    app::check_range(x, model->predictor.form(), kRun);
    app::check_categories(x, model->predictor.form(), kRun);
  } catch (const DataError& e) { throw BadInput(e.what()); }
  warn_of_lost_digits(*model, result, x.dtype());
  model->predictor.in_batches(model->predictor.from_units(x), kBatch, [&](int64_t begin, const Tensor& y) {
    const Shape shape = with_batch(std::min(kBatch, samples - begin), model->output);
    check<ValueError>(y.shape() == shape, kRun, "the model gives results of another shape, ", y.shape(), ", for ", shape[0],
                      " samples than for one");
    write_results(*model, result == HS_ANSWERS, y, outputs + begin * width);
  });
  return numbers;
}

}  // namespace

const char* hs_version(void) { return HALFSTEP_VERSION; }

hs_model* hs_open(const char* path, const char* options) {
  return guarded([&] { return open(path, options); });
}

int hs_close(hs_model* model) {
  return guarded([&] { return open_models().take(model), 0; });
}

const char* hs_describe(hs_model* model) {
  return guarded([&] { return open_models().find(model, "hs_describe")->description.c_str(); });
}

int hs_input(hs_model* model, int64_t shape[HS_MAX_DIMS - 1], int* dtype) {
  return guarded([&] {
    const std::shared_ptr<OpenModel> m = open_models().find(model, "hs_input");
    if (dtype) *dtype = m->predictor.form().input_dtype == DType::i64 ? HS_INT64 : HS_FLOAT32;
    return write_shape(m->predictor.form().input, shape);
  });
}

int hs_output(hs_model* model, int64_t shape[HS_MAX_DIMS - 1]) {
  return guarded([&] { return write_shape(open_models().find(model, "hs_output")->output, shape); });
}

int64_t hs_classes(hs_model* model) {
  return guarded([&] { return int64_t(open_models().find(model, "hs_classes")->classes.size()); });
}

const char* hs_class(hs_model* model, int64_t index) {
  return guarded([&] {
    const std::shared_ptr<OpenModel> m = open_models().find(model, "hs_class");
    const auto count = int64_t(m->classes.size());
    check<BadArgument>(count > 0, "hs_class", "the model has no classes: it answers with numbers");
    check<BadArgument>(index >= 0 && index < count, "hs_class", "index must be in 0..", count - 1, ", got ", index);
    return m->classes[size_t(index)].c_str();
  });
}

int64_t hs_run(hs_model* model, int result, int dtype, const void* inputs, const int64_t* shape, int dims, float* outputs,
               int64_t capacity) {
  return guarded([&] { return run(model, result, dtype, inputs, shape, dims, outputs, capacity); });
}

const char* hs_error(void) { return last_error().c_str(); }

int hs_threads(int count) {
  return guarded([&] {
    check<BadArgument>(count >= 0, "hs_threads", "count must be at least 0, got ", count);
    if (count > 0) set_num_threads(count);
    return num_threads();
  });
}
