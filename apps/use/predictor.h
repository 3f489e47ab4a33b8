// SPDX-License-Identifier: Apache-2.0
// Applies a trained model: files in, answers out, without the training data.
//
//   Predictor model("runs/digits");                          // a run's folder, a checkpoint, an exported file (model_file.h)
//   model.files({"a.png", "more/"}, {}, [](const Prediction& p) { std::cout << p.input << ' ' << p.top[0].name << '\n'; });
//   const Tensor scores = model(inputs);                     // pixels in [0, 1], columns as from_units gives them, tokens
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "apps/session/session.h"
#include "apps/use/forward_recorder.h"
#include "apps/use/golden_samples.h"
#include "apps/use/model_file.h"
#include "framework/data/transforms/data_form.h"

namespace halfstep::app {

struct PredictorOptions {
  std::optional<std::string> device{};                 // as in a config; empty: the run's
  std::string device_from = "the option \"device\":";  // for messages
  bool amp = true;                                     // false: float32, even if the run used mixed precision
  bool averages = true;                                // use averaged weights, if the run has them
  bool record = true;                                  // false: never replay recordings (apps/use/forward_recorder.h)
};

// A class and its probability; NaN if the loss defines none (MultiMarginLoss).
struct ClassShare {
  int64_t number;
  std::string name;
  double probability;
};

// The answer for one input.
struct Prediction {
  std::string input;                    // "a.png", "houses.csv row 3", "x.npy[4]"
  std::string fault{};                  // reason for the lack of an answer; empty: there is one
  std::vector<ClassShare> top{};        // classes: most probable first, as many as requested
  std::vector<double> probabilities{};  // of all classes, by number, if requested
  std::vector<double> numbers{};        // in the units of the file
  std::vector<std::string> labels{};    // a row of labels (CTC), or a class for each position of the input
  std::vector<std::string> cells{};     // of a table's row, as in the file
  std::optional<double> truth{};        // the correct class or number, if known
  std::optional<std::string> truth_name{};
  int64_t rows = 1;  // of a fault: how many samples have it; 0: those of a whole file, which cannot be counted
  // Returns whether the answer is known to be wrong.
  bool is_wrong() const { return truth && !top.empty() && top[0].number != int64_t(*truth); }
};

struct FileOptions {
  int64_t top = 1;             // number of classes in an answer
  bool probabilities = false;  // return those of all classes
  bool invert = false;         // pictures have dark ink on light paper, and the training data light ink
  int64_t batch = 64;
  int workers = 2;  // threads that read pictures; memory holds at most 2 batches for each
};

// Scaling of inputs from the units of files: (x - mean) / std, or (fill - mean) / std for NaN; a number for each input of a
// sample, for each column of a series or one for all. Empty: no scaling.
struct InputUnits {
  std::vector<double> mean, std, fill;
};
InputUnits input_units(const DataForm& form);

class Predictor {
 public:
  // Throws as load_model, CheckpointError for a checkpoint whose model does not fit its config, and, for one of a halfstep before
  // 0.2.0, DataError if its training data, which must then be read, is missing.
  explicit Predictor(const std::filesystem::path& model, const PredictorOptions& options = {});
  explicit Predictor(StoredModel stored, const PredictorOptions& options = {});

  const DataForm& form() const { return form_; }
  const Config& config() const { return config_; }
  int64_t step() const { return step_; }
  const std::filesystem::path& checkpoint() const { return checkpoint_; }
  bool is_averaged() const { return is_averaged_; }
  // Returns the golden samples of an exported file; else nothing.
  const std::optional<Proof>& proof() const { return proof_; }
  const Transforms& transforms() const { return transforms_; }
  const Json& stored_transforms() const { return stored_transforms_; }  // as the checkpoint has them
  const ModelParts& parts() const { return parts_; }

  // Computes the model's outputs for inputs [N, ...] in the form of the data before any transforms: float32 on the host. Stateful
  // layers begin at zero. Several threads may call it; on a GPU, where calls with known shapes are replayed, they take turns.
  // Throws ShapeError, and ValueError for tokens outside the vocabulary.
  Tensor operator()(const Tensor& inputs) const;
  // Computes them in batches of one size if there are several, so that equal samples give equal bits: the last batch starts early
  // enough to be full. `receive` gets the outputs of the samples from `begin` on, each sample's once.
  void in_batches(const Tensor& inputs, int64_t batch,
                  const std::function<void(int64_t begin, const Tensor& outputs)>& receive) const;
  size_t recordings() const;  // one for each shape of inputs that is replayed
  // Converts inputs [N, ...] from the units of files: columns of a table and values of a series are scaled as the training data
  // was, in float64, and NaN is replaced as missing values were. Returns the dtype that the model takes.
  Tensor from_units(const Tensor& inputs) const;
  // Computes answers, one for each input, without names of inputs.
  std::vector<Prediction> answers(const Tensor& inputs, const FileOptions& options = {});

  // Answers files in order, each as soon as its batch is done: pictures and folders of them, tables, series (one answer, the
  // values after the file's end), .npy, .npz and .safetensors with inputs. An unreadable input has a fault, and the others are
  // answered. Throws ConfigError for a language model. on_table: called for each table before its rows, with its columns' names.
  using Receive = std::function<void(const Prediction&)>;
  void files(const std::vector<std::string>& paths, const FileOptions& options, const Receive& receive,
             const std::function<void(const CsvRows&)>& on_table = {});

  // Answers texts, for a model of one column of texts. Throws ConfigError for other models.
  void texts(const std::vector<std::string>& texts, const FileOptions& options, const Receive& receive,
             const std::function<void(const CsvRows&)>& on_table = {});

  // Returns the config's metrics over the answers so far with known truth, "accuracy" and so on; and their number.
  std::vector<MetricValue> metrics() const;
  int64_t known_count() const { return known_count_; }

 private:
  std::vector<Prediction> answer(const Tensor& outputs, const FileOptions& options) const;
  void add_to_metrics(const Tensor& outputs, const std::vector<double>& truths);
  void add_truths(const Tensor& outputs, const Tensor& truths, std::vector<Prediction>& found);
  void answer_pictures(const std::vector<std::filesystem::path>& paths, const FileOptions& options, const Receive& receive);
  void answer_table(const CsvRows& rows, const std::string& name, const FileOptions& options, const Receive& receive,
                    const std::function<void(const CsvRows&)>& on_table);
  void answer_series(const std::filesystem::path& path, const FileOptions& options, const Receive& receive);
  void answer_arrays(const std::filesystem::path& path, const FileOptions& options, const Receive& receive);

  std::filesystem::path checkpoint_;
  Config config_;
  DataForm form_;
  Transforms transforms_;
  ModelParts parts_;
  std::unique_ptr<std::mutex> mutex_;          // for a model that calls write into, or on a GPU; else null
  std::unique_ptr<ForwardRecorder> recorder_;  // on a GPU; else null
  std::vector<NamedMetric> metrics_;
  int64_t step_ = 0, known_count_ = 0;
  bool is_averaged_ = false;
  std::optional<Proof> proof_;
  Json stored_transforms_;
};

}  // namespace halfstep::app
