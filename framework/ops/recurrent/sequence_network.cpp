// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/recurrent/sequence_network.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "framework/backend/dnn.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/ops.h"
#include "framework/ops/recurrent/weight_space.h"

namespace halfstep {
namespace {

using Layout = RecurrentArgs::Layout;

LstmSequenceResult layer_by_layer(const Tensors& in, const NetworkSteps& network) {
  const bool packed = network.layout == Layout::packed, turned = network.layout == Layout::batch_first;
  Tensor y = turned ? in[0].transpose(0, 1) : in[0];
  const int64_t steps = int64_t(network.sizes.size());
  if (!packed) y = y.reshape({steps * network.batch, y.size(-1)});
  Tensors last_h, last_c;
  for (int64_t layer = 0; layer < network.layers; ++layer) {
    Tensors outputs;
    for (int64_t way = 0; way < network.directions; ++way) {
      const int64_t place = layer * network.directions + way;
      Tensors inputs = parameters_of(std::span(in).subspan(kFirstParameter), size_t(place), network.each);
      inputs[kX] = y;
      if (in[1].defined()) inputs[kH] = in[1].select(0, place);
      if (in[2].defined()) inputs[kC] = in[2].select(0, place);
      const Tensors made = sequence_layer(inputs, {network.cell, way == 1, network.batch, network.sizes});
      outputs.push_back(made[0]);
      last_h.push_back(made[1]);
      if (network.cell == Cell::lstm) last_c.push_back(made[2]);
    }
    y = network.directions == 1 ? outputs[0] : cat(outputs, 1);
  }
  if (!packed) y = y.reshape({steps, network.batch, y.size(1)});
  if (turned) y = y.transpose(0, 1);
  return {y, stack(last_h), network.cell == Cell::lstm ? stack(last_c) : Tensor()};
}

RecurrentLibrary* library_on(Device device) { return dynamic_cast<RecurrentLibrary*>(&backend_for(device)); }

// Makes t dense and aligned to 16 bytes; memory that is part of other memory may not be.
Tensor readable(const Tensor& t) {
  const Tensor out = dense(t);
  return out.defined() && reinterpret_cast<uintptr_t>(out.const_data_ptr()) % 16 != 0 ? out.clone() : out;
}

// Thrown if the library declines to compute after it had accepted.
struct Declined {};

// Whether a backward has used up what the library's forward saved for it; the next one runs the forward again.
struct Reserve {
  std::mutex mutex;
  bool spent = false;
};

// Inputs: x, h, c, the parameters, and last the tensor with all parameters in the library's layout; all but the parameters are
// readable.
struct Network {
  struct Attr {
    NetworkSteps steps;
    RecurrentArgs args;
    RecurrentSpaces spaces;
  };
  static const OpInfo& info_of(const Attr& attr) { return halfstep::info_of(attr.args.cell); }

  static Tensor make(const Tensor& like, const Shape& shape) {
    return Tensor::empty(shape, {.dtype = like.dtype(), .device = like.device()});
  }
  static Tensors results(const Attr& attr, const Tensor& x) {
    Shape y = x.shape();
    y[y.size() - 1] = attr.args.directions * attr.args.width;
    const int64_t parts = attr.args.layers * attr.args.directions;
    Tensors out{make(x, y), make(x, {parts, attr.args.batch, attr.args.width})};
    if (attr.args.cell == Cell::lstm) out.push_back(make(x, {parts, attr.args.batch, attr.args.units}));
    return out;
  }
  static RecurrentTensors tensors(const Tensors& in, const Tensors& out, const Tensor& reserve) {
    return {.x = in[0].view(),
            .weights = in.back().view(),
            .h = view_of(in[1]),
            .c = view_of(in[2]),
            .y = out[0].view(),
            .h_out = out.size() > 1 ? out[1].view() : TensorView{},
            .c_out = out.size() > 2 ? out[2].view() : TensorView{},
            .reserve = view_of(reserve)};
  }

  static Attributes describe(const Attr& attr) {
    return {{"num_layers", attr.args.layers}, {"directions", attr.args.directions}, {"hidden_size", attr.args.width}};
  }
  static Tensors forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Device device = in[0].device();
    const Tensors out = results(attr, in[0]);
    const Tensor reserve = ctx.recording()
                               ? Tensor::empty({std::max<int64_t>(attr.spaces.reserve, 1)}, {.dtype = DType::u8, .device = device})
                               : Tensor();
    if (!library_on(device)->recurrent(attr.args, tensors(in, out, reserve))) throw Declined();
    for (const Tensor& t : in) ctx.save(t);
    ctx.save_output(out[0]);
    ctx.save(reserve);
    if (ctx.recording()) ctx.state = std::make_shared<Reserve>();
    return out;
  }

  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const size_t output = ctx.saved_count() - 2, space = output + 1, inputs = output;  // saved after the inputs
    Tensors in;
    for (size_t i = 0; i < inputs; ++i) in.push_back(ctx.saved(i));
    const Tensor &x = in[0], &weights = in.back(), y = ctx.saved(output), reserve = ctx.saved(space);
    RecurrentLibrary& library = *library_on(x.device());
    const RecurrentTensors forward = tensors(in, {y}, reserve);
    const auto refused = [] {
      fail<DeviceError>("recurrent", "the device's library has done a forward and now declines its gradient",
                        Help{"HALFSTEP_CUDA_DNN=plain in the environment leaves the library out"});
    };

    Reserve& state = *std::any_cast<const std::shared_ptr<Reserve>&>(ctx.state);
    const std::lock_guard lock(state.mutex);
    if (state.spent && !library.recurrent(attr.args, tensors(in, results(attr, x), reserve))) refused();
    state.spent = true;

    const auto given = [&](size_t i) {
      return i < grads.size() && grads[i].defined() ? readable(grads[i].to(x.dtype())) : Tensor();
    };
    const Tensor dy = grads[0].defined() ? given(0) : zeros(y.shape(), {.dtype = x.dtype(), .device = x.device()});
    const Tensor dh = given(1), dc = given(2);
    Tensors result(inputs);
    result[0] = make(x, x.shape());
    for (size_t i : {size_t(1), size_t(2)})
      if (in[i].defined() && ctx.needs(i)) result[i] = make(x, in[i].shape());
    bool wants_weights = false;
    for (size_t i = kFirstParameter; i + 1 < inputs; ++i) wants_weights = wants_weights || ctx.needs(i);
    const Tensor dweights = wants_weights ? zeros(weights.shape(), {.dtype = x.dtype(), .device = x.device()}) : Tensor();
    const RecurrentGradients all{.y = dy.view(),
                                 .h = view_of(dh),
                                 .c = view_of(dc),
                                 .dx = result[0].view(),
                                 .dh = view_of(result[1]),
                                 .dc = view_of(result[2]),
                                 .dweights = view_of(dweights)};
    if (!library.recurrent_backward(attr.args, forward, all)) refused();
    for (size_t i = kFirstParameter; i + 1 < inputs; ++i)
      if (ctx.needs(i)) result[i] = part_of(dweights, attr.spaces, i - kFirstParameter, in[i].shape()).to(ctx.grad_dtype(i));
    return result;
  }

  static Tensors composite(const Attr& attr, const Tensors& in) {
    const LstmSequenceResult result = layer_by_layer({in.begin(), in.end() - 1}, attr.steps);
    Tensors out{result.output, result.h};
    if (result.c.defined()) out.push_back(result.c);
    return out;
  }
};

// Returns the number of steps of each sequence.
std::vector<int64_t> lengths_of(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> out;
  for (size_t step = sizes.size(); step-- > 0;)
    out.resize(size_t(std::max<int64_t>(sizes[step], int64_t(out.size()))), int64_t(step) + 1);
  return out;
}

// Computes the network by the device's library; empty if there is none, or if it declines. Rows of the batch without a step keep
// their states.
std::optional<LstmSequenceResult> by_library(const Tensors& in, std::span<const Tensor> given, NetworkSteps steps) {
  RecurrentLibrary* const library = library_on(in[0].device());
  if (!library || steps.sizes.empty() || steps.sizes[0] == 0) return {};
  const Tensors first = parameters_of(std::span(in).subspan(kFirstParameter), 0, steps.each);
  const bool packed = steps.layout == Layout::packed;
  RecurrentArgs args{.cell = steps.cell,
                     .dtype = in[0].dtype(),
                     .layers = steps.layers,
                     .directions = steps.directions,
                     .features = in[0].size(-1),
                     .units = first[kWhh].size(0) / gates_of(steps.cell),
                     .width = first[kWhh].size(1),
                     .biased = first[kBih].defined(),
                     .projected = first[kWhr].defined(),
                     .layout = steps.layout,
                     .steps = int64_t(steps.sizes.size()),
                     .batch = steps.sizes[0]};  // rows beyond have no step and keep their states
  if (packed) {
    args.lengths = lengths_of(steps.sizes);
    args.steps = args.lengths[0];
  }
  const std::optional<RecurrentSpaces> spaces = library->recurrent_spaces(args);
  if (!spaces) return {};

  const int64_t idle = steps.batch - args.batch;
  steps.batch = args.batch;
  const auto active = [&](const Tensor& state) {
    return !state.defined() ? state : readable(idle > 0 ? state.narrow(1, 0, args.batch) : state);
  };
  const std::span<const Tensor> parameters = std::span(in).subspan(kFirstParameter);
  Tensors inputs{readable(in[0]), active(in[1]), active(in[2])};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  inputs.push_back(weight_space(*spaces, parameters, given, std::exchange(steps.packed, nullptr), steps.owns));
  Tensors made;
  try {
    made = call<Network>(inputs, {std::move(steps), args, *spaces});
  } catch (const Declined&) { return {}; }
  const auto with_idle = [&](const Tensor& state, const Tensor& begin) {
    if (idle == 0) return state;
    const Shape shape{state.size(0), idle, state.size(2)};
    return cat({state, begin.defined() ? begin.narrow(1, args.batch, idle)
                                       : zeros(shape, {.dtype = state.dtype(), .device = state.device()})},
               1);
  };
  return LstmSequenceResult{made[0], with_idle(made[1], in[1]), made.size() > 2 ? with_idle(made[2], in[2]) : Tensor()};
}

}  // namespace

Tensors parameters_of(std::span<const Tensor> flat, size_t place, size_t each) {
  Tensors out(kLayerInputs);
  const auto at = [&](size_t i) { return flat[place * each + i]; };
  out[kWih] = at(0);
  out[kWhh] = at(1);
  if (each >= 4) {
    out[kBih] = at(2);
    out[kBhh] = at(3);
  }
  if (each % 2 == 1) out[kWhr] = at(each - 1);
  return out;
}

LstmSequenceResult sequence_network(const Tensors& in, std::span<const Tensor> given, const NetworkSteps& steps) {
  if (auto done = by_library(in, given, steps)) return *done;
  return layer_by_layer(in, steps);
}

}  // namespace halfstep
