// SPDX-License-Identifier: Apache-2.0
// Selects whole slices by an index, and single elements by several indices. Indices are int64 or int32 and are never cast; an
// index outside its dimension throws IndexError (CUDA: with the next value that the host reads).
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

// Returns x with alpha src[.., i, ..] added at [.., index[i], ..]; equal indices add up, in order. Here and in the next two, index:
// [n] or []; x and src agree outside dim, where src has size n.
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, double alpha = 1);
// Returns x with src[.., i, ..] at [.., index[i], ..]; of equal indices the last one wins. autocast: promote
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
// Returns x with the slices `index` set to a number, or to the value of a 0-dim tensor. Negative indices count from the end.
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, Number value);
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& value);
// Returns the elements of x, read as one row-major line, at `index`, in index's shape. Negative indices count from the end.
Tensor take(const Tensor& x, const Tensor& index);

// Returns x[i0, i1, ...]: tensor k selects along dimension k; an undefined tensor means ':'. Indices broadcast against each other
// and may be negative; a bool tensor means the indices of its true elements, and covers as many dimensions as it has. The
// dimensions of the indices are at the place of the first index, or come first if a ':' is between indices.
Tensor index(const Tensor& x, const Tensors& indices);
// Returns x with `values`, which broadcast to the shape of index(x, indices), at those places. For repeated elements, all values
// are added (accumulate), or the last one wins. autocast: promote
Tensor index_put(const Tensor& x, const Tensors& indices, const Tensor& values, bool accumulate = false);

// Returns the rows of weight: weight [V, D], index of any shape -> [..., D]. padding_idx (negative: from the end): a row without
// gradient. scale_grad_by_freq: divides the gradient of a row by its number of occurrences. max_norm: first scales the selected
// rows down in place, outside the graph, to norms of order norm_type of at most max_norm.
Tensor embedding(const Tensor& weight, const Tensor& index, std::optional<int64_t> padding_idx = {},
                 bool scale_grad_by_freq = false, std::optional<double> max_norm = {}, double norm_type = 2);
// Returns the gradient of weight, [rows, D], for a gradient of the output. A negative padding_idx: none.
Tensor embedding_dense_backward(const Tensor& grad, const Tensor& index, int64_t rows, int64_t padding_idx = -1,
                                bool scale_grad_by_freq = false);
// Returns int64 [..., num_classes] with 1 at the class and 0 elsewhere; num_classes -1: one more than the largest (a host read).
Tensor one_hot(const Tensor& index, int64_t num_classes = -1);

// Returns gather of x and index, which broadcast outside of dim; without dim both are read as one line.
Tensor take_along_dim(const Tensor& x, const Tensor& index, std::optional<int64_t> dim = {});

// Returns x with src, or a number, at the places that gather(x, dim, index) reads; if several go to one place, the last wins.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, Number value);
// Whether elements of src are added to, or multiplied with, the element at their place; several for one place are all applied.
enum class ScatterReduce : uint8_t { add, multiply };
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, ScatterReduce reduce);
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, Number value, ScatterReduce reduce);
// Reduces what gather(x, dim, index) reads by "sum", "prod", "mean", "amax" or "amin", including x's own element unless
// include_self is false. Other elements stay. Equal extremes share the gradient.
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, std::string_view reduce,
                      bool include_self = true);

}  // namespace halfstep
