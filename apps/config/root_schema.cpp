// Every key of a config but those of the components, which the catalogues hold.
#include "apps/config/root_schema.h"

#include "apps/catalog/datasets.h"
#include "apps/catalog/losses.h"
#include "apps/catalog/modules.h"
#include "apps/catalog/optimizers.h"

namespace halfstep::app {
namespace {

Field with_default(Field f, Json fallback) {
  f.fallback = std::move(fallback);
  return f;
}
Field switch_section(std::string key, const Section& s, std::string doc) {
  Field f = with_default(optional_section(std::move(key), s, std::move(doc)), false);
  f.switchable = true;
  return f;
}

const Section& scaler_section() {
  static const Section s{"scaler",
                         {number("init_scale", 65536.0, "first loss scale").above(0),
                          number("growth_factor", 2.0, "after growth_interval clean steps").above(1),
                          number("backoff_factor", 0.5, "after a skipped step").above(0).below(1),
                          integer("growth_interval", 2000, "clean steps").at_least(1).at_most(kMaxCount),
                          boolean("enabled", "auto", "\"auto\": for float16").or_word("auto")}};
  return s;
}

const Section& amp_section() {
  static const Section s{"amp",
                         {boolean("enabled", true, "mixed precision"),
                          choice("dtype", "auto", {"auto", "float16", "bfloat16"}, "\"auto\": float16 on cuda, bfloat16 on cpu"),
                          section("scaler", scaler_section(), "the gradient scaler"),
                          boolean("report", false, "print casts, skipped steps and the scale at the end"),
                          not_yet("policy", nullptr, "amp.policy"), not_yet("modules", nullptr, "amp.modules")}};
  return s;
}

const Section& loader_section() {
  static const Section s{"loader",
                         {integer("batch_size", 32, "samples").at_least(1).at_most(kMaxCount),
                          boolean("shuffle", true, "of the training data, seeded"),
                          boolean("drop_last", false, "leave out a last batch that is not full"),
                          integer("num_workers", 0, "background threads").at_least(0).at_most(256),
                          integer("prefetch", 2, "batches made ahead by workers").at_least(1).at_most(kMaxCount),
                          not_yet("pin_memory", false, "pin_memory"), not_yet("stateful", false, "stateful")}};
  return s;
}

const Section& data_section() {
  static const Section s{
      "data",
      {text("root", "data", "folder of all splits"), component("train", dataset_family(), "the training data").required(),
       component("val", dataset_family(), "held-out data, evaluated while training"),
       component("test", dataset_family(), "held-out data for `halfstep eval`"),
       section("loader", loader_section(), "how batches are made")}};
  return s;
}

const Section& train_section() {
  static const Section s{
      "train",
      {integer("epochs", nullptr, "passes over the data").at_least(1).at_most(kMaxCount),
       integer("max_steps", nullptr, "optimizer steps").at_least(1).at_most(kMaxCount),
       integer("accumulate_steps", 1, "batches an optimizer step").at_least(1).at_most(kMaxCount),
       number("clip_grad_norm", nullptr, "bound of the norm over all gradients").above(0),
       number("clip_grad_value", nullptr, "bound of each gradient element").above(0),
       boolean("deterministic", true, "the same bits in every run"),
       integer("limit_batches", nullptr, "batches an epoch, at most").at_least(1).at_most(kMaxCount),
       interval("eval_every", "1 epoch", "when data.val is evaluated"), not_yet("ema", nullptr, "ema"),
       not_yet("early_stopping", nullptr, "early_stopping"), not_yet("checkpoint_activations", false, "checkpoint_activations"),
       not_yet("detect_anomaly", false, "detect_anomaly")}};
  return s;
}

const Section& checkpoint_section() {
  static const Section s{"checkpoint",
                         {interval("every", "1 epoch", "when to save; a finished run is always saved unless \"never\""),
                          integer("keep_last", 2, "newest checkpoints kept; 0: all").at_least(0).at_most(kMaxCount),
                          integer("keep_best", nullptr, "1: keep the best too; left out: 1 with data.val").at_least(0).at_most(1),
                          choice("monitor", nullptr, {"val/loss", "val/accuracy", "train/loss"},
                                 "what best means; left out: val/accuracy for classes"),
                          choice("mode", nullptr, {"min", "max"}, "left out: max for accuracy, min for loss"),
                          text("resume", nullptr, "\"auto\" or a checkpoint; as --resume")}};
  return s;
}

const Section& logging_section() {
  static const Section s{
      "logging",
      {choice("level", "info", {"debug", "info", "warn", "error", "off"}, "of the library's messages"),
       interval("every", "50 steps", "when the loss is read and metrics.jsonl gets a line"),
       list("sinks", Json::array({"jsonl"}), choice("", nullptr, {"jsonl"}, "a sink"), "where metrics go").items(0, 1),
       not_yet("report", nullptr, "report")}};
  return s;
}

const Section& performance_section() {
  static const Section s{"performance",
                         {boolean("tf32", false, "float32 matrix products of a GPU in TF32: faster, 10 bits of mantissa"),
                          boolean("cuda_graph", "auto", "replay recorded steps on a GPU; \"auto\": where it is faster").or_word("auto"),
                          not_yet("cudnn_benchmark", false, "cudnn_benchmark"),
                          not_yet("channels_last", false, "channels_last"),
                          not_yet("fused_optimizer", true, "an unfused optimizer"), not_yet("profile", false, "profile")}};
  return s;
}

const Section& bench_section() {
  static const Section s{"bench",
                         {list("arms", nullptr, choice("", nullptr, {"float32", "tf32", "bfloat16", "float16"}, "a precision"),
                               "what is compared; tf32 needs a GPU")
                              .items(1, 4),
                          integer("warmup", nullptr, "first steps that the medians leave out").at_least(0).at_most(1 << 30),
                          integer("repeats", nullptr, "runs an arm").at_least(1).at_most(1 << 30)}};
  return s;
}

}  // namespace

const Section& root_schema() {
  static const Section s{"",
                         {text("$schema", nullptr, "for editors"),
                          integer("version", 1, "of the format").at_least(1).at_most(1),
                          text("extends", nullptr, "a config that this one changes, relative to this file"),
                          text("name", nullptr, "of the run; left out: the file's"),
                          text("output_dir", "runs/${name}", "folder of the run"),
                          integer("seed", 0, "of weights, order and dropout").at_least(0).at_most(9e15),
                          text("device", "auto", "auto, cpu, cuda or cuda:N"),
                          component("model", module_family(), "the network").required(),
                          component("loss", loss_family(), "what is made small").required(),
                          list("metrics", Json::array(), choice("", nullptr, {"accuracy"}, "a metric"),
                               "besides the loss; accuracy is always there for classes"),
                          component("optimizer", optimizer_family(), "what changes the weights").required(),
                          component("scheduler", scheduler_family(), "the learning rate over time"),
                          switch_section("amp", amp_section(), "mixed precision; left out: off"),
                          section("data", data_section(), "what is learned"),
                          section("train", train_section(), "how long"),
                          section("checkpoint", checkpoint_section(), "what is kept"),
                          section("logging", logging_section(), "what is told"),
                          section("performance", performance_section(), "switches"),
                          not_yet("distributed", nullptr, "distributed training"),
                          section("bench", bench_section(), "of `halfstep bench mlp --config`")}};
  return s;
}

}  // namespace halfstep::app
