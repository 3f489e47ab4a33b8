// SPDX-License-Identifier: Apache-2.0
#include "apps/use/predictor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "amp/autocast/autocast.h"
#include "apps/catalog/averages.h"
#include "apps/catalog/datasets.h"
#include "apps/catalog/infer.h"
#include "apps/catalog/losses.h"
#include "apps/catalog/metrics.h"
#include "apps/catalog/transforms.h"
#include "apps/session/branch_names.h"
#include "apps/use/array_inputs.h"
#include "apps/use/model_file.h"
#include "apps/use/table_files.h"
#include "framework/autograd/grad_mode.h"
#include "framework/base/float_state.h"
#include "framework/base/log.h"
#include "framework/data/sets/found_pictures.h"
#include "framework/data/tables/labels.h"
#include "framework/ops/linalg/packed_weights.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;
constexpr const char* kPredict = "predict";
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Reads the training data, for a checkpoint of an older halfstep that does not describe it.
StoredData of_training_data(const Config& config) {
  return {build_dataset(config.json, "train")->form(), prediction_transforms(with_statistics(config.json))};
}

// Returns whether a call writes into the model: stateful layers keep their last state, and embeddings with max_norm scale rows of
// weights.
bool writes_when_called(const Json& model) {
  if (model.is_object()) {
    if (model.contains("stateful") && model["stateful"] == true) return true;
    if (model.contains("max_norm") && !model["max_norm"].is_null()) return true;
  }
  return model.is_structured() && std::any_of(model.begin(), model.end(), writes_when_called);
}

// Pictures as a data set. An unreadable one is black, with its error.
struct Pictures {
  const std::vector<fs::path>* paths;
  const DataForm* form;
  bool invert;
  int64_t size() const { return int64_t(paths->size()); }
  std::pair<Tensor, std::string> get(int64_t i) const {
    try {
      return {read_input_picture((*paths)[size_t(i)], *form, invert), ""};
    } catch (const IoError& e) { return {zeros(form->input, {.device = Device::cpu}), e.what()}; } catch (const DataError& e) {
      return {zeros(form->input, {.device = Device::cpu}), e.what()};
    }
  }
};

// Returns the picture that a path names, or those in the folder, as ImageFolder finds them.
std::vector<fs::path> pictures_at(const fs::path& path) {
  if (!fs::is_directory(path)) return {path};
  PassedOver passed;
  const std::vector<fs::path> out = pictures_in(path, passed);
  for (const std::string& w : passed.warnings()) logging::warn(w);
  if (const std::string text = passed.text(); !text.empty()) logging::warn(path.string() + ": left out: " + text);
  check<DataError>(!out.empty(), kPredict, path.string(), ": the folder has no pictures (PNG or JPEG)");
  return out;
}

// Returns the class that a picture's folders name, NaN if none does: the first from the top that names one, as ImageFolder takes
// the first below its root.
double class_of_folder(const fs::path& path, const DataForm& form) {
  for (const fs::path& folder : path.parent_path())
    if (const int64_t place = find_label(form.names, folder.string()); place >= 0) return double(place);
  return kUnknown;
}

// Calls the model in the region. Returns float32.
Tensor forward_of(Module& model, Device device, const AutocastOptions& region, const Tensor& x) {
  const Autocast open(device, region);
  return model(x).to(DType::f32);
}

// Returns how many samples inputs have, [N, ...] or one sample.
int64_t samples_of(const Tensor& inputs, const DataForm& form) { return inputs.dim() > form.input.size() ? inputs.size(0) : 1; }

std::string extension_of(const fs::path& path) { return path.extension().string(); }

}  // namespace

Predictor::Predictor(const fs::path& model, const PredictorOptions& options) : Predictor(load_model(model), options) {}

Predictor::Predictor(StoredModel stored, const PredictorOptions& options) : checkpoint_(stored.path) {
  const CheckpointContents& contents = stored.contents;
  proof_ = std::move(stored.proof);
  step_ = stored_step(contents);
  std::optional<StoredData> data = stored_data(contents);
  ConfigOptions config_options{.sets = {},
                               .no_amp = !options.amp,
                               .device = options.device,
                               .device_from = options.device_from,
                               .form = data ? &data->form : nullptr};
  config_ = resolve_config(stored_config(contents), checkpoint_.string(), config_options);
  if (!data) {
    check<DataError>(config_.facts.has_value(), kPredict, checkpoint_.string(),
                     " was written by a halfstep before 0.2.0, which did not store what the model takes; data.train says it, but ",
                     config_.data_fault.empty() ? "its files are missing" : config_.data_fault);
    data = of_training_data(config_);
  }
  form_ = std::move(data->form);
  stored_transforms_ = data->transforms;
  transforms_ = build_transforms(stored_transforms_);
  parts_ = make_model(config_);
  stored.contents = with_branch_names(std::move(stored.contents), *parts_.model);
  StateDict state;
  for (const auto& [name, tensor] : contents.model) state.push_back({name, tensor});
  is_averaged_ = stored.averaged || (options.averages && use_averages(contents, state) > 0);
  try {
    parts_.model->load_state_dict(state);
  } catch (const ValueError& e) {
    fail<CheckpointError>(kPredict, checkpoint_.string(), ": the weights do not fit the model of its config: ", one_line(e));
  }
  parts_.model->eval();
  // Autocast keeps 16-bit copies only of trained weights, and would cast frozen ones in each call.
  parts_.model->requires_grad_(true);
  if (!parts_.device.is_cpu() || writes_when_called(config_.model)) mutex_ = std::make_unique<std::mutex>();
  if (!parts_.device.is_cpu() && options.record) {
    const auto forward = [model = parts_.model, device = parts_.device, region = parts_.region](const Tensor& x) {
      return forward_of(*model, device, region, x);
    };
    recorder_ = std::make_unique<ForwardRecorder>(forward, *parts_.model, parts_.device);
  }
  // On the CPU make the copies here, so that they do not occupy memory that calls would reuse.
  if (parts_.device.is_cpu() && parts_.low)
    (*this)(zeros(with_batch(1, form_.input), {.dtype = form_.input_dtype, .device = Device::cpu}));
  metrics_ = build_metrics(config_.metrics, facts_of(form_, config_.json).targets(), ignored_class(config_.loss));
  for (const NamedMetric& m : metrics_) m.metric->reset();
}

Tensor Predictor::operator()(const Tensor& inputs) const {
  const InferenceMode inference;
  const PackAtOnce at_once;
  const FloatState plain;
  Batch batch{inputs, {}};
  if (!transforms_.empty()) {
    std::vector<int64_t> places(size_t(inputs.size(0)));
    std::iota(places.begin(), places.end(), 0);
    for (const auto& t : transforms_) batch = t->apply(batch, {.indices = places, .classes = form_.classes});
  }
  std::unique_lock<std::mutex> turn;
  std::optional<FreshStates> fresh;
  if (mutex_) {
    turn = std::unique_lock(*mutex_);
    fresh.emplace(*parts_.model);
  }
  if (recorder_) return (*recorder_)(batch.input).cpu();
  return forward_of(*parts_.model, parts_.device, parts_.region, batch.input.to(parts_.device)).cpu();
}

size_t Predictor::recordings() const {
  if (!recorder_) return 0;
  const std::lock_guard turn(*mutex_);
  return recorder_->recordings();
}

std::vector<Prediction> Predictor::answers(const Tensor& inputs, const FileOptions& options) {
  const NoGrad off;
  const ArrayUnits units = input_units(form_).mean.empty() ? ArrayUnits::file : ArrayUnits::scaled;  // as samples of data sets are
  return answer((*this)(array_inputs(inputs, form_, "inputs", units).to(form_.input_dtype)), options);
}

std::vector<Prediction> Predictor::answer(const Tensor& outputs, const FileOptions& options) const {
  const int64_t samples = outputs.size(0);
  std::vector<Prediction> out{size_t(samples)};
  if (form_.classes == 0) {
    const Tensor values = answers_of(outputs.to(DType::f64), config_.loss, form_);
    const std::vector<double> numbers = values.to_vector<double>();
    const size_t width = samples > 0 ? numbers.size() / size_t(samples) : 0;
    for (size_t i = 0; i < out.size(); ++i) {
      for (size_t k = 0; k < width; ++k) out[i].numbers.push_back(numbers[i * width + k]);
    }
    return out;
  }
  const Tensor values = answers_of(outputs, config_.loss, form_);
  if (form_.label_sequences || values.dim() > 2) {  // a class for each position
    const Tensor best = values.argmax(-1).reshape({samples, -1});
    for (int64_t i = 0; i < samples; ++i) {
      const std::vector<int64_t> classes = best.select(0, i).to_vector<int64_t>();
      for (size_t t = 0; t < classes.size(); ++t) {
        // In CTC class 0 is blank, and repeated classes count once.
        const bool is_omitted = form_.label_sequences && (classes[t] == 0 || (t > 0 && classes[t] == classes[t - 1]));
        if (!is_omitted) out[size_t(i)].labels.push_back(form_.class_name(classes[t]));
      }
    }
    return out;
  }
  const bool has_probabilities = gives_probabilities(config_.loss);
  const int64_t classes = values.size(1), shown = std::clamp<int64_t>(options.top, 1, classes);
  const auto [most, which] = topk(values, shown, 1);
  for (int64_t i = 0; i < samples; ++i) {
    Prediction& p = out[size_t(i)];
    const std::vector<double> best = most.select(0, i).to_vector<double>();
    const std::vector<int64_t> numbers = which.select(0, i).to_vector<int64_t>();
    for (size_t k = 0; k < numbers.size(); ++k)
      p.top.push_back({numbers[k], form_.class_name(numbers[k]), has_probabilities ? best[k] : kUnknown});
    if (options.probabilities && has_probabilities) p.probabilities = values.select(0, i).to_vector<double>();
  }
  return out;
}

// Adds outputs with known truth to the metrics.
void Predictor::add_to_metrics(const Tensor& outputs, const std::vector<double>& truths) {
  std::vector<int64_t> rows, classes;
  std::vector<double> numbers;
  for (size_t i = 0; i < truths.size(); ++i) {
    if (std::isnan(truths[i])) continue;
    rows.push_back(int64_t(i));
    classes.push_back(int64_t(truths[i]));
    numbers.push_back(truths[i]);
  }
  if (rows.empty() || outputs.dim() != 2) return;
  known_count_ += int64_t(rows.size());
  const Tensor chosen = outputs.index_select(0, tensor(rows));
  const Tensor answers =
      form_.classes > 0 ? chosen : answers_of(chosen.to(DType::f64), config_.loss, form_);  // truths are in the units of the file
  const Tensor truth = form_.classes > 0 ? tensor(classes) : from_vector<double>(numbers, {int64_t(numbers.size()), 1});
  for (const NamedMetric& m : metrics_) m.metric->add(answers, truth);
}

// Adds answers of any shape, with truths from known_answers, to the metrics; puts single classes and numbers into `found`.
void Predictor::add_truths(const Tensor& outputs, const Tensor& truths, std::vector<Prediction>& found) {
  const bool is_one_each = truths.numel() == truths.size(0);
  if (!is_one_each || outputs.dim() != 2) {
    known_count_ += truths.size(0);
    const Tensor answers = form_.classes > 0 ? outputs : answers_of(outputs.to(DType::f64), config_.loss, form_);
    for (const NamedMetric& m : metrics_) m.metric->add(answers, truths);
    return;
  }
  std::vector<double> values = truths.reshape({-1}).to_vector<double>();
  for (size_t i = 0; i < found.size(); ++i) {
    if (form_.classes > 0 && (values[i] < 0 || int64_t(values[i]) == ignored_class(config_.loss))) values[i] = kUnknown;
    if (std::isnan(values[i])) continue;
    found[i].truth = values[i];
    if (form_.classes > 0) found[i].truth_name = form_.class_name(int64_t(values[i]));
  }
  add_to_metrics(outputs, values);
}

std::vector<MetricValue> Predictor::metrics() const {
  std::vector<MetricValue> out;
  for (const NamedMetric& m : metrics_) out.push_back({m.name, m.metric->value(), m.metric->is_share(), m.metric->details()});
  return out;
}

void Predictor::files(const std::vector<std::string>& paths, const FileOptions& options, const Receive& receive,
                      const std::function<void(const CsvRows&)>& on_table) {
  check<ConfigError>(!std::holds_alternative<TextForm>(form_.source), kPredict, checkpoint_.string(), " is a model of text",
                     Help{"halfstep generate writes with it"});
  std::vector<fs::path> pending;  // pictures, answered in batches across paths
  const auto flush = [&] {
    if (!pending.empty()) answer_pictures(pending, options, receive);
    pending.clear();
  };
  for (const std::string& given : paths) {
    const fs::path path = given;
    const std::string extension = extension_of(path);
    const bool is_array = extension == ".npy" || extension == ".npz" || extension == ".safetensors";
    const int64_t unread = std::holds_alternative<SeriesForm>(form_.source) && !is_array ? 1 : 0;  // samples of an unreadable file
    try {
      if (std::holds_alternative<ImageForm>(form_.source) && !is_array) {
        const std::vector<fs::path> found = pictures_at(path);
        pending.insert(pending.end(), found.begin(), found.end());
        continue;
      }
      flush();
      if (is_array)
        answer_arrays(path, options, receive);
      else if (std::holds_alternative<TableForm>(form_.source))
        answer_table(rows_of_table(path, std::get<TableForm>(form_.source).options, config_.json),
                     (path == "/dev/stdin" ? "-" : given) + " row ", options, receive, on_table);
      else if (std::holds_alternative<SeriesForm>(form_.source))
        answer_series(path, options, receive);
      else
        fail<DataError>(kPredict, given, ": the model takes arrays: .npy, .npz or .safetensors with inputs of shape ", form_.input);
    } catch (const IoError& e) {
      flush();
      receive({.input = given, .fault = e.what(), .rows = unread});
    } catch (const DataError& e) {
      flush();
      receive({.input = given, .fault = e.what(), .rows = unread});
    } catch (const ConfigError& e) {  // a missing column
      receive({.input = given, .fault = e.what(), .rows = unread});
    }
  }
  flush();
}

void Predictor::answer_pictures(const std::vector<fs::path>& paths, const FileOptions& options, const Receive& receive) {
  const int workers = paths.size() > size_t(options.batch) ? options.workers : 0;
  DataLoader loader(Pictures{&paths, &form_, options.invert},
                    {.batch_size = options.batch, .seed = 0, .num_workers = workers, .device = Device::cpu});
  size_t at = 0;
  Tensor before;  // images of the last batch, of which a smaller one computes some again: equal sizes give equal bits
  for (auto [images, faults] : loader) {
    const int64_t count = images.size(0), again = before.defined() ? before.size(0) - count : 0;
    const Tensor all = again > 0 ? cat({before.narrow(0, count, again), images}) : images;
    Tensor outputs = (*this)(all);
    if (again > 0) outputs = outputs.narrow(0, again, count);
    before = images;
    std::vector<Prediction> found = answer(outputs, options);
    std::vector<double> truths;
    for (size_t i = 0; i < found.size(); ++i) {
      const double truth = faults[i].empty() ? class_of_folder(paths[at + i], form_) : kUnknown;
      truths.push_back(truth);
      if (!std::isnan(truth)) found[i].truth = truth, found[i].truth_name = form_.class_name(int64_t(truth));
      if (!faults[i].empty()) found[i] = {.fault = faults[i]};
      found[i].input = paths[at + i].string();
    }
    add_to_metrics(outputs, truths);
    for (const Prediction& p : found) receive(p);
    at += found.size();
  }
}

void Predictor::texts(const std::vector<std::string>& texts, const FileOptions& options, const Receive& receive,
                      const std::function<void(const CsvRows&)>& on_table) {
  const auto* const table = std::get_if<TableForm>(&form_.source);
  check<ConfigError>(table && table->options.encoding && table->options.encoding->tokens, kPredict, checkpoint_.string(),
                     " is no model of the texts of a table, which answers for single ones");
  try {
    answer_table(rows_of_texts(texts, table->options), "text ", options, receive, on_table);
  } catch (const ValueError& e) { fail<ConfigError>(kPredict, one_line(e)); }
}

// Answers a table. name: of a row, without its number.
void Predictor::answer_table(const CsvRows& rows, const std::string& name, const FileOptions& options, const Receive& receive,
                             const std::function<void(const CsvRows&)>& on_table) {
  if (on_table) on_table(rows);
  size_t next = 0;  // row of the file
  const auto faults_until = [&](size_t row) {
    for (; next < row; ++next) receive({.input = joined(name, next + 1), .fault = rows.faults[next], .cells = rows.cells[next]});
  };
  in_batches(rows.input.narrow(0, 0, int64_t(rows.rows.size())), options.batch, [&](int64_t begin, const Tensor& outputs) {
    std::vector<Prediction> found = answer(outputs, options);
    std::vector<double> truths;
    for (size_t i = 0; i < found.size(); ++i) {
      const size_t place = size_t(begin) + i, row = rows.rows[place];
      faults_until(row);
      const double truth = rows.targets.empty() ? kUnknown : rows.targets[place];
      truths.push_back(truth);
      if (!std::isnan(truth)) {
        found[i].truth = truth;
        if (form_.classes > 0) found[i].truth_name = form_.class_name(int64_t(truth));
      }
      found[i].input = joined(name, row + 1);
      found[i].cells = rows.cells[row];
      receive(found[i]);
      next = row + 1;
    }
    add_to_metrics(outputs, truths);
  });
  faults_until(rows.faults.size());
}

void Predictor::answer_series(const fs::path& path, const FileOptions& options, const Receive& receive) {
  const LastWindow window = last_window_of(path, std::get<SeriesForm>(form_.source).options, config_.json);
  Prediction p = answer((*this)(window.input.unsqueeze(0)), options)[0];
  p.input = path == "/dev/stdin" ? "-" : path.string();
  if (!window.note.empty()) logging::warn(p.input + ": " + window.note);
  receive(p);
}

void Predictor::answer_arrays(const fs::path& path, const FileOptions& options, const Receive& receive) {
  const ArrayFile file = read_array_file(path, config_.json);
  const std::string name = path.string();
  const std::vector<std::string> faults = sample_faults(file.inputs, form_, name);
  const auto bad = int64_t(std::count_if(faults.begin(), faults.end(), [](const std::string& fault) { return !fault.empty(); }));
  const int64_t samples = samples_of(file.inputs, form_);
  Tensor x, truths;
  if (bad < samples || samples == 0) try {
      x = from_units(array_inputs(readable_samples(file.inputs, form_, faults), form_,
                                  bad == 0 ? name : joined(name, ", its ", samples - bad, " readable samples")));
    } catch (const DataError& e) { return receive({.input = name, .fault = e.what(), .rows = samples}); }
  if (file.targets.defined()) truths = known_answers(file.targets, samples, form_, name, ignored_class(config_.loss));
  int64_t next = 0;  // sample of the file
  const auto is_bad = [&](int64_t i) { return i < int64_t(faults.size()) && !faults[size_t(i)].empty(); };
  const auto faults_here = [&] {
    for (; is_bad(next); ++next) receive({.input = joined(name, '[', next, ']'), .fault = faults[size_t(next)]});
  };
  if (x.defined())
    in_batches(x, options.batch, [&](int64_t, const Tensor& outputs) {
      std::vector<Prediction> found = answer(outputs, options);
      std::vector<int64_t> places;
      for (int64_t i = next; int64_t(places.size()) < outputs.size(0); ++i)
        if (!is_bad(i)) places.push_back(i);
      if (truths.defined()) add_truths(outputs, truths.index_select(0, tensor(places)), found);
      for (size_t i = 0; i < found.size(); ++i) {
        faults_here();
        found[i].input = joined(name, '[', next++, ']');
        receive(found[i]);
      }
    });
  faults_here();
}

}  // namespace halfstep::app
