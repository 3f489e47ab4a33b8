// SPDX-License-Identifier: Apache-2.0
// Every misuse of cuDNN's recurrent networks that the fake library must find.
#include "tests/emulators/fake_cudnn/cudnn_rnn_builder.h"
#include "tests/emulators/source/misuse.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

RnnCase network() { return {.name = "", .mode = CUDNN_LSTM, .layers = 2, .dropout = 0.5f}; }

// The calls of RnnMemory, with everything at hand to break.
struct RunningRnn : RnnMemory {
  explicit RunningRnn(const RnnCase& c = network())
      : RnnMemory(c, DType::f32), on_x(x), on_y(y), on_dy(dy), on_dx(dx), on_weights(weights) {}
  size_t size_of_memory(const OnDevice& d) const { return size_t(numel(d.view.shape)); }
  void run_forward(bool training = true) {
    ok(cudnnRNNForward(dnn_handle(), rnn, training ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE, lengths, x_desc,
                       on_x.view.data, y_desc, on_y.view.data, h_desc, hx_at, nullptr, c_desc, nullptr, nullptr, weight_bytes,
                       on_weights.view.data, size_of_memory(*work) - less_work, work->view.data,
                       size_of_memory(*reserve) - less_reserve, no_reserve ? nullptr : reserve->view.data));
  }
  void run_data() {
    ok(cudnnRNNBackwardData_v8(dnn_handle(), rnn, nullptr, y_desc, on_y.view.data, on_dy.view.data, x_desc, on_dx.view.data, h_desc,
                               nullptr, nullptr, nullptr, c_desc, nullptr, nullptr, nullptr, weight_bytes, on_weights.view.data,
                               size_of_memory(*work), work->view.data, size_of_memory(*reserve), reserve->view.data));
  }
  void run_weights(cudnnWgradMode_t mode = CUDNN_WGRAD_MODE_ADD) {
    ok(cudnnRNNBackwardWeights_v8(dnn_handle(), rnn, mode, nullptr, x_desc, on_x.view.data, h_desc, nullptr, y_desc, on_y.view.data,
                                  weight_bytes, dweight_memory->view.data, size_of_memory(*work), work->view.data,
                                  size_of_memory(*reserve), reserve->view.data));
  }
  OnDevice on_x, on_y, on_dy, on_dx, on_weights;
  size_t less_work = 0, less_reserve = 0;
  bool no_reserve = false;
  const void* hx_at = nullptr;
  const int32_t* lengths = nullptr;
};

}  // namespace

TEST_CASE("cudnn: misuse of recurrent networks is found") {
  find_all({
      {"an unpacked layout without padded I/O", "needs CUDNN_RNN_PADDED_IO_ENABLED",
       [] {
         RunningRnn r;
         ok(cudnnSetRNNDescriptor_v8(r.rnn, CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS, CUDNN_UNIDIRECTIONAL,
                                     CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH, 4, 3, 3, 2,
                                     r.dropout, 0));
         r.run_forward();
       }},
      {"gradients of weights before those of data", "the gradient of the data comes first",
       [] {
         RunningRnn r;
         r.run_forward();
         r.run_weights();
       }},
      {"gradients of data twice", "has served a gradient of the data already",
       [] {
         RunningRnn r;
         r.run_forward();
         r.run_data();
         r.run_data();
       }},
      {"gradients after inference", "not what a forward in training mode left",
       [] {
         RunningRnn r;
         r.run_forward(false);
         r.run_data();
       }},
      {"the reserve space of another network", "of another network or batch",
       [] {
         RunningRnn r, other({.name = "", .mode = CUDNN_LSTM, .layers = 2, .lengths = {5, 4, 4}});
         r.run_forward();
         std::swap(r.reserve, other.reserve);
         other.run_data();
       }},
      {"training without a reserve space", "training needs a reserve space",
       [] {
         RunningRnn r;
         r.no_reserve = true;
         r.run_forward();
       }},
      {"a reserve space that is too small", "a reserve space of",
       [] {
         RunningRnn r;
         r.less_reserve = 8;
         r.run_forward();
       }},
      {"a workspace that is too small", "a workspace of",
       [] {
         RunningRnn r;
         r.less_work = 1;
         r.run_forward();
       }},
      {"a weight space that is too small", "a weight space of",
       [] {
         RunningRnn r;
         r.weight_bytes -= 4;
         r.run_forward();
       }},
      {"y changed after forward", "y is not what forward wrote",
       [] {
         RunningRnn r;
         r.run_forward();
         REQUIRE(cudaMemset(r.on_y.view.data, 0, 4) == cudaSuccess);
         r.run_data();
       }},
      {"x and y of other lengths", "the same layout and lengths",
       [] {
         RunningRnn r, other({.name = "", .mode = CUDNN_LSTM, .layers = 2, .lengths = {5, 4, 4}});
         std::swap(r.y_desc, other.y_desc);
         r.run_forward();
       }},
      {"x of another size", "the network reads 4",
       [] {
         RunningRnn r;
         r.x_desc = r.y_desc;
         r.run_forward();
       }},
      {"a state of another shape", "h is of type",
       [] {
         RunningRnn r;
         RunningRnn other({.name = "", .mode = CUDNN_LSTM});
         r.hx_at = other.on_y.view.data;
         std::swap(r.h_desc, other.h_desc);
         r.run_forward();
       }},
      {"other lengths on the device", "the lengths on the device are not those",
       [] {
         RunningRnn r;
         const OnDevice lengths(make(DType::i32, {3}, {5, 5, 4}));
         r.lengths = lengths.as<int32_t>();
         r.run_forward();
       }},
      {"states of dropout that were never set", "the states of dropout were never set",
       [] {
         RunningRnn r;
         REQUIRE(cudaMemset(r.drop_memory->view.data, 0, 64) == cudaSuccess);
         r.run_forward();
       }},
      {"gradients of weights that are set", "never set",
       [] {
         RunningRnn r;
         r.run_forward();
         r.run_data();
         r.run_weights(CUDNN_WGRAD_MODE_SET);
       }},
      {"a network that was never set", "was never set",
       [] {
         size_t bytes = 0;
         cudnnRNNDescriptor_t rnn;
         ok(cudnnCreateRNNDescriptor(&rnn));
         ok(cudnnGetRNNWeightSpaceSize(dnn_handle(), rnn, &bytes));
       }},
      {"packed sequences out of order", "in order of length",
       [] {
         RnnMemory({.name = "", .mode = CUDNN_LSTM, .layout = CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, .lengths = {3, 5, 5}},
                   DType::f32);
       }},
      {"a sequence beyond the steps", "a sequence of 6 of 5 steps",
       [] {
         RnnMemory({.name = "", .mode = CUDNN_LSTM, .lengths = {6, 5, 5}}, DType::f32);
       }},
      {"a matrix that there is not", "no matrix 6",
       [] {
         RnnMemory r({.name = "", .mode = CUDNN_GRU}, DType::f32);
         void* at = nullptr;
         ok(cudnnGetRNNWeightParams(dnn_handle(), r.rnn, 0, r.weight_bytes, nullptr, 6, r.m_desc, &at, r.b_desc, &at));
       }},
      {"weights beyond their memory", "overrun an allocation",
       [] {
         RunningRnn r;
         r.on_weights.view.data = static_cast<char*>(r.on_weights.view.data) + 4;
         r.run_forward();
       }},
  });
}

TEST_CASE("cudnn: refusals of recurrent networks") {
  cudnnRNNDescriptor_t rnn;
  ok(cudnnCreateRNNDescriptor(&rnn));
  const auto set = [&](cudnnRNNAlgo_t algo, cudnnRNNMode_t mode, cudnnDataType_t type, cudnnDataType_t math, int projected) {
    return CUDNN_STATUS_CATEGORY(cudnnSetRNNDescriptor_v8(rnn, algo, mode, CUDNN_RNN_DOUBLE_BIAS, CUDNN_UNIDIRECTIONAL,
                                                          CUDNN_LINEAR_INPUT, type, math, CUDNN_DEFAULT_MATH, 4, 8, projected, 2,
                                                          nullptr, 0));
  };
  CHECK(set(CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM, CUDNN_DATA_HALF, CUDNN_DATA_FLOAT, 4) == CUDNN_STATUS_SUCCESS);
  CHECK(set(CUDNN_RNN_ALGO_STANDARD, CUDNN_GRU, CUDNN_DATA_HALF, CUDNN_DATA_FLOAT, 4) == CUDNN_STATUS_NOT_SUPPORTED);
  CHECK(set(CUDNN_RNN_ALGO_PERSIST_STATIC, CUDNN_LSTM, CUDNN_DATA_HALF, CUDNN_DATA_FLOAT, 4) == CUDNN_STATUS_NOT_SUPPORTED);
  CHECK(set(CUDNN_RNN_ALGO_PERSIST_STATIC, CUDNN_LSTM, CUDNN_DATA_HALF, CUDNN_DATA_FLOAT, 8) == CUDNN_STATUS_SUCCESS);
  CHECK(set(CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM, CUDNN_DATA_BFLOAT16, CUDNN_DATA_HALF, 8) == CUDNN_STATUS_NOT_SUPPORTED);
  CHECK(set(CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM, CUDNN_DATA_DOUBLE, CUDNN_DATA_DOUBLE, 8) == CUDNN_STATUS_SUCCESS);
  ok(cudnnDestroyRNNDescriptor(rnn));
}
