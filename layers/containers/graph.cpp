// SPDX-License-Identifier: Apache-2.0
#include "layers/containers/graph.h"

#include <algorithm>
#include <array>
#include <typeinfo>

#include "framework/autograd/grad_mode.h"
#include "framework/base/list_text.h"
#include "framework/ops/ops.h"
#include "layers/containers/sequential.h"

namespace halfstep {
namespace {

constexpr std::array<std::string_view, 8> kCombines{"add", "mul", "mean", "max", "concat", "stack", "dot", "cosine"};

// Returns f(...f(f(x0, x1), x2)..., xn).
Tensor fold(const Tensors& xs, Tensor (*f)(const Tensor&, const Tensor&)) {
  Tensor y = xs[0];
  for (size_t i = 1; i < xs.size(); ++i) y = f(y, xs[i]);
  return y;
}

bool children_recordable(const Module& m) {
  const auto below = m.children();
  return std::all_of(below.begin(), below.end(), [](const auto& child) { return child->is_recordable(); });
}

std::vector<std::string> names_of(const std::vector<Graph::Input>& inputs) {
  std::vector<std::string> out;
  for (const Graph::Input& input : inputs) out.push_back(input.name);
  return out;
}

}  // namespace

std::string_view name(Combine how) { return kCombines[size_t(how)]; }

std::optional<Combine> combine_of(std::string_view name) {
  const auto found = std::find(kCombines.begin(), kCombines.end(), name);
  return found == kCombines.end() ? std::nullopt : std::optional(Combine(found - kCombines.begin()));
}

Tensor combine(Combine how, const Tensors& xs, int64_t dim) {
  const bool pair = how == Combine::dot || how == Combine::cosine;
  check<ValueError>(pair ? xs.size() == 2 : !xs.empty(), "combine", name(how),
                    pair ? " takes two tensors, got " : " needs tensors, got ", xs.size());
  switch (how) {
    case Combine::add: return fold(xs, add);
    case Combine::mul: return fold(xs, mul);
    case Combine::mean: return fold(xs, add) / double(xs.size());
    case Combine::max: return fold(xs, maximum);
    case Combine::concat: return cat(xs, dim);
    case Combine::stack: return stack(xs, dim);
    case Combine::dot: return sum(xs[0] * xs[1], {dim}, true);
    case Combine::cosine: return unsqueeze(cosine_similarity(xs[0], xs[1], dim), dim);
  }
  fail<ValueError>("combine", "unknown way to combine, number ", int(how));
}

// ---- Residual

Residual::Residual(std::shared_ptr<Module> body, std::shared_ptr<Module> shortcut) {
  register_listed("body", std::move(body));
  if (shortcut) register_listed("shortcut", std::move(shortcut));
}

Tensor Residual::add_shortcut(const Tensor& x, bool relu) {
  Module& body = *own_child(0);
  const auto shortcut = [&] { return child_slots().size() > 1 ? (*own_child(1))(x) : x; };
  if (relu && typeid(body) == typeid(Sequential)) return static_cast<Sequential&>(body).add_relu(x, shortcut);
  const Tensor y = body(x), z = shortcut();
  return relu ? add_relu(y, z) : y + z;
}

Tensor Residual::relu(const Tensor& x) {
  if (has_hooks() || recomputes_in_backward() || autocast::any_policies()) return halfstep::relu((*this)(x));
  return run([this](const Tensor& in) { return forward_relu(in); }, x);
}

bool Residual::is_recordable() const { return children_recordable(*this); }

// ---- Parallel

Parallel::Parallel(std::vector<std::shared_ptr<Module>> branches, Combine how, int64_t dim, const std::vector<std::string>& names)
    : how_(how), dim_(dim) {
  check<ValueError>(!branches.empty(), "Parallel", "needs at least one branch");
  check<ValueError>(names.empty() || names.size() == branches.size(), "Parallel", "must have a name for each of its ",
                    branches.size(), " branches, got ", names.size());
  for (size_t i = 0; i < branches.size(); ++i)
    register_listed(names.empty() ? std::to_string(i) : names[i], std::move(branches[i]));
}

Tensor Parallel::forward(const Tensor& x) {
  Tensors made;
  for (const auto& slot : child_slots()) made.push_back((*slot->module)(x));
  return combine(how_, made, dim_);
}

bool Parallel::is_recordable() const { return children_recordable(*this); }

std::string Parallel::describe() const {
  const bool along = how_ == Combine::concat || how_ == Combine::stack || how_ == Combine::dot || how_ == Combine::cosine;
  return "Parallel(combine=" + std::string(halfstep::name(how_)) + (along ? ", dim=" + std::to_string(dim_) : "") + ")";
}

// ---- Graph

Graph::Graph(std::vector<Node> nodes, std::vector<Input> inputs) : nodes_(std::move(nodes)), inputs_(std::move(inputs)) {
  check<ValueError>(!nodes_.empty(), "Graph", "needs at least one node");
  if (inputs_.empty()) inputs_.push_back({.name = "input"});
  std::vector<std::string> known = names_of(inputs_);
  for (size_t i = 0; i < known.size(); ++i)
    check<ValueError>(std::find(known.begin(), known.begin() + int64_t(i), known[i]) == known.begin() + int64_t(i), "Graph",
                      "two inputs are called \"", known[i], '"');
  std::vector<std::optional<size_t>> last_use(known.size() + nodes_.size());  // the last step that reads each value
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    check<ValueError>(!node.name.empty() && node.name.find('.') == std::string::npos, "Graph",
                      "the name of a node must not be empty or contain a dot, got \"", node.name, '"');
    check<ValueError>(std::find(known.begin(), known.end(), node.name) == known.end(), "Graph", "two nodes or inputs are called \"",
                      node.name, '"');
    check<ValueError>(!node.inputs.empty() || i > 0 || inputs_.size() == 1, "Graph", "node \"", node.name,
                      "\" is the first and must say which inputs it takes");
    if (node.inputs.empty()) node.inputs = {known.back()};
    check<ValueError>(node.inputs.size() == 1 || node.combine, "Graph", "node \"", node.name, "\" has ", node.inputs.size(),
                      " inputs and must say how to combine them");
    Step step;
    for (const std::string& input : node.inputs) {
      const auto at = std::find(known.begin(), known.end(), input);
      if (at == known.end()) {
        const std::string near = nearest_name(input, known);
        fail<ValueError>("Graph", "node \"", node.name, "\" takes \"", input, "\", which no input and no node before it is called",
                         near.empty() ? "" : "; did you mean \"" + near + "\"?");
      }
      step.from.push_back(size_t(at - known.begin()));
      last_use[step.from.back()] = i;
    }
    known.push_back(node.name);
    const auto same = [&](const auto& slot) { return slot->module == node.layer; };
    if (node.layer) {
      const auto& slots = child_slots();
      step.layer = size_t(std::find_if(slots.begin(), slots.end(), same) - slots.begin());
      if (*step.layer == slots.size()) register_listed(node.name, node.layer);
    }
    steps_.push_back(std::move(step));
  }
  for (size_t v = 0; v + 1 < known.size(); ++v) {
    check<ValueError>(last_use[v].has_value(), "Graph", "no node reads the output of \"", known[v], '"',
                      Help{"the result of a graph is its last node's"});
    steps_[*last_use[v]].last.push_back(v);
  }
  find_fusions();
}

Graph::Graph(const Graph& other) : Module(other), nodes_(other.nodes_), inputs_(other.inputs_), steps_(other.steps_) {
  structure_changed();
}

void Graph::structure_changed() {
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].layer) nodes_[i].layer = own_child(*steps_[i].layer);
  }
  if (steps_.size() == nodes_.size()) find_fusions();
}

// Returns the node whose output is the only input of node i, if nothing else reads that output.
std::optional<size_t> Graph::only_before(size_t i, std::span<const int> uses) const {
  const size_t v = steps_[i].from[0];
  if (nodes_[i].combine || v < inputs_.size() || uses[v] > 1) return {};
  return v - inputs_.size();
}

// Finds the batch normalisations and ReLUs that steps before them compute, too.
void Graph::find_fusions() {
  std::vector<int> uses(inputs_.size() + nodes_.size());
  for (Step& step : steps_) {
    step.conv_norm = nullptr;
    step.sum_relu = step.passes_on = step.leaves_norm = false;
    step.norm = {};
    step.relu = nullptr;
    for (size_t v : step.from) ++uses[v];
  }
  const auto is_sum = [&](size_t i) { return nodes_[i].combine == Combine::add && steps_[i].from.size() == 2; };
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].layer) continue;
    std::optional<size_t> before = only_before(i, uses);
    if (!is_relu(*nodes_[i].layer)) {
      if (before && nodes_[*before].layer) steps_[*before].conv_norm = ConvNorm::of(*nodes_[*before].layer, *nodes_[i].layer);
      steps_[i].passes_on = before && steps_[*before].conv_norm;
      continue;
    }
    if (is_sum(i)) steps_[i].sum_relu = true;
    if (!before) continue;
    if (steps_[*before].passes_on && !is_relu(*nodes_[*before].layer)) before = only_before(*before, uses);  // to the convolution
    Step& step = steps_[*before];
    if (nodes_[*before].layer)
      step.relu = with_relu(*nodes_[*before].layer);
    else
      step.sum_relu = is_sum(*before);
    steps_[i].passes_on = step.relu || (step.sum_relu && !nodes_[*before].layer);
  }
  for (Step& step : steps_)
    if (step.sum_relu) find_norm(step, uses);
}

// Finds a batch normalisation whose result nothing but this sum reads.
void Graph::find_norm(Step& sum, std::span<const int> uses) {
  for (size_t input = 0; input < sum.from.size() && !sum.norm; ++input) {
    const size_t v = sum.from[input];
    if (v < inputs_.size() || uses[v] > 1) continue;
    const size_t node = v - inputs_.size();
    const auto& layer = nodes_[node].layer;
    // A layer that several nodes share must see its inputs in their order.
    const bool shared = std::count_if(nodes_.begin(), nodes_.end(), [&](const Node& n) { return n.layer == layer; }) > 1;
    if (!layer || nodes_[node].combine || shared || !batch_norm_of(*layer)) continue;
    sum.norm = {node, input};
    steps_[node].leaves_norm = true;
    if (steps_[node].passes_on) steps_[steps_[node].from[0] - inputs_.size()].leaves_norm = true;
  }
}

bool Graph::may_fuse() const {
  if (any_hooks() || any_recomputes() || policies_forbid_fusing()) return false;
  return std::none_of(child_slots().begin(), child_slots().end(),
                      [](const auto& slot) { return slot->module && slot->module->precision(); });
}

Tensor Graph::run_step(size_t i, Tensors in, bool fused) const {
  const Node& node = nodes_[i];
  const Step& step = steps_[i];
  const auto is_left = [](const Step& s) { return s.leaves_norm && !(inference_enabled() && (s.conv_norm || s.passes_on)); };
  if (fused && (step.passes_on || (is_left(step) && !step.conv_norm))) return in[0];
  if (fused && step.norm && is_left(steps_[step.norm->node]))
    return batch_norm_of(*nodes_[step.norm->node].layer)->add_relu(in[step.norm->input], in[1 - step.norm->input]);
  if (fused && step.sum_relu) return add_relu(in[0], in[1]);
  const Tensor y = node.combine ? combine(*node.combine, in, node.dim) : in[0];
  in.clear();
  if (!node.layer) return y;
  if (fused && step.conv_norm && !is_left(step)) return (*step.conv_norm)(y, step.relu != nullptr);
  return fused && step.relu ? step.relu(*node.layer, y) : (*node.layer)(y);
}

Tensor Graph::Input::of(const Tensor& x) const {
  if (start == 0 && !end) return x;
  const int64_t size = x.size(dim), to = end.value_or(size);
  check<ShapeError>(0 <= start && start < to && to <= size, "Graph", "input \"", name, "\" must be a part of the ", size,
                    " places along dimension ", dim, ", got ", start, " to ", to);
  return narrow(x, dim, start, to - start);
}

Tensor Graph::forward(const Tensor& x) {
  const bool fused = may_fuse();
  Tensors values;
  values.reserve(inputs_.size() + nodes_.size());
  for (const Input& input : inputs_) values.push_back(input.of(x));
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Tensors in;
    for (size_t v : steps_[i].from) in.push_back(values[v]);
    for (size_t v : steps_[i].last) values[v] = {};  // frees values after their last use
    values.push_back(run_step(i, std::move(in), fused));
  }
  return values.back();
}

bool Graph::is_recordable() const { return children_recordable(*this); }

}  // namespace halfstep
