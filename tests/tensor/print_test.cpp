// SPDX-License-Identifier: Apache-2.0
// Printing against PyTorch's text, copied from it; ours differs in dtype=float16 for dtype=torch.float16.
#include <doctest/doctest.h>

#include <cmath>
#include <sstream>

#include "framework/ops/ops.h"

using namespace halfstep;

namespace {

constexpr double kInf = INFINITY, kNan = NAN;

Tensor iota(const Shape& shape) { return arange(numel(shape)).reshape(shape); }

}  // namespace

TEST_CASE("floats: whole numbers with a dot, else four decimals, padded to one width") {
  CHECK(tensor({1, 2, 3, 40}, {2, 2}).str() == "tensor([[ 1.,  2.],\n        [ 3., 40.]])");
  CHECK(tensor({1, 2.5, 3, -4}, {2, 2}).str() == "tensor([[ 1.0000,  2.5000],\n        [ 3.0000, -4.0000]])");
  CHECK(tensor({-1.0, 2, -30}).str() == "tensor([ -1.,   2., -30.])");
  CHECK(zeros({3}).str() == "tensor([0., 0., 0.])");
  CHECK(tensor({0.0, -1}).str() == "tensor([ 0., -1.])");
}

TEST_CASE("floats: exponents when the range is wide, the numbers large, or fractions small") {
  CHECK(tensor({1e-3, 2, 5000}).str() == "tensor([1.0000e-03, 2.0000e+00, 5.0000e+03])");
  CHECK(tensor({1e-5, 2e-5}).str() == "tensor([1.0000e-05, 2.0000e-05])");
  CHECK(tensor({1.0, 2000}).str() == "tensor([1.0000e+00, 2.0000e+03])");
  CHECK(tensor({1e9, 2e9}).str() == "tensor([1.0000e+09, 2.0000e+09])");
  CHECK(tensor({0, 1e-5, -1e-5}).str() == "tensor([ 0.0000e+00,  1.0000e-05, -1.0000e-05])");
  CHECK(tensor({1e-10, 1, 2, -3e10}, {2, 2}).str() == "tensor([[ 1.0000e-10,  1.0000e+00],\n        [ 2.0000e+00, -3.0000e+10]])");
  CHECK(tensor({6e-8, 1}, {.dtype = DType::f16}).str() == "tensor([5.9605e-08, 1.0000e+00], dtype=float16)");
}

TEST_CASE("floats: non-finite values do not widen the columns") {
  CHECK(tensor({1, kInf, -kInf, kNan}).str() == "tensor([1., inf, -inf, nan])");
  CHECK(tensor({0.5, kInf, -kInf, kNan}).str() == "tensor([0.5000,    inf,   -inf,    nan])");
  CHECK(tensor({kInf, -kInf}).str() == "tensor([inf, -inf])");
  CHECK(scalar(kNan).str() == "tensor(nan)");
  CHECK(scalar(1e308, {.dtype = DType::f64}).str() == "tensor(1.0000e+308, dtype=float64)");
}

TEST_CASE("0-dim tensors") {
  CHECK(scalar(3).str() == "tensor(3.)");
  CHECK(scalar(3.14159265).str() == "tensor(3.1416)");
  CHECK(scalar(7, {.dtype = DType::i64}).str() == "tensor(7)");
  CHECK(scalar(1, {.dtype = DType::boolean}).str() == "tensor(True)");
  CHECK(scalar(123456789).str() == "tensor(1.2346e+08)");
}

TEST_CASE("integers, bools and dtypes that must be named") {
  CHECK(tensor({1, -20, 300, 4}, {2, 2}, {.dtype = DType::i64}).str() == "tensor([[  1, -20],\n        [300,   4]])");
  CHECK(tensor({1e12, 1}, {.dtype = DType::i64}).str() == "tensor([1000000000000,             1])");
  CHECK(tensor({1, 2}, {.dtype = DType::i32}).str() == "tensor([1, 2], dtype=int32)");
  CHECK(tensor({1, 255}, {.dtype = DType::u8}).str() == "tensor([  1, 255], dtype=uint8)");
  CHECK(tensor({1, 0, 0, 1}, {2, 2}, {.dtype = DType::boolean}).str() == "tensor([[ True, False],\n        [False,  True]])");
  CHECK(tensor({1, 2.5}, {.dtype = DType::f16}).str() == "tensor([1.0000, 2.5000], dtype=float16)");
  CHECK(tensor({1.1, 2.5}, {.dtype = DType::bf16}).str() == "tensor([1.1016, 2.5000], dtype=bfloat16)");
  CHECK(tensor({1, 2.5}, {.dtype = DType::f64}).str() == "tensor([1.0000, 2.5000], dtype=float64)");
}

TEST_CASE("empty and undefined tensors") {
  CHECK(zeros({0}).str() == "tensor([])");
  CHECK(zeros({2, 0}).str() == "tensor([], size=(2, 0))");
  CHECK(zeros({0}, {.dtype = DType::i64}).str() == "tensor([], dtype=int64)");
  CHECK(zeros({0}, {.dtype = DType::boolean}).str() == "tensor([], dtype=bool)");
  CHECK(zeros({2, 0, 3}, {.dtype = DType::f16}).str() == "tensor([], size=(2, 0, 3), dtype=float16)");
  CHECK(Tensor().str() == "tensor(undefined)");
}

TEST_CASE("gradients are mentioned") {
  const Tensor x = tensor({1.0, 2}, {.requires_grad = true});
  CHECK(x.str() == "tensor([1., 2.], requires_grad=True)");
  CHECK((x * 2.0).str() == "tensor([2., 4.], grad_fn)");
  CHECK(x.detach().str() == "tensor([1., 2.])");
  CHECK(tensor({1, 2}, {.dtype = DType::f16, .requires_grad = true}).str() ==
        "tensor([1., 2.], dtype=float16, requires_grad=True)");
}

TEST_CASE("three and four dimensions are set apart by blank lines") {
  CHECK(iota({2, 3, 2}).str() ==
        "tensor([[[ 0,  1],\n"
        "         [ 2,  3],\n"
        "         [ 4,  5]],\n"
        "\n"
        "        [[ 6,  7],\n"
        "         [ 8,  9],\n"
        "         [10, 11]]])");
  CHECK(iota({2, 2, 2, 2}).str() ==
        "tensor([[[[ 0,  1],\n"
        "          [ 2,  3]],\n"
        "\n"
        "         [[ 4,  5],\n"
        "          [ 6,  7]]],\n"
        "\n"
        "\n"
        "        [[[ 8,  9],\n"
        "          [10, 11]],\n"
        "\n"
        "         [[12, 13],\n"
        "          [14, 15]]]])");
}

TEST_CASE("long rows wrap at 80 columns") {
  CHECK(iota({40}).str() ==
        "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n"
        "        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35,\n"
        "        36, 37, 38, 39])");
  CHECK(iota({2, 20}).str() ==
        "tensor([[ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n"
        "         18, 19],\n"
        "        [20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37,\n"
        "         38, 39]])");
  CHECK((iota({11}) / 4.0).str() ==
        "tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000, 1.2500, 1.5000, 1.7500, 2.0000,\n"
        "        2.2500, 2.5000])");
  CHECK(arange(100, 119).str() ==
        "tensor([100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113,\n"
        "        114, 115, 116, 117, 118])");
}

TEST_CASE("suffixes that do not fit start a line") {
  CHECK(arange(100000, 100010, 1, {.dtype = DType::i32}).str() ==
        "tensor([100000, 100001, 100002, 100003, 100004, 100005, 100006, 100007, 100008,\n"
        "        100009], dtype=int32)");
  CHECK(arange(100000, 100009, 1, {.dtype = DType::i32}).str() ==
        "tensor([100000, 100001, 100002, 100003, 100004, 100005, 100006, 100007, 100008],\n"
        "       dtype=int32)");
}

TEST_CASE("more than 1000 elements are summarised, three at each end of every dimension") {
  CHECK(iota({1001}).str() == "tensor([   0,    1,    2,  ...,  998,  999, 1000])");
  CHECK(iota({1000}).str().find("...") == std::string::npos);
  CHECK(iota({100, 100}).str() ==
        "tensor([[   0,    1,    2,  ...,   97,   98,   99],\n"
        "        [ 100,  101,  102,  ...,  197,  198,  199],\n"
        "        [ 200,  201,  202,  ...,  297,  298,  299],\n"
        "        ...,\n"
        "        [9700, 9701, 9702,  ..., 9797, 9798, 9799],\n"
        "        [9800, 9801, 9802,  ..., 9897, 9898, 9899],\n"
        "        [9900, 9901, 9902,  ..., 9997, 9998, 9999]])");
  CHECK(iota({300, 4}).str() ==
        "tensor([[   0,    1,    2,    3],\n"
        "        [   4,    5,    6,    7],\n"
        "        [   8,    9,   10,   11],\n"
        "        ...,\n"
        "        [1188, 1189, 1190, 1191],\n"
        "        [1192, 1193, 1194, 1195],\n"
        "        [1196, 1197, 1198, 1199]])");
  CHECK((iota({2000}) / 10.0).str() ==
        "tensor([0.0000e+00, 1.0000e-01, 2.0000e-01,  ..., 1.9970e+02, 1.9980e+02,\n"
        "        1.9990e+02])");
  const std::string cube = iota({20, 20, 20}).str();
  CHECK(cube.find("         [ 380,  381,  382,  ...,  397,  398,  399]],\n\n        [[ 400,") != std::string::npos);
  CHECK(cube.find("1199]]],") == std::string::npos);
  CHECK(cube.find("1197, 1198, 1199]],\n\n        ...,\n\n        [[6800,") != std::string::npos);
}

TEST_CASE("what is not shown does not choose the format") {
  CHECK(cat({ones({500}), full({1}, 1e6), ones({500})}).str() == "tensor([1., 1., 1.,  ..., 1., 1., 1.])");
}

TEST_CASE("views print what they show, and streams take tensors") {
  CHECK(iota({2, 3}).t().str() == "tensor([[0, 3],\n        [1, 4],\n        [2, 5]])");
  CHECK(tensor({1, 2}, {.dtype = DType::i64}).expand({3, 2}).str() == "tensor([[1, 2],\n        [1, 2],\n        [1, 2]])");
  std::ostringstream out;
  out << iota({2});
  CHECK(out.str() == "tensor([0, 1])");
}
