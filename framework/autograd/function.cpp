// SPDX-License-Identifier: Apache-2.0
#include "framework/autograd/function.h"

#include <algorithm>
#include <utility>

#include "framework/autograd/grad_mode.h"
#include "framework/base/layer_path.h"

namespace halfstep {

void FunctionContext::save(const Tensors& tensors) { to_save_ = tensors; }

Tensors FunctionContext::saved() const {
  Tensors out;
  for (const auto& s : saved_) out.push_back(s.unpack(*node_));
  return out;
}

bool FunctionContext::needs(size_t input) const {
  return call_ ? call_->needs(input) : input < may_need_.size() && may_need_[input];
}

class FunctionNode final : public Node {
 public:
  FunctionNode(std::string_view name, FunctionBackward backward) : name_(*kept_forever(name)), backward_(backward) {
    ctx.node_ = this;
  }
  std::string_view name() const override { return name_; }

  Tensors backward(Tensors grads, const BackwardCall& call) override {
    for (size_t i = 0; i < grads.size() && ctx.materializes_grads_; ++i)
      if (!grads[i].defined() && is_returned_[i]) {
        grads[i] = Tensor::empty(outputs[i].shape, {.dtype = outputs[i].dtype, .device = outputs[i].device});
        grads[i].zero_();
      }
    FunctionContext ctx_of_run = ctx;
    ctx_of_run.call_ = &call;
    Tensors result = backward_(ctx_of_run, grads);
    // PyTorch's functions may return undefined gradients for arguments that are not tensors.
    while (result.size() > edges.size() && !result.back().defined()) result.pop_back();
    check<AutogradError>(result.size() == edges.size(), name_, "backward must return ", edges.size(),
                         edges.size() == 1 ? " gradient" : " gradients", ", one per input, got ", result.size());
    return result;
  }
  void release_saved() override {
    for (auto& s : ctx.saved_) s.release();
  }

  // Notes which outputs forward returned.
  void note_outputs(const Tensors& outputs) {
    for (const Tensor& t : outputs) is_returned_.push_back(t.defined());
  }
  // Saves the tensors of ctx.save(); one that is an output of this node is saved by its index.
  void save_tensors(const Tensors& outputs_of_forward) {
    for (const Tensor& t : ctx.to_save_) {
      int index = -1;
      for (size_t i = 0; i < outputs_of_forward.size(); ++i)
        if (t.defined() && t.same(outputs_of_forward[i])) index = int(i);
      ctx.saved_.emplace_back(t, index);
    }
    ctx.to_save_.clear();
  }

  // Notes which inputs may need a gradient.
  void note_inputs(const Tensors& inputs) {
    for (const Tensor& t : inputs) ctx.may_need_.push_back(t.defined() && t.requires_grad());
  }

  FunctionContext ctx;

 private:
  const std::string& name_;  // kept for ever: profiles and logs may have it when the graph is gone
  FunctionBackward backward_;
  std::vector<bool> is_returned_;  // by output: whether forward returned a tensor
};

bool FunctionContext::is_dirty(const Tensor& t) const {
  return std::any_of(dirty_.begin(), dirty_.end(), [&](const Tensor& d) { return d.defined() && d.same(t); });
}

void FunctionContext::check_dirty(std::string_view name, const Tensors& inputs, const Tensors& outputs, bool record) const {
  const auto among = [](const Tensors& list, const Tensor& t) {
    return std::any_of(list.begin(), list.end(), [&](const Tensor& other) { return other.defined() && other.same(t); });
  };
  for (const Tensor& t : dirty_) {
    check<AutogradError>(t.defined() && among(inputs, t), name, "mark_dirty takes inputs of forward, got another tensor");
    check<AutogradError>(among(outputs, t), name, "an input that is marked dirty must be returned as an output, got shape ",
                         t.shape());
    check<AutogradError>(!record || !t.is_leaf() || !t.requires_grad(), name,
                         "a leaf that requires grad cannot be changed in place", Help{"change a clone() of it"});
    check<AutogradError>(!record || !t.impl()->is_view, name, "a view cannot be marked dirty, got shape ", t.shape(),
                         Help{"change a clone() of it"});
  }
}

Tensors apply_function(std::string_view name, const FunctionForward& forward, FunctionBackward backward, const Tensors& inputs) {
  auto node = make_node<FunctionNode>(name, backward);
  const bool record = should_record(inputs);
  if (record) node->note_inputs(inputs);
  Tensors outputs;
  {
    const NoGrad off;
    outputs = forward(node->ctx, inputs);
    node->ctx.check_dirty(name, inputs, outputs, record);
    for (const Tensor& t : node->ctx.dirty_) t.bump_version();  // forward may have written through a pointer
    // Copies the handle of an output that is an input, or a parameter that forward captured, so that its history is not
    // overwritten.
    for (Tensor& out : outputs) {
      if (!out.defined() || node->ctx.is_dirty(out)) continue;
      if (out.requires_grad() || std::any_of(inputs.begin(), inputs.end(), [&](const Tensor& in) { return out.same(in); }))
        out = out.detach();
    }
  }
  if (!record) return outputs;
  for (const Tensor& t : inputs) node->edges.push_back(edge_of(t));
  node->save_tensors(outputs);
  for (const Tensor& t : node->ctx.dirty_) {
    t.impl()->recorded_writes_seen = ++t.storage()->recorded_writes;
    AutogradMeta& meta = t.impl()->meta();
    meta.hooks.reset();  // they belong to the old value
    if (std::exchange(meta.retains_grad, false)) meta.node->retained[meta.output_index].reset();
  }
  node->note_outputs(outputs);
  attach(node, outputs);
  for (const Tensor& t : node->ctx.non_differentiable_)
    for (const Tensor& out : outputs)
      if (out.defined() && t.defined() && out.same(t) && out.impl()->autograd) out.impl()->autograd->node.reset();
  node->ctx.dirty_.clear();  // the node must not own its outputs
  node->ctx.non_differentiable_.clear();
  return outputs;
}

}  // namespace halfstep
