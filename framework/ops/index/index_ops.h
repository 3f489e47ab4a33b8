// SPDX-License-Identifier: Apache-2.0
// Whole slices chosen by an index, and single elements chosen by several. Indices are int64 or int32 and are never cast;
// an index outside its dimension is an IndexError (CUDA: with the next value that the host reads).
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

// Below, index: [n] or []; x and src agree outside dim, where src has n.
// x with alpha src[.., i, ..] added at [.., index[i], ..]; equal indices add up, in order.
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, double alpha = 1);
// x with src[.., i, ..] at [.., index[i], ..]; of equal indices the last stays. autocast: promote
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
// x with the slices `index` set to a number, or to the one value of a tensor. Negative indices count from the end.
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, Number value);
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& value);
// The elements of x, seen as one row-major line, at `index`; of index's shape. Negative indices count from the end.
Tensor take(const Tensor& x, const Tensor& index);

// x[i0, i1, ...]: tensor k chooses along dimension k; an undefined tensor means ':'. Indices broadcast against each other and may
// be negative; a bool tensor means the indices of its true elements, and indexes as many dimensions as it has. The dimensions of
// the indices are at the place of the first index, or first when a ':' is between indices.
Tensor index(const Tensor& x, const Tensors& indices);
// x with `values`, which broadcast to the shape of index(x, indices), there. Elements named several times get all their values
// added up (accumulate), or the last one. autocast: promote
Tensor index_put(const Tensor& x, const Tensors& indices, const Tensor& values, bool accumulate = false);

// weight: [V, D], index: any shape -> [..., D], the rows of weight. padding_idx (negative: from the end): a row that gets no
// gradient. scale_grad_by_freq: the gradient of a row is divided by how often it was chosen.
// max_norm: the chosen rows are first scaled down in place, outside the graph, until their norms of order norm_type are at most
// that.
Tensor embedding(const Tensor& weight, const Tensor& index, std::optional<int64_t> padding_idx = {},
                 bool scale_grad_by_freq = false, std::optional<double> max_norm = {}, double norm_type = 2);
// The gradient of weight, [rows, D], for this gradient of the output. A negative padding_idx: none.
Tensor embedding_dense_backward(const Tensor& grad, const Tensor& index, int64_t rows, int64_t padding_idx = -1,
                                bool scale_grad_by_freq = false);
// int64 [..., num_classes], 1 at the class and 0 elsewhere; num_classes -1: one more than the largest (a host read).
Tensor one_hot(const Tensor& index, int64_t num_classes = -1);

// gather, where x and index broadcast outside of dim; without dim both are read as one line.
Tensor take_along_dim(const Tensor& x, const Tensor& index, std::optional<int64_t> dim = {});

// x with src, or a number, at the places that gather(x, dim, index) reads; of several for one place the last stays.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, Number value);
// Each element of src is added to, or multiplied by, the element at its place; several for one place are all applied.
enum class ScatterReduce : uint8_t { add, multiply };
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, ScatterReduce reduce);
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, Number value, ScatterReduce reduce);
// "sum", "prod", "mean", "amax" or "amin" of what gather(x, dim, index) reads, x's own element too unless include_self is false.
// Elements that nothing is for stay. Equal extremes share the gradient.
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, std::string_view reduce,
                      bool include_self = true);

}  // namespace halfstep
