// SPDX-License-Identifier: Apache-2.0
// A model that reads tokens and says what follows them: token by token where its layers allow it (layers/sequences/decode.h), else
// by computing the whole window again for each token.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/base/device.h"
#include "framework/base/dtype.h"
#include "layers/module/module.h"
#include "layers/sequences/decode.h"

namespace halfstep::app {

struct SequenceReaderOptions {
  int64_t seq_len = 0;     // tokens of a training sample
  int64_t vocabulary = 0;  // tokens are below it
  Device device{};
  AutocastOptions region{.enabled = false};  // of the model
  bool by_steps = true;        // false: never token by token
};

// Whether a model can read by steps is measured when the reader is made: on up to 128 tokens, in float32, all at once and in
// pieces; the scores must agree. So layers that a program has added are treated as those of the library.
//
// A model that keeps something for each position (keys and values of attention, or which position comes next) sees at most
// seq_len tokens, since it was trained on no more: when they are full, the later half of them is read again, and reading
// continues from there. A recurrent model sees everything.
class SequenceReader {
 public:
  // The model must outlive the reader, and be in evaluation mode. Throws ValueError for a model whose outputs are not [N, T,
  // vocabulary].
  SequenceReader(Module& model, const SequenceReaderOptions& options);

  void clear();  // as if nothing had been read
  // Reads further tokens, at least one, and returns the scores of the token after them: float32, one for each of the vocabulary.
  std::vector<float> read(std::span<const int64_t> tokens);

  bool by_steps() const { return mode_ == Mode::steps; }
  const std::string& why_not() const { return why_not_; }  // by steps: what the model said, or did; empty where it does
  int64_t context() const { return context_; }             // tokens that it sees at most; 0: all

 private:
  enum class Mode : uint8_t {
    steps,
    window,  // the last tokens again, for each new one
    fixed    // the same, and the model takes only seq_len tokens: others fill the window behind them
  };
  void find_mode();
  void try_steps(const std::vector<int64_t>& tokens, const Tensor& whole);
  Tensor call(std::span<const int64_t> tokens, const AutocastOptions& region);
  Tensor call_alone(std::span<const int64_t> tokens, const AutocastOptions& region);
  Tensor read_step(int64_t count);
  Tensor read_window();

  Module& model_;
  SequenceReaderOptions options_;
  Mode mode_ = Mode::steps;
  std::string why_not_;
  int64_t context_ = 0;
  DecodeCache cache_;
  std::vector<int64_t> seen_;  // of the tokens so far the last ones, as many as can be needed again
};

}  // namespace halfstep::app
