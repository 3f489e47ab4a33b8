// SPDX-License-Identifier: Apache-2.0
// Constructs the objects that a config describes: data, model, loss, optimizer, scaler, schedule.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "amp/step/grad_scaler.h"
#include "amp/step/train_step.h"
#include "apps/catalog/meanings.h"
#include "apps/config/config.h"
#include "apps/session/best.h"
#include "apps/session/evaluate.h"
#include "apps/session/recomputation.h"
#include "apps/session/run_past.h"
#include "framework/data/loading/loader.h"
#include "framework/data/transforms/data_form.h"
#include "framework/io/checkpoint/checkpoint.h"
#include "layers/layers.h"
#include "optim/averages.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace halfstep::app {

// The model and the loss alone, for `eval`.
struct ModelParts {
  Device device;
  std::optional<DType> low;  // dtype of mixed precision; unset: off
  AutocastOptions region;    // of forward and loss
  std::shared_ptr<Module> model;
  bool channels_last = false;  // whether weights are in channels_last
  std::unique_ptr<Loss> loss;
};
// Lays weights out as performance.channels_last says; convolutions follow their weights. By default bfloat16 convolutions on a CPU
// are in channels_last. Returns whether they are.
bool lay_out(Module& model, const Config& config);
// Sets the process's options of `performance`, seeds the default generator with the config's seed, then constructs. Throws
// DeviceError for an absent device.
ModelParts make_model(const Config& config);

// All objects of a training run.
struct Session : ModelParts {
  std::unique_ptr<Optimizer> optimizer;
  std::vector<std::unique_ptr<Optimizer::Follower>> followers;  // of the optimizer
  WeightAverage* average = nullptr;                             // the one whose weights evaluations use; may be null
  // Statistics of the norms for the average, and their step (apps/session/averaged_statistics.h).
  StateDict averaged_statistics;
  int64_t averaged_step = -1;
  std::string optimizer_text;  // as configured, before a schedule changes its rate
  GradScaler scaler;
  std::shared_ptr<Schedule> schedule;        // may be null
  std::unique_ptr<DataLoader<>> train, val;  // val may be null
  DataForm form;                             // of the training data
  std::string data_sha256;                   // its fingerprint (framework/data/loading/fingerprint.h); empty: not computed
  std::string val_sha256;                    // the same of data.val
  std::vector<NamedMetric> metrics;
  int64_t batches_per_epoch = 0, batches_per_step = 1, steps_per_epoch = 0, total_steps = 0;
  bool counts_epochs = false;  // whether the config gives the length in epochs, not in steps
  std::string pace_warning;    // warning of the learning rates that follow, for a run resumed with another number of steps in an
                               // epoch; else empty
  std::vector<std::string> weights_read;       // lines of load_weights
  std::optional<Recomputation> recomputation;  // if the config leaves the choice to the plan
};
enum class FirstValues : uint8_t { of_layers, with_files };  // with_files: also reads `weights` of the config
// Constructs a session; with a group, for this rank's parts of the batches.
Session make_session(Config config, ProcessGroup* group = nullptr, FirstValues values = FirstValues::of_layers);

TrainStepOptions step_options(const Config& config, ProcessGroup* group = nullptr);
// Makes Lookahead and the averages that the config asks for, as followers of `optimizer`.
std::vector<std::unique_ptr<Optimizer::Follower>> make_followers(const TrainSection& train, Optimizer& optimizer,
                                                                 int64_t total_steps);
// Makes the loader of "train", "val" or "test", on the config's device. known: facts about the training data, which is then not
// read.
std::unique_ptr<DataLoader<>> make_loader(const Config& config, const std::string& split, const ProcessGroup* group = nullptr,
                                          const DataForm* known = nullptr);
std::vector<NamedMetric> make_metrics(const Config& config, const Dataset& data);

// The progress of a run, which checkpoints store besides the parts of a session.
struct Counters {
  int64_t attempted = 0, skipped = 0, samples = 0;         // steps; those of them known to be skipped; samples trained on
  int64_t applied() const { return attempted - skipped; }  // the count for schedules, intervals and names of checkpoints
  int64_t data_size = 0;                               // samples of data.train when the checkpoint was written
  std::string data_sha256;                             // and its fingerprint; empty: an older halfstep stored none
  // Sums over this epoch so far: finite losses times their denominators, and the denominators (Loss::denominator).
  double epoch_loss_sum = 0, epoch_denominator = 0;
  double line_loss_sum = 0, line_denominator = 0;  // the same since the last line of metrics.jsonl
  int64_t last_log_step = -1, last_eval_step = -1;
  BestCheckpoints bests;
  std::optional<double> stop_best;             // best value of train.early_stopping.monitor
  int64_t stop_waited = 0;                     // evaluations since then
  bool stopped = false;                        // by early stopping
  int evaluation_due = 0;  // bits of due_times.h for which a run evaluates before its first step; 0: nothing is due
  std::optional<double> train_loss, val_loss;  // the latest
  std::vector<MetricValue> val_metrics;        // the latest; empty before there are any
  double seconds = 0;                          // of training so far, all runs together
  struct SkippedStep {
    int64_t step;       // number of the attempt among applied steps
    std::string cause;  // of its diagnosis; empty: unknown
  };
  std::optional<SkippedStep> last_skip;
  std::optional<double> first_loss;  // of the first batch with a finite loss
  RunPast past{};                    // before it continued in another way
  double usual_loss = 0;             // exp of a mean of log |loss| in which the latest 50 steps weigh most; 0: unknown
};

// Makes a checkpoint's contents. group: if ranks share the optimizer's states, they call it together, and rank 0 gets all states.
CheckpointContents pack(Session& session, const Json& config, const Counters& counters, ProcessGroup* group = nullptr);
// Restores session, counters and the default generator. Throws CheckpointError for a state that pack did not write, and ValueError
// for one that does not fit.
Counters unpack(const CheckpointContents& contents, Session& session);
// Restores a checkpoint of this folder into a session whose config may differ. Throws ConfigError for a state that does not fit.
Counters restore(const char* command, const std::filesystem::path& checkpoint, const CheckpointContents& contents,
                 Session& session);

// Returns the keys in which a run's config differs from that of its checkpoint: "optimizer/lr, seed". Ignores keys that change no
// bit of the run.
std::string changed_keys(const Json& now, const Json& then, const Session& session);

// Return parts of a state. Throw CheckpointError.
int64_t stored_step(const CheckpointContents& contents);  // applied steps
int64_t stored_attempts(const CheckpointContents& contents);
Json stored_config(const CheckpointContents& contents);
double stored_usual_loss(const CheckpointContents& contents);        // 0: unknown
std::string stored_data_sha256(const CheckpointContents& contents);  // empty: an older halfstep stored none
// Returns facts about the training data; nothing for a checkpoint of a halfstep before 0.2.0, or of a C++ program.
std::optional<StoredData> stored_data(const CheckpointContents& contents);

}  // namespace halfstep::app
