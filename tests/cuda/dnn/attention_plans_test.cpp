// SPDX-License-Identifier: Apache-2.0
// The adapter's attention before the real library, for devices that are not here.
#include <tuple>

#include "cuda/dnn/attention.h"
#include "tests/cuda/dnn/plans.h"

using namespace halfstep;
using namespace halfstep::testing;
using namespace halfstep::cuda::dnn;

namespace {

// Batches of 8 and 16 heads, laid out [B, L, H, E] as projections give them.
AttentionProblem problem(int64_t size, int64_t length = 1024, int64_t key_heads = 16) {
  const int64_t heads = 16;
  return {.type = CUDNN_DATA_HALF,
          .q = {8, heads, length, size},
          .k = {8, key_heads, length, size},
          .q_strides = {length * heads * size, size, heads * size, 1},
          .k_strides = {length * key_heads * size, size, key_heads * size, 1},
          .v_strides = {length * key_heads * size, size, key_heads * size, 1},
          .out_strides = {length * heads * size, size, heads * size, 1},
          .dq_strides = {length * heads * size, size, heads * size, 1},
          .dk_strides = {length * key_heads * size, size, key_heads * size, 1},
          .dv_strides = {length * key_heads * size, size, key_heads * size, 1},
          .scale = 0.125f};
}
// q, k and v, and their gradients, as parts of one tensor [B, L, H + 2 G, E].
AttentionProblem packed(int64_t size, int64_t length, int64_t key_heads) {
  AttentionProblem p = problem(size, length, key_heads);
  const int64_t row = (p.q[1] + 2 * key_heads) * size;
  for (Numbers* n : {&p.q_strides, &p.k_strides, &p.v_strides, &p.dq_strides, &p.dk_strides, &p.dv_strides})
    *n = {length * row, size, row, 1};
  return p;
}
// With [B, H, L, E] in rows.
AttentionProblem rows(int64_t size, int64_t length) {
  AttentionProblem p = problem(size, length);
  for (Numbers* n : {&p.q_strides, &p.k_strides, &p.v_strides}) *n = {16 * length * size, length * size, size, 1};
  for (Numbers* n : {&p.out_strides, &p.dq_strides, &p.dk_strides, &p.dv_strides}) n->clear();
  return p;
}

std::string title(int capability, const AttentionProblem& p, bool backward) {
  return "sm_" + std::to_string(capability) + " attention of " + std::to_string(p.q[3]) + ", length " + std::to_string(p.q[2]) +
         ", " + std::to_string(p.k[1]) + " heads of keys" + (p.type == CUDNN_DATA_HALF ? ", f16" : ", bf16") +
         (p.causal ? ", causal" : "") + (p.dropout > 0 ? ", dropout" : "") + (backward ? ", backward" : "");
}

Answer ask(int capability, const AttentionProblem& p, bool backward) {
  const Answer a = testing::ask(capability, [&] { return backward ? attention_backward_graph(p) : attention_graph(p); },
                                {.workspace = int64_t(1) << 30});
  show(title(capability, p, backward), a);
  return a;
}

constexpr int64_t kMiB = 1 << 20;

void accepts(int capability, const AttentionProblem& p, bool backward, int64_t most) {
  const Answer a = ask(capability, p, backward);
  CAPTURE(title(capability, p, backward));
  CAPTURE(a.problem);
  REQUIRE_MESSAGE(a.workspace, "declined");
  CHECK(*a.workspace <= most);
  CHECK(a.keeps_rules);
}
// The scores of every head, in float16, and a little.
int64_t square(const AttentionProblem& p) { return 2 * p.q[0] * p.q[1] * p.q[2] * ((p.k[2] + 63) / 64 * 64) + 4 * kMiB; }

// The workspace that cuda/dnn/attention_soundness.cpp counts on for all of it.
int64_t room_of(const AttentionProblem& p) {
  int64_t low = 0, high = int64_t(1) << 40;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (attention_division(p.q, p.k, middle).samples == p.q[0] ? high : low) = middle;
  }
  return high;
}

void accepts_all(int64_t size) {
  for (int capability : {80, 90}) {
    for (cudnnDataType_t type : {CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16}) {
      for (bool causal : {false, true}) {
        for (double dropout : {0.0, 0.1}) {
          AttentionProblem p = problem(size);
          p.type = type;
          p.causal = causal;
          p.dropout = dropout;
          accepts(capability, p, false, kMiB);
          if (capability == 80 && size > 128)
            CHECK_FALSE(ask(capability, p, true).workspace);
          else
            accepts(capability, p, true, square(p));
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("attention is taken from Ampere on, with the same bits in every run") {
  if (!cudnn_is_here()) return;
  for (int capability : {80, 90}) {
    AttentionProblem p = problem(64);
    p.causal = true;
    p.dropout = 0.1;
    accepts(capability, p, false, kMiB);
    accepts(capability, p, true, square(p));
  }
  for (bool backward : {false, true}) CHECK_FALSE(ask(75, problem(64), backward).workspace);
}

// A row for each kind of call: what this version of the library plans, and whether it is asked. It plans much that is not sound.
TEST_CASE("attention by version: what the library accepts and what is sent" * doctest::test_suite("slow")) {
  if (!cudnn_is_here()) return;
  const size_t version = cuda::cudnn().cudnnGetVersion();
  int accepted = 0, unsound = 0;
  std::printf("%s\n%-6s %5s %6s %8s | %-20s | %-20s\n", cuda::cudnn_version().c_str(), "GPU", "keys", "heads", "dropout", "forward",
              "backward");
  for (int capability : {80, 90, 100}) {
    for (const auto& [length, size, dropout] : {std::tuple{1024, 64, 0.0},
                                                {1024, 64, 0.1},
                                                {128, 64, 0.0},
                                                {192, 64, 0.0},
                                                {192, 64, 0.1},
                                                {100, 64, 0.0},
                                                {197, 64, 0.0},
                                                {1000, 64, 0.0},
                                                {1000, 64, 0.1},
                                                {1024, 128, 0.0},
                                                {1024, 256, 0.0}}) {
      std::printf("sm_%-3d %5d %6d %8.1f", capability, length, size, dropout);
      for (bool backward : {false, true}) {
        AttentionProblem p = problem(size, length);
        p.dropout = dropout;
        const AttentionCase c{.version = version,
                              .capability = capability,
                              .queries = length,
                              .keys = length,
                              .width = size,
                              .drops = dropout > 0,
                              .backward = backward};
        p.mask = padding_mask(c);
        if (padded_keys(c) != c.keys) {
          const int64_t heads = p.k[1], row = p.k[3];
          p.k[2] = padded_keys(c);
          p.k_strides = p.v_strides = p.dk_strides = p.dv_strides = {heads * p.k[2] * row, p.k[2] * row, row, 1};
        }
        const Answer a = ask(capability, p, backward);
        const bool sent = sound(c);
        accepted += a.workspace.has_value();
        unsound += a.workspace && !sent;
        std::printf(" | %-8s %-11s", a.workspace ? "accepts" : "declines",
                    !sent                         ? "not sent"
                    : p.mask == PaddingMask::none ? "sent"
                                                  : "masked");
        CAPTURE(title(capability, p, backward));
        if (sent && a.workspace) CHECK(a.keeps_rules);
        // Of Hopper and Ampere nothing is left that the library would decline, so that no call is planned in vain.
        if (sent && capability < 100) CHECK_MESSAGE(a.workspace, a.problem);
        if (backward && a.workspace) CHECK(*a.workspace <= room_of(p));
      }
      std::printf("\n");
    }
  }
  std::printf("%d accepted, %d of them not sent\n", accepted, unsound);
  CHECK(accepted > 0);
  CHECK(unsound > 0);  // that length 192 with dropout is not safe on Hopper no version knows
}

TEST_CASE("attention that is divided fits its workspace, in pieces as equal as they can be") {
  const AttentionProblem p = problem(64);  // 8 samples of 16 heads: 256.5 MiB
  const auto divided = [](const AttentionProblem& of, int64_t mib) {
    const AttentionDivision d = attention_division(of.q, of.k, mib << 20);
    return std::pair{d.samples, d.key_heads};
  };
  CHECK(divided(p, 257) == std::pair<int64_t, int64_t>{8, 16});
  CHECK(divided(p, 256) == std::pair<int64_t, int64_t>{4, 16});
  CHECK(divided(p, 100) == std::pair<int64_t, int64_t>{3, 16});
  CHECK(divided(p, 32) == std::pair<int64_t, int64_t>{1, 8});
  CHECK(divided(problem(64, 1024, 4), 16) == std::pair<int64_t, int64_t>{1, 1});
  CHECK(divided(p, 1) == std::pair<int64_t, int64_t>{0, 0});
  CHECK(divided(p, 0) == std::pair<int64_t, int64_t>{0, 0});
}

TEST_CASE("a gradient whose scores are larger than the workspace is taken in pieces") {
  if (!cudnn_is_here()) return;
  AttentionProblem p = problem(128, 2048);
  for (int capability : {80, 90}) {
    p.q[0] = p.k[0] = 4;  // 514 MiB
    const Rules rules;
    const auto answer = [&] {
      return testing::ask(
          capability, [&] { return attention_backward_graph(p); }, rules);
    };
    CHECK_FALSE(answer().workspace);
    p.q[0] = p.k[0] = attention_division(p.q, p.k, rules.workspace).samples;
    CHECK(p.q[0] == 1);
    CHECK_MESSAGE(answer().workspace, answer().problem);
  }
}

TEST_CASE("attention whose queries share keys") {
  if (!cudnn_is_here()) return;
  for (int capability : {80, 90}) {
    const AttentionProblem p = problem(64, 512, 4);
    accepts(capability, p, false, kMiB);
    accepts(capability, p, true, square(p));
  }
}

TEST_CASE("attention of parts of one tensor, whose gradients are parts of one too, and of rows") {
  if (!cudnn_is_here()) return;
  for (int capability : {80, 90}) {
    for (const AttentionProblem& p : {packed(64, 512, 16), packed(64, 512, 4), rows(64, 512)}) {
      accepts(capability, p, false, kMiB);
      accepts(capability, p, true, square(p));
    }
  }
}

TEST_CASE("attention of heads whose size is no multiple of 8 is declined") {
  if (!cudnn_is_here()) return;
  for (int capability : {80, 90}) {
    for (bool backward : {false, true}) CHECK_FALSE(ask(capability, problem(68), backward).workspace);
  }
}

TEST_CASE("what attention's plans depend on is in their key") {
  const AttentionProblem base = problem(64);
  CHECK(base.key(false) == problem(64).key(false));
  CHECK(base.key(false) != base.key(true));
  const auto differs = [&](const auto& change) {
    AttentionProblem other = base;
    change(other);
    return other.key(true) != base.key(true);
  };
  CHECK(differs([](AttentionProblem& p) { p.type = CUDNN_DATA_BFLOAT16; }));
  CHECK(differs([](AttentionProblem& p) { p.causal = true; }));
  CHECK(differs([](AttentionProblem& p) { p.dropout = 0.1; }));
  CHECK(differs([](AttentionProblem& p) { p.scale = 0.25f; }));
  CHECK(differs([](AttentionProblem& p) { p.mask = PaddingMask::once; }));
  for (Numbers AttentionProblem::*part :
       {&AttentionProblem::q, &AttentionProblem::k, &AttentionProblem::q_strides, &AttentionProblem::k_strides,
        &AttentionProblem::v_strides, &AttentionProblem::out_strides, &AttentionProblem::dq_strides, &AttentionProblem::dk_strides,
        &AttentionProblem::dv_strides})
    CHECK(differs([&](AttentionProblem& p) { ++(p.*part)[1]; }));
}

TEST_CASE("attention of all head sizes and options, and lengths that are no multiple of anything" * doctest::test_suite("slow")) {
  if (!cudnn_is_here()) return;
  for (int64_t size : {8, 40, 64, 128, 256}) accepts_all(size);
  for (bool backward : {false, true}) accepts(90, problem(64, 512, 1), backward, square(problem(64, 512, 1)));
  for (int64_t length : {1000, 576, 100}) {
    accepts(90, problem(64, length), false, kMiB);
    accepts(90, problem(64, length), true, square(problem(64, 1024)));
  }
}
