// SPDX-License-Identifier: Apache-2.0
// Lists of what Device::meta cannot know.
#pragma once

#include <set>
#include <string>

namespace halfstep::testing {

// Ops that check values only on the CPU, where reading them is free.
inline const std::set<std::string> kCheckValues = {"bernoulli", "binary_cross_entropy", "cholesky", "gaussian_nll_loss",
    "inverse", "linalg_eigh", "linalg_eigvalsh", "linalg_lstsq", "linalg_matrix_rank", "linalg_pinv", "linalg_solve", "linalg_svd",
    "linalg_svdvals", "logdet", "matrix_power", "multinomial", "pinverse", "repeat_interleave", "slogdet"};
// Ops that refuse meta tensors, because their result's shape or their course depends on values: in all forms, or in the form with
// a mask (index, index_put, where), with numbers in 0-dim tensors (linspace, narrow), or with sizes to be found (embedding_bag
// with offsets for the largest elements, one_hot, repeat_interleave).
inline const std::set<std::string> kNeedValues = {
    "allclose",  "bincount",          "ctc_loss",       "embedding_bag",      "equal",  "index",
    "index_put", "linspace",          "masked_scatter", "masked_select",      "narrow", "nonzero",
    "one_hot",   "repeat_interleave", "unique",         "unique_consecutive", "where"};

inline std::string joined_names(const std::set<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : " ") + name;
  return all;
}

}  // namespace halfstep::testing
