#include "framework/ops/registry.h"

#include <algorithm>

namespace halfstep {

const OpList& all_ops() {
  static const OpList list = [] {
    OpList l;
    for (auto add : {add_elementwise, add_select, add_copies, add_views, add_products, add_mlp, add_reductions, add_softmax, add_losses,
                     add_indexing, add_random})
      add(l);
    std::sort(l.begin(), l.end(), [](const OpInfo& a, const OpInfo& b) { return a.name < b.name; });
    return l;
  }();
  return list;
}

const OpInfo* find_op(std::string_view name) {
  for (const OpInfo& op : all_ops())
    if (op.name == name) return &op;
  return nullptr;
}

}  // namespace halfstep
