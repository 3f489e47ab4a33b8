// Products of 16-bit operands on CPUs without instructions for them. Blocks of the operands are widened to float while they are
// packed for the multiplying loop, which any fast product does anyway: no widened copy of a whole operand is ever in memory, and
// the widening costs next to nothing. Sums are float, and each result is rounded once.
#include <algorithm>
#include <atomic>

#include "framework/backend/cpu/convert.h"
#include "framework/backend/cpu/gemm.h"
#include "framework/backend/cpu/simd.h"
#include "framework/backend/workspace.h"

namespace halfstep::cpu {
namespace {

// c [rows, 2 vectors] = (or, with add, +=) a b, for packed a [k, rows] and b [k, 2 vectors]; rows of c are `step` apart. All
// addresses are multiples of a vector, and all sums stay in registers.
#define HS_TILE(NAME, ISA, BYTES, ROWS)                                                        \
  ISA void NAME(const float* a, const float* b, int64_t k, float* c, int64_t step, bool add) { \
    typedef float Vector __attribute__((vector_size(BYTES), may_alias));                       \
    constexpr int kLanes = BYTES / 4;                                                          \
    Vector left[ROWS] = {}, right[ROWS] = {};                                                  \
    for (; k > 0; --k, a += ROWS, b += 2 * kLanes) {                                           \
      const Vector l = *reinterpret_cast<const Vector*>(b);                                    \
      const Vector r = *reinterpret_cast<const Vector*>(b + kLanes);                           \
      _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) {                                \
        left[i] += a[i] * l;                                                                   \
        right[i] += a[i] * r;                                                                  \
      }                                                                                        \
    }                                                                                          \
    _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) {                                  \
      Vector* to = reinterpret_cast<Vector*>(c + i * step);                                    \
      to[0] = add ? to[0] + left[i] : left[i];                                                 \
      to[1] = add ? to[1] + right[i] : right[i];                                               \
    }                                                                                          \
  }

struct Tile {
  int64_t rows, columns;
  void (*run)(const float* a, const float* b, int64_t k, float* c, int64_t step, bool add);
};

HS_TILE(tile_plain, , 16, 4)
#if defined(__x86_64__) && defined(__GNUC__)
HS_TILE(tile_avx2, __attribute__((target("avx2,fma"))), 32, 4)
HS_TILE(tile_avx512, __attribute__((target("avx512f"))), 64, 12)
#endif

const Tile& tile() {
  static const Tile best = [] {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx512f")) return Tile{12, 32, tile_avx512};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Tile{4, 16, tile_avx2};
#endif
    return Tile{4, 8, tile_plain};
  }();
  return best;
}

// What a thread works on at a time: kRows x kDepth of a stay packed, a strip of b is packed, used for all these rows, and done
// with. The depth is the same for every product, so that an element's sum does not depend on how the work is shared. Larger blocks
// would be packed less often, but the peak memory of training in float16 is to stay below that of float32.
constexpr int64_t kDepth = 512, kRows = 384, kColumns = 384, kStrip = 96;

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// One side of a product: `lanes` rows of a or columns of b, `lane` and `depth` elements apart, of which one is 1.
template <class H>
struct Side {
  const H* data;
  int64_t lane, depth, lanes;
};

typedef float Four __attribute__((vector_size(16), may_alias, aligned(4)));
const Four& four_at(const float* p) { return *reinterpret_cast<const Four*>(p); }
Four& four_at(float* p) { return *reinterpret_cast<Four*>(p); }

// Four lanes that are dense along the depth, into a panel of `width`.
void transpose_four(const float (*from)[kDepth], float* to, int64_t width, int64_t depth) {
  int64_t d = 0;
  for (; d + 4 <= depth; d += 4) {
    const auto row = [&](int i) { return four_at(from[i] + d); };
    const Four a = __builtin_shufflevector(row(0), row(1), 0, 4, 1, 5), b = __builtin_shufflevector(row(2), row(3), 0, 4, 1, 5);
    const Four e = __builtin_shufflevector(row(0), row(1), 2, 6, 3, 7), f = __builtin_shufflevector(row(2), row(3), 2, 6, 3, 7);
    const auto put = [&](int i, Four v) { four_at(to + (d + i) * width) = v; };
    put(0, __builtin_shufflevector(a, b, 0, 1, 4, 5));
    put(1, __builtin_shufflevector(a, b, 2, 3, 6, 7));
    put(2, __builtin_shufflevector(e, f, 0, 1, 4, 5));
    put(3, __builtin_shufflevector(e, f, 2, 3, 6, 7));
  }
  for (; d < depth; ++d) {
    for (int i = 0; i < 4; ++i) to[d * width + i] = from[i][d];
  }
}

// Widens `depth` <= kDepth by side.lanes elements into panels of `width` lanes, [panel, depth, width]; lanes that are missing in
// the last panel are zero.
template <class H>
void pack(const Side<H>& side, int64_t depth, int64_t width, float* to) {
  const int64_t padded = round_up(side.lanes, width);
  if (side.lane == 1 && (side.depth != 1 || depth == 1)) {
    constexpr int64_t kGroup =
        8;  // so many at once: panels may lie a power of two apart, and would drive each other out of the cache
    alignas(64) float row[kGroup][kRows > kStrip ? kRows : kStrip];
    for (auto& r : row) std::fill(r + side.lanes, r + padded, 0.0f);
    for (int64_t d = 0; d < depth; d += kGroup) {
      const int64_t group = std::min(kGroup, depth - d);
      for (int64_t k = 0; k < group; ++k) widen(side.data + (d + k) * side.depth, row[k], side.lanes);
      for (int64_t j = 0; j < padded; j += width) {
        float* panel = to + j * depth + d * width;
        for (int64_t k = 0; k < group; ++k, panel += width) {
          for (int64_t i = 0; i < width; i += 4) four_at(panel + i) = four_at(row[k] + j + i);
        }
      }
    }
    return;
  }
  alignas(64) float four[4][kDepth];
  for (int64_t j = 0; j < padded; j += 4) {
    for (int64_t i = 0; i < 4; ++i) {
      if (j + i < side.lanes)
        widen(side.data + (j + i) * side.lane, four[i], depth);
      else
        std::fill_n(four[i], depth, 0.0f);
    }
    transpose_four(four, to + j / width * width * depth + j % width, width, depth);
  }
}

HS_CLONES void add_row(float* x, const float* y, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) x[i] += y[i];
}
HS_CLONES void relu_row(float* x, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) x[i] = x[i] <= 0 ? 0.0f : x[i];
}

// How a product is cut: blocks of c, and the floats that one thread needs for one of them.
struct Plan {
  int64_t rows, columns, row_blocks, column_blocks, depth, strip, tasks;

  Plan(const Product& p, const Tile& t, int threads) {
    const auto blocks = [](int64_t n, int64_t size) { return (n + size - 1) / size; };
    row_blocks = blocks(p.m, kRows);
    column_blocks = blocks(p.n, kColumns);
    // As many for each thread, where there is enough to cut.
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
    depth = std::min(p.k, kDepth);
    strip = std::min(columns, kStrip / t.columns * t.columns);
    tasks = p.batch * row_blocks * column_blocks;
  }
  // Sums of one strip are enough where the depth is not cut.
  int64_t sums(const Product& p) const { return rows * (p.k > kDepth ? columns : strip); }
  int64_t left() const { return round_up(rows * depth, 16); }
  int64_t right() const { return round_up(strip * depth, 16); }
  int64_t floats(const Product& p) const { return left() + right() + round_up(sums(p), 16); }
};

// Columns of c from their sums, rows `step` apart.
void finish(const Product& p, int64_t batch, int64_t row, int64_t rows, int64_t column, int64_t columns, float* sums,
            int64_t step) {
  for (int64_t i = 0; i < rows; ++i, sums += step) {
    char* const to = static_cast<char*>(p.c) + ((batch * p.m + row + i) * p.n + column) * int64_t(size_of(p.out));
    if (p.bias) add_row(sums, p.bias + column, columns);
    if (p.accumulate) add_row(sums, reinterpret_cast<const float*>(to), columns);
    if (p.relu) relu_row(sums, columns);
    store<float>(p.out, sums, to, 1, columns);
  }
}

template <class H>
void multiply_block(const Product& p, const Plan& plan, const Tile& t, int64_t task, float* scratch) {
  const int64_t batch = task / (plan.row_blocks * plan.column_blocks), block = task % (plan.row_blocks * plan.column_blocks);
  const int64_t row = block % plan.row_blocks * plan.rows, column = block / plan.row_blocks * plan.columns;
  const int64_t rows = std::min(plan.rows, p.m - row), columns = std::min(plan.columns, p.n - column);
  float* const left = scratch;
  float* const right = left + plan.left();
  float* const sums = right + plan.right();
  const bool cut = p.k > kDepth;
  const int64_t step = cut ? plan.columns : plan.strip;
  const H* a = static_cast<const H*>(p.a) + batch * p.a_batch + row * p.a_row;
  const H* b = static_cast<const H*>(p.b) + batch * p.b_batch + column * p.b_column;
  for (int64_t k = 0; k < p.k; k += kDepth) {
    const int64_t depth = std::min(kDepth, p.k - k);
    pack(Side<H>{a + k * p.a_column, p.a_row, p.a_column, rows}, depth, t.rows, left);
    for (int64_t first = 0; first < columns; first += plan.strip) {
      const int64_t width = std::min(plan.strip, columns - first);
      float* const strip = cut ? sums + first : sums;
      pack(Side<H>{b + k * p.b_row + first * p.b_column, p.b_column, p.b_row, width}, depth, t.columns, right);
      for (int64_t j = 0; j < width; j += t.columns) {
        for (int64_t i = 0; i < rows; i += t.rows)
          t.run(left + i * depth, right + j * depth, depth, strip + i * step + j, step, k > 0);
      }
      if (!cut) finish(p, batch, row, rows, column + first, width, strip, step);
    }
  }
  if (cut) finish(p, batch, row, rows, column, columns, sums, step);
}

}  // namespace

void multiply_halves(const Product& p) {
  const Tile& t = tile();
  const int64_t cost = product_work(p.batch, p.m, p.n, p.k, false);
  const int threads = threads_for(cost, num_threads());
  const Plan plan(p, t, threads);
  const int64_t workers = std::min<int64_t>(threads, plan.tasks), each = plan.floats(p);
  const Workspace work(Device::cpu, size_t(workers * each) * sizeof(float));
  std::atomic<int64_t> next = 0;
  parallel_tasks(workers, cost, [&](int64_t worker) {
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < plan.tasks;) {
      float* const scratch = reinterpret_cast<float*>(work.data()) + worker * each;
      if (p.in == DType::f16)
        multiply_block<f16>(p, plan, t, task, scratch);
      else
        multiply_block<bf16>(p, plan, t, task, scratch);
    }
  });
}

}  // namespace halfstep::cpu
