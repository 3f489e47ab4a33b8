// SPDX-License-Identifier: Apache-2.0
// N ranks against one that accumulates N micro-batches, bit for bit, and against one that has the whole batch.
#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include "amp/step/data_parallel.h"
#include "amp/step/train_step.h"
#include "framework/autograd/grad_mode.h"
#include "framework/data/loading/loader.h"
#include "framework/data/sets/tensor_dataset.h"
#include "layers/layers.h"
#include "optim/optimizers.h"
#include "optim/two_pass.h"
#include "tests/ranks/ranks.h"

using namespace halfstep;
using halfstep::testing::ranks;

namespace {

constexpr int kSteps = 12;

// The hidden state of a recurrent layer's last step.
struct LastStep : Module {
  Part<LSTM> lstm{this, "lstm", LSTM(6, 16, {.batch_first = true})};
  Part<Linear> head{this, "head", 16, 5};
  Tensor forward(const Tensor& x) override { return head(lstm(x).output.select(1, -1)); }
};

// A transformer block over 5 positions: an odd number, so that the dropout of a row does not end with a block of four numbers.
struct Block : Module {
  Part<TransformerEncoderLayer> block{this, "block", 
                                      TransformerEncoderLayer(8, 2, {.dim_feedforward = 15, .dropout = 0.25, .batch_first = true})};
  Part<Linear> head{this, "head", 8, 5};
  Tensor forward(const Tensor& x) override { return head(mean(block(x), {1})); }
};

struct Kind {
  std::string name;
  Shape sample;
  std::function<std::shared_ptr<Module>()> make;
  bool has_zero_gradients =
      false;  // in exact arithmetic, as those of the keys' bias; AdamW makes full steps of their rounding errors
};

std::vector<Kind> kinds() {
  return {{"MLP",
           {12},
           [] {
             return std::make_shared<Sequential>(std::make_shared<Linear>(12, 32), std::make_shared<ReLU>(),
                                                 std::make_shared<Dropout>(0.1), std::make_shared<Linear>(32, 5));
           }},
          {"conv net with batch normalisation in evaluation mode",
           {3, 6, 6},
           [] {
             const auto norm = std::make_shared<BatchNorm2d>(4);
             auto net = std::make_shared<Sequential>(std::make_shared<Conv2d>(3, 4, 3), norm, std::make_shared<ReLU>(),
                                                     std::make_shared<Flatten>(), std::make_shared<Linear>(64, 5));
             norm->eval();
             return net;
           }},
          {"LSTM", {4, 6}, [] { return std::make_shared<LastStep>(); }},
          {"transformer block with dropout", {5, 8}, [] { return std::make_shared<Block>(); }, true}};
}

struct Result {
  std::vector<float> weights;
  double scale = 0, loss = 0;
  int skipped = 0;
  Generator::State random;
};

std::vector<float> flat(const Module& net) {
  std::vector<float> out;
  for (const Tensor& p : net.parameters()) {
    const std::vector<float> v = p.to_vector<float>();
    out.insert(out.end(), v.begin(), v.end());
  }
  return out;
}

struct Setting {
  DType dtype = DType::f32;
  double clip = 0;
  int64_t batch = 16;
  int64_t poisoned_row = -1;  // of step 5: too large for a 16-bit number
  Wire wire = Wire::as_is;
  bool shards = false;  // ranks share the optimizer's states
  CrossEntropyOptions loss = {};
  std::function<std::unique_ptr<Optimizer>(Module&)> optimizer = [](Module& m) {
    return std::make_unique<AdamW>(m.parameters(), AdamWOptions{.lr = 2e-3});
  };
};

// kSteps steps of `parts` parts a batch: as ranks, or as micro-batches of this process.
Result train(const Kind& kind, const Setting& s, int parts, bool as_ranks) {
  manual_seed(3);
  const std::shared_ptr<Module> net = kind.make();
  const auto opt = s.optimizer(*net);
  GradScaler scaler({.init_scale = 1024, .growth_interval = 4, .enabled = s.dtype == DType::f16});
  CrossEntropyLoss loss(s.loss);
  if (s.shards && as_ranks) opt->shard(ranks(), {.stage_mb = 0.001});
  TrainStep step(*net, loss, *opt, scaler, nullptr,
                 {.amp = if_half(s.dtype),
                  .clip_grad_norm = s.clip,
                  .accumulate_steps = as_ranks ? 1 : parts,
                  .group = as_ranks ? &ranks() : nullptr,
                  .reducer = {.first_bucket_mb = 0.0005, .bucket_mb = 0.001, .wire = s.wire}});
  Result out;
  Shape shape = kind.sample;
  shape.insert(0, s.batch);
  Generator data(11);
  manual_seed(5);
  for (int i = 0; i < kSteps; ++i) {
    const Tensor x = randn(shape, {}, &data), y = randint(0, 5, {s.batch}, {.dtype = DType::i64}, &data);
    if (i == 5 && s.poisoned_row >= 0) x.narrow(0, s.poisoned_row, 1).fill_(1e30);
    for (int r = 0; r < parts; ++r) {
      const BatchRows part = part_of(s.batch, r, parts);
      if (as_ranks && r != ranks().rank()) continue;
      if (!as_ranks && part.rows == 0) continue;
      const Tensor in = part.rows > 0 ? x.narrow(0, part.first, part.rows) : Tensor(),
                   target = part.rows > 0 ? y.narrow(0, part.first, part.rows) : Tensor();
      const StepResult result = as_ranks ? step(in, target, part) : step(in, target);
      if (result.stepped) out.skipped += !result.outcome.applied();
      if (as_ranks) out.loss = result.loss.item<double>();
    }
    if (const StepResult rest = step.flush(); rest.stepped) out.skipped += !rest.outcome.applied();
  }
  out.weights = flat(*net);
  out.scale = scaler.get_scale();
  out.random = default_generator().state();
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double d = 0, n = 0;
  for (size_t i = 0; i < a.size(); ++i) d += std::pow(double(a[i]) - b[i], 2), n += double(b[i]) * b[i];
  return std::sqrt(d / n);
}
// Are a rank's bits those of rank 0?
bool same_everywhere(const std::vector<float>& mine) {
  const Tensor t = tensor(std::vector<double>(mine.begin(), mine.end()), {int64_t(mine.size())}), first = t.clone();
  ranks().wait(ranks().broadcast({first}, 0));
  return same_bits(t.to_vector<float>(), first.to_vector<float>());
}

std::unique_ptr<Optimizer> sgd(Module& m) { return std::make_unique<SGD>(m.parameters(), SGDOptions{.lr = 0.05, .momentum = 0.9}); }

void compare(const Kind& kind, const Setting& s, bool with_whole) {
  CAPTURE(kind.name);
  CAPTURE(s.dtype);
  const int n = ranks().size();
  const Result many = train(kind, s, n, true), one = train(kind, s, n, false);
  CHECK(same_everywhere(many.weights));
  CHECK(same_bits(many.weights, one.weights));
  CHECK(many.scale == one.scale);
  CHECK(many.skipped == one.skipped);
  if (!with_whole) return;
  Setting plain = s;
  if (kind.has_zero_gradients) plain.optimizer = sgd;
  const Result parts = train(kind, plain, n, true), whole = train(kind, plain, 1, false);
  CHECK(distance(parts.weights, whole.weights) < (s.dtype == DType::f32 ? 1e-5 : 2e-2));
  CHECK(parts.random == whole.random);
}

}  // namespace

TEST_CASE("ranks: the bits of accumulation, and the whole batch's weights, in three dtypes") {
  for (const Kind& kind : kinds())
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) compare(kind, {.dtype = dtype}, true);
}

TEST_CASE("ranks: clipping sees the whole gradient") { compare(kinds()[0], {.clip = 0.1}, true); }

TEST_CASE("ranks: those that share the optimizer's states have the bits of accumulation, too") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const Kind& kind : kinds()) compare(kind, {.dtype = dtype, .clip = 0.1, .poisoned_row = 9, .shards = true}, false);
  }
  compare(kinds()[0], {.shards = true, .optimizer = [](Module& m) { return std::make_unique<Muon>(m.parameters()); }}, false);
}

TEST_CASE("ranks: an overflow on one of them skips the step on all, and their scales are equal") {
  const Setting s{.dtype = DType::f16, .poisoned_row = 15};  // the last rank's
  const Result many = train(kinds()[0], s, ranks().size(), true);
  CHECK(many.skipped == 1);
  for (const auto& of : ranks().gather(std::vector<double>{many.scale, double(many.skipped)}))
    CHECK(of == std::vector<double>{many.scale, 1.0});
  compare(kinds()[0], s, false);
}

TEST_CASE("ranks: uneven batches are weighted by their samples, and a rank may have none") {
  for (const int64_t batch : {10, 3}) {
    CAPTURE(batch);
    Kind plain = kinds()[0];
    plain.make = [] {
      return std::make_shared<Sequential>(std::make_shared<Linear>(12, 32), std::make_shared<Tanh>(),
                                          std::make_shared<Linear>(32, 5));
    };
    for (const DType dtype : {DType::f32, DType::f16}) compare(plain, {.dtype = dtype, .batch = batch}, true);
    // With dropout, micro-batches that end early cannot know the whole; ranks do.
    const Setting s{.batch = batch};
    const Result many = train(kinds()[0], s, ranks().size(), true), whole = train(kinds()[0], s, 1, false);
    CHECK(distance(many.weights, whole.weights) < 1e-5);
    CHECK(many.random == whole.random);
    CHECK(same_everywhere(many.weights));
  }
}

TEST_CASE("ranks: a loss of weighted and ignored classes is the mean over what counts on all of them") {
  const CrossEntropyOptions loss{.weight = tensor({0.01, 4.0, 1.0, 0.3, 2.0}), .ignore_index = 2};
  for (const DType dtype : {DType::f32, DType::f16}) {
    compare(kinds()[0], {.dtype = dtype, .loss = loss}, true);
    compare(kinds()[2], {.dtype = dtype, .batch = 7, .loss = loss}, true);
  }
}

TEST_CASE("ranks: a window of several micro-batches on each") {
  const Kind kind = kinds()[3];
  std::vector<float> weights[2];
  for (const bool together : {true, false}) {
    manual_seed(3);
    const std::shared_ptr<Module> net = kind.make();
    const auto opt = sgd(*net);
    GradScaler scaler({.enabled = false});
    CrossEntropyLoss loss;
    TrainStep step(*net, loss, *opt, scaler, nullptr, {.accumulate_steps = 2, .group = together ? &ranks() : nullptr});
    Generator data(11);
    for (int i = 0; i < 9; ++i) {  // the last window ends early
      const Tensor x = randn({8, 5, 8}, {}, &data), y = randint(0, 5, {8}, {.dtype = DType::i64}, &data);
      const BatchRows part = together ? part_of(8, ranks().rank(), ranks().size()) : BatchRows{0, 8, 8};
      const StepResult r =
          together ? step(x.narrow(0, part.first, part.rows), y.narrow(0, part.first, part.rows), part) : step(x, y);
      CHECK(r.stepped == (i % 2 == 1));
      if (together) CHECK(r.loss.defined() == r.stepped);
    }
    CHECK(step.flush().stepped);
    weights[together] = flat(*net);
  }
  CHECK(distance(weights[1], weights[0]) < 1e-5);
  CHECK(same_everywhere(weights[1]));
}

TEST_CASE("ranks: the loss is that of all samples, and bits of one rank reach all") {
  Linear net(2, 1);
  const NoGrad off;
  net.weight.fill_(1), net.bias.fill_(0);
  SGD opt(net.parameters(), {.lr = 0});
  GradScaler scaler({.enabled = false});
  MSELoss loss;
  const int n = ranks().size(), me = ranks().rank();
  const EnableGrad on;
  TrainStep step(net, loss, opt, scaler, nullptr, {.group = &ranks()});
  const int64_t total = 2 * n - 1;  // the last rank has one sample, the others two
  const BatchRows part = part_of(total, me, n);
  if (me == n - 1) step.notify(4);
  const StepResult r = step(full({part.rows, 2}, me + 1.0), zeros({part.rows, 1}), part);
  double expected = 0;
  for (int k = 0; k < n; ++k) expected += (k == n - 1 ? 1 : 2) * 4.0 * (k + 1) * (k + 1);
  CHECK(r.loss.item<float>() == float(expected / double(total)));
  CHECK(step.notices() == 4);
  step(full({part.rows, 2}, 1.0), zeros({part.rows, 1}), part);
  CHECK(step.notices() == 0);
  // A part that does not fit, and ranks that do not add up.
  CHECK_THROWS_WITH_AS(step(zeros({3, 2}), zeros({3, 1}), BatchRows{0, 2, total}), doctest::Contains("must be its input's rows"),
                       ShapeError);
  CHECK_THROWS_WITH_AS(step(zeros({1, 2}), zeros({1, 1}), BatchRows{0, 1, 100}),
                       doctest::Contains(joined("the ranks computed ", n, " samples of a window of 100").c_str()), ValueError);
}

TEST_CASE("ranks: bfloat16 on the wire is rounded once, and all ranks have the same bits") {
  const Kind kind = kinds()[0];
  const Result exact = train(kind, {}, ranks().size(), true), low = train(kind, {.wire = Wire::bf16}, ranks().size(), true);
  CHECK(same_everywhere(low.weights));
  CHECK(distance(low.weights, exact.weights) < 2e-2);
  CHECK(!same_bits(low.weights, exact.weights));
}

TEST_CASE("ranks: batch normalisation over ranks is that of the whole batch") {
  const int n = ranks().size(), me = ranks().rank();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const int64_t batch = 4 * n + 2;
    const BatchRows part = part_of(batch, me, n);
    std::vector<float> weights[2], means[2], variances[2];
    for (const bool together : {true, false}) {
      manual_seed(3);
      const auto norm = std::make_shared<BatchNorm2d>(4, BatchNormOptions{.sync = together});
      Sequential net(std::make_shared<Conv2d>(3, 4, 3), norm, std::make_shared<ReLU>(), std::make_shared<Flatten>(),
                     std::make_shared<Linear>(64, 5));
      SGD opt(net.parameters(), {.lr = 0.1});
      GradScaler scaler({.enabled = false});
      CrossEntropyLoss loss;
      TrainStep step(net, loss, opt, scaler, nullptr, {.amp = if_half(dtype), .group = together ? &ranks() : nullptr});
      Generator data(11);
      for (int i = 0; i < 6; ++i) {
        const Tensor x = randn({batch, 3, 6, 6}, {}, &data), y = randint(0, 5, {batch}, {.dtype = DType::i64}, &data);
        if (together)
          step(x.narrow(0, part.first, part.rows), y.narrow(0, part.first, part.rows), part);
        else
          step(x, y);
      }
      weights[together] = flat(net);
      means[together] = norm->running_mean.to_vector<float>(), variances[together] = norm->running_var.to_vector<float>();
      if (together)
        CHECK_THROWS_WITH_AS(step(randn({1, 3, 6, 6}), zeros({1}, {.dtype = DType::i64}), BatchRows{0, 1, 1}),
                             doctest::Contains("needs a sample on each"), ValueError);
    }
    CAPTURE(dtype);
    CHECK(same_everywhere(weights[1]));
    CHECK(distance(weights[1], weights[0]) < (dtype == DType::f32 ? 1e-5 : 2e-2));
    CHECK(distance(means[1], means[0]) < (dtype == DType::f32 ? 1e-5 : 2e-2));
    CHECK(distance(variances[1], variances[0]) < (dtype == DType::f32 ? 1e-5 : 2e-2));
  }
}

TEST_CASE("ranks: buffers become the mean of all, counts the greatest") {
  BatchNorm1d norm(3);
  norm.running_mean.fill_(ranks().rank());
  norm.num_batches_tracked.fill_(10 - ranks().rank());
  average_buffers(norm, ranks());
  CHECK(norm.running_mean.to_vector<double>() == std::vector<double>(3, (ranks().size() - 1) / 2.0));
  CHECK(norm.num_batches_tracked.item<int64_t>() == 10);

  // Of parts of 1, 2, ... samples each rank counts by its own.
  const int n = ranks().size(), me = ranks().rank();
  norm.running_mean.fill_(me == n - 1 ? 3.0 : 0.0);
  average_buffers(norm, ranks(), me + 1);
  CHECK(norm.running_mean.to_vector<float>() == std::vector<float>(3, float(3.0 * n / (n * (n + 1) / 2))));
}

TEST_CASE("ranks: a training loop of the user's, with DistributedDataParallel") {
  const int n = ranks().size(), me = ranks().rank();
  for (const auto& [accumulate, shard] : {std::pair{false, false}, {true, false}, {true, true}}) {
    std::vector<float> weights[2];
    for (const bool together : {true, false}) {
      manual_seed(together ? 3 + me : 3);  // rank 0's weights count
      auto model = std::make_shared<Sequential>(std::make_shared<Linear>(6, 9), std::make_shared<Tanh>(),
                                                std::make_shared<Dropout>(0.3), std::make_shared<Linear>(9, 2));
      auto spare = std::make_shared<Linear>(2, 2);  // is never used
      const auto both = std::make_shared<ModuleList>();
      both->push_back(model), both->push_back(spare);
      struct Uses : Module {
        Part<Module> all;
        std::shared_ptr<Module> used;
        Uses(std::shared_ptr<Module> a, std::shared_ptr<Module> u) : all(this, "all", std::move(a)), used(std::move(u)) {}
        Tensor forward(const Tensor& x) override { return (*used)(x); }
      };
      const auto net = std::make_shared<Uses>(both, model);
      std::unique_ptr<DistributedDataParallel> ddp;
      if (together) ddp = std::make_unique<DistributedDataParallel>(net, ranks());
      SGD opt(net->parameters(), {.lr = 0.1, .momentum = 0.9});
      if (together && shard) opt.shard(ranks());
      manual_seed(7);
      Generator data(11);
      for (int i = 0; i < 6; ++i) {
        const Tensor x = randn({4 * n, 6}, {}, &data), y = randn({4 * n, 2}, {}, &data);
        const auto backward = [&](double share) {
          const Tensor out = together ? (*ddp)(x.narrow(0, 4 * me, 4)) : (*net)(x);
          (mse_loss(out, together ? y.narrow(0, 4 * me, 4) : y) * share).backward();
        };
        opt.zero_grad();
        if (accumulate && together) {
          const auto alone = ddp->no_sync();
          backward(0.5);
        } else if (accumulate) {
          backward(0.5);
        }
        randn({2, 2}, {.requires_grad = true}).sum().backward();  // of something else
        backward(accumulate ? 0.5 : 1);
        if (together) CHECK(!spare->weight.grad().defined());
        opt.step();
      }
      weights[together] = flat(*net);
    }
    CHECK(same_everywhere(weights[1]));
    CHECK(distance(weights[1], weights[0]) < 1e-5);
  }
}

TEST_CASE("ranks: the loader's parts are one process's batches") {
  const Tensor numbers = arange(10.0);
  const auto data = std::make_shared<TensorDataset<>>(numbers.to(DType::f32).reshape({10, 1}), numbers.to(DType::i64), 10);
  const int n = ranks().size(), me = ranks().rank();
  DataLoader whole(data, {.batch_size = 7, .shuffle = true, .seed = 4}),
      mine(data, {.batch_size = 7, .shuffle = true, .seed = 4, .num_workers = 2, .rank = me, .ranks = n});
  for (int epoch = 0; epoch < 2; ++epoch) {
    while (const auto all = whole.next()) {
      const auto part = mine.next();
      REQUIRE(part);
      const BatchRows rows = mine.part();
      CHECK(rows == part_of(all->input.size(0), me, n));
      CHECK(part->input.defined() == (rows.rows > 0));
      if (rows.rows > 0) CHECK(part->input.to_vector<double>() == all->input.narrow(0, rows.first, rows.rows).to_vector<double>());
    }
    CHECK(!mine.next());
  }
}
