// SPDX-License-Identifier: Apache-2.0
// Ranks, as threads, that share the states of an optimizer: every bit is that of an optimizer that keeps all states itself.
#include "optim/shards.h"

#include <doctest/doctest.h>

#include <atomic>

#include "amp/autocast/autocast.h"
#include "amp/step/grad_scaler.h"
#include "framework/tensor/memory.h"
#include "optim/averages.h"
#include "optim/lbfgs.h"
#include "tests/comm/local_ranks.h"
#include "tests/optim/problem.h"

using namespace halfstep;
using halfstep::problem::bytes;
using halfstep::testing::on_ranks;

namespace {

using States = std::map<std::string, Tensor>;

// A matrix, a filter bank, vectors that are shorter than a line of memory, a number, and one that never gets a gradient.
const std::vector<Shape> kShapes{{37, 5}, {6, 3, 3, 3}, {7}, {1}, {}, {40}, {300}};
constexpr size_t kUnused = 5;

std::vector<Tensor> many_parameters(DType dtype = DType::f32, MemoryFormat format = MemoryFormat::contiguous) {
  std::vector<Tensor> out;
  for (size_t k = 0; k < kShapes.size(); ++k) {
    std::vector<double> v(size_t(numel(kShapes[k])));
    for (size_t i = 0; i < v.size(); ++i) v[i] = std::sin(double(i + 31 * k));
    Tensor p = tensor(v, kShapes[k], {.dtype = dtype});
    if (p.dim() == 4 && format != MemoryFormat::contiguous) p = p.contiguous(format);
    p.set_requires_grad();
    out.push_back(p);
  }
  return out;
}

void set_gradients(const std::vector<Tensor>& params, int step, double factor = 1, DType dtype = DType::f32) {
  for (size_t k = 0; k < params.size(); ++k) {
    if (k == kUnused) continue;
    std::vector<double> v(size_t(params[k].numel()));
    for (size_t i = 0; i < v.size(); ++i) v[i] = factor * std::cos(0.7 * double(i) + 1.3 * step + double(k));
    params[k].set_grad(tensor(v, params[k].shape(), {.dtype = params[k].dtype() == DType::f32 ? dtype : params[k].dtype()}));
  }
}

std::string bytes_of(const std::vector<Tensor>& tensors) {
  std::string out;
  for (const Tensor& t : tensors) out += bytes(t.contiguous()) + ";";
  return out;
}
std::string bytes_of(const States& states) {
  std::string out;
  for (const auto& [name, t] : states) out += joined(name, ' ', t.dtype(), ' ', t.shape(), ' ') + bytes(t.contiguous()) + ";";
  return out;
}

using Make = std::function<std::unique_ptr<Optimizer>(const std::vector<Tensor>&)>;

constexpr int kSteps = 4;

// Parameters and states after some steps.
struct Trained {
  std::string parameters, states;
  bool operator==(const Trained&) const = default;
};

Trained alone(const Make& make, const std::vector<Tensor>& params) {
  const auto optimizer = make(params);
  for (int t = 0; t < kSteps; ++t) set_gradients(params, t), optimizer->step();
  return {bytes_of(params), bytes_of(optimizer->state_dict())};
}

// The same on ranks; those of rank 0, or of the first that differs in its parameters.
Trained shared(int ranks, const Make& make, const std::function<std::vector<Tensor>()>& start, const ShardOptions& options = {}) {
  std::vector<Trained> all(static_cast<size_t>(ranks));
  on_ranks(ranks, [&](ProcessGroup& group) {
    const std::vector<Tensor> params = start();
    const auto optimizer = make(params);
    optimizer->shard(group, options);
    for (int t = 0; t < kSteps; ++t) set_gradients(params, t), optimizer->step();
    all[size_t(group.rank())] = {bytes_of(params), bytes_of(optimizer->gathered_state_dict())};
  });
  for (const Trained& t : all) {
    if (t.parameters != all[0].parameters) return {t.parameters, "a rank has other parameters"};
  }
  for (size_t r = 1; r < all.size(); ++r) CHECK(all[r].states.empty());
  return all[0];
}

}  // namespace

TEST_CASE("shards: every optimizer gives the bits that it gives alone, with 2, 3 and more ranks than parameters"
          * doctest::test_suite("values")) {
  for (const problem::Setting& s : problem::settings()) {
    CAPTURE(s.name);
    const Trained want = alone(s.make, many_parameters());
    for (const int ranks : {2, 3, 11}) {
      CAPTURE(ranks);
      CHECK(shared(ranks, s.make, [] { return many_parameters(); }) == want);
    }
  }
}

TEST_CASE("shards: parameters of other dtypes and in channels_last, and a stage of one line of memory") {
  const Make adam = [](const std::vector<Tensor>& p) { return std::make_unique<AdamW>(p, AdamWOptions{.lr = 0.05}); };
  for (const DType dtype : {DType::f64, DType::bf16, DType::f16, DType::f32}) {
    CAPTURE(dtype);
    const auto start = [&] { return many_parameters(dtype, MemoryFormat::channels_last); };
    CHECK(shared(3, adam, start, {.stage_mb = 1e-6}) == alone(adam, start()));
  }
  const auto mixed = [] {
    std::vector<Tensor> out = many_parameters(), wide = many_parameters(DType::f64);
    out[1] = wide[1], out[6] = wide[6];
    return out;
  };
  CHECK(shared(4, adam, mixed) == alone(adam, mixed()));
}

TEST_CASE("shards: groups with rates of their own, one of them added between steps, and averages that follow") {
  const auto train = [](ProcessGroup* group) {
    const std::vector<Tensor> p = many_parameters();
    AdamW optimizer({{.params = {p[0], p[1]}, .lr = 0.1}, {.params = {p[2], p[6]}, .weight_decay = 0.3}}, {.lr = 0.01});
    const WeightAverage ema(optimizer, {.decay = 0.8});
    const Lookahead slow(optimizer, {.k = 2});
    if (group) optimizer.shard(*group);
    for (int t = 0; t < kSteps; ++t) {
      set_gradients(p, t);
      if (t == 2) optimizer.add_param_group({.params = {p[3], p[5]}, .lr = 0.2});
      optimizer.step();
    }
    return Trained{bytes_of(p), bytes_of(group ? optimizer.gathered_state_dict() : optimizer.state_dict())};
  };
  const Trained want = train(nullptr);
  on_ranks(3, [&](ProcessGroup& group) {
    const Trained got = train(&group);
    if (group.rank() == 0) CHECK(got == want);
  });
}

TEST_CASE("shards: a scaler finds an infinity that is another rank's, and unscales gradients whole or not at all") {
  for (const bool whole : {false, true}) {
    for (const bool keep : {false, true}) {
      CAPTURE(whole);
      CAPTURE(keep);
      const auto train = [&](ProcessGroup* group) {
        const std::vector<Tensor> p = many_parameters();
        std::unique_ptr<Optimizer> optimizer;
        if (whole)
          optimizer = std::make_unique<LAMB>(p, LAMBOptions{.lr = 0.05});
        else
          optimizer = std::make_unique<Adam>(p, AdamOptions{.lr = 0.05});
        optimizer->keep_unscaled_gradients(keep);
        if (group) optimizer->shard(*group);
        GradScaler scaler({.init_scale = 1024, .growth_interval = 2});
        std::string out;
        for (int t = 0; t < 5; ++t) {
          (void)scaler.scale(ones({}));
          set_gradients(p, t, scaler.get_scale());
          if (t == 1) p[6].grad().data_ptr<float>()[299] = INFINITY;  // of the last rank
          if (t == 3) p[0].grad().data_ptr<float>()[0] = NAN;         // and of the first
          out += joined(scaler.finish(*optimizer).applied(), ' ', scaler.get_scale(), ' ');
          std::vector<Tensor> gradients;
          for (size_t k = 0; k < p.size(); ++k) {
            if (k != kUnused) gradients.push_back(p[k].grad());
          }
          out += bytes_of(gradients);
        }
        return Trained{bytes_of(p) + out, bytes_of(group ? optimizer->gathered_state_dict() : optimizer->state_dict())};
      };
      const Trained want = train(nullptr);
      std::atomic<int> wrong{0};
      on_ranks(3, [&](ProcessGroup& group) {
        const Trained got = train(&group);
        wrong += got.parameters != want.parameters || (group.rank() == 0 && got.states != want.states);
      });
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("shards: 16-bit copies of weights are cast from the gathered parameters") {
  std::atomic<int> wrong{0};
  on_ranks(2, [&](ProcessGroup& group) {
    const std::vector<Tensor> p = many_parameters(DType::f32, MemoryFormat::channels_last);
    SGD optimizer(p, {.lr = 0.1, .momentum = 0.9});
    optimizer.shard(group);
    for (int t = 0; t < 3; ++t) {
      {
        const Autocast region(Device::cpu, DType::bf16);
        linear(ones({2, 5}), p[0]);
        conv2d(ones({1, 3, 4, 4}), p[1]);
      }
      set_gradients(p, t);
      optimizer.step();
      for (const size_t k : {size_t(0), size_t(1)}) {
        const Tensor shadow = autocast::shadow_of(p[k]);
        wrong += !shadow.defined() || bytes(shadow.contiguous()) != bytes(p[k].detach().to(DType::bf16).contiguous());
      }
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("shards: whole states are loaded by any number of ranks, and states that were there are cut") {
  const auto make = [](const std::vector<Tensor>& p) { return std::make_unique<NAdam>(p, NAdamOptions{.lr = 0.05}); };
  const auto go_on = [](Optimizer& o, const std::vector<Tensor>& p, int from, int to) {
    for (int t = from; t < to; ++t) set_gradients(p, t), o.step();
  };
  const std::vector<Tensor> p = many_parameters();
  const auto whole = make(p);
  go_on(*whole, p, 0, 6);
  const std::string want = bytes_of(p) + bytes_of(whole->state_dict());
  // 3 ranks, then 1, then 2 that cut the states of an optimizer that has stepped.
  States saved;
  std::vector<Tensor> weights;
  on_ranks(3, [&](ProcessGroup& group) {
    const std::vector<Tensor> mine = many_parameters();
    const auto o = make(mine);
    o->shard(group);
    go_on(*o, mine, 0, 2);
    const States states = o->gathered_state_dict(1);
    if (group.rank() == 1) saved = states, weights = mine;
  });
  std::vector<Tensor> one = many_parameters();
  for (size_t k = 0; k < one.size(); ++k) one[k].detach().copy_(weights[k]);
  const auto between = make(one);
  between->load_state_dict(saved);
  go_on(*between, one, 2, 4);
  std::atomic<int> wrong{0};
  for (const bool cut : {false, true}) {
    on_ranks(2, [&](ProcessGroup& group) {
      std::vector<Tensor> mine = many_parameters();
      for (size_t k = 0; k < mine.size(); ++k) mine[k].detach().copy_(one[k]);
      const auto o = make(mine);
      if (!cut) o->shard(group);
      std::map<std::string, Tensor> states = between->state_dict();
      o->load_state_dict(states);
      if (cut) o->shard(group);
      go_on(*o, mine, 4, 6);
      const States last = o->gathered_state_dict();
      wrong += group.rank() == 0 && bytes_of(mine) + bytes_of(last) != want;
    });
  }
  CHECK(wrong == 0);
}

TEST_CASE("shards: each rank has its part of the memory") {
  const auto of_ranks = [](int ranks, bool shards) {
    size_t most = 0;
    on_ranks(ranks, [&](ProcessGroup& group) {
      const Tensor a = ones({512, 512}, {.requires_grad = true}), b = ones({1024, 256}, {.requires_grad = true});
      Adam optimizer(std::vector<Tensor>{a, b}, {.lr = 0.1});
      if (shards) optimizer.shard(group);
      a.set_grad(ones({512, 512})), b.set_grad(ones({1024, 256}));
      optimizer.step();
      group.wait(group.barrier());
      if (group.rank() == 0) most = allocator(Device::cpu).stats().live_by_tag[size_t(MemoryTag::optimizer)];
      group.wait(group.barrier());
    });
    return most;
  };
  const size_t states = 2 * 2 * 512 * 512 * sizeof(float);  // all ranks together
  CHECK(of_ranks(4, false) >= 4 * states);
  CHECK(of_ranks(4, true) >= states);
  CHECK(of_ranks(4, true) < states + 4096);
}

TEST_CASE("shards: what is refused") {
  std::atomic<int> checked{0};
  on_ranks(2, [&](ProcessGroup& group) {
    const std::vector<Tensor> p = many_parameters();
    Adam optimizer(p, {.lr = 0.1});
    CHECK_THROWS_WITH_AS(optimizer.shard(group, {.stage_mb = 0}), doctest::Contains("stage_mb must be > 0, got 0"), ValueError);
    CHECK_FALSE(optimizer.is_sharded());
    optimizer.shard(group);
    CHECK_THROWS_WITH_AS(optimizer.shard(group), doctest::Contains("[optimizer.shard] ranks share the states of Adam("),
                         ValueError);
    CHECK_THROWS_WITH_AS(optimizer.state_dict(), doctest::Contains("[optimizer.state_dict] ranks share the states of Adam("),
                         ValueError);
    LBFGS lbfgs(p);
    CHECK_THROWS_WITH_AS(lbfgs.shard(group), doctest::Contains("ranks cannot share the states of LBFGS"), ValueError);
    ++checked;
  });
  CHECK(checked == 2);
  on_ranks(1, [](ProcessGroup& group) {
    SGD alone(many_parameters(), {.lr = 0.1});
    alone.shard(group);
    CHECK_FALSE(alone.is_sharded());
    CHECK(problem::states(alone).empty());
    CHECK(alone.gathered_state_dict().at("param_groups.0.lr").item() == 0.1);
  });
}
