// SPDX-License-Identifier: Apache-2.0
// Defines ops; all calls from the API to the graph go through call().
//
//   struct Mse {
//     struct Attr { Reduction reduction; };
//     static constexpr OpInfo info{.name = "mse_loss", .policy = CastPolicy::f32, .doc = "mean((x - target)^2)"};
//     static void check(const Attr&, const Tensors& in);                              // optional; before anything else
//     static Tensor forward(OpContext& ctx, const Attr&, const Tensors& in);          // or Tensors
//     static Tensors backward(const BackwardContext& ctx, const Attr&, const Tensors& g);  // one per input; undefined = zero
//                                                         // (take `Tensors g` by value to free gradients early)
//     static Tensor composite(const Attr&, const Tensors& in);                        // optional: in simpler ops; or Tensors
//     static Attributes describe(const Attr&);  // unless Attr is empty: for plans and exports; {} if the name suffices
//     static Tensor in_simpler_ops(const Attr&, const Tensors& in);                   // optional: a composite for exports only
//     static int summed_input(const Attr&, const Shape& output);                      // optional: as Node's, with take_column_sums
//     static bool keeps_columns(const Attr&);                                         // optional: as Node's
//   };
//   Tensor mse_loss(x, target, reduction) { return call<Mse>({x, target}, {reduction}); }
//
// backward may be recorded (create_graph). Then it must consist of differentiable ops; or the op has a `composite`, saves all its
// inputs in order, and the recorded backward uses the composite. So every op is differentiable any number of times.
#pragma once

#include <any>
#include <optional>
#include <type_traits>

#include "amp/autocast/autocast.h"
#include "framework/autograd/autograd.h"
#include "framework/autograd/node.h"
#include "framework/backend/backend.h"
#include "framework/backend/observe.h"
#include "framework/base/layer_path.h"

namespace halfstep {

// The dtypes that an op accepts: floating ones; also integers (numbers); also bool (any); only integers and bool (bits).
enum class DTypeSet : uint8_t { floating, numbers, any, bits };

struct OpInfo {
  std::string_view name;
  CastPolicy policy = CastPolicy::keep;
  std::string_view doc;
  bool differentiable = true;
  DTypeSet dtypes = DTypeSet::floating;
  bool reads_half = false;       // with policy f32: no cast; the kernel reads 16-bit inputs and computes in float32
  bool takes_dtype = false;      // Attr::dtype is the result's dtype; a region sets float32 unless the caller chose one
  std::string_view advice = "";  // for banned ops: the op to use instead
};

// Runs and records Op, or for an observer of simpler ops those it is composed of, under its autocast policy. Returns the result.
template <class Op>
auto call(Tensors in, typename Op::Attr attr = {});

// Collects what an op saves in forward for backward.
class OpContext {
 public:
  bool recording() const { return recording_; }  // whether a backward may follow; otherwise nothing is saved
  // Saves a tensor for backward, undefined ones too, so that indices stay the same.
  void save(const Tensor& t) {
    if (recording_) pending_.push_back({t, -1});
  }
  // Saves result `index` of the op without its history, so that the node does not own itself.
  void save_output(const Tensor& t, int index = 0) {
    if (recording_) pending_.push_back({t, index});
  }
  std::any state;  // values other than tensors, for BackwardContext::state

 private:
  template <class Op>
  friend class OpNode;
  template <class Op>
  friend auto run(const OpInfo& info, const Tensors& in, typename Op::Attr&& attr);
  bool recording_ = false;
  std::vector<std::pair<Tensor, int>> pending_;  // saved tensors, with the index of the result, or -1
};

// The saved state of the forward, and the requests of this backward run.
class BackwardContext {
 public:
  BackwardContext(Node& node, const BackwardCall& call, std::vector<SavedTensor>& saved, const std::any& state)
      : state(state), node_(node), call_(call), saved_(saved) {}
  // Returns a tensor that forward saved, in its order. An op that saves several names the indices: enum Saved : size_t { kX,
  // kTarget };
  Tensor saved(size_t place) const { return saved_[place].unpack(node_); }
  Tensor saved() const { return saved_.front().unpack(node_); }  // the only saved one
  bool has_saved(size_t place) const { return place < saved_.size(); }
  size_t saved_count() const { return saved_.size(); }
  // Frees a saved tensor before the end of backward, unless the graph is kept.
  void release(size_t i) const {
    if (call_.is_last) saved_[i].release();
  }
  bool needs(size_t input) const { return call_.needs(input); }
  // Returns the preferred dtype of an input's gradient, for ops that can produce it at no cost; the engine converts others.
  DType grad_dtype(size_t input) const { return halfstep::grad_dtype(node_, input); }
  // Returns the dtype in which the sums of the columns of an input's gradient, which has dtype g, should be left with it: for the
  // bias of the op that reads it next (column_sums.h). None if no op wants them, or if the device sums them in that op's product.
  std::optional<DType> wanted_column_sums(size_t input, DType g, Device device) const;

  const std::any& state;  // as forward set it

 private:
  Node& node_;
  const BackwardCall& call_;
  std::vector<SavedTensor>& saved_;
};

void check_same_device(std::string_view op, const Tensors& in);
// Casts the inputs of an op by its policy, or by the region's policy for this op; no other code may do that. Returns whether the
// result must be float32. Throws AmpError for a banned op, and ValueError for an unknown op name in the region's policies. Ops
// composed of others compute the rest with autocast off.
bool apply_policy(const OpInfo& info, std::span<Tensor> in);
// Throws MetaError if one of `in` is on Device::meta: for ops whose result shape, or control flow, depends on values.
void check_has_values(std::string_view op, const Tensors& in);
// Requires one dtype for all floating inputs; the error explains that ops outside autocast do not mix dtypes.
void check_same_dtype(std::string_view op, const Tensors& in);

// Returns the info of an op; some ops' facts depend on the attributes (the rows of elementwise.def).
template <class Op>
const OpInfo& info_of(const typename Op::Attr& attr) {
  if constexpr (requires { Op::info_of(attr); })
    return Op::info_of(attr);
  else
    return Op::info;
}

// Computes `composite` of the inputs again, recorded, and returns the gradients of those that are needed; grads: those of its
// results.
template <class Composite, class Needs>
Tensors gradients_through(const Composite& composite, Tensors in, const Needs& needs, const Tensors& grads) {
  Tensors wanted, outputs, given, result(in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    // An alias of the input, at which grad() stops instead of walking through the caller's graph behind it.
    if (in[i].defined() && needs(i) && in[i].requires_grad()) wanted.push_back(in[i] = in[i].expand(in[i].shape()));
  }
  const Tensors out{composite(in)};
  for (size_t i = 0; i < out.size(); ++i) {
    if (!grads[i].defined()) continue;
    outputs.push_back(out[i]);
    given.push_back(grads[i].to(out[i].dtype()));
  }
  const Tensors gradients = grad(outputs, wanted, given, {.create_graph = true, .allow_unused = true});
  for (size_t i = 0, k = 0; i < in.size(); ++i)
    if (in[i].defined() && k < wanted.size() && in[i].same(wanted[k])) result[i] = gradients[k++];
  return result;
}

template <class Op>
class OpNode final : public Node {
 public:
  using Attr = typename Op::Attr;
  OpNode(OpContext&& ctx, Attr&& attr) : state_(std::move(ctx.state)), attr_(std::move(attr)) {
    saved_.reserve(ctx.pending_.size());
    for (const auto& [t, output] : ctx.pending_) saved_.emplace_back(t, output);
  }
  std::string_view name() const override { return info_of<Op>(attr_).name; }
  bool takes_two_parts() const override {
    return requires { Op::kTakesTwoParts; };
  }
  int summed_input() const override {
    if constexpr (requires(const Attr& attr, const Shape& output) { Op::summed_input(attr, output); })
      return Op::summed_input(attr_, outputs[0].shape);
    else
      return -1;
  }
  bool keeps_columns() const override {
    if constexpr (requires(const Attr& attr) { Op::keeps_columns(attr); })
      return Op::keeps_columns(attr_);
    else
      return false;
  }
  void release_saved() override {
    for (auto& s : saved_) s.release();
  }

  Tensors backward(Tensors grads, const BackwardCall& call) override {
    bool any_defined = false;
    for (const Tensor& g : grads) any_defined = any_defined || g.defined();
    if (!any_defined) return {};
    if constexpr (requires(const Attr& attr, const Tensors& in) { Op::composite(attr, in); }) {
      if (grad_enabled()) return through_composite(grads, call);
    }
    return Op::backward(BackwardContext(*this, call, saved_, state_), attr_, std::move(grads));
  }

 private:
  Tensors through_composite(const Tensors& grads, const BackwardCall& call) {
    Tensors in;
    for (size_t i = 0; i < edges.size(); ++i) in.push_back(saved_[i].unpack(*this));
    return gradients_through([&](const Tensors& inputs) { return Op::composite(attr_, inputs); }, std::move(in),
                             [&](size_t i) { return call.needs(i); }, grads);
  }

  std::vector<SavedTensor> saved_;
  std::any state_;
  Attr attr_;
};

// Returns the attributes for plans and exports, as Op::describe does; none if Attr is empty.
template <class Op>
Attributes describe(const typename Op::Attr& attr) {
  if constexpr (requires { Op::describe(attr); }) return Op::describe(attr);
  static_assert(
      std::is_empty_v<typename Op::Attr> || requires { Op::describe(attr); },
      "an op with attributes has a static Attributes describe(const Attr&)");
  return {};
}

template <class Op>
ObservedCall observed_call(const OpInfo& info, const Tensors& in, const typename Op::Attr& attr) {
  return {.name = info.name,
          .inputs = in,
          .layer = LayerScope::current(),
          .policy = info.policy,
          .attr = &attr,
          .describe = [](const void* a) { return describe<Op>(*static_cast<const typename Op::Attr*>(a)); }};
}

// Runs and records Op on inputs that are cast and checked.
template <class Op>
auto run(const OpInfo& info, const Tensors& in, typename Op::Attr&& attr) {
  OpContext ctx;
  ctx.recording_ = info.differentiable && should_record(in);
  if (ctx.recording_) ctx.pending_.reserve(in.size() + 1);
  const bool record = ctx.recording_;
  CallScope scope([&] { return observed_call<Op>(info, in, attr); });
  auto out = [&] {
    const autocast::Off off;
    const NoGrad quiet;
    return Op::forward(ctx, attr, in);
  }();
  if (scope.observed()) [[unlikely]] {
    Tensors saved;
    for (const auto& [t, index] : ctx.pending_) saved.push_back(t);
    if constexpr (std::is_same_v<decltype(out), Tensor>)
      scope.done({{&out, 1}, saved});
    else
      scope.done({out, saved});
  }
  if (record) {
    auto node = make_node<OpNode<Op>>(std::move(ctx), std::move(attr));
    node->edges.reserve(in.size());
    for (const Tensor& t : in) node->edges.push_back(edge_of(t));
    attach(node, out);
  }
  return out;
}

// Computes the op in its simpler form, if an observer asks for that.
template <class Op, class Result>
std::optional<Result> run_simpler(const OpInfo& info, const Tensors& in, const typename Op::Attr& attr) {
  ObservedCall call = observed_call<Op>(info, in, attr);
  if (!Observing::asks_for_simpler(call)) return {};
  call.kind = SpanKind::simpler;
  const CallScope scope([&] { return call; });
  const autocast::Off off;
  if constexpr (requires { Op::in_simpler_ops(attr, in); })
    return Result{Op::in_simpler_ops(attr, in)};
  else
    return Result{Op::composite(attr, in)};
}

template <class Op>
auto call(Tensors in, typename Op::Attr attr) {
  const OpInfo& info = info_of<Op>(attr);
  check_same_device(info.name, in);
  if (info.policy != CastPolicy::keep || autocast::any_policies()) {
    const bool widens = apply_policy(info, in);
    if constexpr (requires { attr.dtype; }) {
      const DType own = in[0].dtype();
      if (info.takes_dtype && widens && !attr.dtype && is_floating(own) && own != DType::f64) attr.dtype = DType::f32;
    }
  }
  if constexpr (requires { (Op::check)(attr, in); }) (Op::check)(attr, in);
  if constexpr (
      requires { Op::in_simpler_ops(attr, in); } || requires { Op::composite(attr, in); }) {
    using Result = decltype(run<Op>(info, in, std::move(attr)));
    if (Observing::any()) [[unlikely]] {
      if (std::optional<Result> simpler = run_simpler<Op, Result>(info, in, attr)) return std::move(*simpler);
    }
  }
  return run<Op>(info, in, std::move(attr));
}

}  // namespace halfstep
