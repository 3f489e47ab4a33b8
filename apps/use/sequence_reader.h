// SPDX-License-Identifier: Apache-2.0
// Reads tokens with a language model: token by token if its layers allow it (layers/sequences/decode.h), else by computing the
// whole window again for each token.
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
  int64_t seq_len = 0;     // tokens in a training sample
  int64_t vocabulary = 0;  // number of tokens
  Device device{};
  AutocastOptions region{.enabled = false};  // of the model
  bool by_steps = true;                      // false: never read token by token
};

// The constructor measures whether the model can read token by token: it compares the scores of up to 128 tokens, in float32, read
// at once and in pieces. So layers that a program adds are treated like the library's.
//
// A model that keeps something for each position (keys and values of attention, or the next position) sees at most seq_len tokens,
// since it was trained on no more: when they are full, it reads the later half again, and continues from there. A recurrent model
// sees everything.
class SequenceReader {
 public:
  // The model must outlive the reader, and be in evaluation mode. Throws ValueError for a model whose outputs are not [N, T,
  // vocabulary].
  SequenceReader(Module& model, const SequenceReaderOptions& options);

  void clear();  // forgets all tokens
  // Reads further tokens, at least one, and returns the scores of the next token: float32, one for each in the vocabulary.
  std::vector<float> read(std::span<const int64_t> tokens);

  bool by_steps() const { return mode_ == Mode::steps; }
  const std::string& why_not() const { return why_not_; }  // the model's error or result; empty if it reads token by token
  int64_t context() const { return context_; }             // most tokens that it sees; 0: no limit

 private:
  enum class Mode : uint8_t {
    steps,
    window,  // reads the last tokens again for each new one
    fixed    // the same, for a model that takes only seq_len tokens: padding follows them
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
  std::vector<int64_t> tokens_;  // the last tokens, as many as may be needed again
};

}  // namespace halfstep::app
