// SPDX-License-Identifier: Apache-2.0
#include "apps/schema/suggest.h"

#include <algorithm>
#include <utility>

#include "framework/base/list_text.h"

namespace halfstep::app {
namespace {

// Other trainers' names of our keys and types. A word may have several meanings; the one allowed in its place counts.
// clang-format off
constexpr std::pair<std::string_view, std::string_view> kSynonyms[] = {
    {"otype", "type"}, {"class", "type"}, {"kind", "type"}, {"class_path", "type"}, {"_target_", "type"}, {"learning_rate", "lr"},
    {"base_lr", "lr"}, {"step_size", "lr"}, {"alpha", "lr"}, {"l2_reg", "weight_decay"}, {"l2", "weight_decay"},
    {"wd", "weight_decay"}, {"decay", "weight_decay"}, {"beta1", "betas"}, {"beta2", "betas"}, {"epsilon", "eps"},
    {"use_nesterov", "nesterov"}, {"batchsize", "batch_size"}, {"batch", "batch_size"}, {"bs", "batch_size"},
    {"mini_batch_size", "batch_size"}, {"train_batch_size", "batch_size"}, {"samples_per_gpu", "batch_size"},
    {"micro_batch_size", "batch_size"}, {"num_epochs", "epochs"}, {"n_epochs", "epochs"}, {"max_epochs", "epochs"},
    {"nb_epochs", "epochs"}, {"num_train_epochs", "epochs"}, {"max_iter", "max_steps"}, {"max_iters", "max_steps"},
    {"max_batches", "max_steps"}, {"num_steps", "max_steps"}, {"total_steps", "max_steps"}, {"steps", "max_steps"},
    {"iterations", "max_steps"}, {"gradient_accumulation_steps", "accumulate_steps"},
    {"accumulate_grad_batches", "accumulate_steps"}, {"iter_size", "accumulate_steps"}, {"subdivisions", "accumulate_steps"},
    {"gradient_clip_val", "clip_grad_norm"}, {"clip_gradients", "clip_grad_norm"}, {"max_grad_norm", "clip_grad_norm"},
    {"grad_clip", "clip_grad_norm"}, {"clip_norm", "clip_grad_norm"}, {"clip_value", "clip_grad_value"},
    {"limit_train_batches", "limit_batches"}, {"overfit_batches", "limit_batches"}, {"val_check_interval", "eval_every"},
    {"eval_interval", "eval_every"}, {"test_interval", "eval_every"}, {"criterion", "loss"}, {"loss_fn", "loss"},
    {"objective", "loss"}, {"network", "model"}, {"net", "model"}, {"arch", "model"}, {"architecture", "model"},
    {"opt", "optimizer"}, {"optim", "optimizer"}, {"solver", "optimizer"}, {"optimiser", "optimizer"},
    {"lr_scheduler", "scheduler"}, {"schedule", "scheduler"}, {"lr_policy", "scheduler"}, {"policy", "scheduler"},
    {"precision", "amp"}, {"mixed_precision", "amp"}, {"fp16", "amp"}, {"bf16", "amp"}, {"autocast", "amp"},
    {"grad_scaler", "scaler"}, {"loss_scaler", "scaler"}, {"loss_scale", "init_scale"}, {"initial_scale", "init_scale"},
    {"initial_scale_power", "init_scale"}, {"scale_factor", "growth_factor"}, {"scale_window", "growth_interval"},
    {"loss_scale_window", "growth_interval"}, {"dataset", "data"}, {"datasets", "data"}, {"valid", "val"}, {"validation", "val"},
    {"dev", "val"}, {"dataloader", "loader"}, {"data_loader", "loader"}, {"workers", "num_workers"}, {"n_workers", "num_workers"},
    {"num_threads", "num_workers"}, {"prefetch_factor", "prefetch"}, {"data_dir", "root"}, {"dir", "root"}, {"source", "path"},
    {"file", "path"}, {"filename", "path"}, {"label", "target"}, {"y", "target"}, {"sep", "delimiter"}, {"delim", "delimiter"},
    {"columns", "features"}, {"usecols", "features"}, {"drop", "exclude"}, {"drop_columns", "exclude"},
    {"ignore_columns", "exclude"}, {"parse_dates", "dates"}, {"date_columns", "dates"}, {"date_format", "date_order"},
    {"dayfirst", "date_order"}, {"na_values", "missing_words"}, {"stratify", "stratified"}, {"class_weight", "weight"},
    {"class_weights", "weight"}, {"normalize", "standardize"}, {"normalize", "transforms"}, {"normalise", "transforms"},
    {"transform", "transforms"},
    {"input_dim", "in_features"}, {"in_dim", "in_features"}, {"n_input_dims", "in_features"}, {"input_size", "in_features"},
    {"num_output", "out_features"}, {"units", "out_features"}, {"output_dim", "out_features"}, {"out_dim", "out_features"},
    {"n_output_dims", "out_features"}, {"output", "out_features"}, {"use_bias", "bias"}, {"bias_term", "bias"},
    {"hidden_sizes", "hidden"}, {"hidden_dims", "hidden"}, {"hidden_layers", "hidden"}, {"n_neurons", "hidden"},
    {"act", "activation"}, {"nonlinearity", "activation"}, {"modules", "layers"}, {"rate", "p"}, {"prob", "p"},
    {"dropout_ratio", "p"}, {"random_seed", "seed"}, {"manual_seed", "seed"}, {"work_dir", "output_dir"},
    {"out_dir", "output_dir"}, {"save_dir", "output_dir"}, {"default_root_dir", "output_dir"}, {"_base_", "extends"},
    {"base", "extends"}, {"include", "extends"}, {"accelerator", "device"}, {"gpu", "device"}, {"t_max", "T_max"},
    {"decay_steps", "T_max"}, {"min_lr", "eta_min"}, {"warmup", "warmup_steps"}, {"warmup_iters", "warmup_steps"},
    {"stepsize", "step_size"}, {"decay_rate", "gamma"}, {"save_every", "every"}, {"interval", "every"}, {"frequency", "every"},
    {"every_n_train_steps", "every"}, {"snapshot", "every"}, {"display", "every"}, {"save_top_k", "keep_best"},
    {"save_total_limit", "keep_last"}, {"max_keep_ckpts", "keep_last"}, {"metric", "monitor"}, {"smoothing", "label_smoothing"},
    {"Dense", "Linear"}, {"InnerProduct", "Linear"}, {"FullyConnected", "Linear"}, {"FC", "Linear"}, {"connected", "Linear"},
    {"FullyFusedMLP", "MLP"}, {"CutlassMLP", "MLP"}, {"Swish", "SiLU"}, {"None", "Identity"}, {"Relu", "ReLU"},
    {"Reshape", "Flatten"}, {"CrossEntropy", "CrossEntropyLoss"}, {"SoftmaxWithLoss", "CrossEntropyLoss"},
    {"NLLLoss", "CrossEntropyLoss"}, {"SparseCategoricalCrossentropy", "CrossEntropyLoss"}, {"MSE", "MSELoss"}, {"L2", "MSELoss"},
    {"EuclideanLoss", "MSELoss"}, {"MeanSquaredError", "MSELoss"}, {"Cosine", "CosineAnnealingLR"},
    {"CosineDecay", "CosineAnnealingLR"}, {"Step", "StepLR"}, {"Synthetic", "Random"}, {"Tabular", "CSV"}, {"half", "float16"},
    {"f16", "float16"}, {"fp16", "float16"}, {"16-mixed", "float16"}, {"f32", "float32"}, {"fp32", "float32"}, {"bf16", "bfloat16"},
    {"bf16-mixed", "bfloat16"}, {"brainfloat16", "bfloat16"}, {"float", "float32"}, {"single", "float32"}, {"full", "float32"},
    {"float32", "f32"}, {"fp32", "f32"}, {"lower", "low"}, {"lower_precision_fp", "low"}, {"float16", "low"}, {"bfloat16", "low"},
    {"half", "low"}, {"fp16", "low"}, {"bf16", "low"}, {"fp32_set_opt_dtype", "f32_output"},
    {"gpu", "cuda"}, {"maximize", "max"}, {"minimize", "min"}, {"top1", "accuracy"}, {"acc", "accuracy"},
    {"gradient_accumulation", "accumulate_steps"}, {"gradient_clipping", "clip_grad_norm"}, {"missing_values", "missing"},
    {"augmentation", "transforms"}, {"augmentations", "transforms"}, {"kfold", "fold"}, {"k_fold", "fold"},
    {"cross_validation", "fold"},
};
// Keys of ours that mean the same in another schedule.
constexpr std::pair<std::string_view, std::string_view> kLike[] = {
    {"step_size", "milestones"}, {"factor", "gamma"}, {"gamma", "factor"}, {"T_max", "total_steps"}, {"T_max", "total_iters"},
    {"T_max", "T_0"}, {"T_0", "T_max"}, {"total_steps", "T_max"}, {"total_steps", "total_iters"}, {"total_iters", "T_max"},
    {"total_iters", "total_steps"}, {"eta_min", "min_lr"},
};
// clang-format on

bool same_word(std::string_view a, std::string_view b) { return lower_case(a) == lower_case(b); }

}  // namespace

std::string suggest(std::string_view word, const std::vector<std::string>& candidates) {
  const auto is_candidate = [&](std::string_view w) {
    return std::find(candidates.begin(), candidates.end(), w) != candidates.end();
  };
  for (const std::string& c : candidates) {
    if (same_word(c, word)) return c;
  }
  for (const auto& [other, ours] : kSynonyms) {
    if (same_word(other, word) && is_candidate(ours)) return std::string(ours);
  }
  for (const auto& [other, ours] : kLike) {
    if (other == word && is_candidate(ours)) return std::string(ours);
  }
  return nearest_name(word, candidates);
}

std::vector<std::string> other_names(std::string_view name) {
  std::vector<std::string> out;
  for (const auto& [other, ours] : kSynonyms)
    if (ours == name) out.emplace_back(other);
  return out;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string found = suggest(word, candidates);
  return found.empty() ? "" : "; did you mean \"" + found + "\"?";
}

}  // namespace halfstep::app
