// SPDX-License-Identifier: Apache-2.0
// Sequences that are read piece by piece: the same results as all at once.
#include "layers/sequences/decode.h"

#include <doctest/doctest.h>

#include "amp/autocast/autocast.h"
#include "layers/layers.h"

using namespace halfstep;

namespace {

// The results of pieces of x, [1, T, ...], of these lengths.
Tensor in_pieces(Module& model, const Tensor& x, const std::vector<int64_t>& lengths) {
  DecodeCache cache;
  Tensors parts;
  int64_t at = 0;
  for (const int64_t length : lengths) {
    const DecodeScope pass(cache);
    parts.push_back(model(x.narrow(1, at, length)));
    at += length;
  }
  return cat(parts, 1);
}

void check_pieces(Module& model, const Tensor& x, double tolerance) {
  model.eval();
  const Tensor whole = no_grad([&] { return model(x); });
  const double largest = whole.abs().max().item<double>();
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{4, 1, 1, 1, 1}, std::vector<int64_t>{1, 1, 6}, std::vector<int64_t>{3, 2, 3}}) {
    const double error = (in_pieces(model, x, lengths) - whole).abs().max().item<double>();
    CHECK_MESSAGE(error <= tolerance * largest, model.describe(), ": ", error / largest);
  }
}

}  // namespace

TEST_CASE("recurrent layers and positions continue where the pass before ended") {
  manual_seed(2);
  const Tensor tokens = randint(0, 11, {1, 8});
  Sequential lstm{Embedding(11, 6), LSTM(6, 5, 2, {.batch_first = true}), Linear(5, 11)};
  check_pieces(lstm, tokens, 1e-5);
  Sequential positions{Embedding(11, 6), PositionEmbedding(8, 6, {.batch_first = true})};
  check_pieces(positions, tokens, 1e-7);
  DecodeCache cache;
  {
    const DecodeScope pass(cache);
    positions(tokens);
  }
  CHECK(cache.positions() == 8);
  const DecodeScope pass(cache);
  CHECK_THROWS_WITH_AS(positions(tokens.narrow(1, 0, 1)), doctest::Contains("takes at most max_len, 8, positions"), ShapeError);
}

TEST_CASE("causal attention sees the keys and values of the passes before") {
  manual_seed(4);
  MultiheadAttention attention(12, 3, {.batch_first = true});
  attention.eval();
  const Tensor x = randn({2, 7, 12});
  const AttentionInputs causal{.need_weights = false, .is_causal = true};
  const NoGrad off;
  const Tensor whole = attention(x, x, x, causal).first;
  DecodeCache cache;
  Tensors parts;
  for (int64_t at : {0, 3, 4, 5}) {
    const DecodeScope pass(cache);
    const Tensor piece = x.narrow(1, at, at == 0 ? 3 : at == 5 ? 2 : 1);
    parts.push_back(attention(piece, piece, piece, causal).first);
  }
  CHECK((cat(parts, 1) - whole).abs().max().item() < 1e-5);
  CHECK(cache.positions() == 7);

  const DecodeScope pass(cache);
  CHECK_THROWS_WITH_AS(attention(x, x, x, {.need_weights = false}), doctest::Contains("needs is_causal"), ValueError);
}

TEST_CASE("what needs later steps refuses a pass, and nothing changes outside of one") {
  manual_seed(5);
  LSTM both(4, 3, {.batch_first = true, .bidirectional = true});
  const Tensor x = randn({1, 5, 4});
  DecodeCache cache;
  {
    const DecodeScope pass(cache);
    CHECK_THROWS_WITH_AS(both(x), doctest::Contains("a bidirectional layer cannot run in a pass"), ValueError);
  }
  CHECK(both(x).output.shape() == Shape{1, 5, 6});
  CHECK(DecodeScope::current() == nullptr);
}
