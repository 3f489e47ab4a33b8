// SPDX-License-Identifier: Apache-2.0
// Types, options, tensors, indices and printing. Texts and values are those of libtorch.
#include <doctest/doctest.h>

#include "tests/torch/support.h"

using namespace torch::indexing;

TEST_CASE("torch: a tensor converts to halfstep's and back, without a copy") {
  const torch::Tensor x = torch::ones({2, 3});
  const halfstep::Tensor own = x;
  CHECK(own.data_ptr() == x.data_ptr());
  const torch::Tensor back = halfstep::relu(x);
  CHECK(back.sizes() == torch::IntArrayRef({2, 3}));
  halfstep::Tensor h = halfstep::zeros({2});
  torch::Tensor(h).fill_(5);
  CHECK(h.to_vector<double>() == std::vector<double>{5, 5});
}

TEST_CASE("torch: devices are parsed as libtorch parses them") {
  CHECK(torch::Device("cuda:1").index() == 1);
  CHECK(torch::Device("cpu") == torch::kCPU);
  CHECK(printed(torch::Device(torch::kCUDA)) == "cuda");
  CHECK(has(message_of([] { torch::Device("gpu"); }), "Invalid device string: 'gpu'"));
  CHECK(has(message_of([] { torch::Device("cuda:"); }), "Could not parse device index"));
  CHECK(has(message_of([] { torch::Device(torch::kCPU, 2); }), "CPU device index must be -1 or zero, got 2"));
}

TEST_CASE("torch: unset options stay unset and print as such") {
  const torch::TensorOptions o = torch::dtype(torch::kDouble).requires_grad(true);
  CHECK(o.has_dtype());
  CHECK(!o.has_device());
  CHECK(printed(torch::TensorOptions()) ==
        "TensorOptions(dtype=float (default), device=cpu (default), layout=Strided (default), requires_grad=false (default), "
        "pinned_memory=false (default), memory_format=(nullopt))");
  CHECK(torch::zeros({1}, o).requires_grad());
  CHECK(torch::zeros({1}, o).dtype() == torch::kFloat64);
}

TEST_CASE("torch: what is not there is refused, not ignored") {
  CHECK(has(message_of([] { torch::zeros({1}, torch::TensorOptions().pinned_memory(true)); }), "Pinned memory"));
  CHECK(has(message_of([] { torch::zeros({1}, torch::ScalarType::ComplexFloat); }), "ComplexFloat"));
  float memory[2] = {1, 2};
  CHECK(has(message_of([&] { torch::from_blob(memory, {2}, torch::requires_grad()); }), "from_blob"));
  CHECK(has(message_of([] { torch::ones({2}).to(torch::requires_grad()); }), "expects unset requires_grad"));
  CHECK(has(message_of([] { torch::ones({2}).contiguous(torch::MemoryFormat::Preserve); }), "preserve memory format"));
  const torch::Tensor table = torch::ones({3, 2});
  CHECK(has(message_of([&] { torch::embedding(table, torch::tensor({1}), -1, false, true); }), "sparse"));
}

TEST_CASE("torch: tensor() takes numbers, nested braces and lists") {
  CHECK(torch::tensor(3).dtype() == torch::kLong);
  CHECK(torch::tensor(2.5).dtype() == torch::kFloat);
  CHECK(at::tensor(2.5).dtype() == torch::kDouble);
  CHECK(torch::tensor(true).dtype() == torch::kBool);
  const torch::Tensor t = torch::tensor({{1, 2, 3}, {4, 5, 6}});
  CHECK(t.sizes() == torch::IntArrayRef({2, 3}));
  CHECK(t[1][2].item<int64_t>() == 6);
  CHECK(torch::tensor(std::vector<float>{1, 2}).equal(torch::tensor({1.0, 2.0})));
  CHECK(torch::tensor({1, 2}, torch::kFloat16).dtype() == torch::kHalf);
  CHECK(has(message_of([] { torch::tensor({{1, 2}, {3}}); }), "Expected all sub-lists to have sizes: 2"));
}

TEST_CASE("torch: integers keep 64 bits, and a number with a point makes them float") {
  const int64_t large = (int64_t(1) << 53) + 1;
  CHECK(torch::full({1}, large, torch::kLong).add(1).item<int64_t>() == large + 1);
  CHECK(torch::zeros({1}, torch::kLong).fill_(large).item().toLong() == large);
  CHECK((torch::arange(3) * 2).dtype() == torch::kLong);
  CHECK((torch::arange(3) * 2.0).dtype() == torch::kFloat);
  torch::set_default_dtype(torch::kDouble);
  CHECK((torch::arange(3) * 2.0).dtype() == torch::kDouble);
  CHECK(torch::full({1}, 0.5).dtype() == torch::kDouble);
  torch::set_default_dtype(torch::kFloat);
}

TEST_CASE("torch: indices read and write") {
  torch::Tensor x = torch::arange(24).reshape({2, 3, 4});
  CHECK(x.index({1, Ellipsis, 0}).equal(torch::tensor({12, 16, 20})));
  CHECK(x.index({"...", Slice(1, None, 2)}).sizes() == torch::IntArrayRef({2, 3, 2}));
  CHECK(x.index({None, 0}).sizes() == torch::IntArrayRef({1, 3, 4}));
  x.index({Slice(), 0}) = -1;
  CHECK(x.select(1, 0).eq(-1).all().item<bool>());
  x.index({Ellipsis}) = torch::zeros({1}, torch::kLong);
  CHECK(x.abs().sum().item<int64_t>() == 0);
  x.index_put_({torch::tensor({0, 1}), 2}, 7);
  CHECK(x.select(1, 2).eq(7).all().item<bool>());
  x.index({torch::tensor(1), 0, 0}) = 9;  // a 0-dim tensor is a number: the result is a view
  CHECK(x[1][0][0].item<int64_t>() == 9);
  x[0][1] = torch::ones({4}, torch::kLong);
  CHECK(x[0][1].sum().item<int64_t>() == 4);
  CHECK(has(message_of([&] { x.index({"a"}); }), "Expected \"...\" to represent an ellipsis index"));
  CHECK(has(message_of([] { Slice(0, 1, 0); }), "slice step cannot be zero"));
  CHECK(has(message_of([&] { x[torch::ones({2}, torch::kLong)]; }), "scalars (zero-dim)"));
  CHECK(printed(std::vector<TensorIndex>{None, "...", 1, true, Slice(1, 3)}) == "(None, ..., 1, true, 1:3:1)");
}

TEST_CASE("torch: methods and functions of rows, reductions as tuples") {
  const torch::Tensor x = torch::tensor({{3.0, 1.0}, {2.0, 4.0}});
  auto [values, indices] = x.max(1);
  CHECK(values.equal(torch::tensor({3.0, 4.0})));
  CHECK(indices.equal(torch::tensor({0, 1})));
  CHECK(std::get<0>(torch::sort(x, 0)).equal(torch::tensor({{2.0, 1.0}, {3.0, 4.0}})));
  CHECK(torch::cat({x, x}, 1).size(1) == 4);
  CHECK(x.norm().item<double>() == doctest::Approx(5.4772255));
  CHECK((1 - x).equal(torch::tensor({{-2.0, 0.0}, {-1.0, -3.0}})));
  CHECK((2 / x)[0][0].item<float>() == doctest::Approx(2.0 / 3));
  CHECK(x.accessor<float, 2>()[1][0] == 2);
  CHECK(has(message_of([&] { x.accessor<float, 1>(); }), "TensorAccessor expected 1 dims but tensor has 2"));
  CHECK(has(message_of([&] { x.item(); }), "a Tensor with 4 elements cannot be converted to Scalar"));
  torch::Tensor y = x.clone();
  y += 1;
  y.clamp_(2, 4);
  CHECK(y.equal(torch::tensor({{4.0, 2.0}, {3.0, 4.0}})));
  CHECK(torch::arange(0, 1, 0.25).size(0) == 4);
  CHECK(torch::tensor({1, 2, 3, 4}).resize_({2, 3}).sizes() == torch::IntArrayRef({2, 3}));
}

TEST_CASE("torch: tensors print as libtorch prints them") {
  CHECK(printed(torch::Tensor()) == "[ Tensor (undefined) ]");
  CHECK(printed(torch::tensor(5)) == "5\n[ CPULongType{} ]");
  CHECK(printed(torch::tensor({1, 10})) == "  1\n 10\n[ CPULongType{2} ]");
  CHECK(printed(torch::tensor({{1.0, 2.5}, {-3.0, 4.0}})) == " 1.0000  2.5000\n-3.0000  4.0000\n[ CPUFloatType{2,2} ]");
  CHECK(printed(torch::tensor({0.001, 1000.0})) == " 1.0000e-03\n 1.0000e+03\n[ CPUFloatType{2} ]");
  CHECK(printed(torch::tensor({123456.5, 654321.5})) == "100000 *\n 1.2346\n 6.5432\n[ CPUFloatType{2} ]");
  CHECK(printed(torch::ones({2, 1, 2})) == "(1,.,.) = \n 1  1\n\n(2,.,.) = \n 1  1\n[ CPUFloatType{2,1,2} ]");
  CHECK(has(printed(torch::zeros({1, 100})), "Columns 1 to "));
  CHECK(has(printed(torch::zeros({1, 2, 30})), "Columns 1 to 26  0  0"));
  // The first index moves fastest.
  CHECK(printed(torch::arange(8).view({2, 2, 2, 1})) ==
        "(1,1,.,.) = \n 0\n  1\n\n(2,1,.,.) = \n 4\n  5\n\n(1,2,.,.) = \n 2\n  3\n\n(2,2,.,.) = \n 6\n  7\n"
        "[ CPULongType{2,2,2,1} ]");
  const std::pair<double, const char*> numbers[] = {{0.1, "0.10000000149011612"},
                                                    {1e6, "1000000"},
                                                    {123456792, "123456792"},
                                                    {1e16, "1.0000000272564224e+16"},
                                                    {1e-5, "9.999999747378752e-06"},
                                                    {-2, "-2"},
                                                    {3.5, "3.5"},
                                                    {0, "0"},
                                                    {1e300 * 1e10, "inf"}};
  for (const auto& [number, text] : numbers) CHECK(printed(torch::tensor(number)) == std::string(text) + "\n[ CPUFloatType{} ]");
}

TEST_CASE("torch: an index gives a tensor of its own, bytes are masks, and an empty list is refused") {
  const torch::Tensor x = torch::arange(4);
  const torch::Tensor all = x.index({"..."});
  CHECK(!all.is_same(x));
  CHECK(all.data_ptr() == x.data_ptr());
  const torch::Tensor mask = torch::tensor({1, 0, 0, 1}, torch::kByte);
  CHECK(x.index({mask}).equal(torch::tensor({0, 3})));
  x.clone().index_put_({mask}, torch::tensor(5));
  CHECK(torch::zeros({4}, torch::kLong)
            .index_put_(std::vector<torch::Tensor>{mask}, torch::ones({2}, torch::kLong), true)
            .equal(torch::tensor({1, 0, 0, 1})));
  CHECK(has(message_of([&] { x.index(std::vector<TensorIndex>{}); }), "list to Tensor::index() is not valid syntax"));
  CHECK(has(message_of([&] { x.index_put_(std::vector<TensorIndex>{}, 1); }), "list to Tensor::index_put_() is not valid syntax"));
}

TEST_CASE("torch: moments of one dimension, flat tensors, threads") {
  const torch::Tensor x = torch::arange(6, torch::kFloat).reshape({2, 3});
  const auto [variance, mean] = torch::var_mean(x, 0);
  CHECK(variance.equal(torch::full({3}, 4.5)));
  CHECK(mean.equal(torch::tensor({1.5, 2.5, 3.5})));
  CHECK(std::get<0>(torch::std_mean(x, 1)).equal(torch::ones({2})));
  CHECK(std::get<0>(torch::var_mean(x, false)).dim() == 0);
  const torch::Tensor none = torch::empty({0});
  const torch::Tensor flat = torch::utils::flatten_dense_tensors({x, none, mean});
  CHECK(flat.numel() == 9);
  const auto parts = torch::utils::unflatten_dense_tensors(flat, {x, none, mean});
  CHECK(parts.at(0).equal(x));
  CHECK(parts.at(0).data_ptr() == flat.data_ptr());
  CHECK(parts.at(1).numel() == 0);
  CHECK(parts.at(2).equal(mean));
  torch::Tensor out = torch::empty({2, 2});
  at::linear_out(out, x, torch::ones({2, 3}));
  CHECK(out[0][0].item<float>() == 3);
  const int before = torch::get_num_threads();
  torch::set_num_threads(1);
  CHECK(torch::get_num_threads() == 1);
  torch::set_num_threads(before);
  CHECK(has(message_of([] { torch::set_num_threads(0); }), "positive number of threads"));
  CHECK(has(message_of([] { torch::tensor({{1, 2.0}}); }), "same scalar type: Int, but got element of scalar type: Double"));
}

TEST_CASE("torch: draws around means and deviations are PyTorch's, and have no gradients") {
  torch::manual_seed(0);
  const torch::Tensor mean = torch::tensor({1.0, 2.0, 3.0}, torch::requires_grad()), deviation = torch::tensor({0.1, 0.2, 0.3});
  CHECK(shown(torch::normal(mean, deviation)) == "[3] float: 1.154 1.941 2.346");
  CHECK(shown(torch::normal(mean, 0.5)) == "[3] float: 1.284 1.458 2.301");
  CHECK(shown(at::normal(2.0, deviation)) == "[3] float: 2.04 2.168 1.784");
  CHECK(shown(torch::normal(torch::zeros({2, 1}), torch::ones(3))) == "[2, 3] float: -0.4033 -0.5966 0.182 -0.8567 1.101 -1.071");
  CHECK(!torch::normal(mean, deviation).requires_grad());
}

TEST_CASE("torch: type() has the options of a tensor") {
  const torch::Tensor x = torch::ones({2}, torch::kDouble);
  CHECK(torch::zeros({3}, x.type()).dtype() == torch::kDouble);
  CHECK(printed(x.type()) == "CPUDoubleType");
  CHECK((x.type() == torch::zeros({1}, torch::kDouble).type()));
  CHECK(!(x.type() == torch::zeros({1}).type()));
  CHECK((x.type().scalarType() == torch::kDouble));
  CHECK(x.to(torch::ones({1}).type()).dtype() == torch::kFloat);
}
