// SPDX-License-Identifier: Apache-2.0
// Recurrent layers (framework/ops/recurrent/recurrent.h has the formulas, shapes of weights and the order of gates).
//
//   LSTM lstm(28, 64, {.num_layers = 2, .batch_first = true});
//   auto [output, state] = lstm(x);                    // [N, T, 64]; state.h and state.c: [2, N, 64]
//   auto [more, last] = lstm(next, state);             // continues where it stopped
//   auto [ragged, ends] = lstm(x, {}, {5, 2, 0, 3});   // sequences of these lengths: zeros after each, states at its last step
//   auto [packed, end] = lstm(pack_padded_sequence(x, {5, 2}, true));
//
// x: [T, N, input_size], [N, T, input_size] with batch_first, or [T, input_size]: one sequence. The output has, of the last layer,
// the states of all steps, of both directions side by side; H = hidden_size (proj_size where there are projections). A state is
// [num_layers D, N, H] with D = 2 directions if bidirectional, without N for one sequence; where none is given it is zero.
//
// Parameters, as in PyTorch, of layer k: weight_ih_lk, weight_hh_lk, bias_ih_lk and bias_hh_lk, weight_hr_lk, and the same with
// _reverse; all from U(-b, b), b = 1/sqrt(hidden_size). Throws ValueError for arguments outside their domain and lengths beyond the
// sequence, ShapeError for inputs and states that do not fit.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "layers/module/layer.h"
#include "layers/sequences/packed_sequence.h"

namespace halfstep {

// output: the result of the layer in a Sequential or a config, where it takes only x: the "sequence", or "last", the state of the
// last layer after the last step, of both directions side by side.
//
// stateful: without a given state the layer continues from the last state of the call before, detached, so that batches that
// continue each other are read as one long sequence; no gradient flows from a batch to the one before. The state starts at zero,
// and again after reset_states(). It is not part of the state_dict, but of a run that amp/step/run_state.h saves. Throws ValueError
// when bidirectional, and ShapeError for a batch of another size than the one before. Not for use inside checkpoint(), whose second
// forward would advance the state again.
struct RNNOptions {
  int64_t num_layers = 1;
  std::string nonlinearity = "tanh";
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;
  bool bidirectional = false;
  std::string output = "sequence";
  bool stateful = false;
  static const OptionList<RNNOptions>& list();
};
struct GRUOptions {
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;
  bool bidirectional = false;
  std::string output = "sequence";
  bool stateful = false;
  static const OptionList<GRUOptions>& list();
};
struct LSTMOptions {
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;
  bool bidirectional = false;
  int64_t proj_size = 0;
  std::string output = "sequence";
  bool stateful = false;
  static const OptionList<LSTMOptions>& list();
};
// What all three have in common.
class RecurrentLayer : public Module {
 public:
  RecurrentLayer(const RecurrentLayer& other);
  RecurrentLayer(RecurrentLayer&&) noexcept = default;
  RecurrentLayer& operator=(RecurrentLayer&&) = default;
  Tensor forward(const Tensor& x) override;
  bool is_recordable() const override { return true; }
  std::string describe() const override;
  bool stateful() const { return options_.stateful; }
  int64_t input_size() const { return input_size_; }
  int64_t hidden_size() const { return hidden_size_; }
  int64_t num_layers() const { return options_.num_layers; }

  // The state that a stateful layer continues from; undefined before its first call. c: of an LSTM.
  struct Kept {
    Tensor h, c;
    bool begins = true;  // nothing has been read since reset_states()
  };
  Kept& kept() { return kept_; }

 protected:
  enum class Kind : uint8_t { rnn_tanh, rnn_relu, lstm, gru };
  RecurrentLayer(const char* type, Kind kind, int64_t input_size, int64_t hidden_size, const LSTMOptions& options,
                 Generator* generator);
  struct Result {
    Tensor output, h, c;
  };
  Result compute(const Tensor& x, const Tensor& h, const Tensor& c, const std::vector<int64_t>& lengths);
  Result compute(const PackedSequence& x, const Tensor& h, const Tensor& c);

 private:
  Result call_op(const Tensor& x, const Tensor& h, const Tensor& c, const std::vector<int64_t>& batch_sizes);
  Result go_on(const Tensor& x, Kept& kept);
  Tensors weights() const;
  const char* type_;
  Kind kind_;
  int64_t input_size_, hidden_size_;
  LSTMOptions options_;
  std::shared_ptr<PackedWeights> packed_;
  Kept kept_;
};

// The stateful layers in `module`, itself included, and their names: "" is the module itself.
std::vector<std::pair<std::string, RecurrentLayer*>> stateful_layers(Module& module);

// The states that the stateful layers in `module` would continue from, by the names of layers: "lstm.h", "lstm.c". Copies.
StateDict kept_states(Module& module);
// Puts them back; layers that are not named begin at zero. Throws ValueError for a name that no stateful layer has, before
// anything is changed.
void set_kept_states(Module& module, const StateDict& states);
// All begin at zero: where a pass over the data does. Keeps the memory.
void reset_states(Module& module);

// For a pass over other data: the layers begin at zero, and at the end of the scope get back the states that they had before it.
class FreshStates {
 public:
  [[nodiscard]] explicit FreshStates(Module& module);
  ~FreshStates();
  FreshStates(const FreshStates&) = delete;

 private:
  std::vector<std::pair<RecurrentLayer*, RecurrentLayer::Kept>> before_;
};

// RNN and GRU, whose state is one tensor.
class OneStateLayer : public RecurrentLayer {
 public:
  struct Output {
    Tensor output, state;
    operator std::tuple<Tensor&, Tensor&>() { return {output, state}; }  // std::tie(y, h) = gru(x, h)
    template <class F>
    void each_tensor(F&& f) {
      f(output);
      f(state);
    }
  };
  struct PackedOutput {
    PackedSequence output;
    Tensor state;
    template <class F>
    void each_tensor(F&& f) {
      output.each_tensor(f);
      f(state);
    }
  };
  using RecurrentLayer::forward;
  Output forward(const Tensor& x, const Tensor& state, const std::vector<int64_t>& lengths);
  PackedOutput forward(const PackedSequence& x, const Tensor& state);
  // forward with its hooks.
  Output operator()(const Tensor& x, const Tensor& state = {}, const std::vector<int64_t>& lengths = {});
  PackedOutput operator()(const PackedSequence& x, const Tensor& state = {});

 protected:
  using RecurrentLayer::RecurrentLayer;
};

// h' = tanh(x W_ih^T + b_ih + h W_hh^T + b_hh), or its ReLU.
class RNN : public OneStateLayer {
 public:
  using Options = RNNOptions;
  static constexpr const char* kName = "RNN";
  using Call = Output(const Tensor&, const Tensor&, const std::vector<int64_t>&);
  RNN(Whole input_size, Whole hidden_size, const RNNOptions& options = {}, Generator* generator = nullptr);
  RNN(Whole input_size, Whole hidden_size, Whole num_layers, const RNNOptions& rest = {})
      : RNN(input_size, hidden_size, with_option(rest, "num_layers", &Options::num_layers, int64_t(num_layers))) {}
};

// r, z, n: n = tanh(x_n + sigmoid(r) h_n), h' = (1 - sigmoid(z)) n + sigmoid(z) h.
class GRU : public OneStateLayer {
 public:
  using Options = GRUOptions;
  static constexpr const char* kName = "GRU";
  using Call = Output(const Tensor&, const Tensor&, const std::vector<int64_t>&);
  GRU(Whole input_size, Whole hidden_size, const GRUOptions& options = {}, Generator* generator = nullptr);
  GRU(Whole input_size, Whole hidden_size, Whole num_layers, const GRUOptions& rest = {})
      : GRU(input_size, hidden_size, with_option(rest, "num_layers", &Options::num_layers, int64_t(num_layers))) {}
};

struct LSTMState {
  Tensor h, c;
  template <class F>
  void each_tensor(F&& f) {
    f(h);
    f(c);
  }
};

// i, f, g, o: c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c'), times W_hr^T where there are projections.
class LSTM : public RecurrentLayer {
 public:
  using Options = LSTMOptions;
  static constexpr const char* kName = "LSTM";
  using State = LSTMState;
  struct Output {
    Tensor output;
    State state;
    operator std::tuple<Tensor&, State&>() { return {output, state}; }  // std::tie(y, state) = lstm(x, state)
    template <class F>
    void each_tensor(F&& f) {
      f(output);
      state.each_tensor(f);
    }
  };
  struct PackedOutput {
    PackedSequence output;
    State state;
    template <class F>
    void each_tensor(F&& f) {
      output.each_tensor(f);
      state.each_tensor(f);
    }
  };
  using Call = Output(const Tensor&, const State&, const std::vector<int64_t>&);
  LSTM(Whole input_size, Whole hidden_size, const LSTMOptions& options = {}, Generator* generator = nullptr);
  LSTM(Whole input_size, Whole hidden_size, Whole num_layers, const LSTMOptions& rest = {})
      : LSTM(input_size, hidden_size, with_option(rest, "num_layers", &Options::num_layers, int64_t(num_layers))) {}
  using RecurrentLayer::forward;
  Output forward(const Tensor& x, const State& state, const std::vector<int64_t>& lengths);
  PackedOutput forward(const PackedSequence& x, const State& state);
  Output operator()(const Tensor& x, const State& state = {}, const std::vector<int64_t>& lengths = {});
  PackedOutput operator()(const PackedSequence& x, const State& state = {});
};

// ---- One step: x [N, input_size] or [input_size]; a state that is not given is zero. Parameters weight_ih, weight_hh, bias_ih and
// bias_hh, from U(-b, b), b = 1/sqrt(hidden_size). In a Sequential or a config: one step from zero.
struct RNNCellOptions {
  bool bias = true;
  std::string nonlinearity = "tanh";
  static const OptionList<RNNCellOptions>& list();
};

struct GRUCellOptions {
  bool bias = true;
  static const OptionList<GRUCellOptions>& list();
};
struct LSTMCellOptions {
  bool bias = true;
  static const OptionList<LSTMCellOptions>& list();
};

class RecurrentCell : public Module {
 public:
  bool is_recordable() const override { return true; }
  std::string describe() const override;
  Parameter weight_ih, weight_hh, bias_ih, bias_hh;  // biases undefined without

 protected:
  RecurrentCell(const char* type, int64_t gates, int64_t input_size, int64_t hidden_size, const RNNCellOptions& options,
                Generator* generator);
  const char* type_;
  RNNCellOptions options_;
};

class RNNCell : public RecurrentCell {
 public:
  using Options = RNNCellOptions;
  static constexpr const char* kName = "RNNCell";
  RNNCell(Whole input_size, Whole hidden_size, const RNNCellOptions& options = {}, Generator* generator = nullptr);
  Tensor forward(const Tensor& x) override { return forward(x, Tensor()); }
  Tensor forward(const Tensor& x, const Tensor& h);
  Tensor operator()(const Tensor& x, const Tensor& h = {});
};

class GRUCell : public RecurrentCell {
 public:
  using Options = GRUCellOptions;
  static constexpr const char* kName = "GRUCell";
  GRUCell(Whole input_size, Whole hidden_size, const GRUCellOptions& options = {}, Generator* generator = nullptr);
  Tensor forward(const Tensor& x) override { return forward(x, Tensor()); }
  Tensor forward(const Tensor& x, const Tensor& h);
  Tensor operator()(const Tensor& x, const Tensor& h = {});
};

class LSTMCell : public RecurrentCell {
 public:
  using Options = LSTMCellOptions;
  static constexpr const char* kName = "LSTMCell";
  using State = LSTMState;
  using Call = State(const Tensor&, const State&);
  LSTMCell(Whole input_size, Whole hidden_size, const LSTMCellOptions& options = {}, Generator* generator = nullptr);
  Tensor forward(const Tensor& x) override { return forward(x, {}).h; }
  State forward(const Tensor& x, const State& state);
  State operator()(const Tensor& x, const State& state = {});
};

}  // namespace halfstep
