// SPDX-License-Identifier: Apache-2.0
// The C functions by which cuDNN's recurrent networks are run: the caller's arguments are checked and copied, and the work goes to
// the stream.
#include <algorithm>

#include "tests/emulators/fake_cudnn/rnn.h"
#include "tests/emulators/source/hooks.h"

namespace emu::dnn {
namespace {

// A first or last state, [layers x directions, batch, size] without gaps.
void check_state(const char* what, cudnnTensorDescriptor_t handle, const RnnCall& call, int64_t size,
                 std::initializer_list<const void*> used) {
  if (std::all_of(used.begin(), used.end(), [](const void* p) { return !p; })) return;
  const TensorDescriptor& t = tensors.at(handle);
  const Dims wanted{call.d.pseudo_layers(), call.x.batch, size};
  if (t.dims != wanted || t.strides != row_major(wanted) || t.type != call.d.type)
    misuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "%s is of type %d %s, strides %s, not of type %d %s", what, int(t.type),
           text_of(t.dims).c_str(), text_of(t.strides).c_str(), int(call.d.type), text_of(wanted).c_str());
}

RnnCall call_of(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, const int32_t* lengths, cudnnRNNDataDescriptor_t x,
                cudnnRNNDataDescriptor_t y, size_t weight_bytes, size_t work_bytes, void* work, size_t reserve_bytes,
                void* reserve) {
  handle_of(handle);
  RnnCall call;
  call.d = networks.set_at(rnn);
  call.x = data.set_at(x);
  call.y = data.set_at(y);
  const RnnData &dx = call.x, &dy = call.y;
  if (dx.type != call.d.type || dy.type != call.d.type) misuse(CUDNN_STATUS_BAD_PARAM, "x, y and the network are of one type");
  if (dx.lengths != dy.lengths || dx.layout != dy.layout || dx.steps != dy.steps || dx.batch != dy.batch)
    misuse(CUDNN_STATUS_BAD_PARAM, "x and y have the same layout and lengths");
  if (dx.vector != call.d.input)
    misuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "x has vectors of %ld, the network reads %ld", long(dx.vector),
           long(call.d.input));
  if (dy.vector != call.d.directions * call.d.projected)
    misuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "y has vectors of %ld, the network gives %ld", long(dy.vector),
           long(call.d.directions * call.d.projected));
  if (dx.layout != CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED && !call.d.padded)
    misuse(CUDNN_STATUS_BAD_PARAM, "an unpacked layout needs CUDNN_RNN_PADDED_IO_ENABLED");
  if (const size_t needed = size_t(WeightLayout(call.d).elements * size_of(call.d.type)); weight_bytes < needed)
    misuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "a weight space of %zu bytes, not %zu", weight_bytes, needed);
  if (work_bytes < call.workspace_bytes() || !work)
    misuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "a workspace of %zu bytes, not %zu", work_bytes, call.workspace_bytes());
  if (call.training = reserve != nullptr; call.training && reserve_bytes < call.reserve_bytes())
    misuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "a reserve space of %zu bytes, not %zu", reserve_bytes, call.reserve_bytes());
  call.device_lengths = lengths;
  call.workspace = static_cast<char*>(work);
  call.reserve = static_cast<char*>(reserve);
  return call;
}

// Bytes of device memory that a call reads or writes.
class Memory {
 public:
  explicit Memory(const RnnCall& call) : call_(call) {}
  Memory& add(const char* what, const void* at, size_t bytes, bool written) {
    const Tensor t{.type = CUDNN_DATA_INT8, .dims = {int64_t(bytes)}, .strides = {1}};
    if (at) ranges_.push_back({what, static_cast<const char*>(at), t, written});
    return *this;
  }
  Memory& add_data(const char* what, const void* at, const RnnData& of, bool written) {
    if (!at) misuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "%s is null", what);
    return add(what, at, size_t(of.elements() * size_of(of.type)), written);
  }
  Memory& add_state(const char* what, const void* at, int64_t size, bool written) {
    return add(what, at, size_t(call_.d.pseudo_layers() * call_.x.batch * size * size_of(call_.d.type)), written);
  }
  Memory& add_weights(const char* what, const void* at, bool written) {
    if (!at) misuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "%s is null", what);
    return add(what, at, size_t(WeightLayout(call_.d).elements * size_of(call_.d.type)), written);
  }
  // Checks, poisons the workspace and computes when the stream comes to it.
  void submit(cudnnHandle_t handle, void (*compute)(const RnnCall&)) {
    const RnnCall& c = call_;
    add("the workspace", c.workspace, c.workspace_bytes(), true);
    if (c.training) add("the reserve space", c.reserve, c.reserve_bytes(), true);
    if (c.training && c.d.dropout.p > 0) add("the states of dropout", c.d.dropout.states, kDropoutBytes, true);
    add("the lengths of sequences", c.device_lengths, c.x.lengths.size() * sizeof(int32_t), false);
    const bool in_graph = stream_of(handle_of(handle).stream).capture != nullptr;
    const auto work = [c, ranges = ranges_, compute, in_graph] {
      if (counts_only) return;
      if (in_graph && *c.d.destroyed) fail("cuDNN: a graph runs work of a network that was destroyed");
      check_ranges(ranges);
      const OpenDeviceMemory open;
      if (c.device_lengths && std::memcmp(c.device_lengths, c.x.lengths.data(), c.x.lengths.size() * sizeof(int32_t)))
        fail("cuDNN: the lengths on the device are not those of the descriptors");
      std::memset(c.workspace, 0xFF, c.workspace_bytes());
      compute(c);
    };
    if (emu::submit(handle_of(handle).stream, {.work = work, .what = "cudnn rnn"}) != cudaSuccess)
      refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDART, "the stream did not take the work");
  }

 private:
  const RnnCall& call_;
  std::vector<Range> ranges_;
};

const char* bytes_of(const void* p) { return static_cast<const char*>(p); }
char* bytes_of(void* p) { return static_cast<char*>(p); }

}  // namespace
}  // namespace emu::dnn

using namespace emu;
using namespace emu::dnn;

extern "C" {

cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t mode, const int32_t lengths[],
                              cudnnRNNDataDescriptor_t x, const void* x_at, cudnnRNNDataDescriptor_t y, void* y_at,
                              cudnnTensorDescriptor_t h, const void* hx, void* hy, cudnnTensorDescriptor_t c, const void* cx,
                              void* cy, size_t weight_bytes, const void* weights, size_t work_bytes, void* work,
                              size_t reserve_bytes, void* reserve) {
  return guarded("cudnnRNNForward", [&] {
    const bool training = mode == CUDNN_FWD_MODE_TRAINING;
    if (training && !reserve) misuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "training needs a reserve space");
    RnnCall call = call_of(handle, rnn, lengths, x, y, weight_bytes, work_bytes, work, reserve_bytes, training ? reserve : nullptr);
    call.x_at = bytes_of(x_at);
    call.y_at = bytes_of(y_at);
    call.hx = bytes_of(hx);
    call.hy = bytes_of(hy);
    call.cx = bytes_of(cx);
    call.cy = bytes_of(cy);
    call.weights = bytes_of(weights);
    check_state("h", h, call, call.d.projected, {hx, hy});
    check_state("c", c, call, call.d.hidden, {cx, cy});
    Memory(call)
        .add_data("x", x_at, call.x, false)
        .add_data("y", y_at, call.y, true)
        .add_state("hx", hx, call.d.projected, false)
        .add_state("hy", hy, call.d.projected, true)
        .add_state("cx", cx, call.d.hidden, false)
        .add_state("cy", cy, call.d.hidden, true)
        .add_weights("the weight space", weights, false)
        .submit(handle, rnn_forward);
  });
}
cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, const int32_t lengths[],
                                      cudnnRNNDataDescriptor_t y, const void* y_at, const void* dy, cudnnRNNDataDescriptor_t x,
                                      void* dx, cudnnTensorDescriptor_t h, const void* hx, const void* dhy, void* dhx,
                                      cudnnTensorDescriptor_t c, const void* cx, const void* dcy, void* dcx, size_t weight_bytes,
                                      const void* weights, size_t work_bytes, void* work, size_t reserve_bytes, void* reserve) {
  return guarded("cudnnRNNBackwardData_v8", [&] {
    if (!reserve) misuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "gradients need the reserve space");
    RnnCall call = call_of(handle, rnn, lengths, x, y, weight_bytes, work_bytes, work, reserve_bytes, reserve);
    call.y_at = const_cast<char*>(bytes_of(y_at));
    call.dy = bytes_of(dy);
    call.dx = bytes_of(dx);
    call.hx = bytes_of(hx);
    call.dhy = bytes_of(dhy);
    call.dhx = bytes_of(dhx);
    call.cx = bytes_of(cx);
    call.dcy = bytes_of(dcy);
    call.dcx = bytes_of(dcx);
    call.weights = bytes_of(weights);
    check_state("h", h, call, call.d.projected, {hx, dhy, dhx});
    check_state("c", c, call, call.d.hidden, {cx, dcy, dcx});
    Memory(call)
        .add_data("y", y_at, call.y, false)
        .add_data("dy", dy, call.y, false)
        .add_data("dx", dx, call.x, true)
        .add_state("hx", hx, call.d.projected, false)
        .add_state("dhy", dhy, call.d.projected, false)
        .add_state("dhx", dhx, call.d.projected, true)
        .add_state("cx", cx, call.d.hidden, false)
        .add_state("dcy", dcy, call.d.hidden, false)
        .add_state("dcx", dcx, call.d.hidden, true)
        .add_weights("the weight space", weights, false)
        .submit(handle, rnn_backward_data);
  });
}
cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnWgradMode_t mode,
                                         const int32_t lengths[], cudnnRNNDataDescriptor_t x, const void* x_at,
                                         cudnnTensorDescriptor_t h, const void* hx, cudnnRNNDataDescriptor_t y, const void* y_at,
                                         size_t weight_bytes, void* dweights, size_t work_bytes, void* work, size_t reserve_bytes,
                                         void* reserve) {
  return guarded("cudnnRNNBackwardWeights_v8", [&] {
    if (mode != CUDNN_WGRAD_MODE_ADD) misuse(CUDNN_STATUS_BAD_PARAM, "gradients of weights are added, never set");
    if (!reserve) misuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "gradients need the reserve space");
    RnnCall call = call_of(handle, rnn, lengths, x, y, weight_bytes, work_bytes, work, reserve_bytes, reserve);
    call.x_at = bytes_of(x_at);
    call.y_at = const_cast<char*>(bytes_of(y_at));
    call.hx = bytes_of(hx);
    call.dweights = bytes_of(dweights);
    check_state("h", h, call, call.d.projected, {hx});
    Memory(call)
        .add_data("x", x_at, call.x, false)
        .add_data("y", y_at, call.y, false)
        .add_state("hx", hx, call.d.projected, false)
        .add_weights("the gradients of weights", dweights, true)
        .submit(handle, rnn_backward_weights);
  });
}

}  // extern "C"
