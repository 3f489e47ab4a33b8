// SPDX-License-Identifier: Apache-2.0
// Lazy layers: from the first call on the plain layers, to the bit.
#include "layers/feedforward/lazy.h"

#include <doctest/doctest.h>

#include "layers/layers.h"
#include "optim/optimizers.h"
#include "tests/layers/support.h"
#include "tests/support/errors.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

using Strings = std::vector<std::string>;
using Values = std::vector<float>;

Values read(const Tensor& t) { return t.to_vector<float>(); }

// Is the lazy layer, called with x, the plain one that is made at that moment?
template <class L, class P>
void check_same(L lazy, const std::function<P()>& make_plain, const Tensor& x, const std::string& before) {
  CAPTURE(before);
  CHECK(lazy.describe() == before);
  CHECK(lazy.has_uninitialized_params());
  L copy = lazy;
  manual_seed(5);
  const Tensor y = lazy(x);
  const Values next = read(rand({1}));
  manual_seed(5);
  P plain = make_plain();
  CHECK(read(y) == read(plain(x)));
  CHECK(next == read(rand({1})));
  CHECK(lazy.describe() == plain.describe());
  CHECK(!lazy.has_uninitialized_params());
  CHECK(testing::names(lazy.state_dict()) == testing::names(plain.state_dict()));
  lazy(x).square().sum().backward();
  plain(x).square().sum().backward();
  for (size_t i = 0; i < plain.parameters().size(); ++i)
    CHECK(read(lazy.parameters()[i].grad()) == read(plain.parameters()[i].grad()));
  CHECK(copy.has_uninitialized_params());  // a copy made before has a first call of its own
  manual_seed(5);
  CHECK(read(copy(x)) == read(y));
  CHECK(!copy.parameters().empty());
}

}  // namespace

TEST_CASE("lazy layers become the plain ones at the first call, with the same random numbers") {
  const Tensor rows = randn({4, 3}), image = randn({2, 4, 7, 7}), signal = randn({2, 4, 9}), volume = randn({1, 2, 5, 5, 5});
  check_same<LazyLinear, Linear>(
      LazyLinear(6), [] { return Linear(3, 6); }, rows, "LazyLinear(in_features=0, out_features=6, bias=True)");
  check_same<LazyLinear, Linear>(
      LazyLinear(6, {.bias = false}), [] { return Linear(3, 6, false); }, rows,
      "LazyLinear(in_features=0, out_features=6, bias=False)");
  check_same<LazyConv2d, Conv2d>(
      LazyConv2d(6, 3, {.stride = 2, .groups = 2}), [] { return Conv2d(4, 6, 3, {.stride = 2, .groups = 2}); }, image,
      "LazyConv2d(0, 6, kernel_size=(3, 3), stride=(2, 2), groups=2)");
  check_same<LazyConv1d, Conv1d>(
      LazyConv1d(6, 3), [] { return Conv1d(4, 6, 3); }, signal, "LazyConv1d(0, 6, kernel_size=(3,), stride=(1,))");
  check_same<LazyConv3d, Conv3d>(
      LazyConv3d(6, 3), [] { return Conv3d(2, 6, 3); }, volume, "LazyConv3d(0, 6, kernel_size=(3, 3, 3), stride=(1, 1, 1))");
  check_same<LazyConvTranspose2d, ConvTranspose2d>(
      LazyConvTranspose2d(6, 3), [] { return ConvTranspose2d(4, 6, 3); }, image,
      "LazyConvTranspose2d(0, 6, kernel_size=(3, 3), stride=(1, 1))");
  check_same<LazyBatchNorm2d, BatchNorm2d>(
      LazyBatchNorm2d({.momentum = 0.2}), [] { return BatchNorm2d(4, {.momentum = 0.2}); }, image,
      "LazyBatchNorm2d(0, eps=1e-05, momentum=0.2, affine=True, bias=True, track_running_stats=True)");
  check_same<LazyBatchNorm1d, BatchNorm1d>(
      LazyBatchNorm1d(), [] { return BatchNorm1d(3); }, rows,
      "LazyBatchNorm1d(0, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)");
  check_same<LazyInstanceNorm2d, InstanceNorm2d>(
      LazyInstanceNorm2d({.affine = true}), [] { return InstanceNorm2d(4, {.affine = true}); }, image,
      "LazyInstanceNorm2d(0, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=False)");
  LazyConvTranspose2d sized(6, 3, {.stride = 2});
  CHECK(sized(image, {16, 16}).shape() == Shape{2, 6, 16, 16});
}

TEST_CASE("parameters of a lazy net before its first call are an error that names the cure") {
  Sequential net{Linear(3, 4), ReLU(), LazyLinear(2)};
  const char* const says =
      "[parameters] \"2.weight\" has no size before the first call of LazyLinear(in_features=0, out_features=2, bias=True)\n"
      "help: call the model with an input first, model(x), and make the optimizer then";
  refuses<ValueError>(says, [&] { net.parameters(); });
  refuses<ValueError>(says, [&] { SGD(net.parameters(), {.lr = 0.1}); });
  refuses<ValueError>(says, [&] { net.state_dict(); });
  CHECK_THROWS_AS(net.load_state_dict({}), ValueError);
  CHECK_THROWS_AS(net.parameter_count(), ValueError);
  Sequential norm{LazyBatchNorm1d({.affine = false})};
  CHECK_THROWS_WITH_AS(norm.buffers(), doctest::Contains("\"0.running_mean\" has no size"), ValueError);
  CHECK_THROWS_WITH_AS(weight_norm(net[2]), doctest::Contains("has no size before the first call"), ValueError);
  // An input that does not fit leaves it as it is.
  Sequential images{LazyConv2d(4, 3)};
  CHECK_THROWS_WITH_AS(images(ones({2, 3})), doctest::Contains("[LazyConv2d] needs an input of 3 to 4 dimensions"), ShapeError);
  CHECK_THROWS_AS(images.parameters(), ValueError);

  const Tensor x = randn({5, 3});
  net(x);
  CHECK(testing::names(net.named_parameters()) == Strings{"0.weight", "0.bias", "2.weight", "2.bias"});
  CHECK(net.parameters()[2].label() == "2.weight");
  SGD optimizer(net.parameters(), {.lr = 0.1});
  const auto before = net.parameters()[2].to_vector<float>();
  net(x).sum().backward();
  optimizer.step();
  CHECK(net.parameters()[2].to_vector<float>() != before);
  CHECK_THROWS_AS(net(ones({1, 4})), ShapeError);  // from now on it takes 3 alone
}

TEST_CASE("what is asked of a lazy layer before its first call holds for what it becomes") {
  Sequential net{LazyLinear(2), LazyBatchNorm1d()};
  net.to(DType::f64);
  net.requires_grad_(false);
  net.eval();
  net.zero_grad();
  int calls = 0;
  net[0]->register_forward_hook([&](Module&, const Tensors&, const Tensors&) { ++calls; });
  net(randn({3, 4}, {.dtype = DType::f64}));
  CHECK(calls == 1);
  CHECK(!net[1]->training());
  for (const Tensor& p : net.parameters()) {
    CHECK(p.dtype() == DType::f64);
    CHECK(!p.requires_grad());
  }
  CHECK(net.buffers()[0].dtype() == DType::f64);
  const auto on_meta = [] {
    const DefaultDevice on(Device::meta);
    return LazyLinear(2);
  };
  Sequential shapes{on_meta()};
  CHECK(shapes(empty({3, 4}, {.device = Device::meta})).shape() == Shape{3, 2});
  CHECK(shapes.parameters()[0].device() == Device::meta);
}
