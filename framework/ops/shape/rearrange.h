// SPDX-License-Identifier: Apache-2.0
// Shape ops that ops.h lacks. "view": shares x's memory; all others copy.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

Tensor squeeze(const Tensor& x);                                               // view: without dimensions of size 1
Tensor unflatten(const Tensor& x, int64_t dim, const Shape& sizes);            // view: splits dim; one size may be -1
Tensor movedim(const Tensor& x, const Dims& source, const Dims& destination);  // view
Tensor movedim(const Tensor& x, int64_t source, int64_t destination);
Tensor swapaxes(const Tensor& x, int64_t a, int64_t b);    // view: transpose
Tensor broadcast_to(const Tensor& x, const Shape& shape);  // view: expand
Tensor expand_as(const Tensor& x, const Tensor& other);    // view
// Return views of parts of x along dim. split: parts of `size` (the last may be smaller), or of the given sizes; chunk: at most
// `chunks` equal parts; unbind: each slice without the dimension.
Tensors split(const Tensor& x, int64_t size, int64_t dim = 0);
Tensors split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim = 0);
inline Tensors split(const Tensor& x, std::initializer_list<int64_t> sizes, int64_t dim = 0) {  // {2} is a list, as in Python
  return split(x, std::vector<int64_t>(sizes), dim);
}
Tensors chunk(const Tensor& x, int64_t chunks, int64_t dim = 0);
Tensors unbind(const Tensor& x, int64_t dim = 0);
// Returns a view [..., n]: the elements x[.., i, .., i + offset, ..] of two dimensions, which become the last.
Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1);
// Returns zeros with the last dimension of x on a diagonal; the inverse of diagonal.
Tensor diag_embed(const Tensor& x, int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1);
Tensor diag(const Tensor& x, int64_t diagonal = 0);  // [n] -> a matrix with it on a diagonal; a matrix -> its diagonal (view)

// Returns a view [..., n, ..., size]: windows of `size` along dim, each `step` after the previous one.
Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step);
Tensor flip(const Tensor& x, const Dims& dims);  // in reverse order
Tensor roll(const Tensor& x, const Dims& shifts,
            const Dims& dims = {});  // out[(i + shift) mod n] = x[i]; without dims, x is one line
Tensor rot90(const Tensor& x, int64_t k = 1, const Dims& dims = {0, 1});  // turns by k quarters from dims[0] towards dims[1]
Tensor repeat(const Tensor& x, const Shape& repeats);  // repeats x as a whole; repeats may have more leading dimensions
Tensor tile(const Tensor& x, const Shape& repeats);    // repeat with 1 for missing leading repeats
// Repeats each slice along dim; without dim, x is one line. repeats as a tensor: [] or one integer per slice (the host reads it).
// output_size: the required size of dim, else ShapeError.
Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim = {},
                         std::optional<int64_t> output_size = {});
Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, std::optional<int64_t> dim = {},
                         std::optional<int64_t> output_size = {});
Tensors meshgrid(const Tensors& xs, bool xy = false);  // views; xy: exchanges the first two dimensions

}  // namespace halfstep
