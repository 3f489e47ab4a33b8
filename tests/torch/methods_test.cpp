// SPDX-License-Identifier: Apache-2.0
// The methods of torch/tensor/methods.def and their functions: what libtorch 2.15 prints for the same lines.
#include <doctest/doctest.h>

#include "tests/torch/support.h"

using torch::Tensor;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

// What the rows compute with.
struct Inputs {
  Tensor a = torch::tensor({{1.0, -2.5, 3.25}, {0.5, 4.0, -1.0}}), v = torch::tensor({1.0, 2.0, 3.0}),
         w = torch::tensor({-1.0, 0.5, 2.0}), q = torch::tensor({{2.0, 1.0, 0.0}, {1.0, 3.0, 0.5}, {0.0, 0.5, 4.0}}),
         i = torch::tensor({{1, 2, 3}, {4, 5, 6}}), m = torch::tensor({{true, false, true}, {false, true, false}}),
         odd = torch::tensor({kNan, kInf, -kInf, 1.5}), b3 = torch::arange(12.0).view({2, 2, 3}),
         c3 = torch::arange(12.0).view({2, 3, 2});
};

}  // namespace

TEST_CASE_FIXTURE(Inputs, "torch methods: losses, pixels, products of lists and combinations") {
  ROW(torch::huber_loss(torch::tensor({0.0, 3.0}), torch::zeros({2}), torch::Reduction::Sum, 2.0), "[] float: 4");
  ROW(torch::pixel_shuffle(torch::arange(4.0).view({1, 4, 1, 1}), 2), "[1, 1, 2, 2] float: 0 1 2 3");
  ROW(torch::pixel_unshuffle(torch::arange(4.0).view({1, 1, 2, 2}), 2), "[1, 4, 1, 1] float: 0 1 2 3");
  ROW(torch::tensor({1.26, -2.44}).round(1), "[2] float: 1.3 -2.4");
  ROW(torch::cartesian_prod({torch::tensor({1, 2}), torch::tensor({3, 4})}), "[4, 2] long int: 1 3 1 4 2 3 2 4");
  ROW(torch::cartesian_prod({v}), "[3] float: 1 2 3");
  ROW(torch::combinations(v), "[3, 2] float: 1 2 1 3 2 3");
  ROW(torch::combinations(torch::tensor({7, 8}), 2, true), "[3, 2] long int: 7 7 7 8 8 8");
  ROW(torch::combinations(v, 4), "[0, 4] float:");
  ROW(torch::combinations(a), "throws");
  CHECK(torch::numel(a) == 6);
}

TEST_CASE_FIXTURE(Inputs, "torch methods: quotients that are rounded") {
  ROW(torch::tensor({7, -7}).div(2, "floor"), "[2] long int: 3 -4");
  ROW(torch::div(torch::tensor({7, -7}), 2, "trunc"), "[2] long int: 3 -3");
  ROW(a.div(w, "floor"), "[2, 3] float: -1 -5 1 -1 8 -1");
  ROW(i.clone().div_(torch::tensor({2, 2, 2}), "trunc"), "[2, 3] long int: 0 1 1 2 2 3");
  ROW(i.div(4, std::nullopt), "[2, 3] float: 0.25 0.5 0.75 1 1.25 1.5");
  ROW(i.div(4, "up"), "throws");
}

TEST_CASE_FIXTURE(Inputs, "torch methods: sums of products, and interpolation") {
  ROW(torch::zeros({2, 2}).addbmm(b3, c3), "[2, 2] float: 182 206 272 314");
  ROW(torch::zeros({2, 2}).addbmm_(b3, c3, 1, 0.5), "[2, 2] float: 91 103 136 157");
  ROW(torch::ones({2}).addmv(a, v, 2, 3), "[2] float: 19.25 18.5");
  ROW(torch::ones({2}).addmv_(a, v), "[2] float: 6.75 6.5");
  ROW(a.addr(torch::ones({2}), v), "[2, 3] float: 2 -0.5 6.25 1.5 6 2");
  ROW(a.clone().addr_(torch::ones({2}), v, 0.5, 2), "[2, 3] float: 2.5 2.75 7.625 2.25 6 5.5");
  ROW(torch::ones({2, 2, 2}).baddbmm(b3, c3, 2, 0.1), "[2, 2, 2] float: 3 3.3 4.8 6 19.2 21.3 26.4 29.4");
  ROW(torch::ones({2, 2, 2}).baddbmm_(b3, c3), "[2, 2, 2] float: 11 14 29 41 173 194 245 275");
  ROW(torch::ones({2, 3}).addmm_(torch::ones({2, 2}), a), "[2, 3] float: 2.5 2.5 3.25 2.5 2.5 3.25");
  ROW(v.lerp(w, 0.25), "[3] float: 0.5 1.625 2.75");
  ROW(v.clone().lerp_(w, 0.25), "[3] float: 0.5 1.625 2.75");
  ROW(torch::lerp(v, w, torch::tensor({0.0, 0.5, 1.0})), "[3] float: 1 1.25 2");
}

TEST_CASE_FIXTURE(Inputs, "torch methods: numbers") {
  ROW(i.float_power(2), "[2, 3] double: 1 4 9 16 25 36");
  ROW(torch::float_power(v, w), "[3] double: 1 1.414 9");
  ROW(a.frac(), "[2, 3] float: 0 -0.5 0.25 0.5 0 0");
  ROW(a.clone().frac_(), "[2, 3] float: 0 -0.5 0.25 0.5 0 0");
  ROW(a.deg2rad(), "[2, 3] float: 0.01745 -0.04363 0.05672 0.008727 0.06981 -0.01745");
  ROW(i.rad2deg(), "[2, 3] float: 57.3 114.6 171.9 229.2 286.5 343.8");
  ROW(i.clone().deg2rad_(), "throws");
  ROW(torch::tensor({0.1, 0.5, 2.0}).logit(), "[3] float: -2.197 0 nan");
  ROW(torch::tensor({0.1, 0.5, 2.0}).logit(0.2), "[3] float: -1.386 0 1.386");
  ROW(odd.nan_to_num(), "[4] float: 0 3.403e+38 -3.403e+38 1.5");
  ROW(odd.nan_to_num(7.0, 8.0, 9.0), "[4] float: 7 8 9 1.5");
  ROW(torch::nan_to_num(odd, 3), "[4] float: 3 3.403e+38 -3.403e+38 1.5");
  ROW(odd.clone().nan_to_num_(), "[4] float: 0 3.403e+38 -3.403e+38 1.5");
  ROW(a.renorm(2, 0, 2), "[2, 3] float: 0.4739 -1.185 1.54 0.2408 1.926 -0.4815");
  ROW(a.hardshrink(), "[2, 3] float: 1 -2.5 3.25 0 4 -1");
  ROW(a.hardshrink(1), "[2, 3] float: 0 -2.5 3.25 0 4 0");
  ROW(a.prelu(torch::tensor({0.25})), "[2, 3] float: 1 -0.625 3.25 0.5 4 -0.25");
  ROW(a.positive(), "[2, 3] float: 1 -2.5 3.25 0.5 4 -1");
  ROW(odd.isposinf(), "[4] bool: 0 1 0 0");
  ROW(odd.isneginf(), "[4] bool: 0 0 1 0");
  ROW(i.isposinf(), "[2, 3] bool: 0 0 0 0 0 0");
  ROW(i.clone().bitwise_not_(), "[2, 3] long int: -2 -3 -4 -5 -6 -7");
  ROW(m.clone().logical_not_(), "[2, 3] bool: 0 1 0 1 0 1");
  ROW(a.clone().logical_not_(), "[2, 3] float: 0 0 0 0 0 0");
  ROW(i.clone().bitwise_and_(torch::tensor(3)), "[2, 3] long int: 1 2 3 0 1 2");
  ROW(i.clone().bitwise_or_(torch::tensor(8)), "[2, 3] long int: 9 10 11 12 13 14");
  ROW(i.clone().bitwise_xor_(i), "[2, 3] long int: 0 0 0 0 0 0");
  ROW(m.clone().bitwise_xor_(m), "[2, 3] bool: 0 0 0 0 0 0");
  ROW(i.bitwise_left_shift(torch::tensor(2)), "[2, 3] long int: 4 8 12 16 20 24");
  ROW(i.bitwise_right_shift(1), "[2, 3] long int: 0 1 1 2 2 3");
  ROW(i.clone().bitwise_left_shift_(2), "[2, 3] long int: 4 8 12 16 20 24");
}

TEST_CASE_FIXTURE(Inputs, "torch methods: other names, and comparisons in place") {
  ROW(a.absolute(), "[2, 3] float: 1 2.5 3.25 0.5 4 1");
  ROW(a.negative(), "[2, 3] float: -1 2.5 -3.25 -0.5 -4 1");
  ROW(v.clone().div(10).arccos(), "[3] float: 1.471 1.369 1.266");
  ROW((v / 10).arctan2(w), "[3] float: 3.042 0.3805 0.1489");
  ROW(a.clip(-1, 1), "[2, 3] float: 1 -1 1 0.5 1 -1");
  ROW(a.clone().clip_(-1, 1), "[2, 3] float: 1 -1 1 0.5 1 -1");
  ROW(a.fix(), "[2, 3] float: 1 -2 3 0 4 -1");
  ROW(a.sgn(), "[2, 3] float: 1 -1 1 1 1 -1");
  ROW(a.divide(2), "[2, 3] float: 0.5 -1.25 1.625 0.25 2 -0.5");
  ROW(a.multiply(a), "[2, 3] float: 1 6.25 10.56 0.25 16 1");
  ROW(a.subtract(1), "[2, 3] float: 0 -3.5 2.25 -0.5 3 -2");
  ROW(a.subtract(a, 2), "[2, 3] float: -1 2.5 -3.25 -0.5 -4 1");
  ROW(a.greater(0), "[2, 3] bool: 1 0 1 1 1 0");
  ROW(a.clone().less_equal_(0), "[2, 3] float: 0 1 0 0 0 1");
  ROW(a.not_equal(4), "[2, 3] bool: 1 1 1 1 0 1");
  ROW(torch::absolute(a), "[2, 3] float: 1 2.5 3.25 0.5 4 1");
  ROW(torch::greater_equal(a, 0.5), "[2, 3] bool: 1 0 1 1 1 0");
  ROW(torch::multiply(a, 3), "[2, 3] float: 3 -7.5 9.75 1.5 12 -3");
  ROW(torch::clip(a, 0.0, 1.0), "[2, 3] float: 1 0 1 0.5 1 0");
  ROW(a.true_divide(2), "[2, 3] float: 0.5 -1.25 1.625 0.25 2 -0.5");
  ROW(i.clone().divide_(2), "throws");
  ROW(a.clone().multiply_(2), "[2, 3] float: 2 -5 6.5 1 8 -2");
  ROW(i.clone().eq_(4), "[2, 3] long int: 0 0 0 1 0 0");
  ROW(i.clone().lt_(i + 1), "[2, 3] long int: 1 1 1 1 1 1");
  ROW(a.clone().ge_(0.5), "[2, 3] float: 1 0 1 1 1 0");
  ROW(m.clone().logical_and_(m), "[2, 3] bool: 1 0 1 0 1 0");
  ROW(i.clone().ne_(torch::tensor({1, 2, 4})), "[2, 3] long int: 0 0 1 1 1 1");
  ROW(torch::ones({3}).eq_(a), "throws");
}

TEST_CASE_FIXTURE(Inputs, "torch methods: products and matrices") {
  ROW(v.outer(w), "[3, 3] float: -1 0.5 2 -2 1 4 -3 1.5 6");
  ROW(v.ger(w), "[3, 3] float: -1 0.5 2 -2 1 4 -3 1.5 6");
  ROW(v.inner(w), "[] float: 6");
  ROW(a.inner(q), "[2, 3] float: -0.5 -4.875 11.75 5 12 -2");
  ROW(v.inner(torch::tensor(2.0)), "[3] float: 2 4 6");
  ROW(v.vdot(w), "[] float: 6");
  ROW(torch::tensor({1.0, 2.0}).kron(v), "[6] float: 1 2 3 2 4 6");
  ROW(v.cross(w), "[3] float: 2.5 -5 2.5");
  ROW(torch::cross(torch::arange(12.0).view({3, 4}), torch::ones({3, 4})), "[3, 4] float: -4 -4 -4 -4 8 8 8 8 -4 -4 -4 -4");
  ROW(torch::cross(torch::arange(9.0).view({3, 3}), torch::ones({3, 3})), "[3, 3] float: -3 -3 -3 6 6 6 -3 -3 -3");
  ROW(torch::cross(torch::ones({2, 2}), torch::ones({2, 2})), "throws");
  ROW(torch::cross(a, a.flip(0), 1), "[2, 3] float: -10.5 2.625 5.25 10.5 -2.625 -5.25");
  ROW(a.dist(q.slice(0, 0, 2)), "[] float: 5.226");
  ROW(a.dist(a + 1, 1), "[] float: 6");
  ROW(q.trace(), "[] float: 9");
  ROW(v.diag(), "[3, 3] float: 1 0 0 0 2 0 0 0 3");
  ROW(q.diag(1), "[2] float: 1 0.5");
  ROW(v.diag(-1), "[4, 4] float: 0 0 0 0 1 0 0 0 0 2 0 0 0 0 3 0");
  ROW(a.diagflat(), "[6, 6] float: 1 0 0 0 0 0 0 -2.5 0 0 0 0 0 0 3.25 0 0 0 0 0 0 0.5 0 0 0 0 0 0 4 0 0 0 0 0 0 -1");
  ROW(v.diagflat(1), "[4, 4] float: 0 1 0 0 0 0 2 0 0 0 0 3 0 0 0 0");
  ROW(a.diag_embed(), "[2, 3, 3] float: 1 0 0 0 -2.5 0 0 0 3.25 0.5 0 0 0 4 0 0 0 -1");
  ROW(a.diag_embed(1, 0, 2), "[4, 2, 4] float: 0 1 0 0 0 0.5 0 0 0 0 -2.5 0 0 0 4 0 0 0 0 3.25 0 0 0 -1 0 0 0 0 0 0 0 0");
  ROW(q.matrix_power(3), "[3, 3] float: 15 20.25 4.5 20.25 37.5 19.12 4.5 19.12 66.75");
  ROW(q.matrix_power(-1), "[3, 3] float: 0.6026 -0.2051 0.02564 -0.2051 0.4103 -0.05128 0.02564 -0.05128 0.2564");
  ROW((q / 4).matrix_exp(), "[3, 3] float: 1.705 0.4746 0.03346 0.4746 2.196 0.3042 0.03346 0.3042 2.738");
  ROW(q.logdet(), "[] float: 2.97");
  ROW(a.pinverse(), "[3, 2] float: 0.1633 0.1497 0.05442 0.2721 0.2993 0.1633");
  ROW(torch::ones({3, 1}).cholesky_solve(torch::tril(q)), "[3, 1] float: 0.227 0.04601 0.05729");
  ROW(a.mT(), "[3, 2] float: 1 0.5 -2.5 4 3.25 -1");
  ROW(b3.mT(), "[2, 3, 2] float: 0 3 1 4 2 5 6 9 7 10 8 11");
  ROW(a.mH(), "[3, 2] float: 1 0.5 -2.5 4 3.25 -1");
  ROW(a.adjoint(), "[3, 2] float: 1 0.5 -2.5 4 3.25 -1");
  ROW(q.clone().tril_(), "[3, 3] float: 2 0 0 1 3 0 0 0.5 4");
  ROW(q.clone().triu_(1), "[3, 3] float: 0 1 0 0 0 0.5 0 0 0");
  ROW(torch::tril(q, -1), "[3, 3] float: 0 0 0 1 0 0 0 0.5 0");
}

TEST_CASE_FIXTURE(Inputs, "torch methods: reductions and order") {
  ROW(a.amax(), "[] float: 4");
  ROW(a.amax(1), "[2] float: 3.25 4");
  ROW(a.amin({0, 1}, true), "[1, 1] float: -2.5");
  ROW(odd.nansum(), "[] float: -nan");
  ROW(torch::tensor({{kNan, 1.0}, {2.0, 4.0}}).nanmean(0), "[2] float: 2 2.5");
  ROW(torch::tensor({{kNan, 1.0}, {2.0, 4.0}}).nansum(1, true), "[2, 1] float: 1 6");
  ROW(torch::tensor({kNan, 1.0, 3.0, 2.0}).nanmedian(), "[] float: 2");
  ROW(v.quantile(0.4), "[] float: 1.8");
  ROW(a.quantile(0.25, 1), "[2] float: -0.75 -0.25");
  ROW(a.quantile(torch::tensor({0.0, 0.5}), 1, true), "[2, 2, 1] float: -2.5 -1 1 0.5");
  ROW(a.quantile(0.4, 1, false, "nearest"), "[2] float: 1 0.5");
  ROW(torch::tensor({kNan, 1.0, 3.0}).nanquantile(0.5), "[] float: 2");
  ROW(a.logcumsumexp(1), "[2, 3] float: 1 1.03 3.353 0.5 4.03 4.036");
  ROW(a.diff(), "[2, 2] float: -3.5 5.75 3.5 -5");
  ROW(a.diff(2), "[2, 1] float: 9.25 -8.5");
  ROW(v.diff(1, -1, torch::tensor({0.0})), "[3] float: 1 1 1");
  ROW(torch::tensor({1, 1, 3}).bincount(), "[4] long int: 0 2 0 1");
  ROW(torch::tensor({1, 1, 3}).bincount(v, 6), "[6] float: 0 3 0 3 0 0");
  ROW(a.msort(), "[2, 3] float: 0.5 -2.5 -1 1 4 3.25");
  ROW(m.argwhere(), "[3, 2] long int: 0 0 0 2 1 1");
  ROW(a.clone().cumsum_(1), "[2, 3] float: 1 -1.5 1.75 0.5 4.5 3.5");
  ROW(a.clone().cumprod_(0), "[2, 3] float: 1 -2.5 3.25 0.5 -10 -3.25");
  ROW(a.aminmax(), "[] float: -2.5 | [] float: 4");
  ROW(a.aminmax(1), "[2] float: -2.5 -1 | [2] float: 3.25 4");
  ROW(a.aminmax(0, true), "[1, 3] float: 0.5 -2.5 -1 | [1, 3] float: 1 4 3.25");
  ROW(a.cummax(1), "[2, 3] float: 1 1 3.25 0.5 4 4 | [2, 3] long int: 0 0 2 0 1 1");
  ROW(a.cummin(0), "[2, 3] float: 1 -2.5 3.25 0.5 -2.5 -1 | [2, 3] long int: 0 0 0 1 0 1");
  ROW(a.kthvalue(2), "[2] float: 1 0.5 | [2] long int: 0 0");
  ROW(a.kthvalue(1, 0, true), "[1, 3] float: 0.5 -2.5 -1 | [1, 3] long int: 1 0 1");
  ROW(torch::tensor({1, 2, 2, 3, 3}).mode(), "[] long int: 2 | [] long int: 2");
  ROW(a.median(1), "[2] float: 1 0.5 | [2] long int: 0 0");
  ROW(a.median(0, true), "[1, 3] float: 0.5 -2.5 -1 | [1, 3] long int: 1 0 1");
  ROW(odd.nanmedian(0), "[] float: 1.5 | [] long int: 3");
  ROW(torch::kthvalue(v, 1), "[] float: 1 | [] long int: 0");
  ROW(torch::mode(i), "[2] long int: 1 4 | [2] long int: 0 0");
  ROW(a.sort(true, 1, true), "[2, 3] float: 3.25 1 -2.5 4 0.5 -1 | [2, 3] long int: 2 0 1 1 0 2");
  ROW(torch::median(a, 1), "[2] float: 1 0.5 | [2] long int: 0 0");
  ROW(torch::aminmax(v), "[] float: 1 | [] float: 3");
}

TEST_CASE_FIXTURE(Inputs, "torch methods: shapes") {
  ROW(a.ravel(), "[6] float: 1 -2.5 3.25 0.5 4 -1");
  ROW(v.tile({2, 2}), "[2, 6] float: 1 2 3 1 2 3 1 2 3 1 2 3");
  ROW(v.broadcast_to({2, 3}), "[2, 3] float: 1 2 3 1 2 3");
  ROW(a.narrow_copy(1, 1, 2), "[2, 2] float: -2.5 3.25 4 -1");
  ROW(a.fliplr(), "[2, 3] float: 3.25 -2.5 1 -1 4 0.5");
  ROW(a.flipud(), "[2, 3] float: 0.5 4 -1 1 -2.5 3.25");
  ROW(a.rot90(), "[3, 2] float: 3.25 -1 -2.5 4 1 0.5");
  ROW(a.rot90(-1), "[3, 2] float: 0.5 1 4 -2.5 -1 3.25");
  ROW(b3.rot90(1, {1, 2}), "[2, 3, 2] float: 2 5 1 4 0 3 8 11 7 10 6 9");
  ROW(a.repeat_interleave(2), "[12] float: 1 1 -2.5 -2.5 3.25 3.25 0.5 0.5 4 4 -1 -1");
  ROW(a.repeat_interleave(2, 1), "[2, 6] float: 1 1 -2.5 -2.5 3.25 3.25 0.5 0.5 4 4 -1 -1");
  ROW(v.repeat_interleave(torch::tensor({1, 0, 2}), 0), "[3] float: 1 3 3");
  ROW(torch::repeat_interleave(a, 2, 0), "[4, 3] float: 1 -2.5 3.25 1 -2.5 3.25 0.5 4 -1 0.5 4 -1");
  ROW(v.tensor_split(2), "[2] float: 1 2 | [1] float: 3");
  ROW(a.tensor_split({1, 2}, 1), "[2, 1] float: 1 0.5 | [2, 1] float: -2.5 4 | [2, 1] float: 3.25 -1");
  ROW(a.hsplit(3), "[2, 1] float: 1 0.5 | [2, 1] float: -2.5 4 | [2, 1] float: 3.25 -1");
  ROW(v.hsplit(3), "[1] float: 1 | [1] float: 2 | [1] float: 3");
  ROW(a.vsplit(2), "[1, 3] float: 1 -2.5 3.25 | [1, 3] float: 0.5 4 -1");
  ROW(b3.dsplit(3), "[2, 2, 1] float: 0 3 6 9 | [2, 2, 1] float: 1 4 7 10 | [2, 2, 1] float: 2 5 8 11");
  ROW(a.split({1, 2}, 1), "[2, 1] float: 1 0.5 | [2, 2] float: -2.5 3.25 4 -1");
  ROW(torch::tensor_split(v, 2), "[2] float: 1 2 | [1] float: 3");
  ROW(v.split(2), "[2] float: 1 2 | [1] float: 3");
  ROW(a.hsplit(2), "throws");
  ROW(a.moveaxis(0, 1), "[3, 2] float: 1 0.5 -2.5 4 3.25 -1");
  ROW(a.swapaxes(0, 1), "[3, 2] float: 1 0.5 -2.5 4 3.25 -1");
  ROW(a.swapdims(1, 0), "[3, 2] float: 1 0.5 -2.5 4 3.25 -1");
  ROW(a.clone().swapaxes_(0, 1), "[3, 2] float: 1 0.5 -2.5 4 3.25 -1");
  ROW(torch::ones({1, 3, 1}).squeeze_(), "[3] float: 1 1 1");
  ROW(torch::ones({1, 3, 1}).squeeze_(0), "[3, 1] float: 1 1 1");
  ROW(torch::zeros({3, 3}).fill_diagonal_(2), "[3, 3] float: 2 0 0 0 2 0 0 0 2");
  ROW(torch::zeros({2, 2}).resize_as_(v), "[3] float: 0 0 0");
  ROW(m.count_nonzero(torch::IntArrayRef({1})), "[2] long int: 2 1");
}

TEST_CASE_FIXTURE(Inputs, "torch methods: indexing") {
  ROW(a.index_add(1, torch::tensor({0, 0}), torch::ones({2, 2})), "[2, 3] float: 3 -2.5 3.25 2.5 4 -1");
  ROW(a.index_add(1, torch::tensor({0, 2}), torch::ones({2, 2}), -2), "[2, 3] float: -1 -2.5 1.25 -1.5 4 -3");
  ROW(a.index_copy(1, torch::tensor({2, 0}), torch::ones({2, 2})), "[2, 3] float: 1 -2.5 1 1 4 1");
  ROW(a.clone().index_copy_(0, torch::tensor({1}), torch::ones({1, 3})), "[2, 3] float: 1 -2.5 3.25 1 1 1");
  ROW(a.index_fill(1, torch::tensor({1}), 9), "[2, 3] float: 1 9 3.25 0.5 9 -1");
  ROW(a.index_fill(1, torch::tensor({1}), torch::tensor(9.0)), "[2, 3] float: 1 9 3.25 0.5 9 -1");
  ROW(a.masked_scatter(m, v), "[2, 3] float: 1 -2.5 2 0.5 3 -1");
  ROW(a.clone().masked_scatter_(m, v), "[2, 3] float: 1 -2.5 2 0.5 3 -1");
  ROW(a.scatter_add(1, torch::tensor({{0, 0, 1}, {2, 2, 2}}), torch::ones({2, 3})), "[2, 3] float: 3 -1.5 3.25 0.5 4 2");
  ROW(a.scatter_reduce(1, torch::tensor({{0, 0, 1}, {2, 2, 2}}), torch::ones({2, 3}) * 2, "prod"),
      "[2, 3] float: 4 -5 3.25 0.5 4 -8");
  ROW(a.clone().scatter_reduce_(1, torch::tensor({{0, 0, 1}, {2, 2, 2}}), torch::ones({2, 3}) * 2, "amax", false),
      "[2, 3] float: 2 2 3.25 0.5 4 2");
  ROW(a.take_along_dim(torch::tensor({{0}, {2}}), 1), "[2, 1] float: 1 -1");
  ROW(a.take_along_dim(torch::tensor({0, 5})), "[2] float: 1 -1");
}

TEST_CASE_FIXTURE(Inputs, "torch methods: functions of lists, searches and sets") {
  ROW(torch::searchsorted(v, torch::tensor({0.0, 2.0, 5.0})), "[3] long int: 0 1 3");
  ROW(torch::searchsorted(v, torch::tensor({2.0}), false, true), "[1] long int: 2");
  ROW(torch::searchsorted(v, torch::tensor({2.0}), true), "[1] int: 1");
  ROW(torch::bucketize(a, v), "[2, 3] long int: 0 0 3 0 3 0");
  ROW(torch::bucketize(a, v, true, true), "[2, 3] int: 1 0 3 0 3 0");
  ROW(torch::isin(i, torch::tensor({2, 5})), "[2, 3] bool: 0 1 0 0 1 0");
  ROW(torch::isin(i, torch::tensor({2, 5}), false, true), "[2, 3] bool: 1 0 1 1 0 1");
  ROW(torch::unique_dim(torch::tensor({{1, 2}, {1, 2}, {0, 1}}), 0, true, true), "[2, 2] long int: 0 1 1 2 | [3] long int: 1 1 0");
  ROW(torch::unique_consecutive(torch::tensor({1, 1, 2, 1}), true), "[3] long int: 1 2 1 | [4] long int: 0 0 1 2");
  ROW(torch::_unique2(torch::tensor({3, 1, 3}), true, true), "[2] long int: 1 3 | [3] long int: 1 0 1");
  ROW(std::get<2>(torch::_unique2(torch::tensor({3, 1, 3}), true, false, true)), "[2] long int: 1 2");
  ROW(std::get<2>(torch::unique_consecutive(torch::tensor({1, 1, 2, 1}), false, true)), "[3] long int: 2 1 1");
  ROW(torch::row_stack({v, w}), "[2, 3] float: 1 2 3 -1 0.5 2");
  ROW(torch::dstack({v, w}), "[1, 3, 2] float: 1 -1 2 0.5 3 2");
  ROW(torch::column_stack({v, w}), "[3, 2] float: 1 -1 2 0.5 3 2");
  ROW(torch::block_diag({q, v}), "[4, 6] float: 2 1 0 0 0 0 1 3 0.5 0 0 0 0 0.5 4 0 0 0 0 0 0 1 2 3");
  ROW(torch::concatenate({v, w}), "[6] float: 1 2 3 -1 0.5 2");
  ROW(torch::atleast_2d(v), "[1, 3] float: 1 2 3");
  ROW(torch::atleast_3d(v), "[1, 3, 1] float: 1 2 3");
  ROW(torch::tril_indices(2, 3), "[2, 3] long int: 0 1 1 0 0 1");
  ROW(torch::triu_indices(3, 3, 1), "[2, 3] long int: 0 0 1 1 2 2");
  ROW(torch::cdist(a, q), "[2, 3] float: 4.88 6.149 3.25 3.5 1.871 6.124");
  ROW(torch::cdist(a, q, 1), "[2, 3] float: 7.75 8.25 4.75 5.5 3 9");
  ROW(torch::chain_matmul({a, q, q}), "[2, 3] float: -5.875 -9.25 44.56 22 40 -2");
  ROW(torch::inverse(q), "[3, 3] float: 0.6026 -0.2051 0.02564 -0.2051 0.4103 -0.05128 0.02564 -0.05128 0.2564");
  ROW(torch::det(q), "[] float: 19.5");
  ROW(torch::diagonal(q, 1), "[2] float: 1 0.5");
}

TEST_CASE_FIXTURE(Inputs, "torch methods: functions of methods") {
  ROW(torch::addcmul(v, v, w, 2), "[3] float: -1 4 15");
  ROW(torch::argsort(w), "[3] long int: 0 1 2");
  ROW(torch::bitwise_and(i, torch::tensor(3)), "[2, 3] long int: 1 2 3 0 1 2");
  ROW(torch::clamp_min(a, 0), "[2, 3] float: 1 0 3.25 0.5 4 0");
  ROW(torch::cumprod(a, 1), "[2, 3] float: 1 -2.5 -8.125 0.5 2 -2");
  ROW(torch::masked_fill(a, m, 7), "[2, 3] float: 7 -2.5 7 0.5 7 -1");
  ROW(torch::scatter(a, 1, torch::tensor({{0}, {2}}), 5), "[2, 3] float: 5 -2.5 3.25 0.5 4 5");
  ROW(torch::select(a, 1, 2), "[2] float: 3.25 -1");
  ROW(torch::take(a, torch::tensor({0, 4})), "[2] float: 1 4");
  ROW(torch::unflatten(torch::arange(6), 0, {2, 3}), "[2, 3] long int: 0 1 2 3 4 5");
  ROW(torch::count_nonzero(a), "[] long int: 6");
  ROW(torch::split_with_sizes(v, {1, 2}), "[1] float: 1 | [2] float: 2 3");
  ROW(a.clone().squeeze_(0), "[2, 3] float: 1 -2.5 3.25 0.5 4 -1");
}

TEST_CASE_FIXTURE(Inputs, "torch methods: values that are stored in place have gradients") {
  const Tensor r = torch::tensor({1.0, 2.0, 3.0}, torch::requires_grad());
  const Tensor y = r * 2;
  y.lerp_(w, 0.5);
  y.frac_();
  y.clip_(0, 1);
  y.sum().backward();
  CHECK(shown(r.grad()) == "[3] float: 1 1 0");
}
