// SPDX-License-Identifier: Apache-2.0
// The generator of kind mt19937 against what PyTorch drew: numbers, weights and a whole run, recorded by scripts/record_draws.py.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "amp/step/run_state.h"
#include "framework/base/draws.h"
#include "framework/data/loading/subsets.h"
#include "halfstep.h"
#include "tests/support/errors.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using halfstep::testing::error_of;
using Json = nlohmann::json;

namespace {

constexpr GeneratorKind kTwister = GeneratorKind::mt19937;

// The default generator's kind, which other tests rely on.
class KeptKind {
 public:
  KeptKind() : state_(default_generator().state()) {}
  ~KeptKind() { default_generator().set_state(state_); }

 private:
  Generator::State state_;
};

const Json& recorded() {
  static const Json json = [] {
    std::ifstream in(halfstep_source_dir() + "/tests/layers/torch_draws.json");
    return Json::parse(in);
  }();
  return json;
}
uint64_t seed() { return recorded()["seed"]; }

using V = std::vector<double>;
V doubles(const Tensor& t) { return t.detach().to(DType::f64).to_vector<double>(); }

DType dtype_named(const std::string& name) {
  static const std::map<std::string, DType> names = {{"f16", DType::f16}, {"bf16", DType::bf16}, {"f32", DType::f32},
                                                     {"f64", DType::f64}, {"u8", DType::u8},     {"i32", DType::i32},
                                                     {"i64", DType::i64}, {"boolean", DType::boolean}};
  return names.at(name);
}

// Ops of the cases: what they draw from the default generator.
struct Case {
  Shape shape;
  DType dtype;
  double a, b;
  Tensor empty() const { return Tensor::empty(shape, {.dtype = dtype}); }
  Tensor like_ones(MemoryFormat format = MemoryFormat::contiguous) const { return ones(shape, {.dtype = dtype, .format = format}); }
};
const Tensor kChances = tensor({0.1, 0.5, 0.9, 0.3, 0.7, 0.2});

Tensor draw_of(const std::string& op, const Case& c) {
  const MemoryFormat last = MemoryFormat::channels_last;
  const Tensor t = c.empty();
  if (op == "uniform") return t.uniform_(c.a, c.b);
  if (op == "normal") return t.normal_(c.a, c.b);
  if (op == "bernoulli") return t.bernoulli_(c.a);
  if (op == "exponential") return exponential_(t, c.a), t;
  if (op == "random") return random_(t), t;
  if (op == "randint") return randint(int64_t(c.a), int64_t(c.b), c.shape);
  if (op == "uniform_t") return t.t().uniform_(0, 1);
  if (op == "normal_t") return t.t().normal_(0, 1);
  if (op == "normal_nhwc") return Tensor::empty(c.shape, {.format = last}).normal_(0, 1);
  if (op == "dropout") return dropout(c.like_ones(), c.a);
  if (op == "dropout_nhwc") return dropout(c.like_ones(last), c.a);
  if (op == "randperm") return randperm(c.shape[0]);
  if (op == "bernoulli_of") return bernoulli(kChances.to(c.dtype));
  if (op == "multinomial") return multinomial(kChances, int64_t(c.a), c.b != 0);
  if (op == "multinomial_rows") return multinomial(stack({kChances, kChances.flip({0})}), int64_t(c.a), true);
  if (op == "gumbel") return gumbel_softmax(log(kChances));
  if (op == "dropout1d") return Dropout1d(c.a)(c.like_ones());
  if (op == "dropout2d") return Dropout2d(c.a)(c.like_ones());
  if (op == "dropout3d") return Dropout3d(c.a)(c.like_ones());
  if (op == "alpha_dropout") return AlphaDropout(c.a)(c.like_ones());
  if (op == "attention") {
    const Tensor q = eye(4).reshape(c.shape);
    return scaled_dot_product_attention(q, q, q, {.dropout_p = c.a});
  }
  REQUIRE(op == "random_split");
  V all;
  for (const auto& part : samples::split(10, std::vector<int64_t>{6, 4}, nullptr)) all.insert(all.end(), part.begin(), part.end());
  return tensor(all, {10}, {.dtype = DType::i64});
}

// Ops of library functions, whose last bits depend on the library.
bool is_rounded(const std::string& op) {
  return op == "gumbel" || op == "attention" || op == "alpha_dropout";
}

void check_numbers(const V& got, const V& wanted, double tolerance) {
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    if (tolerance == 0)
      CHECK(got[i] == wanted[i]);
    else
      CHECK(std::abs(got[i] - wanted[i]) <= tolerance * std::max(1.0, std::abs(wanted[i])));
  }
}


}  // namespace

TEST_CASE("draws of kind mt19937 are PyTorch's, to the bit, and so is the state behind them") {
  const KeptKind kept;
  int cases = 0;
  for (const Json& j : recorded()["draws"]) {
    const std::string op = j["op"];
    CAPTURE(op);
    CAPTURE(j["dtype"].get<std::string>());
    Case c{{}, dtype_named(j["dtype"]), j.value("a", 0.0), j.value("b", 0.0)};
    for (const int64_t n : j["shape"]) c.shape.push_back(n);
    CAPTURE(c.shape);
    manual_seed(seed(), kTwister);
    const Tensor values = draw_of(op, c), again = draw_of(op, c);
    check_numbers(doubles(values), j["values"].get<V>(), is_rounded(op) ? 1e-6 : 0);
    check_numbers(doubles(again), j["again"].get<V>(), is_rounded(op) ? 1e-6 : 0);
    CHECK(randint(0, 1 << 27, {1}).item<int64_t>() == j["next"].get<int64_t>());
    ++cases;
  }
  CHECK(cases >= 60);
}

TEST_CASE("layers of kind mt19937 begin with PyTorch's weights") {
  const KeptKind kept;
  const std::map<std::string, std::function<std::shared_ptr<Module>()>> layers = {
      {"Linear", [] { return std::make_shared<Linear>(5, 3); }},
      {"Bilinear", [] { return std::make_shared<Bilinear>(3, 4, 2); }},
      {"Conv2d", [] { return std::make_shared<Conv2d>(4, 6, 3, ConvLayerOptions{.groups = 2}); }},
      {"ConvTranspose1d", [] { return std::make_shared<ConvTranspose1d>(4, 3, 2); }},
      {"Embedding", [] { return std::make_shared<Embedding>(5, 4); }},
      {"EmbeddingBag", [] { return std::make_shared<EmbeddingBag>(5, 3); }},
      {"LSTM", [] { return std::make_shared<LSTM>(3, 4, LSTMOptions{.num_layers = 2, .bidirectional = true}); }},
      {"GRUCell", [] { return std::make_shared<GRUCell>(3, 4); }},
      {"MultiheadAttention",
       [] { return std::make_shared<MultiheadAttention>(8, 2, MultiheadAttentionOptions{.add_bias_kv = true}); }},
      {"MultiheadAttention of kdim",
       [] { return std::make_shared<MultiheadAttention>(8, 2, MultiheadAttentionOptions{.kdim = 6, .vdim = 5}); }},
      {"TransformerEncoderLayer",
       [] { return std::make_shared<TransformerEncoderLayer>(8, 2, TransformerLayerOptions{.dim_feedforward = 16}); }},
      {"TransformerDecoderLayer",
       [] { return std::make_shared<TransformerDecoderLayer>(8, 2, TransformerLayerOptions{.dim_feedforward = 16}); }},
      {"Transformer",
       [] {
         return std::make_shared<Transformer>(TransformerOptions{
             .d_model = 8, .nhead = 2, .num_encoder_layers = 2, .num_decoder_layers = 1, .dim_feedforward = 16});
       }},
  };
  for (const auto& row : recorded()["layers"].items()) {
    const std::string name = row.key();
    const nlohmann::json& wanted = row.value();
    CAPTURE(name);
    REQUIRE(layers.contains(name));
    manual_seed(seed(), kTwister);
    const std::shared_ptr<Module> layer = layers.at(name)();
    size_t seen = 0;
    for (const NamedTensor& p : layer->named_parameters()) {
      CAPTURE(p.name);
      REQUIRE(wanted.contains(p.name));
      const V got = doubles(p.tensor), first = wanted[p.name]["first"], last = wanted[p.name]["last"];
      check_numbers({got.begin(), got.begin() + int64_t(first.size())}, first, 0);
      check_numbers({got.end() - int64_t(last.size()), got.end()}, last, 0);
      double sum = 0;
      for (const double v : got) sum += std::abs(v);
      CHECK(sum == doctest::Approx(wanted[p.name]["sum"].get<double>()).epsilon(1e-12));
      ++seen;
    }
    CHECK(seen == wanted.size());
  }
}

TEST_CASE("initialisers of kind mt19937 draw as PyTorch's") {
  using Init = std::function<void(const Tensor&)>;
  const std::map<std::string, Init> inits = {
      {"uniform_", [](const Tensor& w) { init::uniform_(w, -1, 2); }},
      {"normal_", [](const Tensor& w) { init::normal_(w, 1, 2); }},
      {"xavier_uniform_", [](const Tensor& w) { init::xavier_uniform_(w); }},
      {"xavier_normal_", [](const Tensor& w) { init::xavier_normal_(w); }},
      {"kaiming_uniform_", [](const Tensor& w) { init::kaiming_uniform_(w); }},
      {"kaiming_normal_", [](const Tensor& w) { init::kaiming_normal_(w); }},
      {"sparse_", [](const Tensor& w) { init::sparse_(w, 0.4); }},
      {"orthogonal_", [](const Tensor& w) { init::orthogonal_(w); }},
      {"trunc_normal_", [](const Tensor& w) { init::trunc_normal_(w, 0.5, 0.7, -1, 1); }},
  };
  const KeptKind kept;
  for (const auto& row : recorded()["init"].items()) {
    const std::string key = row.key();
    const nlohmann::json& wanted = row.value();
    CAPTURE(key);
    const std::string name = key.substr(0, key.find(' '));
    const int64_t rows = std::stoll(key.substr(name.size() + 1));
    manual_seed(seed(), kTwister);
    const Tensor w = Tensor::empty({rows, 10 - rows});
    inits.at(name)(w);
    const bool rounded = name == "orthogonal_" || name == "trunc_normal_";
    check_numbers(doubles(w), wanted.get<V>(), rounded ? 2e-6 : 0);
  }
}

TEST_CASE("a run of kind mt19937 has the losses of PyTorch's run") {
  const KeptKind kept;
  manual_seed(seed(), kTwister);
  const Tensor x = randn({40, 8}), y = randint(0, 3, {40});
  manual_seed(7);
  const auto first = std::make_shared<Linear>(8, 16), last = std::make_shared<Linear>(16, 3);  // arguments have no order
  Sequential net(first, std::make_shared<ReLU>(), std::make_shared<Dropout>(0.25), last);
  SGD optimizer(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  Generator order(7, kTwister);
  DataLoader loader(TensorDataset(x, y), LoaderOptions{.batch_size = 8, .shuffle = true, .generator = &order});
  V losses;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto& [a, b] : loader) {
      optimizer.zero_grad();
      const Tensor loss = cross_entropy(net(a), b);
      loss.backward();
      optimizer.step();
      losses.push_back(loss.item());
    }
  }
  check_numbers(losses, recorded()["run"]["losses"].get<V>(), 3e-6);
  check_numbers(doubles(net.parameters()[2]), recorded()["run"]["last_weight"].get<V>(), 3e-6);
}

TEST_CASE("loaders without a seed draw from a default generator of kind mt19937 as PyTorch's do") {
  struct Range {
    int64_t n;
    int64_t size() const { return n; }
    int64_t get(int64_t i) const { return i; }
  };
  const KeptKind kept;
  manual_seed(3, kTwister);
  DataLoader first(Range{10}, 4, true), second(Range{9}, 4, true), in_order(Range{5}, 4);
  manual_seed(seed());  // counts where the first batch is taken, as there
  rand({1});
  std::vector<V> passes;
  const auto add = [&](auto& loader, int64_t batches) {
    passes.emplace_back();
    for (const Tensor& batch : loader) {
      for (const double i : batch.to_vector<double>()) passes.back().push_back(i);
      if (--batches == 0) break;
    }
  };
  add(first, -1), add(second, -1), add(first, -1), add(in_order, -1), add(second, 1), add(second, -1);
  CHECK(passes == recorded()["loaders"]["passes"].get<std::vector<V>>());
  CHECK(doubles(rand({2})) == recorded()["loaders"]["then"].get<V>());
}

TEST_CASE("a generator of kind mt19937 is saved and resumed with a run") {
  const KeptKind kept;
  const std::filesystem::path dir = std::filesystem::temp_directory_path() / "halfstep_twister_run";
  std::filesystem::remove_all(dir);
  manual_seed(3, kTwister);
  Linear model(4, 4);
  randn({3});  // leaves a normal number waiting
  save_run(dir, 1, {.model = model});
  const V next = doubles(randn({5})), drop = doubles(dropout(ones({9})));
  manual_seed(99);
  load_run(dir, {.model = model});
  CHECK(doubles(randn({5})) == next);
  CHECK(doubles(dropout(ones({9}))) == drop);
  manual_seed(3, GeneratorKind::philox);
  CHECK(error_of([&] { load_run(dir, {.model = model}); })
            .starts_with("[resume] the run drew random numbers of kind mt19937, and the generator now is of kind philox"));
  std::filesystem::remove_all(dir);
}

TEST_CASE("the kinds of generator do not disturb each other") {
  const KeptKind kept;
  manual_seed(5, GeneratorKind::philox);
  const V usual = doubles(rand({4}));
  Generator own(5, kTwister);
  const V torch = doubles(rand({4}, {}, &own));
  CHECK(usual != torch);
  manual_seed(5);
  CHECK(default_generator().kind() == GeneratorKind::philox);
  CHECK(doubles(rand({4})) == usual);
  const Generator::State at = own.state();
  const V then = doubles(randn({20}, {}, &own));
  own.set_state(at);
  CHECK(doubles(randn({20}, {}, &own)) == then);
  own.manual_seed(5);
  CHECK(own.kind() == kTwister);
  CHECK(doubles(rand({4}, {}, &own)) == torch);
  CHECK(error_of([&] { own.reserve(4); }).starts_with("[Generator] numbers of mt19937 cannot be reserved"));
  CHECK_THROWS_AS(parse_generator_kind("mt"), ValueError);
}

TEST_CASE("parts of a batch draw the numbers of kind mt19937 that the whole batch would") {
  const KeptKind kept;
  const auto seeded = [](const std::optional<BatchRows>& part, const std::function<Tensor()>& f) {
    manual_seed(5, kTwister);
    const DrawsOf rows(part);
    return f();
  };
  const std::vector<std::function<Tensor(int64_t)>> draws = {
      [](int64_t rows) { return randn({rows, 5}); }, [](int64_t rows) { return dropout(ones({rows, 3})); },
      [](int64_t rows) { return rand({rows}); }, [](int64_t rows) { return randint(0, 9, {rows, 2}); }};
  for (const auto& draw : draws) {
    const Tensor whole = seeded({}, [&] { return draw(10); });
    const Generator::State end = default_generator().state();
    const Tensor first = seeded(BatchRows{0, 4, 10}, [&] { return draw(4); });
    CHECK(default_generator().state() == end);
    const Tensor rest = seeded(BatchRows{4, 6, 10}, [&] { return draw(6); });
    CHECK(doubles(cat({first, rest})) == doubles(whole));
  }
}

TEST_CASE("on the meta device a draw of kind mt19937 moves the generator as on the CPU") {
  const KeptKind kept;
  for (const DType dtype : {DType::f32, DType::f64, DType::f16}) {
    for (const int64_t n : {3, 16, 37}) {
      std::vector<Generator::State> ends;
      for (const Device device : {Device::cpu, Device::meta}) {
        manual_seed(5, kTwister);
        const Tensor t = Tensor::empty({n}, {.dtype = dtype, .device = device});
        t.uniform_();
        t.normal_();
        dropout(t, 0.5);
        exponential_(t);
        ends.push_back(default_generator().state());
      }
      CHECK(ends[0] == ends[1]);
    }
  }
}

TEST_CASE("dropout of kind mt19937 has a gradient, also with create_graph and in a checkpoint") {
  const KeptKind kept;
  const Tensor x = tensor({1.0, 2.0, 3.0, 4.0, 5.0, 6.0}).set_requires_grad();
  manual_seed(5, kTwister);
  const Tensor y = dropout(x, 0.5);
  const Tensor g = grad(sum(y * y), {x}, {}, {.create_graph = true})[0];
  CHECK(doubles(g) == doubles(y * 4));  // y is 2 x or 0
  CHECK(doubles(grad(sum(g), x)[0]) == doubles((y != 0) * 8.0));
  manual_seed(5, kTwister);
  const Tensor again = checkpoint([](const Tensor& t) { return dropout(t, 0.5); }, x);
  CHECK(doubles(again) == doubles(y));
  sum(again).backward();
  CHECK(doubles(x.grad()) == doubles((y != 0) * 2.0));
}
