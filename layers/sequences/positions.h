// SPDX-License-Identifier: Apache-2.0
// Encodings of positions in a sequence, for attention, which by itself ignores the order.
//
// Sequences are [L, N, d_model], with batch_first [N, L, d_model], or [L, d_model]; RotaryEmbedding takes [..., L, width]. Within
// a DecodeScope (layers/sequences/decode.h) positions continue from the pass before.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layers/feedforward/dropout.h"
#include "layers/module/layer.h"

namespace halfstep {

struct PositionalEncodingOptions {
  double dropout = 0.1;
  int64_t max_len = 5000;
  bool batch_first = false;
  static const OptionList<PositionalEncodingOptions>& list();
};
// Computes dropout(x + pe): pe[i] = sin(i w_0), cos(i w_0), sin(i w_1), cos(i w_1)..., w_j = 10000^(-2j / d_model) ("Attention Is
// All You Need", Vaswani et al., 2017). pe is a buffer [max_len, 1, d_model], as in PyTorch's tutorial. Throws ShapeError for more
// than max_len positions.
class PositionalEncoding : public Module {
 public:
  using Options = PositionalEncodingOptions;
  static constexpr const char* kName = "PositionalEncoding";
  static const Arguments<int64_t>& arguments();
  explicit PositionalEncoding(Integer d_model, const PositionalEncodingOptions& options = {});
  Tensor forward(const Tensor& x) override;
  bool is_recordable() const override { return true; }
  std::string describe() const override { return "PositionalEncoding"; }
  Part<Dropout> dropout;
  ModuleBuffer pe;

 private:
  bool batch_first_;
};

struct PositionEmbeddingOptions {
  bool batch_first = false;
  static const OptionList<PositionEmbeddingOptions>& list();
};
// Adds the rows of a learned weight, [max_len, d_model], from N(0, 0.02). Throws ShapeError for more than max_len positions.
class PositionEmbedding : public Module {
 public:
  using Options = PositionEmbeddingOptions;
  static constexpr const char* kName = "PositionEmbedding";
  static const Arguments<int64_t, int64_t>& arguments();
  PositionEmbedding(Integer max_len, Integer d_model, const PositionEmbeddingOptions& options = {}, Generator* generator = nullptr);
  Tensor forward(const Tensor& x) override;
  bool is_recordable() const override { return true; }
  std::string describe() const override;
  Parameter weight;

 private:
  bool batch_first_;
};

struct RotaryEmbeddingOptions {
  double base = 10000;
  bool interleaved = false;
  static const OptionList<RotaryEmbeddingOptions>& list();
};
// Rotates pair j of the first `dim` features at position i by the angle i base^(-2j / dim), so that products of queries and keys
// depend on the distance of their positions ("RoFormer", Su et al., 2021). Takes q and k of an attention, [..., heads, L, head
// size], and returns their shape and dtype; computes in float32 or wider. Throws ValueError for an odd dim, ShapeError for fewer
// features.
class RotaryEmbedding : public ModuleOf<RotaryEmbedding> {
 public:
  using Options = RotaryEmbeddingOptions;
  static constexpr const char* kName = "RotaryEmbedding";
  static const Arguments<int64_t>& arguments();
  explicit RotaryEmbedding(Integer dim, const RotaryEmbeddingOptions& options = {});
  Tensor forward(const Tensor& x) override;  // at positions 0, 1...
  // positions: integers or floating, of a shape that broadcasts to the dimensions before the last; undefined: 0, 1...
  std::pair<Tensor, Tensor> forward(const Tensor& q, const Tensor& k, const Tensor& positions = {});
  bool is_recordable() const override { return true; }
  std::string describe() const override;

 private:
  struct Rotation {
    Tensor cos, sin;  // [..., L, dim / 2]
  };
  Rotation rotation(const Tensor& positions, DType dtype) const;
  // Returns the rotations of positions 0, 1... up to end or further, from tables that it keeps.
  Rotation cached_rotation(int64_t first, int64_t end, Device device, DType dtype);
  // Rotates x. first: x's first position, if `positions` is undefined.
  Tensor rotate(const Tensor& x, const Tensor& positions, int64_t first);

  int64_t dim_;
  RotaryEmbeddingOptions options_;
  std::vector<Rotation> cached_;  // the last is in use; recorded work on a GPU may read earlier ones
};

}  // namespace halfstep
