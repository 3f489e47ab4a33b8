// SPDX-License-Identifier: Apache-2.0
// Recurrent networks: stacked layers, in one direction or both, on batches, single sequences and packed ones.
#include <cmath>
#include <nlohmann/json.hpp>

#include "framework/ops/core/registry.h"
#include "framework/ops/ops.h"
#include "framework/ops/recurrent/recurrent.h"
#include "framework/ops/recurrent/sequence_network.h"
#include "framework/ops/shape/views.h"

namespace halfstep {
namespace {

std::string_view name_of(Cell cell) { return info_of(cell).name; }

int64_t directions_of(const SequenceOptions& options) { return options.bidirectional ? 2 : 1; }

// Checks the options, and returns the number of parameters for each layer and direction.
size_t parameters_per_part(Cell cell, size_t given, const SequenceOptions& options) {
  const std::string_view op = name_of(cell);
  check<ValueError>(options.num_layers >= 1, op, "num_layers must be >= 1, got ", options.num_layers);
  check<ValueError>(options.dropout >= 0 && options.dropout <= 1, op, "dropout must be within [0, 1], got ", options.dropout);
  // More layers than parameters never fit, and multiplying such a count could overflow.
  const bool many = options.num_layers > int64_t(given);
  const size_t parts = many ? 1 : size_t(options.num_layers * directions_of(options)), each = given / parts;
  const bool fits = !many && given % parts == 0 && (each == 2 || each == 4 || (cell == Cell::lstm && (each == 3 || each == 5)));
  check<ValueError>(fits, op, "needs 2 parameters (w_ih, w_hh) for each layer and direction, 2 more with biases",
                    cell == Cell::lstm ? ", 1 more with projections" : "", ", got ", given, " for num_layers ", options.num_layers,
                    options.bidirectional ? ", bidirectional" : "");
  return each;
}

// Checks p, the parameters of one layer and direction, which reads `features` and outputs `width` numbers.
void check_parameters(Cell cell, const Tensors& p, int64_t features, int64_t units, int64_t width) {
  const std::string_view op = name_of(cell);
  const int64_t all = gates_of(cell) * units;
  const auto expect = [&](size_t i, const char* what, const Shape& shape) {
    if (p[i].defined())
      check<ShapeError>(p[i].shape() == shape, op, what, " must be ", shape, " to match the others and the input, got ",
                        p[i].shape());
  };
  expect(kWih, "w_ih", {all, features});
  expect(kWhh, "w_hh", {all, width});
  expect(kBih, "b_ih", {all});
  expect(kBhh, "b_hh", {all});
  expect(kWhr, "w_hr", {width, units});
}

// Throws unless x has the rows of these batch sizes, which must not grow.
void check_packed(std::string_view op, const Tensor& x, const std::vector<int64_t>& sizes) {
  check<ShapeError>(x.dim() == 2, op, "a packed input must be [rows, features], got ", x.shape());
  int64_t total = 0, before = x.size(0);
  for (int64_t n : sizes) {
    check<ValueError>(n >= 0 && n <= before, op, "batch_sizes must be >= 0 and never grow, got ", n, " after ", before);
    total += before = n;
  }
  check<ShapeError>(total == x.size(0), op, "batch_sizes must add up to the rows of the input ", x.shape(), ", got ", total);
}

// Runs layer after layer with dropout between them. in: x, h, c, the parameters after autocast; parameters: those before;
// layer_steps: of a network of one layer.
LstmSequenceResult with_dropout(Cell cell, const Tensors& in, const Tensors& parameters, const NetworkSteps& layer_steps,
                                const SequenceOptions& options) {
  const int64_t directions = directions_of(options);
  Tensor y = in[0];
  Tensors last_h, last_c;
  for (int64_t layer = 0; layer < options.num_layers; ++layer) {
    const size_t from = size_t(layer * directions) * layer_steps.each, count = size_t(directions) * layer_steps.each;
    const auto own = [&](const Tensor& state) { return state.defined() ? state.narrow(0, layer * directions, directions) : state; };
    Tensors inputs{y, own(in[1]), own(in[2])};
    inputs.insert(inputs.end(), in.begin() + int64_t(kFirstParameter + from), in.begin() + int64_t(kFirstParameter + from + count));
    const LstmSequenceResult result = sequence_network(inputs, std::span(parameters).subspan(from, count), layer_steps);
    y = layer + 1 < options.num_layers ? dropout(result.output, options.dropout, true, options.generator) : result.output;
    last_h.push_back(result.h);
    last_c.push_back(result.c);
  }
  return {y, cat(last_h), cell == Cell::lstm ? cat(last_c) : Tensor()};
}

// Returns the checked inputs and parameters of a network, in the dtype that autocast chooses.
Tensors inputs_of(const OpInfo& info, const Tensor& x, const Tensor& h, const Tensor& c, const Tensors& parameters) {
  Tensors in{x, h, c};
  in.insert(in.end(), parameters.begin(), parameters.end());
  for (size_t i = kFirstParameter; i < in.size(); ++i)
    check<ValueError>(in[i].defined(), info.name, "parameter ", i - kFirstParameter, " is missing");
  check_same_device(info.name, in);
  check<DTypeError>(x.is_floating_point(), info.name, "input must be floating, got ", x.dtype());
  apply_policy(info, in);
  return in;
}

// Returns the number of rows of a packed batch's states: those of the first step, or more.
int64_t packed_batch(std::string_view op, const Tensors& in, const std::vector<int64_t>& sizes) {
  int64_t batch = sizes[0];
  for (const Tensor& state : {in[1], in[2]}) {
    if (state.defined() && state.dim() == 3) batch = state.size(1);
  }
  check<ShapeError>(batch >= sizes[0], op, "the states need at least the ", sizes[0], " rows of the first step, got ", batch);
  return batch;
}

// Throws unless the states and the parameters of all layers fit the input and each other.
void check_network(Cell cell, const Tensors& in, const Shape& x_shape, bool batched, int64_t batch, int64_t features, size_t each,
                   const SequenceOptions& options) {
  const std::string_view op = name_of(cell);
  const int64_t directions = directions_of(options), parts = options.num_layers * directions;
  const Tensors first = parameters_of(std::span(in).subspan(kFirstParameter), 0, each);
  const Tensor &w_hh = first[kWhh], &w_hr = first[kWhr];
  check<ShapeError>(w_hh.dim() == 2 && w_hh.size(0) % gates_of(cell) == 0, op, "w_hh must be [", gates_of(cell), " H, H], got ",
                    w_hh.shape());
  const int64_t units = w_hh.size(0) / gates_of(cell), width = w_hr.defined() ? w_hh.size(1) : units;
  const auto check_state = [&](size_t i, const char* name, int64_t columns) {
    const Shape want = batched ? Shape{parts, batch, columns} : Shape{parts, columns};
    check<ShapeError>(!in[i].defined() || in[i].shape() == want, op, name, " must be ", want, " for input ", x_shape,
                      " and these parameters, got ", in[i].defined() ? in[i].shape() : Shape());
  };
  check_state(1, "h", width);
  check_state(2, "c", units);

  for (int64_t place = 0; place < parts; ++place)
    check_parameters(cell, parameters_of(std::span(in).subspan(kFirstParameter), size_t(place), each),
                     place < directions ? features : directions * width, units, width);
}

// Checks the arguments and computes the network in the form that sequence_network takes: a batch, steps first if dropout draws.
LstmSequenceResult run(Cell cell, const Tensor& given_x, const Tensor& given_h, const Tensor& given_c, const Tensors& parameters,
                       const SequenceOptions& options) {
  const OpInfo& info = info_of(cell);
  const std::string_view op = info.name;
  const size_t each = parameters_per_part(cell, parameters.size(), options);
  Tensors in = inputs_of(info, given_x, given_h, given_c, parameters);
  const autocast::Off off;
  check_same_dtype(op, in);

  Tensor x = in[0];
  const bool packed = !options.batch_sizes.empty();
  if (packed)
    check_packed(op, x, options.batch_sizes);
  else
    check<ShapeError>(x.dim() == 2 || x.dim() == 3, op, "input must be [T, N, I] or [T, I], got ", x.shape());
  const bool batched = packed || x.dim() == 3, turned = batched && !packed && options.batch_first;
  if (!batched) x = x.unsqueeze(1);
  // Dropout's draw for an element depends on its index, which always counts steps first.
  const bool drops = options.num_layers > 1 && options.dropout > 0 && options.training, batch_first = turned && !drops;
  if (turned && drops) x = x.transpose(0, 1);
  const int64_t features = x.size(-1), steps = x.size(batch_first ? 1 : 0);
  const int64_t batch = packed ? packed_batch(op, in, options.batch_sizes) : x.size(batch_first ? 0 : 1);

  check_network(cell, in, given_x.shape(), batched, batch, features, each, options);
  for (size_t i : {1, 2})
    if (in[i].defined() && !batched) in[i] = in[i].unsqueeze(1);

  using Layout = RecurrentArgs::Layout;
  const NetworkSteps all{.cell = cell,
                         .layers = drops ? 1 : options.num_layers,
                         .directions = directions_of(options),
                         .layout = packed        ? Layout::packed
                                   : batch_first ? Layout::batch_first
                                                 : Layout::steps_first,
                         .batch = batch,
                         .sizes = packed ? options.batch_sizes : std::vector<int64_t>(size_t(steps), batch),
                         .each = each,
                         .packed = drops ? nullptr : options.packed,
                         .owns = drops || options.num_layers == 1 || options.dropout == 0};
  in[0] = x;
  auto [y, h, c] = drops ? with_dropout(cell, in, parameters, all, options) : sequence_network(in, parameters, all);
  if (drops && turned) y = y.transpose(0, 1);
  if (batched) return {as_result(y), h, c};
  return {as_result(y.squeeze(1)), as_result(h.squeeze(1)), c.defined() ? as_result(c.squeeze(1)) : c};
}

SequenceResult without_c(const LstmSequenceResult& result) { return {result.output, result.h}; }

}  // namespace

LstmSequenceResult lstm(const Tensor& x, const Tensor& h, const Tensor& c, const Tensors& parameters,
                        const SequenceOptions& options) {
  return run(Cell::lstm, x, h, c, parameters, options);
}
SequenceResult gru(const Tensor& x, const Tensor& h, const Tensors& parameters, const SequenceOptions& options) {
  return without_c(run(Cell::gru, x, h, Tensor(), parameters, options));
}
SequenceResult rnn_tanh(const Tensor& x, const Tensor& h, const Tensors& parameters, const SequenceOptions& options) {
  return without_c(run(Cell::rnn_tanh, x, h, Tensor(), parameters, options));
}
SequenceResult rnn_relu(const Tensor& x, const Tensor& h, const Tensors& parameters, const SequenceOptions& options) {
  return without_c(run(Cell::rnn_relu, x, h, Tensor(), parameters, options));
}

// Register the ops with the arguments of torch.lstm(input, [h, c], parameters) and torch.gru(input, h, parameters); states may be
// omitted.
void add_sequences(OpList& list) {
  const auto add = [&](Cell cell) {
    list.add(info_of(cell), [cell](Args& a) {
      SequenceOptions options;
      options.num_layers = a.integer("num_layers", 1);
      options.dropout = a.number("dropout", 0);
      options.training = a.flag("train", false);
      options.bidirectional = a.flag("bidirectional", false);
      options.batch_first = a.flag("batch_first", false);
      for (double n : a.numbers("batch_sizes", std::vector<double>())) {
        check<ValueError>(n == std::floor(n) && std::abs(n) < 1e15, a.op(), "batch_sizes must be whole numbers, got ", n);
        options.batch_sizes.push_back(int64_t(n));
      }
      const Tensors parameters = a.list(2);
      const bool biases = a.flag("has_biases", parameters_per_part(cell, parameters.size(), options) >= 4);
      check<ValueError>(biases == (parameters_per_part(cell, parameters.size(), options) >= 4), a.op(), "has_biases must be ",
                        !biases, " for ", parameters.size(), " parameters");
      if (cell != Cell::lstm) {
        const SequenceResult result = without_c(run(cell, a.tensor(0), a.tensor_or_none(1), Tensor(), parameters, options));
        return Tensors{result.output, result.h};
      }
      const Tensors states = a.has_tensor(1) ? a.list(1) : Tensors(2);
      check<ValueError>(states.size() == 2, a.op(), "needs two states, h and c, got ", states.size());
      const LstmSequenceResult result = run(cell, a.tensor(0), states[0], states[1], parameters, options);
      return Tensors{result.output, result.h, result.c};
    });
  };
  for (Cell cell : {Cell::lstm, Cell::gru, Cell::rnn_tanh, Cell::rnn_relu}) add(cell);
}

}  // namespace halfstep
