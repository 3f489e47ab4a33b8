// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/core/registry.h"

#include <algorithm>

#include "framework/base/list_text.h"
#include "framework/ops/core/composite.h"

namespace halfstep {

std::vector<Op> OpList::finish() {
  const size_t own_count = ops_.size();
  for (const auto& [name, original, run] : aliases_)
    for (size_t i = 0; i < own_count; ++i)
      if (ops_[i].name == original) {
        Op op = ops_[i];
        op.name = name;
        op.alias_of = original;
        if (run) op.run = run;
        ops_.push_back(op);
      }
  std::sort(ops_.begin(), ops_.end(), [](const Op& a, const Op& b) { return a.name < b.name; });
  return std::move(ops_);
}

const std::vector<Op>& all_ops() {
  static const auto& ops = *new std::vector<Op>([] {  // never freed: calls at exit may still need it
    OpList list;
    for (auto add :
         {add_elementwise,   add_pointwise,      add_activations,     add_bitwise,      add_where,         add_copies,
          add_create,        add_views,          add_rearrange,       add_part_views,   add_stacks,        add_products,
          add_mlp,           add_vectors,        add_contractions,    add_attention,    add_distances,     add_reductions,
          add_moments,       add_scans,          add_sorting,         add_softmax,      add_losses,        add_pointwise_losses,
          add_margin_losses, add_ctc_loss,       add_gather_scatter,  add_index_ops,    add_index_put,     add_masks,
          add_search,        add_inverse,        add_pseudo_inverse,  add_convolution,  add_unfold,        add_pooling,
          add_resample,      add_decompositions, add_fractional_pool, add_grid_sample,  add_pixel_shuffle, add_padding,
          add_normalization, add_batch_norm,     add_recurrent,       add_sequences,    add_embedding_bag})
      add(list);
    return list.finish();
  }());
  return ops;
}

const Op* find_op(std::string_view name) {
  for (const Op& op : all_ops())
    if (op.name == name) return &op;
  return nullptr;
}

namespace {

// Returns ", such as 'conv1d', ...": the first names that contain `part`.
std::string names_with(std::string_view part, const std::vector<std::string>& known) {
  std::string out;
  constexpr int kMost = 5;
  int found = 0;
  for (const std::string& name : known)
    if (!part.empty() && name.find(part) != std::string::npos && ++found <= kMost)
      out += (found == 1 ? ", such as '" : "', '") + name;
  return found == 0 ? "" : out + "'";
}

}  // namespace

Tensors invoke(std::string_view name, std::vector<TensorArgument> tensors, const nlohmann::json& attributes) {
  const Op* op = find_op(name);
  if (!op) {
    std::vector<std::string> known;
    for (const Op& o : all_ops()) known.emplace_back(o.name);
    const std::string near = nearest_name(name, known);
    fail<ValueError>("op", "there is no op '", name, "'",
                     Help{!near.empty() ? "did you mean '" + near + "'?" : "`halfstep ops` lists them" + names_with(name, known)});
  }
  Args args(op->name, std::move(tensors), attributes);
  Tensors out = under_name(op->name, [&] { return op->run(args); });
  args.check_all_used();
  return out;
}

}  // namespace halfstep
