// SPDX-License-Identifier: Apache-2.0
// Where the library has a recurrent network's parameters, which it says of a device only: as it describes them, one by one, against
// the offsets at which the adapter lays the parameters of our layers.
#include <algorithm>
#include <cstdio>

#include "cuda/dnn/library.h"
#include "cuda/dnn/rnn_descriptor.h"
#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;
using namespace halfstep::cuda::dnn;

namespace {

struct Piece {
  int64_t offset, elements;
};

// The library's description of one matrix or bias: dense rows of `columns`, at this offset.
Piece described(const TensorDescriptor& d, const void* at, const char* base, DType dtype, int64_t rows, int64_t columns) {
  cudnnDataType_t type;
  int rank = 0, dims[8] = {}, strides[8] = {};
  REQUIRE(cuda::cudnn().cudnnGetTensorNdDescriptor(d.raw(), 8, &type, &rank, dims, strides) == CUDNN_STATUS_SUCCESS);
  CHECK(type == (dtype == DType::f16 ? CUDNN_DATA_HALF : dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT));
  REQUIRE(rank == 3);
  CHECK(dims[0] == 1);
  CHECK(dims[1] == rows);
  CHECK(dims[2] == columns);
  CHECK(strides[1] == columns);
  CHECK(strides[2] == 1);
  const int64_t bytes = static_cast<const char*>(at) - base;
  CHECK(bytes % int64_t(size_of(dtype)) == 0);
  return {bytes / int64_t(size_of(dtype)), rows * columns};
}

// Asks for every matrix and bias of the network; returns how many there are.
int check_layout(const RnnProblem& problem, cudnnHandle_t handle) {
  const RecurrentArgs& a = problem.args;
  const RnnPlan plan(problem, handle);
  const WeightLayout layout = weight_layout(problem, plan, handle);
  size_t bytes = 0;
  REQUIRE(cuda::cudnn().cudnnGetRNNWeightSpaceSize(handle, plan.rnn.raw(), &bytes) == CUDNN_STATUS_SUCCESS);
  CHECK(layout.elements == int64_t(bytes / size_of(a.dtype)));
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, bytes) == cudaSuccess);
  char* const base = static_cast<char*>(memory);
  const TensorDescriptor matrix, bias;
  std::vector<Piece> pieces;
  auto next = layout.offsets.begin();
  const int64_t gates = gates_of(a.cell);
  for (int64_t part = 0; part < a.layers * a.directions; ++part) {
    const auto asked = [&](int64_t id, int64_t rows, int64_t columns, bool biased) {
      void *m = nullptr, *b = nullptr;
      REQUIRE(cuda::cudnn().cudnnGetRNNWeightParams(handle, plan.rnn.raw(), int32_t(part), bytes, base, int32_t(id), matrix.raw(),
                                                    &m, bias.raw(), &b) == CUDNN_STATUS_SUCCESS);
      REQUIRE(m);
      pieces.push_back(described(matrix, m, base, a.dtype, rows, columns));
      const int64_t at = pieces.back().offset;
      if (!biased) return std::pair(at, int64_t(-1));
      REQUIRE(b);
      pieces.push_back(described(bias, b, base, a.dtype, rows, 1));
      return std::pair(at, pieces.back().offset);
    };
    // As RecurrentSpaces has them: w_ih w_hh, b_ih b_hh, w_hr; in each the gates' rows one gate after another.
    const int64_t features = part < a.directions ? a.features : a.directions * a.width;
    const auto ours = next;
    for (int64_t side = 0; side < 2; ++side) {
      const int64_t columns = side == 0 ? features : a.width;
      for (int64_t gate = 0; gate < gates; ++gate) {
        CAPTURE(part);
        CAPTURE(side);
        CAPTURE(gate);
        const auto [m, b] = asked(side * gates + gate, a.units, columns, a.biased);
        CHECK(m == ours[side] + gate * a.units * columns);
        if (a.biased) CHECK(b == ours[2 + side] + gate * a.units);
      }
    }
    next += a.biased ? 4 : 2;
    if (a.projected) CHECK(asked(2 * gates, a.width, a.units, false).first == *next++);
  }
  cudaFree(memory);
  CHECK(next == layout.offsets.end());
  std::sort(pieces.begin(), pieces.end(), [](const Piece& x, const Piece& y) { return x.offset < y.offset; });
  int64_t end = 0;
  for (const Piece& p : pieces) {
    CHECK(p.offset >= end);
    end = p.offset + p.elements;
  }
  CHECK(end <= layout.elements);
  return int(pieces.size());
}

}  // namespace

TEST_CASE("the parameters of recurrent networks lie where the library says, gate by gate") {
  Library* const library = Library::find(queue());
  if (!library || !cuda::cudnn().has_rnn) {
    std::puts(("SKIPPED: no recurrent networks of " + cuda::cudnn_version()).c_str());
    return;
  }
  const cudnnHandle_t handle = library->handle(queue());
  int asked = 0;
  for (Cell cell : {Cell::lstm, Cell::gru, Cell::rnn_tanh, Cell::rnn_relu}) {
    for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      if (dtype == DType::bf16 && cuda::capability() < 80) continue;
      for (int options = 0; options < 16; ++options) {
        const bool projected = options & 8;
        if (projected && cell != Cell::lstm) continue;
        // Sizes of which no two are alike, odd ones and multiples of 8.
        for (const auto& sizes : {std::array<int64_t, 3>{5, 7, 3}, {24, 32, 16}}) {
          const int64_t features = sizes[0], units = sizes[1], width = sizes[2];
          const RnnProblem problem{.args = {.cell = cell,
                                            .dtype = dtype,
                                            .layers = options & 1 ? 3 : 1,
                                            .directions = options & 2 ? 2 : 1,
                                            .features = features,
                                            .units = units,
                                            .width = projected ? width : units,
                                            .biased = (options & 4) != 0,
                                            .projected = projected,
                                            .layout = RecurrentArgs::Layout::steps_first,
                                            .steps = 4,
                                            .batch = 2}};
          CAPTURE(int(cell));
          CAPTURE(name(dtype));
          CAPTURE(options);
          CAPTURE(units);
          asked += check_layout(problem, handle);
        }
      }
    }
  }
  CHECK(asked > 1000);
}
