// SPDX-License-Identifier: Apache-2.0
// Products with loops of our own: for 16-bit operands on CPUs without instructions for them, and for float32 in a build without
// oneDNN. Packing a block for the multiplying loop also widens it to float. So no widened copy of a large operand is ever in
// memory, and widening costs next to nothing. Sums are float, and each result is rounded once. Where an ARM CPU has BFMMLA,
// bf16 stays as it is.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>

#include "framework/backend/cpu/convert/convert.h"
#include "framework/backend/cpu/gemm/gemm.h"
#include "framework/backend/cpu/parallel.h"
#include "framework/backend/workspace.h"

#if defined(__aarch64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)  // Clang 14 takes no such target
#include <arm_neon.h>
#include <sys/auxv.h>
#define HS_BFMMLA __attribute__((target("arch=armv8.2-a+bf16")))
#endif

namespace halfstep::cpu {

static void widen(const float* from, float* to, int64_t n) { std::memcpy(to, from, size_t(n) * sizeof(float)); }

namespace {

// Block sizes. A block of kRows by kDepth of a stays packed in the second-level cache; strips of kStrip columns of b are packed,
// used for all these rows and discarded. The cuts along the depth depend on k alone, so that a sum does not depend on how work is
// shared. Larger blocks of c would need less packing, but their sums are floats, and training in float16 must not need more memory
// than in float32.
constexpr int64_t kDepth = 256, kRows = 264, kColumns = 256, kMostColumns = 512, kStrip = 96;
// Distance between rows of floats that are dense along the depth: not a power of two, because such rows share few cache sets.
constexpr int64_t kRowStride = kDepth + 8;

// Computes c [rows, 2 vectors] = (with add: +=) a b for packed b [k, 2 vectors] and a with a distance of ROW between rows and of
// DEPTH along k; rows of c are `step` apart. All vectors are aligned, and all sums stay in registers.
#define HS_TILE(NAME, ISA, BYTES, ROWS, ROW, DEPTH)                                            \
  ISA void NAME(const float* a, const float* b, int64_t k, float* c, int64_t step, bool add) { \
    typedef float Vector __attribute__((vector_size(BYTES), may_alias));                       \
    constexpr int kLanes = BYTES / 4;                                                          \
    Vector left[ROWS] = {}, right[ROWS] = {};                                                  \
    for (int i = 0; i < ROWS; ++i) {                                                           \
      __builtin_prefetch(c + i * step, 1);                                                     \
      __builtin_prefetch(c + i * step + kLanes, 1);                                            \
    }                                                                                          \
    for (; k > 0; --k, a += DEPTH, b += 2 * kLanes) {                                          \
      const Vector l = *reinterpret_cast<const Vector*>(b);                                    \
      const Vector r = *reinterpret_cast<const Vector*>(b + kLanes);                           \
      _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) {                                \
        left[i] += a[i * ROW] * l;                                                             \
        right[i] += a[i * ROW] * r;                                                            \
      }                                                                                        \
    }                                                                                          \
    _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) {                                  \
      Vector* to = reinterpret_cast<Vector*>(c + i * step);                                    \
      to[0] = add ? to[0] + left[i] : left[i];                                                 \
      to[1] = add ? to[1] + right[i] : right[i];                                               \
    }                                                                                          \
  }
#define HS_TILES(NAME, ISA, BYTES, ROWS)                \
  HS_TILE(NAME##_rows, ISA, BYTES, ROWS, kRowStride, 1) \
  HS_TILE(NAME##_panels, ISA, BYTES, ROWS, 1, ROWS)

typedef float Four __attribute__((vector_size(16), may_alias, aligned(4)));
const Four& four_at(const float* p) { return *reinterpret_cast<const Four*>(p); }
Four& four_at(float* p) { return *reinterpret_cast<Four*>(p); }

// Transposes four rows of floats, kRowStride apart, into four columns of a panel of `width`.
void transpose_four(const float* from, float* to, int64_t width, int64_t depth) {
  int64_t d = 0;
  for (; d + 4 <= depth; d += 4) {
    const auto row = [&](int i) { return four_at(from + i * kRowStride + d); };
    const Four a = __builtin_shufflevector(row(0), row(1), 0, 4, 1, 5), b = __builtin_shufflevector(row(2), row(3), 0, 4, 1, 5);
    const Four e = __builtin_shufflevector(row(0), row(1), 2, 6, 3, 7), f = __builtin_shufflevector(row(2), row(3), 2, 6, 3, 7);
    const auto put = [&](int i, Four v) { four_at(to + (d + i) * width) = v; };
    put(0, __builtin_shufflevector(a, b, 0, 1, 4, 5));
    put(1, __builtin_shufflevector(a, b, 2, 3, 6, 7));
    put(2, __builtin_shufflevector(e, f, 0, 1, 4, 5));
    put(3, __builtin_shufflevector(e, f, 2, 3, 6, 7));
  }
  for (; d < depth; ++d) {
    for (int i = 0; i < 4; ++i) to[d * width + i] = from[i * kRowStride + d];
  }
}

#if defined(__aarch64__)
constexpr int kPlainRows = 8;  // sums fill 16 of its 32 vectors; x86-64 v2 has 16 vectors
#else
constexpr int kPlainRows = 4;
#endif
HS_TILES(tile_plain, , 16, kPlainRows)
#if defined(__x86_64__) && defined(__GNUC__)
HS_TILES(tile_avx2, __attribute__((target("avx2,fma"))), 32, 4)
HS_TILES(tile_avx512, __attribute__((target("avx512f"))), 64, 12)

// Transposes sixteen rows: a quarter of a vector holds four of them, and the quarters are transposed at once.
__attribute__((target("avx512f"))) void transpose_sixteen(const float* from, float* to, int64_t width, int64_t depth) {
  typedef float Sixteen __attribute__((vector_size(64), may_alias));
#define HS_QUARTERS(X, Y, A, B, C, D) \
  __builtin_shufflevector(X, Y, A, B, C, D, A + 4, B + 4, C + 4, D + 4, A + 8, B + 8, C + 8, D + 8, A + 12, B + 12, C + 12, D + 12)
  int64_t d = 0;
  for (; d + 4 <= depth; d += 4) {
    Sixteen v[4];
    for (int i = 0; i < 4; ++i) {
      const float* p = from + i * kRowStride + d;
      const auto low = __builtin_shufflevector(four_at(p), four_at(p + 4 * kRowStride), 0, 1, 2, 3, 4, 5, 6, 7);
      const auto high = __builtin_shufflevector(four_at(p + 8 * kRowStride), four_at(p + 12 * kRowStride), 0, 1, 2, 3, 4, 5, 6, 7);
      v[i] = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    }
    const Sixteen a = HS_QUARTERS(v[0], v[1], 0, 16, 1, 17), b = HS_QUARTERS(v[2], v[3], 0, 16, 1, 17);
    const Sixteen e = HS_QUARTERS(v[0], v[1], 2, 18, 3, 19), f = HS_QUARTERS(v[2], v[3], 2, 18, 3, 19);
    float* const p = to + d * width;
    *reinterpret_cast<Sixteen*>(p) = HS_QUARTERS(a, b, 0, 1, 16, 17);
    *reinterpret_cast<Sixteen*>(p + width) = HS_QUARTERS(a, b, 2, 3, 18, 19);
    *reinterpret_cast<Sixteen*>(p + 2 * width) = HS_QUARTERS(e, f, 0, 1, 16, 17);
    *reinterpret_cast<Sixteen*>(p + 3 * width) = HS_QUARTERS(e, f, 2, 3, 18, 19);
  }
#undef HS_QUARTERS
  for (; d < depth; ++d) {
    for (int i = 0; i < 16; ++i) to[d * width + i] = from[i * kRowStride + d];
  }
}
#endif

#ifdef HS_BFMMLA
// Does the same for 8 rows and columns of bf16, packed by pack_fours(). An instruction adds the products of 2 rows and 2 columns
// with 4 terms each. Sums are float; the rounding of their parts is the instruction's.
HS_BFMMLA void tile_fours(const float* a, const float* b, int64_t k, float* c, int64_t step, bool add) {
  const auto* left = reinterpret_cast<const bfloat16_t*>(a);
  const auto* right = reinterpret_cast<const bfloat16_t*>(b);
  float32x4_t sums[4][4] = {};
  for (; k > 0; k -= 4, left += 32, right += 32) {
    bfloat16x8_t l[4], r[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) l[i] = vld1q_bf16(left + 8 * i), r[i] = vld1q_bf16(right + 8 * i);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) sums[i][j] = vbfmmlaq_f32(sums[i][j], l[i], r[j]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      float* const upper = c + 2 * i * step + 2 * j;
      float* const lower = upper + step;
      const float32x2_t u = vget_low_f32(sums[i][j]), l = vget_high_f32(sums[i][j]);
      vst1_f32(upper, add ? vadd_f32(vld1_f32(upper), u) : u);
      vst1_f32(lower, add ? vadd_f32(vld1_f32(lower), l) : l);
    }
  }
}
#endif

struct Tile {
  int64_t rows, columns;
  void (*run[2])(const float* a, const float* b, int64_t k, float* c, int64_t step, bool add);  // a as rows, a as panels
  int64_t lanes;                                                                                // rows that transpose() takes
  void (*transpose)(const float* from, float* to, int64_t width, int64_t depth);
  bool fours = false;  // takes bf16 from pack_fours(), in panels only
};

const Tile& tile() {
  static const Tile best = [] {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx512f")) return Tile{12, 32, {tile_avx512_rows, tile_avx512_panels}, 16, transpose_sixteen};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      return Tile{4, 16, {tile_avx2_rows, tile_avx2_panels}, 4, transpose_four};
#endif
    return Tile{kPlainRows, 8, {tile_plain_rows, tile_plain_panels}, 4, transpose_four};
  }();
  return best;
}

// Returns the tile that multiplies the operands of p: with fewer terms or rows, BFMMLA would mostly multiply zeros.
const Tile& tile_for(const GemmProblem& p) {
#ifdef HS_BFMMLA
  static constexpr Tile kFours{8, 8, {nullptr, tile_fours}, 0, nullptr, true};
  if (p.in == DType::bf16 && own_bf16_code() && p.k >= 16 && p.m > 1 && p.n > 1) return kFours;
#endif
  return (void)p, tile();
}

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// One side of a product: `lanes` rows of a or columns of b, with distances `lane` and `depth` between elements, one of which is 1.
template <class H>
struct Side {
  const H* data;
  int64_t lane, depth, lanes;
};

// How many rows ahead to prefetch: short rows far apart defeat the processor's own prefetching, of reads and of writes.
constexpr int64_t kRowsAhead = 4;

// Widens lanes [first, first + rows), which are dense along the depth, into rows kRowStride apart; missing lanes become zero.
template <class H>
void widen_rows(const Side<H>& side, int64_t first, int64_t rows, int64_t depth, float* to) {
  for (int64_t i = first; i < first + rows; ++i, to += kRowStride) {
    if (i + kRowsAhead < std::min(first + rows, side.lanes)) {
      for (int64_t d = 0; d < depth; d += 32) __builtin_prefetch(side.data + (i + kRowsAhead) * side.lane + d);
      for (int64_t d = 0; d < depth; d += 16) __builtin_prefetch(to + kRowsAhead * kRowStride + d, 1);
    }
    if (i < side.lanes)
      widen(side.data + i * side.lane, to, depth);
    else
      std::fill_n(to, depth, 0.0f);
  }
}

// Distance between the rows of a buffer of pack(), which hold up to kRows floats: like kRowStride not a power of two.
constexpr int64_t kBufferStride = kRows + 28;

// Copies `rows` rows of n floats, kBufferStride apart, into their panels.
template <size_t kPiece>
inline void spread_pieces(const float* row, int64_t rows, int64_t n, int64_t width, int64_t depth, float* to) {
  for (int64_t j = 0; j < n; j += width) {
    for (int64_t k = 0; k < rows; ++k) {
      for (int64_t i = 0; i < width; i += kPiece)
        std::memcpy(to + j * depth + k * width + i, row + k * kBufferStride + j + i, kPiece * sizeof(float));
    }
  }
}
HS_CLONES void spread(const float* row, int64_t rows, int64_t n, int64_t width, int64_t depth, float* to) {
  width % 16 == 0 ? spread_pieces<16>(row, rows, n, width, depth, to) : spread_pieces<4>(row, rows, n, width, depth, to);
}

// Widens `depth` <= kDepth by side.lanes elements into panels of `width` lanes, [panel, depth, width]; missing lanes of the last
// panel become zero.
template <class H>
void pack(const Side<H>& side, int64_t depth, int64_t width, const Tile& t, float* to) {
  const int64_t padded = round_up(side.lanes, width);
  if (side.lane == 1 && (side.depth != 1 || depth == 1)) {
    // Packs several rows at once: panels may be a power of two apart, and would evict one another from the cache.
    constexpr int64_t kGroup = 8;
    alignas(64) float row[kGroup][kBufferStride];
    for (auto& r : row) std::fill(r + side.lanes, r + padded, 0.0f);
    for (int64_t d = 0; d < depth; d += kGroup) {
      const int64_t group = std::min(kGroup, depth - d);
      for (int64_t k = 0; k < group; ++k) widen(side.data + (d + k) * side.depth, row[k], side.lanes);
      spread(row[0], group, padded, width, depth, to + d * width);
    }
    return;
  }
  alignas(64) float rows[16 * kRowStride];
  for (int64_t j = 0; j < padded; j += t.lanes) {
    widen_rows(side, j, t.lanes, depth, rows);
    t.transpose(rows, to + j / width * width * depth + j % width, width, depth);
  }
}

// Packs `depth` <= kDepth by side.lanes elements into panels of 8 lanes, [panel, depth / 4, lane, 4]; missing lanes of the last
// panel and missing terms become zero.
void pack_fours(const Side<bf16>& side, int64_t depth, uint16_t* to) {
  const auto* const data = reinterpret_cast<const uint16_t*>(side.data);
  for (int64_t j = 0; j < side.lanes; j += 8) {
    for (int64_t d = 0; d < depth; d += 4, to += 32) {
      const int64_t lanes = std::min<int64_t>(8, side.lanes - j), terms = std::min<int64_t>(4, depth - d);
      const uint16_t* const from = data + j * side.lane + d * side.depth;
      if (lanes == 8 && terms == 4 && side.depth == 1) {
        for (int64_t l = 0; l < 8; ++l) std::memcpy(to + 4 * l, from + l * side.lane, 4 * sizeof *to);
        continue;
      }
#ifdef HS_BFMMLA
      if (lanes == 8 && terms == 4 && side.lane == 1) {
        const auto row = [&](int64_t q) { return vld1q_u16(from + q * side.depth); };
        vst4q_u16(to, uint16x8x4_t{{row(0), row(1), row(2), row(3)}});
        continue;
      }
#endif
      for (int64_t l = 0; l < 8; ++l) {
        for (int64_t q = 0; q < 4; ++q) to[4 * l + q] = l < lanes && q < terms ? from[l * side.lane + q * side.depth] : 0;
      }
    }
  }
}

// Packs one side for the tile.
template <class H>
void pack_for(const Side<H>& side, int64_t depth, int64_t width, const Tile& t, float* to) {
  if constexpr (std::is_same_v<H, bf16>)
    if (t.fours) return pack_fours(side, depth, reinterpret_cast<uint16_t*>(to));
  pack(side, depth, width, t, to);
}

HS_CLONES void add_row(float* x, const float* y, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) x[i] += y[i];
}

// How a product is split into blocks of c, one for each task.
struct Plan {
  int64_t rows, columns, row_blocks, column_blocks, depth, strip, tasks;

  Plan(const GemmProblem& p, const Tile& t, int threads) {
    const auto blocks = [](int64_t n, int64_t size) { return (n + size - 1) / size; };
    row_blocks = blocks(p.m, kRows);
    column_blocks = blocks(p.n, std::clamp(p.n / 8, kColumns, kMostColumns));
    // Gives each thread the same number of blocks if there are enough.
    for (int tries = 0; tries < threads && p.batch * row_blocks * column_blocks % threads != 0; ++tries) {
      if (p.n / (column_blocks + 1) >= 2 * t.columns)
        ++column_blocks;
      else if (p.m / (row_blocks + 1) >= 2 * t.rows)
        ++row_blocks;
    }
    rows = round_up(blocks(p.m, row_blocks), t.rows);
    columns = round_up(blocks(p.n, column_blocks), t.columns);
    row_blocks = blocks(p.m, rows);
    column_blocks = blocks(p.n, columns);
    depth = cuts_depth(p) ? round_up(blocks(p.k, blocks(p.k, kDepth)), 16) : p.k;
    strip = std::min(columns, kStrip / t.columns * t.columns);
    tasks = p.batch * row_blocks * column_blocks;
  }
  // Without cuts along the depth, the sums of one strip suffice.
  static bool cuts_depth(const GemmProblem& p) { return p.k > kDepth; }
  // Return the floats that a thread needs: for the packed blocks of a and b, for sums, and for all.
  int64_t left_floats() const { return round_up(rows * kRowStride, 16); }
  int64_t right_floats() const { return round_up(strip * depth, 16); }
  int64_t sum_floats(const GemmProblem& p) const { return rows * (cuts_depth(p) ? columns : strip); }
  int64_t floats(const GemmProblem& p) const { return left_floats() + right_floats() + round_up(sum_floats(p), 16); }
};

// Prefetches the side that is packed next, a little with each of `steps` tiles.
class Prefetcher {
 public:
  template <class H>
  Prefetcher(const Side<H>& side, int64_t depth, int64_t steps) {
    const bool dense = side.depth == 1;
    data_ = reinterpret_cast<const char*>(side.data);
    rows_ = dense ? side.lanes : depth;
    row_step_ = (dense ? side.lane : side.depth) * int64_t(sizeof(H));
    bytes_ = (dense ? depth : side.lanes) * int64_t(sizeof(H));
    lines_per_step_ = (rows_ * ((bytes_ + 63) / 64) + steps - 1) / steps;
  }
  void step() {
    for (int64_t i = 0; i < lines_per_step_ && rows_ > 0; ++i) {
      __builtin_prefetch(data_ + offset_);
      offset_ += 64;
      if (offset_ >= bytes_) offset_ = 0, data_ += row_step_, --rows_;
    }
  }

 private:
  const char* data_;
  int64_t rows_, row_step_, bytes_;  // rows to prefetch; bytes from one to the next, and of each
  int64_t lines_per_step_;           // cache lines
  int64_t offset_ = 0;               // in the current row, in bytes
};

// Writes columns of c from their sums, whose rows are `step` apart.
void write_columns(const GemmProblem& p, int64_t batch, int64_t row, int64_t rows, int64_t column, int64_t columns, float* sums,
                   int64_t step) {
  const int64_t row_bytes = p.n * int64_t(size_of(p.out)), bytes = columns * int64_t(size_of(p.out));
  for (int64_t i = 0; i < rows; ++i, sums += step) {
    char* const to = static_cast<char*>(p.c) + (batch * p.m + row + i) * row_bytes + column * int64_t(size_of(p.out));
    if (i + kRowsAhead < rows) {
      for (int64_t j = 0; j < bytes; j += 64) __builtin_prefetch(to + kRowsAhead * row_bytes + j, 1);
    }
    if (p.bias) add_row(sums, p.bias + column, columns);
    if (p.accumulate) add_row(sums, reinterpret_cast<const float*>(to), columns);
    if (p.relu) relu_rows(DType::f32, sums, 1, columns, columns);
    store<float>(p.out, sums, to, 1, columns);
  }
}

// Computes block `task` of c: packs a block of a and strips of b for each part of the depth, and multiplies them tile by tile.
template <class H>
void multiply_block(const GemmProblem& p, const Plan& plan, const Tile& t, int64_t task, float* scratch) {
  const int64_t batch = task / (plan.row_blocks * plan.column_blocks), block = task % (plan.row_blocks * plan.column_blocks);
  const int64_t row = block % plan.row_blocks * plan.rows, column = block / plan.row_blocks * plan.columns;
  const int64_t rows = std::min(plan.rows, p.m - row), columns = std::min(plan.columns, p.n - column);
  float* const left = scratch;
  float* const right = left + plan.left_floats();
  float* const sums = right + plan.right_floats();
  const bool cuts_depth = Plan::cuts_depth(p), panels = p.a_column != 1 || t.fours;
  const int64_t step = cuts_depth ? plan.columns : plan.strip;
  const H* a = static_cast<const H*>(p.a) + batch * p.a_batch + row * p.a_row;
  const H* b = static_cast<const H*>(p.b) + batch * p.b_batch + column * p.b_column;
  const auto depth_at = [&](int64_t k) { return std::min(plan.depth, p.k - k); };
  const auto left_at = [&](int64_t k) { return Side<H>{a + k * p.a_column, p.a_row, p.a_column, rows}; };
  const auto right_at = [&](int64_t k, int64_t first) {
    return Side<H>{b + k * p.b_row + first * p.b_column, p.b_column, p.b_row, std::min(plan.strip, columns - first)};
  };
  const auto tile_count = [&](int64_t width) { return round_up(rows, t.rows) / t.rows * (round_up(width, t.columns) / t.columns); };
  for (int64_t k = 0; k < p.k; k += plan.depth) {
    const int64_t depth = depth_at(k), next = k + depth < p.k ? k + depth : 0, terms = t.fours ? round_up(depth, 4) : depth;
    const int64_t right_step = t.fours ? terms / 2 : depth, left_step = panels ? right_step : kRowStride;  // in floats, of a lane
    if (panels)
      pack_for(left_at(k), depth, t.rows, t, left);
    else
      widen_rows(left_at(k), 0, round_up(rows, t.rows), depth, left);
    Prefetcher next_left(left_at(next), next > 0 ? depth_at(next) : 0, tile_count(columns));
    for (int64_t first = 0; first < columns; first += plan.strip) {
      const Side<H> side = right_at(k, first);
      float* const strip = cuts_depth ? sums + first : sums;
      pack_for(side, depth, t.columns, t, right);
      const bool last = first + plan.strip >= columns;
      Prefetcher next_right(last ? right_at(next, 0) : right_at(k, first + plan.strip),
                            last ? (next > 0 ? depth_at(next) : 0) : depth, tile_count(side.lanes));
      for (int64_t j = 0; j < side.lanes; j += t.columns) {
        for (int64_t i = 0; i < rows; i += t.rows) {
          next_left.step();
          next_right.step();
          t.run[panels](left + i * left_step, right + j * right_step, terms, strip + i * step + j, step, k > 0);
        }
      }
      if (!cuts_depth) write_columns(p, batch, row, rows, column + first, side.lanes, strip, step);
    }
  }
  if (cuts_depth) write_columns(p, batch, row, rows, column, columns, sums, step);
}

// Largest number of elements of a, b and c for which operands are widened as a whole for the library's float product: widening
// while packing is only faster if a packed block serves many rows.
constexpr int64_t kFewElements = 192 * 1024;

bool is_small(const GemmProblem& p) {
  return p.batch == 1 && p.m > 1 && p.n > 1 && p.m * p.k + p.k * p.n + p.m * p.n <= kFewElements;
}

template <class H>
void multiply_widened(const GemmProblem& p) {
  const bool narrow = p.out != DType::f32;
  const int64_t a_size = round_up(p.m * p.k, 16), b_size = round_up(p.k * p.n, 16), c_size = narrow ? p.m * p.n : 0;
  const Workspace work(Device::cpu, size_t(a_size + b_size + c_size) * sizeof(float));
  float* const a = reinterpret_cast<float*>(work.data());
  float* const b = a + a_size;
  GemmProblem wide = p;
  wide.in = wide.out = DType::f32;
  wide.a = a, wide.b = b;
  if (narrow) wide.c = b + b_size;
  // Widens rows along the dimension of stride 1 without reordering.
  const auto widen_lines = [](const void* from, int64_t rows, int64_t columns, int64_t& row, int64_t& column, float* to) {
    const bool by_rows = column == 1;
    const int64_t lines = by_rows ? rows : columns, length = by_rows ? columns : rows, step = by_rows ? row : column;
    parallel_for(lines, std::max<int64_t>(1, kBlock / length), lines * length, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) widen(static_cast<const H*>(from) + i * step, to + i * length, length);
    });
    (by_rows ? row : column) = length;
  };
  widen_lines(p.a, p.m, p.k, wide.a_row, wide.a_column, a);
  widen_lines(p.b, p.k, p.n, wide.b_row, wide.b_column, b);
  run_gemm(wide);
  if (!narrow) return;
  parallel_for(p.m, std::max<int64_t>(1, kBlock / p.n), p.m * p.n, [&](int64_t begin, int64_t end) {
    store<float>(p.out, b + b_size + begin * p.n, static_cast<H*>(p.c) + begin * p.n, 1, (end - begin) * p.n);
  });
}

}  // namespace

bool own_bf16_code() {
#ifdef HS_BFMMLA
  constexpr unsigned long kBf16 = 1ul << 14;  // HWCAP2_BF16
  static const bool has_bf16 = getauxval(AT_HWCAP2) & kBf16;
  return has_bf16;
#else
  return false;
#endif
}

void run_gemm_blocks(const GemmProblem& p) {
  const Tile& t = tile_for(p);
  if (p.in != DType::f32 && !t.fours && is_small(p) && !(p.accumulate && p.out != DType::f32))
    return p.in == DType::f16 ? multiply_widened<f16>(p) : multiply_widened<bf16>(p);
  const int64_t cost = product_work(p.batch, p.m, p.n, p.k, false);
  const int threads = threads_for(cost, num_threads());
  const Plan plan(p, t, threads);
  const int64_t workers = std::min<int64_t>(threads, plan.tasks), worker_floats = plan.floats(p);
  const Workspace work(Device::cpu, size_t(workers * worker_floats) * sizeof(float));
  std::atomic<int64_t> next = 0;
  parallel_tasks(workers, cost, [&](int64_t worker) {
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < plan.tasks;) {
      float* const scratch = reinterpret_cast<float*>(work.data()) + worker * worker_floats;
      if (p.in == DType::f16)
        multiply_block<f16>(p, plan, t, task, scratch);
      else if (p.in == DType::f32)
        multiply_block<float>(p, plan, t, task, scratch);
      else
        multiply_block<bf16>(p, plan, t, task, scratch);
    }
  });
}

}  // namespace halfstep::cpu
