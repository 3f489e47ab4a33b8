// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/tensor_dataset.h"

#include <doctest/doctest.h>

#include <cmath>
#include <optional>

#include "framework/base/check.h"
#include "framework/data/sets/synthetic.h"
#include "framework/ops/ops.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

template <class T>
Tensor ramp(const Shape& shape) {
  const Tensor t = Tensor::empty(shape, {.dtype = dtype_of<T>});
  for (int64_t i = 0; i < t.numel(); ++i) t.data_ptr<T>()[i] = T(i);
  return t;
}

template <class E>
std::string rejects(const Tensor& x, const Tensor& y, int64_t classes) {
  return message_of<E>([&] { TensorDataset data(x, y, classes); });
}

}  // namespace

TEST_CASE("TensorDataset: consecutive samples are a view, others a copy") {
  const Tensor x = ramp<float>({6, 2}), y = ramp<float>({6, 1});
  const TensorDataset data(x, y);
  CHECK(data.size() == 6);
  CHECK(data.input_shape() == Shape{2});
  CHECK(data.target_shape() == Shape{1});
  const Batch slice = data.batch(std::vector<int64_t>{2, 3, 4});
  CHECK(slice.input.shares_memory_with(x));
  CHECK(slice.input.is_contiguous());
  CHECK(slice.input.to_vector<int>() == std::vector<int>{4, 5, 6, 7, 8, 9});
  const Batch picked = data.batch(std::vector<int64_t>{5, 0});
  CHECK(!picked.input.shares_memory_with(x));
  CHECK(picked.input.to_vector<int>() == std::vector<int>{10, 11, 0, 1});
  CHECK(picked.target.to_vector<int>() == std::vector<int>{5, 0});
  CHECK(picked.target.shape() == Shape{2, 1});
  CHECK(data.describe() == "Tensors: 6 samples, input [2], target [1]");
  CHECK(contains(message_of<IndexError>([&] { data.batch(std::vector<int64_t>{6}); }), "must be in [0, 6), got 6"));
}

TEST_CASE("TensorDataset: bytes become scaled floats, classes int64") {
  const TensorDataset data(ramp<uint8_t>({3, 2}), ramp<uint8_t>({3}), 3, {.scale = 2, .shift = -1}, "Bytes");
  const Batch batch = data.batch(std::vector<int64_t>{0, 2});
  CHECK(batch.input.dtype() == DType::f32);
  CHECK(batch.input.to_vector<float>() == std::vector<float>{-1, 1, 7, 9});
  CHECK(batch.target.dtype() == DType::i64);
  CHECK(batch.target.to_vector<int>() == std::vector<int>{0, 2});
  CHECK(data.describe() == "Bytes: 3 samples, input [2], 3 classes");
}

TEST_CASE("TensorDataset: tokens, and a class for each position") {
  const TensorDataset data(ramp<int64_t>({3, 2}), ramp<uint8_t>({3, 2}), 6);
  CHECK(data.input_dtype() == DType::i64);
  CHECK(data.vocabulary() == 6);
  const Batch batch = data.batch(std::vector<int64_t>{2, 0});
  CHECK(batch.input.to_vector<int>() == std::vector<int>{4, 5, 0, 1});
  CHECK(batch.target.dtype() == DType::i64);
  CHECK(batch.target.shape() == Shape{2, 2});
  CHECK(batch.target.to_vector<int>() == std::vector<int>{4, 5, 0, 1});
  CHECK(data.describe() == "Tensors: 3 samples, input [2] of 6 tokens, target [2] of 6 classes");
}

TEST_CASE("TensorDataset: tensors that do not fit") {
  const Tensor x = ramp<float>({3, 2}), y = ramp<int64_t>({3});
  CHECK(contains(rejects<ShapeError>(x, ramp<int64_t>({4}), 4), "one row a sample, got [3, 2] and [4]"));
  CHECK(contains(rejects<DTypeError>(ramp<double>({3, 2}), y, 3), "float32, uint8 or int64, got float64"));
  CHECK(contains(rejects<DataError>(from_vector<int64_t>({1, -2, 0}, {3, 1}), y, 3),
                 "tokens must not be negative, but token 1 is -2"));
  CHECK(contains(rejects<DataError>(x, ramp<int64_t>({3, 2}), 3), "labels must be in 0..2, but label 3 is 3"));
  CHECK(contains(rejects<DTypeError>(x, y, 0), "a regression target must be float32, got int64"));
  CHECK(contains(rejects<DTypeError>(x, ramp<float>({3}), 3), "classes must be int64 or uint8, got float32"));
  CHECK(contains(rejects<DataError>(x, y, 2), "labels must be in 0..1, but label 2 is 2"));
  CHECK(contains(rejects<ValueError>(x, Tensor(), 2), "needs an input and a target"));
}

TEST_CASE("TensorDataset: the helps for targets and inputs of other dtypes do what they say") {
  const Tensor x = ramp<float>({3, 2}), labels = ramp<int64_t>({3}), numbers = tensor({0.5, -1.0, 2.0}, {.dtype = DType::f64});
  const auto help = [](const Tensor& input, const Tensor& target, std::optional<int64_t> classes = {}) {
    const std::string error =
        message_of<DTypeError>([&] { (void)(classes ? TensorDataset(input, target, *classes) : TensorDataset(input, target)); });
    const size_t at = error.find("help: ");
    return at == std::string::npos ? error : error.substr(at + 6);
  };
  for (const DType dtype : {DType::f64, DType::f16, DType::bf16}) {
    CHECK(help(x, numbers.to(dtype)) == "TensorDataset(x, y.to(kFloat32))");
    CHECK(TensorDataset(x, numbers.to(dtype).to(kFloat32)).classes() == 0);
  }
  for (const DType dtype : {DType::i32, DType::boolean}) {
    const Tensor y = labels.to(dtype);
    CHECK(help(x, y) == "y.to(kInt64) makes classes of it, y.to(kFloat32) numbers");
    CHECK(TensorDataset(x, y.to(kInt64)).classes() == (dtype == DType::boolean ? 2 : 3));
    CHECK(TensorDataset(x, y.to(kFloat32)).classes() == 0);
    CHECK(help(x, y, 5) == "give them as y.to(kInt64)");
    CHECK(TensorDataset(x, y.to(kInt64), 5).classes() == 5);
  }
  for (const Tensor& y : {labels.to(DType::u8), labels}) {
    CHECK(help(x, y, 0) ==
          "their number, the third argument, makes classes of it: TensorDataset(x, y, 10); y.to(kFloat32) makes "
          "numbers of it");
    CHECK(TensorDataset(x, y, 10).classes() == 10);
    CHECK(TensorDataset(x, y.to(kFloat32)).classes() == 0);
  }
  const Tensor signs = labels - 1;
  CHECK(help(x, signs) ==
        "y.to(kFloat32) makes numbers of it; classes are 0, 1 and so on, and -100 for those that losses leave out");
  CHECK(TensorDataset(x, signs.to(kFloat32)).classes() == 0);
  CHECK(TensorDataset(x, signs.masked_fill(signs < 0, -100)).classes() == 2);
  for (const DType dtype : {DType::f64, DType::f16, DType::i32, DType::boolean}) {
    const Tensor input = x.to(dtype);
    CHECK(help(input, labels) == "x.to(kFloat32), or for tokens x.to(kInt64)");
    CHECK(TensorDataset(input.to(kFloat32), labels).input_dtype() == DType::f32);
    CHECK(TensorDataset(input.to(kInt64), labels).input_dtype() == DType::i64);
  }
}

TEST_CASE("subset: other indices into the same data") {
  const auto base = std::make_shared<TensorDataset<>>(ramp<float>({5, 1}), ramp<int64_t>({5}), 5);
  const auto part = subset(base, {4, 1, 1});
  CHECK(part->size() == 3);
  CHECK(part->classes() == 5);
  CHECK(part->batch(std::vector<int64_t>{0, 2}).target.to_vector<int>() == std::vector<int>{4, 1});
  CHECK(contains(part->describe(), "3 samples of: Tensors: 5 samples"));
  CHECK(contains(message_of<IndexError>([&] { subset(base, {5}); }), "must be in [0, 5), got 5"));
  CHECK(contains(message_of<IndexError>([&] { part->batch(std::vector<int64_t>{3}); }), "must be in [0, 3), got 3"));
}

namespace {

// Halves of each sample, side by side: [B, n] -> [B, 2, n / 2].
struct Halves : Transform {
  Tensor operator()(const Tensor& x) const override { return x.reshape({x.size(0), 2, x.size(1) / 2}); }
};
struct FirstOnly : Transform {
  Tensor operator()(const Tensor& x) const override { return x.narrow(0, 0, 1); }
};
struct InHalf : Transform {
  Tensor operator()(const Tensor& x) const override { return x.to(DType::f16); }
};
struct ByValue : Transform {
  Tensor operator()(const Tensor& x) const override { return x.sum().item<float>() > 0 ? x : -x; }
};

}  // namespace

TEST_CASE("transforms are done to batches, first to last, and give their shape without data") {
  const auto base = std::make_shared<TensorDataset<>>(ramp<float>({3, 4}) + 1, zeros({3, 1}));
  const auto twice = std::make_shared<NormalizeTransform>(Normalize{.mean = 1, .std = 2});
  const auto data = transformed(base, {twice, std::make_shared<Halves>()});
  CHECK(data->size() == 3);
  CHECK(data->input_shape() == Shape{2, 2});
  CHECK(data->target_shape() == Shape{1});
  const std::vector<int64_t> picked = {2, 0};
  const Batch batch = data->batch(picked);
  CHECK(batch.input.shape() == Shape{2, 2, 2});
  CHECK(batch.input.to_vector<double>() == std::vector<double>{4, 4.5, 5, 5.5, 0, 0.5, 1, 1.5});
  CHECK(base->input().to_vector<double>()[0] == 1);  // what is stored is not written into
  CHECK(data->describe().ends_with(", transformed to [2, 2]"));

  CHECK_THROWS_WITH_AS(transformed(base, {std::make_shared<FirstOnly>()}), doctest::Contains("must keep the batch as dimension 0"),
                       ShapeError);
  CHECK_THROWS_WITH_AS(transformed(base, {std::make_shared<InHalf>()}), doctest::Contains("must make float32"), DTypeError);
  CHECK_THROWS_AS(transformed(base, {std::make_shared<ByValue>()}), MetaError);
  CHECK_THROWS_AS(NormalizeTransform(Normalize{.mean = 0, .std = 0}), ValueError);
}

TEST_CASE("TensorDataset: labels that losses ignore are no classes, and are counted") {
  const Tensor x = ramp<float>({4, 2});
  const TensorDataset usual(x, tensor({int64_t(2), int64_t(-100), int64_t(0), int64_t(-100)}));
  CHECK(usual.classes() == 3);
  CHECK(usual.notes().ignored == "2 of 4 labels are -100, which loss and metrics leave out");
  CHECK(usual.batch(std::vector<int64_t>{1, 2}).target.to_vector<int>() == std::vector<int>{-100, 0});
  CHECK(TensorDataset(x, tensor({int64_t(2), int64_t(1), int64_t(0), int64_t(1)})).notes().ignored.empty());
  // Of each position, in bytes, another value.
  const Tensor bytes = tensor({255, 0, 1, 255, 255, 2, 0, 0}).to(DType::u8).reshape({4, 2});
  const TensorDataset own(x, bytes, 3, {}, "Masks", 255);
  CHECK(own.notes().ignored == "3 of 8 labels are 255, which loss and metrics leave out");
  CHECK(own.batch(std::vector<int64_t>{0}).target.to_vector<int>() == std::vector<int>{255, 0});
  CHECK(contains(message_of<DataError>([&] { TensorDataset bad(x, bytes, 3); }),
                 "labels must be in 0..2, but label 0 is 255"));
  CHECK(contains(message_of<DataError>([&] { TensorDataset bad(x, bytes, 3, {}, "Masks", 254); }),
                 "labels must be in 0..2, or 254, which is ignored, but label 0 is 255"));
  const auto classes = [](std::initializer_list<int64_t> labels, std::optional<int64_t> ignored) {
    return classes_in(tensor(std::vector<int64_t>(labels)), ignored);
  };
  CHECK(classes({0, 2, 255}, 255) == 3);
  CHECK(classes({0, 2, 3}, 3) == 4);  // it may be one of the model's
  CHECK(classes({0, 2, 3}, 0) == 4);
  CHECK(classes({0, 2}, 255) == 3);
  CHECK(classes({-1, 4}, -1) == 5);
  CHECK(classes({0, 255}, std::nullopt) == 256);
  CHECK_THROWS_AS(TensorDataset(x, tensor({int64_t(2), int64_t(-1), int64_t(0), int64_t(0)})), DTypeError);
}

TEST_CASE("RandomDataset: standard normal, seeded, handed out without copies") {
  const RandomOptions options{.num_batches = 5, .batch_size = 100, .input_shape = {4, 5}, .target_shape = {3}, .seed = 1};
  const RandomDataset data(options);
  CHECK(data.size() == 500);
  CHECK(data.input_shape() == Shape{4, 5});
  CHECK(data.target_shape() == Shape{3});
  double sum = 0, squares = 0;
  for (double v : data.input().to_vector<double>()) sum += v, squares += v * v;
  CHECK(std::abs(sum / 10000) < 0.05);
  CHECK(std::abs(squares / 10000 - 1) < 0.05);
  CHECK(data.batch(std::vector<int64_t>{100, 101}).input.shares_memory_with(data.input()));
  CHECK(RandomDataset(options).target().to_vector<float>() == data.target().to_vector<float>());
  // The targets do not repeat the inputs' numbers.
  CHECK(data.target().to_vector<float>()[0] != data.input().to_vector<float>()[0]);

  const RandomDataset labels({.num_batches = 10, .batch_size = 50, .input_shape = {2}, .classes = 3});
  std::vector<int> count(3);
  for (int64_t label : labels.target().to_vector<int64_t>()) ++count.at(size_t(label));
  for (int n : count) CHECK(n > 120);
  CHECK(contains(message_of<ValueError>([] { RandomDataset bad({.num_batches = 0, .input_shape = {2}}); }),
                 "num_batches must be >= 1, got 0"));
}

TEST_CASE("Normalize") {
  const Affine plain = Normalize().for_u8();
  CHECK(plain.scale * 255 + plain.shift == doctest::Approx(1));
  const Affine mnist = Normalize::preset("mnist").for_u8();
  CHECK(mnist.shift == doctest::Approx(-0.1307 / 0.3081));
  CHECK(mnist.scale * 255 + mnist.shift == doctest::Approx((1 - 0.1307) / 0.3081));
  CHECK(Normalize::preset("fashion_mnist").mean == 0.2860);
  CHECK(contains(message_of<ValueError>([] { Normalize::preset("imagenet"); }),
                 "the presets are \"mnist\", \"fashion_mnist\", got \"imagenet\""));
  CHECK(contains(message_of<ValueError>([] { Normalize{.mean = 0, .std = 0}.for_u8(); }), "std must be > 0, got 0"));
  CHECK(parse_split("test") == Split::test);
  CHECK(contains(message_of<ValueError>([] { parse_split("val"); }), "got \"val\""));
}
