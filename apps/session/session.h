// SPDX-License-Identifier: Apache-2.0
// The objects that a config describes: data, model, loss, optimizer, scaler, schedule.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "amp/step/grad_scaler.h"
#include "amp/step/train_step.h"
#include "apps/config/config.h"
#include "apps/session/best.h"
#include "apps/session/evaluate.h"
#include "apps/session/recomputation.h"
#include "framework/data/loading/loader.h"
#include "framework/data/transforms/data_form.h"
#include "framework/io/checkpoint/checkpoint.h"
#include "layers/layers.h"
#include "optim/averages.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace halfstep::app {

// Only the model and the loss, for `eval`.
struct ModelParts {
  Device device;
  std::optional<DType> low;  // dtype of mixed precision; nothing when it is off
  AutocastOptions region;    // of forward and loss
  std::shared_ptr<Module> model;
  bool channels_last = false;  // does it lie so?
  std::unique_ptr<Loss> loss;
};
// As performance.channels_last says: weights are laid out, and convolutions follow their weights. Are they in channels_last?
bool lay_out(Module& model, const Config& config);
// Seeds the default generator with the config's seed first. Throws DeviceError for an absent device.
ModelParts make_model(const Config& config);

struct Session : ModelParts {
  std::unique_ptr<Optimizer> optimizer;
  std::vector<std::unique_ptr<Optimizer::Follower>> followers;  // of the optimizer
  WeightAverage* average = nullptr;                             // the one among them whose weights evaluations use; may be null
  // Of the norms under the average, and the step that they are of (apps/session/averaged_statistics.h).
  StateDict averaged_statistics;
  int64_t averaged_at = -1;
  std::string optimizer_text;  // as configured, before a schedule changed its rate
  GradScaler scaler;
  std::shared_ptr<Schedule> schedule;        // may be null
  std::unique_ptr<DataLoader<>> train, val;  // val may be null
  DataForm form;                             // of the training data
  std::string data_sha256;                   // fingerprint (framework/data/loading/fingerprint.h) of it; empty: it was not taken
  std::vector<NamedMetric> metrics;
  int64_t batches_per_epoch = 0, batches_per_step = 1, steps_per_epoch = 0, total_steps = 0;
  bool by_epochs = false;                      // the config counts epochs, not steps
  std::string other_pace;                      // of a run that was resumed with other steps an epoch: which learning rates follow
  std::vector<std::string> weights_read;       // what load_weights says
  std::optional<Recomputation> recomputation;  // where the config leaves the choice to the plan
};
enum class FirstValues : uint8_t { of_layers, with_files };  // with_files: `weights` of the config are read
// With a group: this rank's parts of the batches.
Session make_session(Config config, ProcessGroup* group = nullptr, FirstValues values = FirstValues::of_layers);

TrainStepOptions step_options(const Config& config, ProcessGroup* group = nullptr);
// Lookahead and the averages that a config asks for, made to follow `optimizer`.
std::vector<std::unique_ptr<Optimizer::Follower>> make_followers(const TrainSection& train, Optimizer& optimizer,
                                                                 int64_t steps_per_epoch, int64_t total_steps);
// Puts the averaged weights of a checkpoint, where it has any, in place of those that were trained, and the statistics of norms
// that belong to them. How many weights.
int use_averages(const CheckpointContents& contents, StateDict& state);
// The data of "train", "val" or "test", on the config's device.
// known: facts about the training data, if that is not to be read again.
std::unique_ptr<DataLoader<>> make_loader(const Config& config, const std::string& split, const ProcessGroup* group = nullptr,
                                          const DataForm* known = nullptr);
std::vector<NamedMetric> make_metrics(const Config& config, const Dataset& data);

// The progress of a run; a checkpoint holds this besides the parts of a session.
struct Counters {
  int64_t steps = 0, skipped = 0, samples = 0;         // steps tried; of them skipped, as far as their outcomes have been read
  int64_t applied() const { return steps - skipped; }  // what schedules, intervals and the names of checkpoints count
  int64_t data_size = 0;                               // samples of data.train when the checkpoint was written
  std::string data_sha256;                             // and its fingerprint; empty: of a halfstep that kept none
  // Sums over this epoch so far, of finite losses: each times what it is a mean over, and those (Loss::denominator).
  double epoch_loss = 0, epoch_over = 0;
  double window_loss = 0, window_over = 0;  // since the last line of metrics.jsonl
  int64_t last_log_step = -1, last_eval_step = -1;
  Bests bests;
  std::optional<double> stop_best;             // value of train.early_stopping.monitor
  int64_t stop_waited = 0;                     // values since then
  bool stopped = false;                        // early
  int evaluation_due = 0;                      // Trainer::finish is to evaluate at first: what has ended there; 0: nothing is due
  std::optional<double> train_loss, val_loss;  // the latest
  std::vector<MetricValue> val_metrics;        // the latest; empty before there are any
  double seconds = 0;                          // of training so far, all runs together
  struct Skip {
    int64_t step;       // what it was tried as, among applied steps
    std::string cause;  // as a diagnosis names it; empty: not known
  };
  std::optional<Skip> last_skip;
  std::optional<double> first_loss;  // of the first batch whose loss was finite
  double usual_loss = 0;             // exp of a mean of log |loss|, in which the latest 50 steps count most; 0: not known
};

// group: of ranks that share the optimizer's states. They call it together, and rank 0 gets those.
CheckpointContents pack(Session& session, const Json& config, const Counters& counters, ProcessGroup* group = nullptr);
// Restores session, counters and the default generator. Throws CheckpointError for a state that pack did not write, and ValueError
// for one that does not fit.
Counters unpack(const CheckpointContents& contents, Session& session);
// The same of a checkpoint in this folder, for a session of a config that may be another one. Throws ConfigError for a state that
// does not fit.
Counters restore(const char* command, const std::filesystem::path& checkpoint, const CheckpointContents& contents,
                 Session& session);

// The keys in which a run's config differs from that of the checkpoint that it resumes: "optimizer/lr, seed". Without those that
// change no bit of the run.
std::string changed_keys(const Json& now, const Json& then, const Session& session);

// Parts of a state for those that need no more. Throw CheckpointError.
int64_t stored_step(const CheckpointContents& contents);  // applied ones
int64_t stored_attempts(const CheckpointContents& contents);
Json stored_config(const CheckpointContents& contents);
double stored_usual_loss(const CheckpointContents& contents);        // 0: not known
std::string stored_data_sha256(const CheckpointContents& contents);  // empty: of a halfstep that kept none
// What a model was trained on; nothing for a checkpoint of a halfstep before 0.2.0, or of a C++ program.
struct StoredData {
  DataForm form;
  Json transforms;  // see transforms_in_use
};
std::optional<StoredData> stored_data(const CheckpointContents& contents);

}  // namespace halfstep::app
