// SPDX-License-Identifier: Apache-2.0
// What the device that computes nothing cannot know.
#pragma once

#include <set>
#include <string>

namespace halfstep::testing {

// Ops that check values where reading them is free, which is on the CPU.
inline const std::set<std::string> kCheckValues = {"bernoulli", "binary_cross_entropy", "cholesky", "gaussian_nll_loss",
    "inverse", "linalg_eigh", "linalg_eigvalsh", "linalg_lstsq", "linalg_matrix_rank", "linalg_pinv", "linalg_solve", "linalg_svd",
    "linalg_svdvals", "logdet", "matrix_power", "multinomial", "pinverse", "repeat_interleave", "slogdet"};
// Ops whose result's shape or course depends on values, which therefore refuse: in all their forms, or in that of a mask (index,
// index_put, where), of numbers in 0-dim tensors (linspace, narrow), of sizes left to be found (embedding_bag with offsets for the
// largest elements, one_hot, repeat_interleave).
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
