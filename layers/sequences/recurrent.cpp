// SPDX-License-Identifier: Apache-2.0
#include "layers/sequences/recurrent.h"

#include <algorithm>
#include <cmath>

#include "amp/autocast/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/autograd/recompute.h"
#include "framework/ops/recurrent/weight_space.h"
#include "layers/sequences/decode.h"

namespace halfstep {
namespace {

Tensor uniform_weight(const Shape& shape, int64_t hidden_size, Generator* generator) {
  MemoryScope tag(MemoryTag::parameters);
  const double bound = 1 / std::sqrt(double(hidden_size));
  const Tensor out = Tensor::empty(shape);
  uniform_(out, -bound, bound, generator);
  return out;
}

void check_features(const char* type, const Tensor& x, int64_t input_size) {
  check<ShapeError>(x.dim() >= 1 && x.size(-1) == input_size, type, "input must have input_size = ", input_size,
                    " features in its last dimension, got ", x.shape());
}

// Reorders the batch, dimension 1 of a state; returns it unchanged if the sequences are sorted.
Tensor in_order(const Tensor& state, const std::vector<int64_t>& order) {
  if (std::is_sorted(order.begin(), order.end()) || !state.defined() || state.dim() != 3 || state.size(1) != int64_t(order.size()))
    return state;  // the op refuses other ranks
  return index_select(state, 1, from_vector(order, {int64_t(order.size())}, state.device()));
}

// Return the options that the three layers share, with no projections.
LSTMOptions as_common(const RNNOptions& o) {
  return {o.num_layers, o.bias, o.batch_first, o.dropout, o.bidirectional, 0, o.output, o.stateful};
}
LSTMOptions as_common(const GRUOptions& o) {
  return {o.num_layers, o.bias, o.batch_first, o.dropout, o.bidirectional, 0, o.output, o.stateful};
}

std::string state_name(const std::string& layer, const char* state) { return layer.empty() ? state : layer + "." + state; }

}  // namespace

RecurrentLayer::RecurrentLayer(const char* type, Kind kind, int64_t input_size, int64_t hidden_size, const LSTMOptions& o,
                               Generator* generator)
    : type_(type),
      kind_(kind),
      input_size_(input_size),
      hidden_size_(hidden_size),
      options_(o),
      packed_(std::make_shared<PackedWeights>()) {
  check_arguments(type, arguments(), input_size, hidden_size);
  check_options(type, o);
  check<ValueError>(o.proj_size < hidden_size, type, "proj_size must be less than hidden_size = ", hidden_size, ", got ",
                    o.proj_size);
  check<ValueError>(!o.stateful || !o.bidirectional, type,
                    "a stateful layer cannot be bidirectional, since the next batch is not known");
  const int64_t gates = (kind == Kind::lstm ? 4 : kind == Kind::gru ? 3 : 1) * hidden_size;
  const int64_t width = o.proj_size > 0 ? o.proj_size : hidden_size, directions = o.bidirectional ? 2 : 1;
  const auto add_weight = [&](const std::string& name, const Shape& shape) {
    register_parameter(name, uniform_weight(shape, hidden_size, generator));
  };
  for (int64_t layer = 0; layer < o.num_layers; ++layer) {
    for (int64_t direction = 0; direction < directions; ++direction) {
      const std::string end = "_l" + std::to_string(layer) + (direction == 1 ? "_reverse" : "");
      add_weight("weight_ih" + end, {gates, layer == 0 ? input_size : width * directions});
      add_weight("weight_hh" + end, {gates, width});
      if (o.bias) {
        add_weight("bias_ih" + end, {gates});
        add_weight("bias_hh" + end, {gates});
      }
      if (o.proj_size > 0) add_weight("weight_hr" + end, {width, hidden_size});
    }
  }
}

RecurrentLayer::RecurrentLayer(const RecurrentLayer& other)
    : Module(other),
      type_(other.type_),
      kind_(other.kind_),
      input_size_(other.input_size_),
      hidden_size_(other.hidden_size_),
      options_(other.options_),
      packed_(std::make_shared<PackedWeights>()),
      kept_(other.kept_) {
  // Write in place: a recorded step reads the state there.
  const NoGrad off;
  for (Tensor* t : {&kept_.h, &kept_.c}) {
    if (t->defined()) *t = t->clone();
  }
}

Tensors RecurrentLayer::weights() const {
  Tensors out;
  for (size_t i = 0; i < own_parameters(); ++i) out.push_back(own_parameter(i));
  return out;
}

std::string RecurrentLayer::describe() const {
  return Repr(type_)
      .arg(input_size_)
      .arg(hidden_size_)
      .options(options_, 0, {"proj_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional", "stateful"})
      .str();
}

RecurrentLayer::Result RecurrentLayer::call_op(const Tensor& x, const Tensor& h, const Tensor& c,
                                               const std::vector<int64_t>& batch_sizes) {
  check_features(type_, x, input_size_);
  const SequenceOptions o{.num_layers = options_.num_layers,
                          .bidirectional = options_.bidirectional,
                          .batch_first = options_.batch_first,
                          .dropout = options_.dropout,
                          .training = training(),
                          .batch_sizes = batch_sizes,
                          .packed = packed_.get()};
  if (kind_ == Kind::lstm) {
    const LstmSequenceResult r = lstm(x, h, c, weights(), o);
    return {r.output, r.h, r.c};
  }
  const auto op = kind_ == Kind::gru ? gru : kind_ == Kind::rnn_tanh ? rnn_tanh : rnn_relu;
  const SequenceResult r = op(x, h, weights(), o);
  return {r.output, r.h, {}};
}

// Copies the state on its way in and out: the op keeps its inputs for its backward, and a recorded step reads the state where it
// was. Converts it if the run's precision has changed.
RecurrentLayer::Result RecurrentLayer::continue_last(const Tensor& x, KeptState& kept) {
  const Device::Type device = x.device().type;
  const DType computes = x.dtype() == DType::f32 && autocast::is_enabled(device) ? autocast::dtype(device) : x.dtype();
  const auto begin = [&](const Tensor& state) {
    const NoGrad off;
    return !state.defined() ? Tensor() : state.dtype() == computes ? state.clone() : state.to(computes);
  };
  const auto count = [&](const Tensor& t, int64_t dim) { return t.dim() == 3 ? t.size(dim) : 1; };
  const bool moves = !TakenStates::recomputing();  // a second forward, for recomputation, must not move the state again
  if (moves && kept.h.defined() && (kept.h.dim() != x.dim() || count(kept.h, 1) != count(x, options_.batch_first ? 0 : 1))) {
    check<ShapeError>(kept.begins, type_, "a stateful layer needs as many sequences as in the batch before, ", count(kept.h, 1),
                      ", got input ", x.shape(), Help{"reset_states(module) begins anew; batches must all be of one size"});
    kept = {};
  }
  const Tensors first = TakenStates::take({begin(kept.h), begin(kept.c)});
  const Result r = call_op(x, first[0], first[1], {});
  if (!moves) return r;
  const NoGrad off;
  const MemoryScope scope(MemoryTag::workspace);
  const auto keep = [](Tensor& slot, const Tensor& state) {
    if (!state.defined()) return;
    if (slot.defined() && slot.shape() == state.shape() && slot.dtype() == state.dtype() && slot.device() == state.device())
      slot.copy_(state.detach());
    else
      slot = state.detach().clone();
  };
  keep(kept.h, r.h);
  keep(kept.c, r.c);
  kept.begins = false;
  return r;
}

RecurrentLayer::Result RecurrentLayer::compute(const Tensor& x, const Tensor& h, const Tensor& c,
                                               const std::vector<int64_t>& lengths) {
  const bool may_continue = !h.defined() && !c.defined();
  if (DecodeScope* const pass = DecodeScope::current(); pass && lengths.empty() && may_continue) {
    check<ValueError>(!options_.bidirectional, type_,
                      "a bidirectional layer cannot run in a pass of a DecodeScope, since later steps are not known yet");
    return continue_last(x, pass->kept<KeptState>(*this));
  }
  if (lengths.empty()) return options_.stateful && may_continue ? continue_last(x, kept_) : call_op(x, h, c, {});
  check<ShapeError>(x.dim() == 3, type_, "lengths need a batch of sequences, got input ", x.shape());
  const int64_t steps = x.size(options_.batch_first ? 1 : 0), count = x.size(options_.batch_first ? 0 : 1);
  check<ValueError>(int64_t(lengths.size()) == count, type_, "needs a length for each of the ", count, " sequences of input ",
                    x.shape(), ", got ", lengths.size());
  for (int64_t n : lengths)
    check<ValueError>(n >= 0 && n <= steps, type_, "lengths must be within [0, ", steps, "], the steps of input ", x.shape(),
                      ", got ", n);
  PackedSequence packed = pack_padded_sequence(x, lengths, options_.batch_first, false);
  Result r = compute(packed, h, c);
  packed.data = r.output;
  r.output = pad_packed_sequence(packed, options_.batch_first, 0, steps).output;
  return r;
}

RecurrentLayer::Result RecurrentLayer::compute(const PackedSequence& x, const Tensor& h, const Tensor& c) {
  const int64_t count = int64_t(x.sorted_indices.size());
  check<ShapeError>(x.data.dim() == 2, type_, "the data of a packed input must be [rows, features], got ", x.data.shape());
  for (const Tensor& state : {h, c}) {
    if (state.defined())
      check<ShapeError>(state.dim() == 3 && state.size(1) == count, type_, "the state of ", count,
                        " packed sequences must be [layers and directions, ", count, ", width], got ", state.shape());
  }
  // Give it a zero state: without one the op could not return states for empty sequences.
  const bool all_begin = !x.batch_sizes.empty() && x.batch_sizes[0] == count;
  const int64_t parts = options_.num_layers * (options_.bidirectional ? 2 : 1);
  const Tensor first = h.defined() || all_begin ? in_order(h, x.sorted_indices)
                                                : zeros({parts, count, options_.proj_size > 0 ? options_.proj_size : hidden_size_},
                                                        {.dtype = own_parameter(0).dtype(), .device = x.data.device()});
  Result r = call_op(x.data, first, in_order(c, x.sorted_indices), x.batch_sizes);
  r.h = in_order(r.h, x.unsorted_indices);
  r.c = in_order(r.c, x.unsorted_indices);
  return r;
}

Tensor RecurrentLayer::forward(const Tensor& x) {
  const Result r = compute(x, {}, {}, {});
  if (options_.output == "sequence") return r.output;
  const int64_t last = r.h.size(0) - 1;
  return options_.bidirectional ? cat({r.h.select(0, last - 1), r.h.select(0, last)}, -1) : r.h.select(0, last);
}

std::vector<std::pair<std::string, RecurrentLayer*>> stateful_layers(Module& module) {
  std::vector<std::pair<std::string, RecurrentLayer*>> out;
  for (const auto& [name, m] : module.named_modules()) {
    auto* const layer = dynamic_cast<RecurrentLayer*>(m);
    if (layer && layer->stateful()) out.emplace_back(name, layer);
  }
  return out;
}

StateDict kept_states(Module& module) {
  const NoGrad off;
  StateDict out;
  for (const auto& [name, layer] : stateful_layers(module)) {
    if (layer->kept_state().h.defined()) out.push_back({state_name(name, "h"), layer->kept_state().h.clone()});
    if (layer->kept_state().c.defined()) out.push_back({state_name(name, "c"), layer->kept_state().c.clone()});
  }
  return out;
}

void set_kept_states(Module& module, const StateDict& states) {
  const auto layers = stateful_layers(module);
  std::vector<std::pair<Tensor*, Tensor>> slots;
  const auto add = [&](Tensor& slot, const std::string& name) {
    slots.push_back({&slot, {}});
    for (const NamedTensor& s : states)
      if (s.name == name) slots.back().second = s.tensor;
  };
  for (const auto& [name, layer] : layers) {
    add(layer->kept_state().h, state_name(name, "h"));
    add(layer->kept_state().c, state_name(name, "c"));
  }
  const auto named = std::count_if(slots.begin(), slots.end(), [](const auto& slot) { return slot.second.defined(); });
  check<ValueError>(size_t(named) == states.size(), "set_kept_states", "the module's stateful layers take ", named, " of the ",
                    states.size(), " states", Help{"it is not the module that they were kept of"});
  const NoGrad off;
  for (auto& [slot, state] : slots) *slot = state.defined() ? state.clone() : Tensor();
  for (const auto& [name, layer] : layers) layer->kept_state().begins = !layer->kept_state().h.defined();
}

void reset_states(Module& module) {
  const NoGrad off;
  for (const auto& [name, layer] : stateful_layers(module)) {
    for (Tensor* t : {&layer->kept_state().h, &layer->kept_state().c})
      if (t->defined()) t->zero_();
    layer->kept_state().begins = true;
  }
}

FreshStates::FreshStates(Module& module) {
  for (const auto& [name, layer] : stateful_layers(module)) before_.emplace_back(layer, std::exchange(layer->kept_state(), {}));
}
FreshStates::~FreshStates() {
  for (auto& [layer, kept] : before_) layer->kept_state() = std::move(kept);
}

OneStateLayer::Output OneStateLayer::forward(const Tensor& x, const Tensor& state, const std::vector<int64_t>& lengths) {
  const Result r = compute(x, state, {}, lengths);
  return {r.output, r.h};
}
OneStateLayer::PackedOutput OneStateLayer::forward(const PackedSequence& x, const Tensor& state) {
  const Result r = compute(x, state, {});
  return {{r.output, x.batch_sizes, x.sorted_indices, x.unsorted_indices}, r.h};
}
OneStateLayer::Output OneStateLayer::operator()(const Tensor& x, const Tensor& state, const std::vector<int64_t>& lengths) {
  return run([this](const auto&... in) { return forward(in...); }, x, state, lengths);
}
OneStateLayer::PackedOutput OneStateLayer::operator()(const PackedSequence& x, const Tensor& state) {
  return run([this](const auto&... in) { return forward(in...); }, x, state);
}

RNN::RNN(Integer input_size, Integer hidden_size, const RNNOptions& o, Generator* generator)
    : OneStateLayer(kName, o.nonlinearity == "relu" ? Kind::rnn_relu : Kind::rnn_tanh, input_size, hidden_size, as_common(o),
                    generator) {
  check_options(kName, o);
}
GRU::GRU(Integer input_size, Integer hidden_size, const GRUOptions& o, Generator* generator)
    : OneStateLayer("GRU", Kind::gru, input_size, hidden_size, as_common(o), generator) {}

LSTM::LSTM(Integer input_size, Integer hidden_size, const LSTMOptions& o, Generator* generator)
    : RecurrentLayer("LSTM", Kind::lstm, input_size, hidden_size, o, generator) {}
LSTM::Output LSTM::forward(const Tensor& x, const State& state, const std::vector<int64_t>& lengths) {
  const Result r = compute(x, state.h, state.c, lengths);
  return {r.output, {r.h, r.c}};
}
LSTM::PackedOutput LSTM::forward(const PackedSequence& x, const State& state) {
  const Result r = compute(x, state.h, state.c);
  return {{r.output, x.batch_sizes, x.sorted_indices, x.unsorted_indices}, {r.h, r.c}};
}
LSTM::Output LSTM::operator()(const Tensor& x, const State& state, const std::vector<int64_t>& lengths) {
  return run([this](const auto&... in) { return forward(in...); }, x, state, lengths);
}
LSTM::PackedOutput LSTM::operator()(const PackedSequence& x, const State& state) {
  return run([this](const auto&... in) { return forward(in...); }, x, state);
}

RecurrentCell::RecurrentCell(const char* type, int64_t gates, int64_t input_size, int64_t hidden_size, const RNNCellOptions& o,
                             Generator* generator)
    : type_(type), options_(o) {
  check_arguments(type, arguments(), input_size, hidden_size);
  const auto weight = [&](const char* name, const Shape& shape) {
    return register_parameter(name, uniform_weight(shape, hidden_size, generator));
  };
  const auto bias = [&](const char* name) {
    return register_parameter(name, o.bias ? uniform_weight({gates * hidden_size}, hidden_size, generator) : Tensor());
  };
  weight_ih = weight("weight_ih", {gates * hidden_size, input_size});
  weight_hh = weight("weight_hh", {gates * hidden_size, hidden_size});
  bias_ih = bias("bias_ih");
  bias_hh = bias("bias_hh");
}

std::string RecurrentCell::describe() const {
  return Repr(type_).arg(weight_ih.size(1)).arg(weight_hh.size(1)).options(options_).str();
}

RNNCell::RNNCell(Integer input_size, Integer hidden_size, const RNNCellOptions& o, Generator* generator)
    : RecurrentCell("RNNCell", 1, input_size, hidden_size, o, generator) {
  check_options(kName, o);
}
Tensor RNNCell::forward(const Tensor& x, const Tensor& h) {
  check_features(type_, x, weight_ih.size(1));
  return (options_.nonlinearity == "relu" ? rnn_relu_cell : rnn_tanh_cell)(x, h, weight_ih, weight_hh, bias_ih, bias_hh);
}
Tensor RNNCell::operator()(const Tensor& x, const Tensor& h) {
  return run([this](const auto&... in) { return forward(in...); }, x, h);
}

GRUCell::GRUCell(Integer input_size, Integer hidden_size, const GRUCellOptions& o, Generator* generator)
    : RecurrentCell("GRUCell", 3, input_size, hidden_size, {.bias = o.bias}, generator) {}
Tensor GRUCell::forward(const Tensor& x, const Tensor& h) {
  check_features(type_, x, weight_ih.size(1));
  return gru_cell(x, h, weight_ih, weight_hh, bias_ih, bias_hh);
}
Tensor GRUCell::operator()(const Tensor& x, const Tensor& h) {
  return run([this](const auto&... in) { return forward(in...); }, x, h);
}

LSTMCell::LSTMCell(Integer input_size, Integer hidden_size, const LSTMCellOptions& o, Generator* generator)
    : RecurrentCell("LSTMCell", 4, input_size, hidden_size, {.bias = o.bias}, generator) {}
LSTMCell::State LSTMCell::forward(const Tensor& x, const State& state) {
  check_features(type_, x, weight_ih.size(1));
  const auto [h, c] = lstm_cell(x, state.h, state.c, weight_ih, weight_hh, bias_ih, bias_hh);
  return {h, c};
}
LSTMCell::State LSTMCell::operator()(const Tensor& x, const State& state) {
  return run([this](const auto&... in) { return forward(in...); }, x, state);
}

}  // namespace halfstep
