// SPDX-License-Identifier: Apache-2.0
#include "framework/autograd/function.h"

#include "framework/autograd/grad_mode.h"

namespace halfstep {

void FunctionContext::save(const Tensors& tensors) { pending_ = tensors; }

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
  FunctionNode(std::string_view name, FunctionBackward backward) : name_(name), backward_(backward) { ctx.node_ = this; }
  std::string_view name() const override { return name_; }

  Tensors backward(Tensors full, const BackwardCall& call) override {
    for (size_t i = 0; i < full.size(); ++i)
      if (!full[i].defined()) {
        full[i] = Tensor::empty(outputs[i].shape, {.dtype = outputs[i].dtype, .device = outputs[i].device});
        full[i].zero_();
      }
    FunctionContext of_this_run = ctx;
    of_this_run.call_ = &call;
    Tensors result = backward_(of_this_run, full);
    check<AutogradError>(result.size() == edges.size(), name_, "backward must return ", edges.size(),
                         edges.size() == 1 ? " gradient" : " gradients", ", one per input, got ", result.size());
    return result;
  }
  void release_saved() override {
    for (auto& s : ctx.saved_) s.release();
  }

  void save_pending(const Tensors& made) {
    for (const Tensor& t : ctx.pending_) {
      int index = -1;
      for (size_t i = 0; i < made.size(); ++i)
        if (t.defined() && t.same(made[i])) index = int(i);
      ctx.saved_.emplace_back(t, index);
    }
    ctx.pending_.clear();
  }

  void will_record(const Tensors& inputs) {
    for (const Tensor& t : inputs) ctx.may_need_.push_back(t.defined() && t.requires_grad());
  }

  FunctionContext ctx;

 private:
  std::string_view name_;
  FunctionBackward backward_;
};

Tensors apply_function(std::string_view name, const FunctionForward& forward, FunctionBackward backward, const Tensors& inputs) {
  auto node = make_node<FunctionNode>(name, backward);
  const bool record = should_record(inputs);
  if (record) node->will_record(inputs);
  Tensors outputs;
  {
    const NoGrad off;
    outputs = forward(node->ctx, inputs);
    // Copies the handle of an input that forward returned as an output, so that the input's history is not overwritten.
    for (Tensor& out : outputs)
      for (const Tensor& in : inputs)
        if (out.same(in)) out = in.detach();
  }
  if (!record) return outputs;
  for (const Tensor& t : inputs) node->edges.push_back(edge_of(t));
  node->save_pending(outputs);
  attach(node, outputs);
  return outputs;
}

}  // namespace halfstep
