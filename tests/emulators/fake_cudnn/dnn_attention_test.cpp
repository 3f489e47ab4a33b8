// SPDX-License-Identifier: Apache-2.0
// Attention by versions of cuDNN, some of which give wrong gradients, and in pieces where its gradient wants more workspace than
// one call may have.
#include <doctest/doctest.h>

#include <cmath>

#include "cuda/dnn/attention.h"
#include "cuda/gpu.cuh"
#include "framework/backend/dnn.h"
#include "tests/cuda/support.h"
#include "tests/emulators/source/behaviour.h"

using namespace halfstep;
using namespace halfstep::testing;
using cuda::dnn::AttentionCase;
using cuda::dnn::padding_mask;
using cuda::dnn::PaddingMask;
using cuda::dnn::sound;

namespace {

struct CallSizes {
  int64_t batch = 1, heads = 2, key_heads = 2, queries = 8, keys = 8, width = 8;
};
// Attention and its gradients, with queries that are stored [B, L, H, E].
struct Attending {
  Tensor in[3], out, grad;
  Tensors d;
  Attending(const CallSizes& s, Device device, DType dtype, const AttentionOptions& options) {
    manual_seed(51);
    for (Tensor& t : in) {
      const bool first = &t == in;
      t = randn({s.batch, first ? s.queries : s.keys, first ? s.heads : s.key_heads, s.width}).permute({0, 2, 1, 3});
      t = t.to(DType::f16).to(dtype).to(device).detach().set_requires_grad();
    }
    grad = randn({s.batch, s.heads, s.queries, s.width}).to(DType::f16).to(dtype).to(device);
    manual_seed(52);
    out = scaled_dot_product_attention(in[0], in[1], in[2], options);
    d = halfstep::grad({out}, {in[0], in[1], in[2]}, {grad});
  }
};
void check_like_cpu(const CallSizes& s, const AttentionOptions& options = {.enable_gqa = true}) {
  const Attending got(s, Device::cuda, DType::f16, options), want(s, Device::cpu, DType::f64, options);
  CHECK(largest_difference(got.out, want.out) < 1e-2);
  for (size_t i = 0; i < 3; ++i) CHECK(largest_difference(got.d[i], want.d[i]) < 4e-2);
}

struct Room {  // bytes of workspace
  explicit Room(int64_t bytes) { set_dnn_options({.workspace = bytes}); }
  ~Room() { set_dnn_options({}); }
};
// What cuda/dnn/attention_soundness.cpp counts for a head of at most 64 queries and 128 keys, and beside all heads.
constexpr int64_t kHead = 64 * (2 * 128 + 4), kBesides = 16 << 10;

}  // namespace

TEST_CASE("dnn: attention that versions of cuDNN compute rightly") {
  struct Row {
    size_t version;
    int capability;
    int64_t keys, width;
    bool drops, forward, backward;
  };
  const Row rows[] = {
      {90100, 90, 1024, 64, false, true, true},    {90100, 90, 1000, 64, false, true, true},
      {90100, 80, 197, 64, true, true, true},      {90900, 80, 1024, 256, false, false, false},
      {90900, 90, 1024, 256, false, true, true},   {90900, 100, 1024, 128, false, true, false},
      {91000, 90, 1024, 64, false, false, false},  {91001, 80, 1024, 64, false, false, false},
      {91002, 90, 1024, 64, false, true, true},    {91002, 90, 100, 64, false, true, true},
      {91200, 90, 100, 64, false, true, true},     {91200, 120, 100, 64, false, true, true},
      {91200, 90, 128, 64, true, true, true},      {91500, 90, 197, 64, false, true, true},
      {91500, 80, 65, 64, false, true, true},      {91501, 90, 197, 64, false, true, true},
      {91501, 80, 65, 64, false, true, true},      {91501, 90, 192, 64, false, true, true},
      {91501, 80, 192, 64, false, true, true},     {91701, 100, 1024, 64, false, true, false},
      {91800, 100, 1024, 64, false, true, true},   {91800, 100, 1024, 64, true, true, false},
      {91900, 90, 1000, 64, true, true, true},     {91900, 90, 64, 64, false, true, true},
      {91900, 80, 1024, 256, false, true, false},  {91900, 89, 1024, 128, false, true, true},
      {91900, 100, 1024, 256, false, true, false}, {92300, 100, 1024, 256, false, true, true},
      {92300, 100, 1024, 192, false, true, false}, {92600, 120, 1024, 256, false, true, false},
      {92600, 120, 197, 128, true, true, true},    {92600, 90, 320, 64, false, true, true},
      {92600, 90, 1, 64, false, false, false},     {91200, 90, 192, 64, false, true, true},
      {91900, 90, 192, 64, true, true, false},     {91900, 80, 192, 64, true, true, true},
  };
  for (const Row& r : rows) {
    AttentionCase c{
        .version = r.version, .capability = r.capability, .queries = 32, .keys = r.keys, .width = r.width, .drops = r.drops};
    CAPTURE(r.version);
    CAPTURE(r.capability);
    CAPTURE(r.keys);
    CAPTURE(r.width);
    CHECK(sound(c) == r.forward);
    c.backward = true;
    CHECK(sound(c) == r.backward);
    c.queries = 1;
    CHECK_FALSE(sound(c));
  }
}

TEST_CASE("dnn: which versions of cuDNN need a padding mask in attention's gradient") {
  struct Row {
    size_t version;
    int64_t keys;
    bool backward;
    PaddingMask mask;
  };
  const Row rows[] = {{90100, 1000, true, PaddingMask::twice}, {90999, 65, true, PaddingMask::twice},
                      {91002, 197, true, PaddingMask::once},   {91500, 100, true, PaddingMask::once},
                      {91501, 100, true, PaddingMask::none},   {91200, 128, true, PaddingMask::none},
                      {90100, 1024, true, PaddingMask::none},  {91200, 100, false, PaddingMask::none}};
  for (const Row& r : rows) {
    CAPTURE(r.version);
    CAPTURE(r.keys);
    for (int capability : {80, 90, 120}) {
      const AttentionCase c{.version = r.version, .capability = capability, .queries = 9, .keys = r.keys, .backward = r.backward};
      CHECK(padding_mask(c) == r.mask);
    }
  }
}

TEST_CASE("dnn: an old cuDNN gets a padding mask where it needs one, and no gradient that it gets wrong all the same") {
  if (!has_attention()) return;
  const auto plans = [](const char* version, int64_t keys, double dropout, int64_t width) {
    const Behaviour old("HALFSTEP_FAKE_DNN_VERSION", version);
    const Listening log;
    const CallSizes s{.keys = keys, .width = width};  // plans are kept: each call here has sizes of its own
    if (dropout == 0) check_like_cpu(s);
    const Attending once(s, Device::cuda, DType::f16, {.dropout_p = dropout}),
        twice(s, Device::cuda, DType::f16, {.dropout_p = dropout});
    for (const Tensor& g : once.d) CHECK(isfinite(g).all().item<bool>());
    struct {
      int forward, backward, warnings;
    } n{log.count("[cudnn] attention 97"), log.count("[cudnn] attention's gradient 97"), log.count("is computed by chunks")};
    return n;
  };
  for (const char* version : {"90100", "91200"}) {
    const auto old = plans(version, version[1] == '0' ? 101 : 100, 0, 8);
    CHECK(old.forward == 1);
    CHECK(old.backward == 1);
    CHECK(old.warnings == 0);
  }
  const auto aligned = plans("91200", 128, 0, 8);
  CHECK(aligned.forward == 1);
  CHECK(aligned.backward == 1);
  CHECK(aligned.warnings == 0);
  const auto dropping = plans("91200", 100, 0.5, 16);
  CHECK(dropping.forward == 1);
  CHECK(dropping.backward == 1);
  const auto unsafe = plans("91200", 64, 0.5, 16);  // only the library knows what it dropped
  CHECK(unsafe.forward == 0);
  CHECK(unsafe.backward == 0);
  const auto broken = plans("91001", 128, 0, 24);
  CHECK(broken.forward == 0);
  CHECK(broken.backward == 0);
  CHECK(broken.warnings == 1);
  const auto mended = plans("91501", 100, 0, 24);
  CHECK(mended.forward == 1);
  CHECK(mended.backward == 1);
  CHECK(unsafe.warnings == 1);
}

TEST_CASE("dnn: keys that are 64 more than a multiple of 128 are padded for the gradient, and hidden by a mask") {
  for (const auto& [version, capability, keys, drops, padded, mask] :
       {std::tuple{size_t(92600), 90, int64_t(192), false, int64_t(256), PaddingMask::once},
        {size_t(90100), 90, int64_t(64), false, int64_t(128), PaddingMask::twice},
        {size_t(92600), 120, int64_t(320), false, int64_t(384), PaddingMask::once},
        {size_t(92600), 80, int64_t(192), false, int64_t(192), PaddingMask::none},
        {size_t(92600), 90, int64_t(192), true, int64_t(192), PaddingMask::none},
        {size_t(92600), 90, int64_t(197), false, int64_t(197), PaddingMask::none}}) {
    AttentionCase c{.version = version, .capability = capability, .queries = 9, .keys = keys, .drops = drops, .backward = true};
    CHECK(cuda::dnn::padded_keys(c) == padded);
    CHECK(padding_mask(c) == mask);
    c.backward = false;
    CHECK(cuda::dnn::padded_keys(c) == keys);
  }
  if (!has_attention()) return;
  for (const char* version : {"90100", "91400", "92600"}) {
    CAPTURE(version);
    const Behaviour set("HALFSTEP_FAKE_DNN_VERSION", version);
    const Listening log;
    const int64_t width = version[1] == '0' ? 8 : version[1] == '1' ? 16 : 24;  // plans are kept: sizes of its own
    check_like_cpu({.queries = 20, .keys = 64, .width = width});
    check_like_cpu({.batch = 2, .heads = 4, .queries = 64, .keys = 64, .width = width}, {.is_causal = true, .enable_gqa = true});
    check_like_cpu({.queries = 9, .keys = 192, .width = width});
    CHECK(log.count("[cudnn] attention's gradient 97") == 3);
    CHECK(log.count("is computed by chunks") == 0);
  }
  const Behaviour set("HALFSTEP_FAKE_DNN_VERSION", "92600");
  const Room room(kBesides + 4 * kHead);
  check_like_cpu({.batch = 5, .queries = 13, .keys = 64, .width = 24});  // two samples at once, and one
}

TEST_CASE("dnn: the padding mask of an old cuDNN, of causal attention, shared keys and pieces") {
  if (!has_attention()) return;
  const Behaviour old("HALFSTEP_FAKE_DNN_VERSION", "91300");
  const Listening log;
  check_like_cpu({.batch = 3, .queries = 20, .keys = 20, .width = 16}, {.is_causal = true, .enable_gqa = true});
  check_like_cpu({.batch = 2, .heads = 4, .queries = 12, .keys = 37, .width = 16});
  const Room room(kBesides + 4 * kHead);
  check_like_cpu({.batch = 5, .queries = 13, .keys = 23, .width = 16});  // two samples at once, and one
  CHECK(log.count("[cudnn] attention's gradient 97") == 4);
  CHECK(log.count("is computed by chunks") == 0);
}

TEST_CASE("dnn: attention of parts of one tensor is done where they lie, and so are their gradients") {
  if (!has_attention()) return;
  for (const int64_t key_heads : {4, 2}) {
    const int64_t heads = 4, width = 8, key_width = key_heads * width;
    const auto result = [&](Device device, DType dtype) {
      manual_seed(53);
      const Tensor x =
          randn({2, 12, heads * width + 2 * key_width}).to(DType::f16).to(dtype).to(device).detach().set_requires_grad();
      const Tensor g = randn({2, 12, heads * width}).to(DType::f16).to(dtype).to(device);
      Tensors parts = split(x, {heads * width, key_width, key_width}, 2);
      for (Tensor& t : parts) t = unflatten(t, 2, {t.size(2) / width, width}).transpose(1, 2);
      const Tensor seen = scaled_dot_product_attention(parts[0], parts[1], parts[2], {.enable_gqa = true});
      const Tensor out = seen.transpose(1, 2).flatten(2);
      return Tensors{out, grad({out}, {x}, {g})[0]};
    };
    const Tensors want = result(Device::cpu, DType::f64), first = result(Device::cuda, DType::f16);
    for (size_t i = 0; i < 2; ++i) CHECK(largest_difference(first[i], want[i]) < 4e-2);
    const emu::Operations all;
    result(Device::cuda, DType::f16);
    std::string names;
    for (const emu::Operation& o : all.list) names += o.name + "; ";
    CAPTURE(names);
    for (const char* copies : {"move_kernel", "transpose_kernel", "cast_kernel"}) CHECK(names.find(copies) == std::string::npos);
  }
}

TEST_CASE("dnn: attention whose gradient wants more workspace than it may have runs in pieces") {
  if (!has_attention()) return;
  const Listening log;
  {
    const Room room(kBesides + 5 * kHead);  // two samples of two heads: pieces of 2, 2 and 1
    check_like_cpu({.batch = 5, .queries = 11, .keys = 20, .width = 16});
    CHECK(log.count("[cudnn] attention's gradient 97") == 2);  // two kinds of pieces
    CHECK(log.count("[cudnn] attention 97") == 1);
  }
  {
    const Room room(kBesides + 4 * kHead);  // a sample has six heads: two heads of keys, with two of queries each, at once
    check_like_cpu({.batch = 2, .heads = 6, .key_heads = 3, .queries = 9, .keys = 21, .width = 16});
    CHECK(log.count("[cudnn] attention's gradient 97") == 4);
  }
  CHECK(log.count("is computed by chunks") == 0);
  const Room room(kHead);
  check_like_cpu({.batch = 2, .queries = 10, .keys = 22, .width = 16});
  CHECK(log.count("[cudnn] attention's gradient 97") == 4);
  CHECK(log.count(
            "the gradient of attention is computed by chunks, which takes several times longer: one head of 10 queries and 22 keys "
            "needs more workspace than the 0 MiB of performance.cudnn_workspace; raise that") == 1);
}

TEST_CASE("dnn: pieces of attention drop other probabilities each, and the same forward and backward") {
  if (!has_attention()) return;
  const Room room(kBesides + 2 * kHead);
  const CallSizes s{.batch = 3, .queries = 24, .keys = 40, .width = 24};
  const AttentionOptions options{.dropout_p = 0.5};
  const Attending a(s, Device::cuda, DType::f16, options), b(s, Device::cuda, DType::f16, options);
  CHECK(bytes(a.out) == bytes(b.out));
  // The result is linear in v by the same numbers as the gradient is in the result's: for each sample.
  for (int64_t i = 0; i < s.batch; ++i) {
    const auto product = [&](const Tensor& x, const Tensor& y) {
      return (x.detach().select(0, i).to(DType::f32) * y.detach().select(0, i).to(DType::f32)).sum().item<float>();
    };
    const double there = product(a.out, a.grad), back = product(a.in[2], a.d[2]);
    CHECK(std::fabs(there - back) <= 2e-2 * std::fabs(there) + 0.2);
  }
  // Equal probabilities of equal values: what a row keeps shows.
  const TensorOptions like{.dtype = DType::f16, .device = Device::cuda};
  const Tensor shares =
      scaled_dot_product_attention(zeros({3, 2, 24, 8}, like), zeros({3, 2, 40, 8}, like), ones({3, 2, 40, 8}, like), options);
  for (int64_t i = 0; i < 2; ++i) CHECK(bytes(shares.select(0, i).contiguous()) != bytes(shares.select(0, i + 1).contiguous()));
}

TEST_CASE("dnn: recorded attention in pieces gives what it gives eagerly") {
  if (!has_attention()) return;
  const Room room(kBesides + 2 * kHead);
  check_recorded_attention(randn({3, 2, 16, 8}).to(DType::f16).to(Device::cuda), 0.5);
}
