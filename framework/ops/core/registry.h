// SPDX-License-Identifier: Apache-2.0
// The list of all ops: for documentation, completeness tests and the precision plan, and for calling an op by its name.
#pragma once

#include <functional>
#include <type_traits>
#include <vector>

#include "framework/ops/core/args.h"
#include "framework/ops/core/call.h"

namespace halfstep {

struct Op : OpInfo {
  std::function<Tensors(Args&)> run;  // through the public function, in PyTorch's argument order
  std::string_view alias_of = "";     // the op of which this is another name: operators and modules in the autocast lists
};

class OpList {
 public:
  // Adds an op. run: Tensor(Args&) or Tensors(Args&)
  template <class Run>
  void add(const OpInfo& info, Run run) {
    if constexpr (std::is_same_v<std::invoke_result_t<Run, Args&>, Tensor>)
      ops_.push_back({info, [run](Args& a) { return Tensors{run(a)}; }});
    else
      ops_.push_back({info, run});
  }
  // Adds another name of an op, with its own call if its arguments have other names.
  void alias(std::string_view name, std::string_view op, std::function<Tensors(Args&)> run = {}) {
    aliases_.push_back({name, op, run});
  }
  // Adds the aliases, sorts by name, and returns the list, which it moves away.
  std::vector<Op> finish();

 private:
  std::vector<Op> ops_;
  struct Alias {
    std::string_view name, op;
    std::function<Tensors(Args&)> run;
  };
  std::vector<Alias> aliases_;
};

const std::vector<Op>& all_ops();  // sorted by name
const Op* find_op(std::string_view name);
// Calls an op by name. Throws ValueError for an unknown one ("did you mean") and for arguments that it does not take.
Tensors invoke(std::string_view name, std::vector<TensorArgument> tensors, const nlohmann::json& attributes);

// Add the ops of a family; each is defined beside its ops.
void add_elementwise(OpList& list);
void add_pointwise(OpList& list);
void add_bitwise(OpList& list);
void add_activations(OpList& list);
void add_where(OpList& list);
void add_copies(OpList& list);
void add_create(OpList& list);
void add_views(OpList& list);
void add_rearrange(OpList& list);
void add_part_views(OpList& list);
void add_stacks(OpList& list);
void add_products(OpList& list);
void add_mlp(OpList& list);
void add_vectors(OpList& list);
void add_contractions(OpList& list);
void add_attention(OpList& list);
void add_distances(OpList& list);
void add_reductions(OpList& list);
void add_moments(OpList& list);
void add_scans(OpList& list);
void add_sorting(OpList& list);
void add_softmax(OpList& list);
void add_losses(OpList& list);
void add_pointwise_losses(OpList& list);
void add_margin_losses(OpList& list);
void add_ctc_loss(OpList& list);
void add_gather_scatter(OpList& list);
void add_index_ops(OpList& list);
void add_index_put(OpList& list);
void add_masks(OpList& list);
void add_search(OpList& list);
void add_decompositions(OpList& list);
void add_inverse(OpList& list);
void add_pseudo_inverse(OpList& list);
void add_convolution(OpList& list);
void add_unfold(OpList& list);
void add_pooling(OpList& list);
void add_fractional_pool(OpList& list);
void add_resample(OpList& list);
void add_grid_sample(OpList& list);
void add_pixel_shuffle(OpList& list);
void add_padding(OpList& list);
void add_normalization(OpList& list);
void add_batch_norm(OpList& list);
void add_recurrent(OpList& list);
void add_sequences(OpList& list);
void add_embedding_bag(OpList& list);

}  // namespace halfstep
