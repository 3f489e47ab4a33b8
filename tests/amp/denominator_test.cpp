// SPDX-License-Identifier: Apache-2.0
// A mean knows what it is a mean over: the loss of several batches, and the gradient of a window, do not depend on where they end.
#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "amp/step/train_step.h"
#include "framework/ops/ops.h"
#include "optim/lbfgs.h"
#include "tests/amp/scaling.h"
#include "tests/comm/local_ranks.h"

using namespace halfstep;
using scaling::bytes;

namespace {

constexpr int64_t kRows = 24, kClasses = 4;

// A loss, and data for it.
struct Case {
  std::string name;
  std::shared_ptr<Loss> loss;
  Tensor output, target;
};

template <class L, class... Args>
Case of(const char* name, const Tensor& output, const Tensor& target, const Args&... args) {
  return {name, std::make_shared<L>(args...), output, target};
}

// Class targets in order, so that parts have other classes than others; one in three is 1.
Tensor classes(const Shape& shape) {
  std::vector<int64_t> out(size_t(numel(shape)));
  for (size_t i = 0; i < out.size(); ++i) out[i] = i % 3 == 0 ? 1 : int64_t(i) * kClasses / std::ssize(out);
  return from_vector(out, shape);
}

std::vector<Case> cases() {
  manual_seed(6);
  const Tensor x = randn({kRows, kClasses}), y = randn({kRows, kClasses}), p = rand({kRows, kClasses});
  const Tensor signs = where(gt(y, 0.0), ones({kRows, kClasses}), full({kRows, kClasses}, -1.0));
  const Tensor weight = tensor({0.2, 3.0, 0.0, 1.5}), target = classes({kRows}), places = classes({kRows, 5});
  const Tensor scores = randn({kRows, kClasses, 5});
  const Tensor lists = from_vector(std::vector<int64_t>(size_t(kRows * kClasses), -1), {kRows, kClasses});
  lists.narrow(1, 0, 1).copy_(target.unsqueeze(1));
  return {of<MSELoss>("MSELoss", x, y),
          of<L1Loss>("L1Loss", x, y),
          of<SmoothL1Loss>("SmoothL1Loss", x, y),
          of<HuberLoss>("HuberLoss", x, y),
          of<PoissonNLLLoss>("PoissonNLLLoss", x, p),
          of<KLDivLoss>("KLDivLoss", log_softmax(x, 1), p),
          of<KLDivLoss>("KLDivLoss, batchmean", log_softmax(x, 1), p, KLDivLossOptions{.reduction = KlReduction::batchmean}),
          of<BCELoss>("BCELoss", sigmoid(x), p, BCEOptions{.weight = weight}),
          of<BCEWithLogitsLoss>("BCEWithLogitsLoss", x, p, BceWithLogitsOptions{.weight = weight, .pos_weight = weight}),
          of<SoftMarginLoss>("SoftMarginLoss", x, signs),
          of<HingeEmbeddingLoss>("HingeEmbeddingLoss", x, signs),
          of<CrossEntropyLoss>("CrossEntropyLoss", x, target),
          of<CrossEntropyLoss>("CrossEntropyLoss of shares", x, softmax(y, 1), CrossEntropyOptions{.weight = weight}),
          of<CrossEntropyLoss>("CrossEntropyLoss, weights, smoothing, ignored", x, target,
                               CrossEntropyOptions{.weight = weight + 0.1, .ignore_index = 1, .label_smoothing = 0.1}),
          of<CrossEntropyLoss>("CrossEntropyLoss of positions", scores, places, CrossEntropyOptions{.ignore_index = 0}),
          of<NLLLoss>("NLLLoss of positions, weights", log_softmax(scores, 1), places, NllLossOptions{.weight = weight}),
          of<MultiMarginLoss>("MultiMarginLoss", x, target, MultiMarginOptions{.weight = weight}),
          of<MultiLabelMarginLoss>("MultiLabelMarginLoss", x, lists),
          of<MultiLabelSoftMarginLoss>("MultiLabelSoftMarginLoss", x, p, MultiLabelSoftMarginLossOptions{.weight = weight})};
}

double of_parts(const Loss& loss, const Tensor& output, const Tensor& target, const std::vector<int64_t>& sizes) {
  double sum = 0, over = 0;
  int64_t at = 0;
  for (const int64_t n : sizes) {
    const Tensor part = target.narrow(0, at, n);
    const double d = loss.denominator(part).value();
    if (d > 0) sum += loss(output.narrow(0, at, n), part).item<double>() * d;
    over += d;
    at += n;
  }
  return sum / over;
}

// What a step trains here: log-probabilities, so that every loss of classes fits.
std::shared_ptr<Sequential> classifier() {
  manual_seed(9);
  return std::make_shared<Sequential>(std::make_shared<Linear>(6, 8), std::make_shared<Tanh>(),
                                      std::make_shared<Linear>(8, kClasses), std::make_shared<LogSoftmax>(1));
}

struct LossBench {
  std::shared_ptr<Sequential> net = classifier();
  const Loss& loss;
  SGD opt{net->parameters(), {.lr = 0.5, .momentum = 0.9, .weight_decay = 0.1}};
  GradScaler scaler;
  StepLR schedule{opt, 1, 0.5};
  TrainStep step;
  LossBench(const Loss& of, int64_t accumulate, bool scaled = false)
      : loss(of),
        scaler({.init_scale = 1024, .enabled = scaled}),
        step(*net, loss, opt, scaler, &schedule,
             {.amp = scaled ? std::optional(DType::f16) : std::nullopt, .accumulate_steps = accumulate}) {}
};

double distance(const Module& a, const Module& b) {
  double d = 0;
  for (size_t i = 0; i < a.parameters().size(); ++i) {
    const double here = max((a.parameters()[i] - b.parameters()[i]).abs()).item<double>();
    if (!(here <= d)) d = here;  // NaN stays
  }
  return d;
}

}  // namespace

TEST_CASE("each loss says what it is a mean over: batches of any sizes have the loss of all rows") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    const double whole = (*c.loss)(c.output, c.target).item<double>();
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{kRows}, {10, 10, 4}, {7, 1, 16}, std::vector<int64_t>(kRows, 1)})
      CHECK(of_parts(*c.loss, c.output, c.target, sizes) == doctest::Approx(whole).epsilon(1e-6));
  }
}

TEST_CASE("sums are no means: batches add up") {
  const MSELoss mse({.reduction = Reduction::sum});
  const NLLLoss nll(NllLossOptions{.reduction = Reduction::sum});
  CHECK(mse.denominator(zeros({3, 2})).is_sum());
  CHECK(nll.denominator(zeros({3}, {.dtype = DType::i64})).is_sum());
  CHECK(KLDivLoss({.reduction = KlReduction::sum}).denominator(zeros({3, 2})).is_sum());
  const Tensor x = (manual_seed(2), randn({12, 6})), y = randn({12, kClasses}) * 0.1;
  LossBench whole(mse, 1), parts(mse, 3);
  whole.step(x, y);
  StepResult last;
  for (int64_t i = 0; i < 3; ++i) last = parts.step(x.narrow(0, 4 * i, 4), y.narrow(0, 4 * i, 4));
  CHECK(last.stepped);
  CHECK(distance(*whole.net, *parts.net) < 2e-6);
}

TEST_CASE("accumulated batches of weighted and ignored classes are one batch, also where a window ends early or a part has none") {
  const Tensor weight = tensor({0.02, 9.0, 0.5, 2.0});
  const NLLLoss weighted(NllLossOptions{.weight = weight}), ignoring(NllLossOptions{.ignore_index = 2});
  const Tensor x = (manual_seed(3), randn({20, 6})), y = classes({20});
  y.narrow(0, 8, 4).fill_(2);  // the third part of four has no target that counts
  for (const Loss* loss : {static_cast<const Loss*>(&weighted), static_cast<const Loss*>(&ignoring)}) {
    for (const bool scaled : {false, true}) {
      for (const int64_t k : {5, 8}) {
        CAPTURE(k);
        CAPTURE(scaled);
        LossBench whole(*loss, 1, scaled), parts(*loss, k, scaled);
        for (int round = 0; round < 3; ++round) {
          whole.step(x, y);
          StepResult last;
          for (int64_t at = 0; at < 20; at += 4) last = parts.step(x.narrow(0, at, 4), y.narrow(0, at, 4));
          if (!last.stepped) last = parts.step.flush();
          CHECK(last.stepped);
          CHECK(last.outcome.applied());
          CHECK(!last.no_target);
        }
        CHECK(distance(*whole.net, *parts.net) < (scaled ? 3e-3 : 3e-6));
        CHECK(parts.schedule.count() == 3);
      }
    }
  }
}

TEST_CASE("sequences of other lengths, with padding: a window is all their positions as one batch") {
  struct Each : Module {  // [N, T] to [N, C, T]
    Part<Embedding> table{this, "table", Embedding(10, kClasses)};
    Tensor forward(const Tensor& x) override { return table(x).transpose(1, 2); }
  };
  const CrossEntropyLoss loss(CrossEntropyOptions{.ignore_index = -1});
  const auto tokens = [](int64_t n, int64_t t) { return randint(0, 10, {n, t}, {.dtype = DType::i64}); };
  manual_seed(7);
  const Tensor long_x = tokens(2, 7), short_x = tokens(3, 4), long_y = classes({2, 7}), short_y = classes({3, 4});
  long_y.narrow(1, 5, 2).fill_(-1);
  Each parts, whole;
  whole.load_state_dict(parts.state_dict());
  SGD a(parts.parameters(), {.lr = 1}), b(whole.parameters(), {.lr = 1});
  GradScaler off({.enabled = false});
  TrainStep step(parts, loss, a, off, nullptr, {.accumulate_steps = 2});
  step(long_x, long_y);
  CHECK(step(short_x, short_y).stepped);
  const auto padded = [](const Tensor& t, double with) { return cat({t, full({3, 3}, with, {.dtype = DType::i64})}, 1); };
  loss(whole(cat({long_x, padded(short_x, 0)}, 0)), cat({long_y, padded(short_y, -1)}, 0)).backward();
  b.step();
  CHECK(distance(parts, whole) < 1e-6);
}

TEST_CASE("a window in which no target counts is skipped: nothing moves, not even statistics, momentum or the scale") {
  const auto make = [] {
    manual_seed(1);
    return std::make_shared<Sequential>(std::make_shared<Linear>(6, 8), std::make_shared<BatchNorm1d>(8),
                                        std::make_shared<Linear>(8, kClasses));
  };
  const CrossEntropyLoss loss(CrossEntropyOptions{.weight = tensor({1.0, 1.0, 0.0, 1.0}), .ignore_index = 3});
  const Tensor x = (manual_seed(5), randn({6, 6})), good = from_vector<int64_t>({0, 1, 2, 3, 1, 0}, {6});
  const Tensor none = from_vector<int64_t>({3, 2, 2, 3, 3, 2}, {6});  // ignored, or of weight 0
  for (const bool scaled : {false, true}) {
    for (const int64_t k : {1, 2}) {
      CAPTURE(scaled);
      CAPTURE(k);
      const auto net = make();
      AdamW opt(net->parameters(), {.lr = 0.1});
      StepLR schedule(opt, 1, 0.5);
      GradScaler scaler({.init_scale = 64, .growth_interval = 1000, .enabled = scaled});
      int found = 0;
      TrainStep step(*net, loss, opt, scaler, &schedule,
                     {.amp = scaled ? std::optional(DType::f16) : std::nullopt,
                      .accumulate_steps = k,
                      .on_bad_loss = [&](const StepUnderTest&) { ++found; }});
      const auto window = [&](const Tensor& y) {
        StepResult last;
        for (int64_t i = 0; i < k; ++i) last = step(x, y);
        return last;
      };
      CHECK(window(good).outcome.applied());
      const std::string before = bytes(*net) + bytes(opt);
      const int64_t clean = scaler.get_growth_tracker();
      const StepResult r = window(none);
      CHECK(r.stepped);
      CHECK(r.no_target);
      CHECK(!r.outcome.applied());
      CHECK(bytes(*net) + bytes(opt) == before);
      CHECK(schedule.count() == 1);
      CHECK(scaler.get_scale() == (scaled ? 64 : 1));
      CHECK(scaler.get_growth_tracker() == clean);
      CHECK(found == 0);
      CHECK(window(good).outcome.applied());
      CHECK(bytes(*net) + bytes(opt) != before);
    }
  }
  const auto net = make();
  LBFGS closure(net->parameters());
  GradScaler off({.enabled = false});
  TrainStep step(*net, loss, closure, off, nullptr);
  const std::string before = bytes(*net);
  CHECK(step(x, none).no_target);
  CHECK(bytes(*net) == before);
  CHECK(step(x, good).outcome.applied());
}

TEST_CASE("a loss of the user's is a mean over rows, or over what it says") {
  // The mean of the squared errors of rows whose first target is positive.
  struct Chosen : Loss {
    bool says;
    explicit Chosen(bool says) : says(says) {}
    static Tensor mask(const Tensor& y) { return gt(y.select(1, 0), 0.0).to(DType::f32); }
    Tensor operator()(const Tensor& x, const Tensor& y) const override {
      return sum(sum(square(x - y), {1}) * mask(y)) / sum(mask(y));
    }
    Denominator denominator(const Tensor& y) const override {
      return says ? Denominator(sum(mask(y)).item<double>()) : Loss::denominator(y);
    }
    std::string describe() const override { return "Chosen()"; }
  };
  const Tensor x = (manual_seed(8), randn({9, 6})), y = randn({9, kClasses});
  y.narrow(0, 0, 3).abs_();         // all of them count
  y.narrow(0, 3, 3).abs_().neg_();  // none does
  const auto distance_of = [&](const Loss& loss) {
    LossBench whole(loss, 1), parts(loss, 3);
    whole.step(x, y);
    for (int64_t i = 0; i < 3; ++i) parts.step(x.narrow(0, 3 * i, 3), y.narrow(0, 3 * i, 3));
    return distance(*whole.net, *parts.net);
  };
  CHECK(distance_of(Chosen(true)) < 2e-6);
  CHECK(!(distance_of(Chosen(false)) < 1e-3));
  CHECK(FunctionLoss("f", [](const Tensor& a, const Tensor&) { return mean(a); }).denominator(zeros({7, 3})).value() == 7);

  // The same of a step that is given a function.
  const NLLLoss loss;
  const Tensor t = classes({9});
  LossBench whole(loss, 1), parts(loss, 2);
  whole.step([&] { return loss((*whole.net)(x), t); });
  parts.step([&] { return loss((*parts.net)(x.narrow(0, 0, 2)), t.narrow(0, 0, 2)); }, {}, 2);
  CHECK(parts.step([&] { return loss((*parts.net)(x.narrow(0, 2, 7)), t.narrow(0, 2, 7)); }, {}, 7).stepped);
  CHECK(distance(*whole.net, *parts.net) < 2e-6);
  CHECK_THROWS_WITH_AS(parts.step([&] { return loss((*parts.net)(x), t); }, {}, -1),
                       "[TrainStep] what a loss is a mean over must be >= 0, got -1", ValueError);
}

TEST_CASE("ranks weigh their parts by what counts in them: the bits of accumulation, and a window of none is skipped on all") {
  const CrossEntropyLoss loss(CrossEntropyOptions{.weight = tensor({0.02, 9.0, 0.5, 2.0}), .ignore_index = 2});
  const Tensor x = (manual_seed(3), randn({10, 6})), y = classes({10}), none = full({10}, 2.0, {.dtype = DType::i64});
  const auto make = [](const std::shared_ptr<Sequential>& net) { return SGD(net->parameters(), {.lr = 0.5, .momentum = 0.9}); };
  const auto parts_of = [](int r) { return BatchRows{r * 4, r == 2 ? 2 : 4, 10}; };
  const auto start = classifier();
  const auto copy = [&start] { return std::static_pointer_cast<Sequential>(start->clone()); };
  GradScaler off({.enabled = false});
  const auto one = copy();
  SGD of_one = make(one);
  TrainStep step(*one, loss, of_one, off, nullptr, {.accumulate_steps = 3});
  double value = 0, over = 0;
  for (int r = 0; r < 3; ++r) {
    const BatchRows part = parts_of(r);
    const StepResult result = step(x.narrow(0, part.first, part.rows), y.narrow(0, part.first, part.rows));
    value += result.loss.item<double>() * result.denominator.value(), over += result.denominator.value();
  }
  testing::on_ranks(3, [&](ProcessGroup& group) {
    const auto net = copy();
    SGD opt = make(net);
    GradScaler scaler({.enabled = false});
    TrainStep together(*net, loss, opt, scaler, nullptr, {.group = &group});
    const BatchRows part = parts_of(group.rank());
    const auto of = [&](const Tensor& t) { return t.narrow(0, part.first, part.rows); };
    const StepResult r = together(of(x), of(y), part);
    CHECK(bytes(*net) == bytes(*one));
    CHECK(r.denominator.value() == doctest::Approx(over).epsilon(1e-12));
    CHECK(r.loss.item<double>() == doctest::Approx(value / over).epsilon(1e-6));
    const StepResult empty = together(of(x), of(none), part);
    CHECK(empty.no_target);
    CHECK(bytes(*net) == bytes(*one));
    const Tensor first = classes({4, 2 + group.rank()});  // sequences of other lengths
    Embedding table(kClasses, kClasses);
    SGD of_table(table.parameters(), {.lr = 0.1});
    struct Scores : Loss {
      Tensor operator()(const Tensor& s, const Tensor& t) const override { return cross_entropy(s.transpose(1, 2), t); }
      Denominator denominator(const Tensor& t) const override { return double(t.numel()); }
      std::string describe() const override { return "Scores()"; }
    } scores;
    TrainStep ragged(table, scores, of_table, scaler, nullptr, {.group = &group});
    CHECK_THROWS_WITH_AS(ragged(first, first), doctest::Contains("the samples of all ranks must have targets of one size, got"),
                         ValueError);
  });
}
