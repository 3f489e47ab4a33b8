// SPDX-License-Identifier: Apache-2.0
// Every key of a config except those of its components, once: its C++ member, and in keys() its type, bounds, default and
// documentation. Both the schema that checks JSON and the code that reads checked values come from keys(), so a value here is the
// document's or the default, and code that runs a config reads members instead of JSON. An empty optional is an omitted key
// without a default, or "auto". The fields of a component are in its row of a catalogue.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "amp/step/grad_scaler.h"
#include "apps/catalog/datasets.h"
#include "apps/catalog/losses.h"
#include "apps/catalog/metrics.h"
#include "apps/catalog/modules.h"
#include "apps/catalog/optimizers.h"
#include "apps/schema/byte_count.h"
#include "apps/schema/interval.h"
#include "apps/schema/schema.h"
#include "framework/base/device.h"
#include "framework/base/dtype.h"
#include "optim/averages.h"

namespace halfstep::app {

struct ScalerSection {
  std::optional<double> init_scale;
  double min_scale, max_scale;
  GradScalerOptions growth;  // growth_factor, backoff_factor, growth_interval
  std::optional<bool> enabled;

  void keys(auto& key) {
    key(init_scale, number("init_scale", 65536.0, "first loss scale; \"auto\": lower if the first batches need it")
                        .at_least(1e-7)
                        .at_most(1e38)
                        .or_word("auto"));
    key(min_scale,
        number("min_scale", 0x1p-24, "the scale does not fall below this; ten skipped steps in a row at this scale end the run")
            .at_least(1e-30)
            .at_most(1e38));
    key(max_scale, number("max_scale", 0x1p24, "the scale does not grow above this; a larger init_scale is used unchanged")
                       .at_least(1e-7)
                       .at_most(3e38));
    key.options(growth, {"growth_factor", "backoff_factor", "growth_interval"});
    key(enabled, boolean("enabled", "auto", "\"auto\": for float16").or_word("auto"));
  }
};

struct AmpSection {
  bool enabled;
  std::optional<DType> dtype;
  ScalerSection scaler;
  bool report;
  Json policy, modules;

  void keys(auto& key) {
    key(enabled, boolean("enabled", true, "mixed precision"));
    key(dtype, choice("dtype", "auto", {"auto", "float16", "bfloat16"}, "\"auto\": float16 on cuda, bfloat16 on cpu"));
    key.section(scaler, "scaler", "the gradient scaler");
    key(report, boolean("report", false, "print casts, skipped steps and the scale at the end"));
    key(policy, map("policy", choice("", nullptr, {"low", "f32", "f32_output", "promote", "keep", "banned"}, "a policy"), false,
                    "policies of ops, by the ops' names, instead of their own"));
    key(modules, map("modules", choice("", nullptr, {"float32", "float16", "bfloat16"}, "a dtype"), true,
                     "dtypes of modules whose names match; if several patterns match, the longest match decides"));
  }
};

const Section& sampler_section();
const Section& early_stopping_section();

struct LoaderSection {
  int64_t batch_size;
  bool shuffle, drop_last;
  int num_workers, prefetch;
  Json sampler;

  void keys(auto& key) {
    key(batch_size, integer("batch_size", 32, "samples").at_least(1).at_most(kMaxCount));
    key(shuffle, boolean("shuffle", nullptr, "shuffle the training data by the seed; default: true, unless stateful"));
    key(sampler, optional_section("sampler", sampler_section(), "of the training data, in place of shuffle").or_text("type"));
    key(drop_last, boolean("drop_last", false, "leave out the last batch if it is not full"));
    key(num_workers, integer("num_workers", 0, "background threads").at_least(0).at_most(256));
    key(prefetch, integer("prefetch", 2, "batches made ahead by workers").at_least(1).at_most(kMaxCount));
    key.unread(not_yet("pin_memory", false, "pin_memory"));
    key.unread(boolean("stateful", false, "read Text in batch_size streams, each batch starting where the last one ended"));
  }
};

struct DataSection {
  std::string root;
  Json train, val, test;
  LoaderSection loader;
  bool has(const std::string& split) const { return !(split == "train" ? train : split == "val" ? val : test).is_null(); }

  void keys(auto& key) {
    key(root, text("root", "data", "folder of all splits"));
    key(train, component("train", dataset_family(), "the training data").required());
    key(val, component("val", dataset_family(), "held-out data, evaluated while training"));
    key(test, component("test", dataset_family(), "held-out data for `halfstep eval`"));
    key.section(loader, "loader", "how batches are made");
  }
};

// Averages of the weights, and Lookahead (optim/averages.h).
struct EmaSection {
  bool enabled;
  WeightAverageOptions average;

  void keys(auto& key) {
    key(enabled, boolean("enabled", true, "keep an exponential average of the weights, which evaluations use"));
    key.options(average, {"decay", "warm_up", "every"});
  }
};
struct SwaSection {
  bool enabled, update_bn;
  double start;
  std::optional<int64_t> every;
  bool follows_epochs() const { return enabled && !every; }  // the mean takes the weights at the ends of epochs
  // Returns how many of `count` steps or epochs come before averaging begins.
  int64_t steps_before(int64_t count) const { return int64_t(start * double(count) + 1e-9); }

  void keys(auto& key) {
    key(enabled, boolean("enabled", true, "keep the mean of the weights of the last part of a run, which evaluations use"));
    key(start, number("start", 0.75, "share of the run before averaging begins").at_least(0).below(1));
    key(every, integer("every", nullptr, "applied steps to each update; left out: updates are at the ends of epochs")
                   .at_least(1)
                   .at_most(kMaxCount));
    key(update_bn, boolean("update_bn", true,
                           "before each evaluation and checkpoint, make the statistics of batch norms anew for the mean, by a pass "
                           "over data.train"));
  }
};
struct LookaheadSection {
  bool enabled;
  LookaheadOptions slow;

  void keys(auto& key) {
    key(enabled, boolean("enabled", true, "every k steps, reset the weights to slow weights that follow them"));
    key.options(slow, {"k", "alpha"});
  }
};

struct TrainSection {
  std::optional<int64_t> epochs, max_steps;  // exactly one is set
  int64_t accumulate_steps;
  std::optional<double> clip_grad_norm, clip_grad_value, clip_grad_agc;
  bool grad_norm, guard;
  std::optional<int64_t> limit_batches, overfit_batches;
  Json early_stopping, checkpoint_activations;
  std::optional<ByteCount> memory_budget;
  bool detect_anomaly;
  Interval eval_every;
  EmaSection ema;
  SwaSection swa;
  LookaheadSection lookahead;
  bool recomputes() const { return memory_budget || !checkpoint_activations.empty(); }
  bool chooses_recomputation() const { return memory_budget || checkpoint_activations == "auto"; }

  void keys(auto& key) {
    key(epochs, integer("epochs", nullptr, "passes over the data; 0: evaluate and save the model with its first values")
                    .at_least(0)
                    .at_most(kMaxCount));
    key(max_steps, integer("max_steps", nullptr, "optimizer steps; skipped ones do not count").at_least(1).at_most(kMaxCount));
    key(accumulate_steps, integer("accumulate_steps", 1, "batches per optimizer step").at_least(1).at_most(kMaxCount));
    key(clip_grad_norm, number("clip_grad_norm", nullptr, "bound of the norm of all gradients together").above(0));
    key(clip_grad_value, number("clip_grad_value", nullptr, "bound of each gradient element").above(0));
    key(clip_grad_agc,
        number("clip_grad_agc", nullptr, "bound of the gradient norm of each unit, divided by the norm of its weights").above(0));
    key(grad_norm, boolean("grad_norm", false, "report the norm of the gradients also without clip_grad_norm"));
    key(guard,
        boolean("guard", false,
                "skip steps with gradients that are not finite, in float32 and bfloat16 too; a gradient scaler does that anyway"));
    key.unread(boolean("deterministic", true, "every run gives the same bits; only true is supported"));
    key(limit_batches, integer("limit_batches", nullptr, "largest number of batches per epoch").at_least(1).at_most(kMaxCount));
    key(eval_every, interval("eval_every", "1 epoch", "when data.val is evaluated"));
    key.switched(ema, "ema", "exponential average of the weights");
    key.switched(swa, "swa", "mean of the last weights");
    key.switched(lookahead, "lookahead", "slow weights");
    key(overfit_batches,
        integer("overfit_batches", nullptr, "train and evaluate only on this many batches, the first ones, in a fixed order")
            .at_least(1)
            .at_most(kMaxCount));
    key(early_stopping, optional_section("early_stopping", early_stopping_section(), "end when a value gets no better"));
    key(checkpoint_activations,
        list("checkpoint_activations", Json::array(), pattern("", nullptr, "a module's name"),
             "modules with matching paths keep only their input and are computed again in backward: less memory, more time; "
             "\"auto\": the plan chooses them")
            .items(0, 100)
            .or_one()
            .or_word("auto"));
    key(memory_budget, byte_count("memory_budget", nullptr,
                                  "largest peak of a training step; the plan chooses modules to compute again in backward, at "
                                  "the least operations"));
    key(detect_anomaly, boolean("detect_anomaly", false,
                                "explain the first step whose loss or gradients are not finite, and end with exit code 4 unless "
                                "only the loss scale was too high; on a GPU each step waits for the device"));
  }
};

// How a run handles a step that goes wrong (docs/diagnostics.md).
struct DiagnosticsSection {
  bool explain;
  Interval every;
  int64_t capsules, capsule_mb;

  void keys(auto& key) {
    key(explain, boolean("explain", true, "find the cause of skipped and broken steps as they happen"));
    key(every,
        interval(
            "every", "1000 steps",
            "when a step is observed and observed.jsonl gets a line: exponents of gradients, lost updates; in steps or epochs"));
    key(capsules, integer("capsules", 3, "number of explained steps that a run keeps, each in a file that `halfstep doctor` reads")
                      .at_least(0)
                      .at_most(1000));
    key(capsule_mb,
        integer("capsule_mb", 256, "largest size of such a file in MiB; instead of a larger state it has the name of a checkpoint")
            .at_least(0)
            .at_most(1 << 20));
  }
};

struct CheckpointSection {
  Interval every;
  int64_t keep_last, keep_best;
  std::string monitor, mode;  // the rules fill in omitted ones of these three
  std::optional<std::string> resume;

  void keys(auto& key) {
    key(every, interval("every", "1 epoch", "when to save; a finished run is always saved unless \"never\""));
    key(keep_last, integer("keep_last", 2, "newest checkpoints kept; 0: all").at_least(0).at_most(kMaxCount));
    key(keep_best, integer("keep_best", nullptr, "number of best checkpoints that are kept as well; default: 1 with data.val")
                       .at_least(0)
                       .at_most(kMaxCount));
    key(monitor, text("monitor", nullptr,
                      "value that decides which checkpoint is the best, of equal ones the latest: val/loss, val/ and a metric, or "
                      "train/loss; default: val/accuracy for classes. Shares within a standard error count as equal"));
    key(mode,
        choice("mode", nullptr, {"min", "max"},
               "whether larger or smaller values are better; default: max for accuracy, min for loss, and as the metric defines"));
    key(resume, text("resume", nullptr, "\"auto\" or a checkpoint, as for --resume"));
  }
};

struct LoggingSection {
  std::string level;
  Interval every;
  std::vector<std::string> sinks;
  std::optional<std::string> report;
  bool machine = true;

  void keys(auto& key) {
    key(level, choice("level", "info", {"debug", "info", "warn", "error", "off"}, "level of the library's messages"));
    key(every, interval("every", "50 steps", "when the loss is read and metrics.jsonl gets a line"));
    key(sinks, list("sinks", Json::array({"jsonl"}), choice("", nullptr, {"jsonl", "csv", "tensorboard"}, "a sink"),
                    "where metrics go: metrics.jsonl, metrics.csv, event files of TensorBoard")
                   .items(0, 3));
    key(machine, boolean("machine", true, "store host and command line in run.json"));
    key(report, choice("report", nullptr, {"html"},
                       "write report.html into the run's folder when the run ends, as `halfstep report` does"));
  }
};

struct PerformanceSection {
  bool tf32, cudnn_benchmark, threads_independent;
  int64_t cudnn_workspace;  // MiB
  std::optional<bool> cuda_graph;
  std::optional<bool> channels_last;

  void keys(auto& key) {
    key(tf32, boolean("tf32", false, "float32 matrix products of a GPU in TF32: faster, 10 bits of mantissa"));
    key(cuda_graph, boolean("cuda_graph", "auto", "replay recorded steps on a GPU; \"auto\": if that is faster").or_word("auto"));
    key(channels_last,
        boolean("channels_last", "auto",
                "the channels of a pixel are adjacent in memory: faster in 16 bits; \"auto\": on a CPU in bfloat16, for "
                "convolutions of 16 channels and more")
            .or_word("auto"));
    key(cudnn_benchmark, boolean("cudnn_benchmark", false,
                                 "time some of cuDNN's algorithms for a convolution and keep the fastest; last bits may differ"));
    key(cudnn_workspace, integer("cudnn_workspace", 256, "MiB of workspace that one call of cuDNN may use")
                             .at_least(0).at_most(1 << 20));
    key(threads_independent,
        boolean("threads_independent", false,
                "on a CPU the same bits on any number of threads: products and convolutions are cut by their shapes alone, which "
                "takes longer on one thread"));
    key.unread(not_yet("fused_optimizer", true, "an unfused optimizer"));
  }
};

// Options of ranks that train together (docs/distributed.md).
struct DistributedSection {
  std::string backend, wire, sum;
  double bucket_mb, timeout_s;
  int64_t max_blocks;
  bool shard_optimizer, sync_batch_norm;

  void keys(auto& key) {
    key(backend, choice("backend", "auto", {"auto", "host", "nccl", "mpi"},
                        "transport of gradients; auto: NCCL on GPUs if it can be opened, else the host, over MPI or Gloo "
                        "depending on the launcher; mpi: an old name of host"));
    key(bucket_mb,
        number("bucket_mb", 25.0, "size of the buckets of gradients in MB; the first bucket has 1 MB").above(0).at_most(1024));
    key(wire, choice("wire", "float32", {"float32", "bfloat16"},
                     "dtype of transfers; bfloat16 halves the bytes, and the sum in float32 is rounded once"));
    key(sum, choice("sum", "ordered", {"ordered", "library"},
                    "how GPUs sum gradients; ordered: in the order of the ranks, as one process that accumulates; library: in "
                    "NCCL's order"));
    key(max_blocks, integer("max_blocks", 16,
                            "blocks of threads (CTAs) that NCCL's kernels may occupy on a GPU, so that other kernels run beside "
                            "them; NCCL 2.17 or later")
                        .at_least(1)
                        .at_most(64));
    key(shard_optimizer, boolean("shard_optimizer", false,
                                 "each rank keeps the optimizer's states of its part of the parameters only, and updates that "
                                 "part (ZeRO, stage 1); no bit of the result changes"));
    key(timeout_s, number("timeout_s", 600.0, "the run ends if a rank does not answer for this time").above(0).at_most(1e6));
    key(sync_batch_norm, boolean("sync_batch_norm", false, "batch normalisation uses the statistics of all ranks' samples"));
  }
};

struct BenchSection {
  std::optional<std::vector<std::string>> arms;
  std::optional<int64_t> warmup, repeats;

  void keys(auto& key) {
    key(arms, list("arms", nullptr, choice("", nullptr, {"float32", "tf32", "bfloat16", "float16"}, "a precision"),
                   "precisions to compare; tf32 needs a GPU")
                  .items(1, 4));
    key(warmup, integer("warmup", nullptr, "first steps, not part of the medians").at_least(0).at_most(1 << 30));
    key(repeats, integer("repeats", nullptr, "number of runs of each arm").at_least(1).at_most(1 << 30));
  }
};

struct Sections {
  std::string name, output_dir;
  uint64_t seed;
  std::string generator, device_name;
  Json model, loss, metrics, optimizer, scheduler;
  AmpSection amp;
  DataSection data;
  TrainSection train;
  DiagnosticsSection diagnostics;
  CheckpointSection checkpoint;
  LoggingSection logging;
  PerformanceSection performance;
  DistributedSection distributed;
  BenchSection bench;

  void keys(auto& key) {
    key.unread(text("$schema", nullptr, "the JSON Schema, for editors"));
    key.unread(integer("version", 1, "version of the format").at_least(1).at_most(1));
    key.unread(text("extends", nullptr, "a config that this one changes, relative to this file"));
    key(name, text("name", nullptr, "name of the run; default: the name of the file"));
    key(output_dir, text("output_dir", "runs/${name}", "folder of the run"));
    key(seed, integer("seed", 0, "seed of weights, order and dropout").at_least(0).at_most(9e15));
    key(generator, choice("generator", "philox", {"philox", "mt19937"},
                          "kind of random numbers; \"mt19937\": those of PyTorch on a CPU, for weights, dropout and shuffling"));
    key(device_name, text("device", "auto", "auto, cpu, cuda or cuda:N"));
    key(model, component("model", module_family(), "the network").required());
    key(loss, component("loss", loss_family(), "loss to minimise").required());
    key(metrics, list("metrics", Json::array(), component("", metric_family(), "a metric"),
                      "what evaluations compute besides the loss; data with classes always has accuracy"));
    key(optimizer, component("optimizer", optimizer_family(), "updates the weights").required());
    key(scheduler, list("scheduler", nullptr, component("", scheduler_family(), "a schedule"),
                        "the learning rate over time; the schedules of a list follow one after the other")
                       .or_one()
                       .items(1, 20));
    key.switched(amp, "amp", "mixed precision; left out: off");
    key.section(data, "data", "data sets and loader");
    key.section(train, "train", "length of training, and what happens in a step");
    key.section(diagnostics, "diagnostics", "what is observed, and what is explained when a step goes wrong");
    key.section(checkpoint, "checkpoint", "checkpoints");
    key.section(logging, "logging", "logging and metrics");
    key.section(performance, "performance", "performance options");
    key.section(distributed, "distributed", "ranks that train together, started by mpirun");
    key.section(bench, "bench", "of `halfstep bench mlp --config`");
  }
};

// Returns the schema of the whole config.
const Section& root_schema();

// Reads a document, or its section "amp", that passed the schema.
Sections read_sections(const Json& config);

// Mixed precision as "device", "amp" and "train.guard" together define it.
struct MixedPrecision : ModelPrecision {
  Device device;
  GradScalerOptions scaler;
  bool calibrates_scale = false;  // amp.scaler.init_scale is "auto"; scaler.init_scale is its upper bound
};
// Reads a document whose "device" and "amp" have no errors; reads "train.guard" if it has none.
MixedPrecision mixed_precision(const Json& config);

// Parses a device; "auto" is cuda if there is one. Throws ConfigError for an unknown name.
Device named_device(const std::string& device);

}  // namespace halfstep::app
