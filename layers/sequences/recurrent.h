// SPDX-License-Identifier: Apache-2.0
// Recurrent layers. framework/ops/recurrent/recurrent.h has formulas, shapes of weights and the order of gates.
//
//   LSTM lstm(28, 64, {.num_layers = 2, .batch_first = true});
//   auto [output, state] = lstm(x);                    // [N, T, 64]; state.h and state.c: [2, N, 64]
//   auto [more, last] = lstm(next, state);             // continues where it stopped
//   auto [ragged, ends] = lstm(x, {}, {5, 2, 0, 3});   // sequences of these lengths: zeros behind each, states at its last step
//   auto [packed, end] = lstm(pack_padded_sequence(x, {5, 2}, true));
//
// x: [T, N, input_size], [N, T, input_size] with batch_first, or one sequence [T, input_size]. The output has the states of the
// last layer at all steps, with both directions concatenated. A state is [num_layers D, N, H], without N for one sequence, where H
// = hidden_size (or proj_size with projections) and D = 2 if bidirectional; it is zero unless given.
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

#include "framework/base/guard.h"
#include "layers/module/layer.h"
#include "layers/sequences/packed_sequence.h"

namespace halfstep {

// output: the result if the layer takes only x, in a Sequential or a config: the "sequence", or "last", the last layer's state
// after the last step, with both directions concatenated.
//
// stateful: without a given state the layer continues from the last state of the call before, detached, so that consecutive
// batches form one long sequence; no gradient flows from a batch to the one before. The state starts at zero, and again after
// reset_states(). The state_dict does not contain it, but a run saved by amp/step/run_state.h does. Throws ValueError if
// bidirectional, and ShapeError if the batch size changes. Inside checkpoint() the state moves at the
// first forward alone.
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
// The base of RNN, GRU and LSTM.
class RecurrentLayer : public Module {
 public:
  static const Arguments<int64_t, int64_t>& arguments();
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

  // The state from which a stateful layer continues; undefined before its first call. c: LSTM only.
  struct KeptState {
    Tensor h, c;
    bool begins = true;  // true until the first call after reset_states()
  };
  KeptState& kept_state() { return kept_; }

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
  // Calls the op on all layers and directions.
  Result call_op(const Tensor& x, const Tensor& h, const Tensor& c, const std::vector<int64_t>& batch_sizes);
  // Computes from the kept state, and replaces it by the last one.
  Result continue_last(const Tensor& x, KeptState& kept);
  Tensors weights() const;
  const char* type_;
  Kind kind_;
  int64_t input_size_, hidden_size_;
  LSTMOptions options_;
  std::shared_ptr<PackedWeights> packed_;
  KeptState kept_;
};

// Returns the stateful layers in `module`, itself included, with their names: "" is the module itself.
std::vector<std::pair<std::string, RecurrentLayer*>> stateful_layers(Module& module);

// Returns copies of the states from which the stateful layers would continue, by name: "lstm.h", "lstm.c".
StateDict kept_states(Module& module);
// Restores states; layers without one begin at zero. Throws ValueError for a name that no stateful layer has; then no
// state has changed.
void set_kept_states(Module& module, const StateDict& states);
// Resets all states to zero, as at the start of a pass over the data. Keeps their memory.
void reset_states(Module& module);

// Resets the states for a pass over other data, and restores them at the end of the scope.
class FreshStates : LocalGuard {
 public:
  [[nodiscard]] explicit FreshStates(Module& module);
  ~FreshStates();

 private:
  std::vector<std::pair<RecurrentLayer*, RecurrentLayer::KeptState>> before_;
};

// The base of RNN and GRU, whose state is one tensor.
class OneStateLayer : public RecurrentLayer {
 public:
  struct Output {
    Tensor output, state;
    operator std::tuple<Tensor&, Tensor&>() { return {output, state}; }  // for std::tie(y, h) = gru(x, h)
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
  // Calls forward with its hooks.
  Output operator()(const Tensor& x, const Tensor& state = {}, const std::vector<int64_t>& lengths = {});
  PackedOutput operator()(const PackedSequence& x, const Tensor& state = {});

 protected:
  using RecurrentLayer::RecurrentLayer;
};

// Computes h' = tanh(x W_ih^T + b_ih + h W_hh^T + b_hh), or relu in place of tanh.
class RNN : public OneStateLayer {
 public:
  using Options = RNNOptions;
  static constexpr const char* kName = "RNN";
  using Call = Output(const Tensor&, const Tensor&, const std::vector<int64_t>&);
  RNN(Integer input_size, Integer hidden_size, const RNNOptions& options = {}, Generator* generator = nullptr);
  RNN(Integer input_size, Integer hidden_size, Integer num_layers, const RNNOptions& rest = {})
      : RNN(input_size, hidden_size, with_option(rest, "num_layers", &Options::num_layers, int64_t(num_layers))) {}
};

// Gates r, z, n: n = tanh(x_n + sigmoid(r) h_n), h' = (1 - sigmoid(z)) n + sigmoid(z) h.
class GRU : public OneStateLayer {
 public:
  using Options = GRUOptions;
  static constexpr const char* kName = "GRU";
  using Call = Output(const Tensor&, const Tensor&, const std::vector<int64_t>&);
  GRU(Integer input_size, Integer hidden_size, const GRUOptions& options = {}, Generator* generator = nullptr);
  GRU(Integer input_size, Integer hidden_size, Integer num_layers, const GRUOptions& rest = {})
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

// Gates i, f, g, o: c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c'), times W_hr^T with projections.
class LSTM : public RecurrentLayer {
 public:
  using Options = LSTMOptions;
  static constexpr const char* kName = "LSTM";
  using State = LSTMState;
  struct Output {
    Tensor output;
    State state;
    operator std::tuple<Tensor&, State&>() { return {output, state}; }  // for std::tie(y, state) = lstm(x, state)
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
  LSTM(Integer input_size, Integer hidden_size, const LSTMOptions& options = {}, Generator* generator = nullptr);
  LSTM(Integer input_size, Integer hidden_size, Integer num_layers, const LSTMOptions& rest = {})
      : LSTM(input_size, hidden_size, with_option(rest, "num_layers", &Options::num_layers, int64_t(num_layers))) {}
  using RecurrentLayer::forward;
  Output forward(const Tensor& x, const State& state, const std::vector<int64_t>& lengths);
  PackedOutput forward(const PackedSequence& x, const State& state);
  Output operator()(const Tensor& x, const State& state = {}, const std::vector<int64_t>& lengths = {});
  PackedOutput operator()(const PackedSequence& x, const State& state = {});
};

// ---- Cells: one step. x [N, input_size] or [input_size]; the state is zero unless given. Parameters weight_ih, weight_hh,
// bias_ih and bias_hh from U(-b, b), b = 1/sqrt(hidden_size). In a Sequential or a config they compute one step from zero.
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
  static const Arguments<int64_t, int64_t>& arguments() { return RecurrentLayer::arguments(); }
  bool is_recordable() const override { return true; }
  std::string describe() const override;
  Parameter weight_ih, weight_hh, bias_ih, bias_hh;  // biases undefined with .bias = false

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
  RNNCell(Integer input_size, Integer hidden_size, const RNNCellOptions& options = {}, Generator* generator = nullptr);
  Tensor forward(const Tensor& x) override { return forward(x, Tensor()); }
  Tensor forward(const Tensor& x, const Tensor& h);
  Tensor operator()(const Tensor& x, const Tensor& h = {});
};

class GRUCell : public RecurrentCell {
 public:
  using Options = GRUCellOptions;
  static constexpr const char* kName = "GRUCell";
  GRUCell(Integer input_size, Integer hidden_size, const GRUCellOptions& options = {}, Generator* generator = nullptr);
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
  LSTMCell(Integer input_size, Integer hidden_size, const LSTMCellOptions& options = {}, Generator* generator = nullptr);
  Tensor forward(const Tensor& x) override { return forward(x, {}).h; }
  State forward(const Tensor& x, const State& state);
  State operator()(const Tensor& x, const State& state = {});
};

}  // namespace halfstep
