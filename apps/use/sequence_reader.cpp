// SPDX-License-Identifier: Apache-2.0
#include "apps/use/sequence_reader.h"

#include <algorithm>

#include "amp/autocast/autocast.h"
#include "apps/catalog/infer.h"
#include "framework/autograd/grad_mode.h"
#include "framework/math/random.h"
#include "framework/ops/ops.h"
#include "layers/sequences/recurrent.h"

namespace halfstep::app {
namespace {

constexpr const char* kReader = "generate";
constexpr int64_t kTrialTokens = 128;
constexpr double kMostError = 1e-3;  // of a trial, as a share of the largest score; other orders of sums change it by 1e-6
const AutocastOptions kInFloat32{.enabled = false};
constexpr int64_t kLongestPiece = 512;  // tokens of a prompt that models without a window read at once

}  // namespace

SequenceReader::SequenceReader(Module& model, const SequenceReaderOptions& options) : model_(model), options_(options) {
  check<ValueError>(options.seq_len >= 1 && options.vocabulary >= 1, kReader, "seq_len and vocabulary must be at least 1, got ",
                    options.seq_len, " and ", options.vocabulary);
  find_mode();
}

// Returns the model's scores, [T, vocabulary].
Tensor SequenceReader::call(std::span<const int64_t> tokens, const AutocastOptions& region) {
  const NoGrad off;
  const Tensor x = from_vector(std::vector<int64_t>(tokens.begin(), tokens.end()), {1, int64_t(tokens.size())}, Device::cpu);
  const Autocast open(options_.device, region);
  const Tensor y = model_(x.to(options_.device));
  check<ValueError>(y.dim() == 3 && y.size(1) == int64_t(tokens.size()) && y.size(2) == options_.vocabulary, kReader,
                    "the model must give a score for each token at every position, ",
                    Shape{1, int64_t(tokens.size()), options_.vocabulary}, ", but gives ", y.shape());
  return y.select(0, 0);
}

// Calls the model outside a pass, with fresh states of stateful layers.
Tensor SequenceReader::call_alone(std::span<const int64_t> tokens, const AutocastOptions& region) {
  const FreshStates fresh(model_);
  return call(tokens, region);
}

// Compares a trial read at once with one read in steps. Steps are used if the scores agree; a fixed length, if the model takes no
// other.
void SequenceReader::find_mode() {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < std::clamp<int64_t>(options_.seq_len, 2, kTrialTokens); ++i)
    tokens.push_back(int64_t(math::random_bits(0, 0, uint64_t(i))) % options_.vocabulary);
  mode_ = Mode::window;
  context_ = options_.seq_len;
  try {
    const Tensor at_once = call_alone(tokens, kInFloat32).to(DType::f32);
    if (options_.by_steps) try_steps(tokens, at_once);
    if (mode_ == Mode::window && options_.seq_len > 1) call_alone(std::span(tokens).first(1), kInFloat32);
  } catch (const ShapeError& e) {
    mode_ = Mode::fixed;
    why_not_ = one_line(e);
  }
  cache_.clear();
}

// Reads the trial as half of it, two single tokens and the rest. Sets the mode to steps, or why_not_.
void SequenceReader::try_steps(const std::vector<int64_t>& tokens, const Tensor& at_once) {
  const std::span<const int64_t> all = tokens;
  const size_t half = all.size() / 2;
  Tensors parts;
  try {
    for (size_t at = 0; at < all.size();) {
      const size_t count = at == 0 ? half : at < half + 2 ? 1 : all.size() - at;
      const DecodeScope pass(cache_);
      parts.push_back(call(all.subspan(at, count), kInFloat32).to(DType::f32));
      at += count;
    }
  } catch (const ValueError& e) { why_not_ = one_line(e); } catch (const ShapeError& e) {
    why_not_ = one_line(e);
  }
  if (!why_not_.empty()) return;
  const double largest = at_once.abs().max().item<double>(), error = (cat(parts, 0) - at_once).abs().max().item<double>();
  if (error <= kMostError * largest) {  // false for NaN
    mode_ = Mode::steps;
    context_ = cache_.positions() > 0 ? options_.seq_len : 0;
  } else {
    why_not_ = "the scores of a position depend on others in a way that is not causal attention or a recurrent layer";
  }
}

void SequenceReader::clear() {
  cache_.clear();
  tokens_.clear();
}

std::vector<float> SequenceReader::read(std::span<const int64_t> tokens) {
  check<ValueError>(!tokens.empty(), kReader, "needs a token to read");
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  const Tensor scores = by_steps() ? read_step(int64_t(tokens.size())) : read_window();
  // Drop old tokens at times: at most a window is needed again.
  const size_t needed = size_t(std::max(context_, int64_t(1)));
  if (tokens_.size() > 2 * needed) tokens_.erase(tokens_.begin(), tokens_.end() - int64_t(needed));
  return scores.to(DType::f32).cpu().to_vector<float>();
}

// Reads the last `count` tokens; if the cache is full, first clears it and reads up to half of a window again.
Tensor SequenceReader::read_step(int64_t count) {
  const int64_t stored = int64_t(tokens_.size());
  int64_t fresh = count, most = std::max(options_.seq_len, kLongestPiece);
  if (context_ > 0 && cache_.positions() + count > context_) {
    cache_.clear();
    fresh = std::min({stored, context_, std::max(count, context_ / 2)});
    if (fresh < 1) fresh = 1;
    most = context_;
  }
  Tensor y;
  for (int64_t at = stored - fresh; at < stored;) {
    const int64_t length = std::min(most, stored - at);
    const DecodeScope pass(cache_);
    y = call(std::span(tokens_).subspan(size_t(at), size_t(length)), options_.region);
    y = y.select(0, length - 1);
    at += length;
  }
  return y;
}

// Reads the last window of tokens anew; for a fixed length fills it up with zeros.
Tensor SequenceReader::read_window() {
  const size_t count = std::min(tokens_.size(), size_t(context_));
  std::vector<int64_t> window(tokens_.end() - int64_t(count), tokens_.end());
  if (mode_ == Mode::fixed) window.resize(size_t(options_.seq_len), 0);
  return call_alone(window, options_.region).select(0, int64_t(count) - 1);
}

}  // namespace halfstep::app
