#include "cuda/dnn/conv.h"

#include <algorithm>

#include "cuda/dnn/library.h"
#include "cuda/runtime.h"
#include "cuda/staged.h"
#include "framework/backend/dnn.h"

namespace halfstep::cuda::dnn {
namespace {

std::optional<cudnnDataType_t> type_of(DType t) {
  switch (t) {
    case DType::f16: return CUDNN_DATA_HALF;
    case DType::bf16: return CUDNN_DATA_BFLOAT16;
    case DType::f32: return CUDNN_DATA_FLOAT;
    default: return {};
  }
}

int64_t alignment(std::initializer_list<const TensorView*> views) {
  int64_t least = 16;
  for (const TensorView* v : views) {
    const auto address = reinterpret_cast<uintptr_t>(v->data);
    if (address) least = std::min(least, int64_t(address & (~address + 1)));
  }
  return least;
}

Numbers numbers(const Dims& d) { return {d.begin(), d.end()}; }

// A sequence is an image of one row.
Numbers with_rows(Numbers dims) {
  if (dims.size() == 3) dims.insert(dims.begin() + 2, 1);
  return dims;
}

Strides as_strides(const Numbers& dims, bool channels_last) {
  Strides out;
  for (int64_t s : dense_strides(dims, channels_last)) out.push_back(s);
  return out;
}

bool only_channels_last(const TensorView& v) {
  return same_layout(v.shape, v.strides, as_strides(numbers(v.shape), true)) && !v.is_contiguous();
}

// x [N, C, in...], w [O, C, size...], y [N, O, out...]. Padding is as wide after the last row as before the first, unless y has
// another size than that gives: padding "same" of an even window, a transposed convolution that leaves rows of its output empty.
// Nothing, where rows would have to be left out.
std::optional<ConvWindow> window_of(const Window& window, const Numbers& x, const Numbers& w, const Numbers& y) {
  ConvWindow out;
  const size_t spatial = x.size() - 2, missing = spatial - size_t(window.dims);
  for (size_t d = 0; d < spatial; ++d) {
    const bool given = d >= missing;
    const int64_t padding = given ? window.padding[d - missing] : 0, stride = given ? window.stride[d - missing] : 1,
                  dilation = given ? window.dilation[d - missing] : 1;
    const int64_t least = (y[d + 2] - 1) * stride + dilation * (w[d + 2] - 1) + 1 - x[d + 2] - padding, most = least + stride - 1;
    if (most < 0) return {};
    out.before.push_back(padding);
    out.after.push_back(std::clamp(padding, std::max<int64_t>(least, 0), most));
    out.stride.push_back(stride);
    out.dilation.push_back(dilation);
  }
  return out;
}

// A dense tensor as rows of channels (channels last) or planes of them, and a bias beside it.
void add_bias(const Queue& q, const TensorView& to, const TensorView& bias, bool channels_last) {
  const int64_t images = to.shape[0], channels = to.shape[1], pixels = to.numel() / (images * channels);
  TensorView all{to.data, to.dtype, {images, channels, pixels}, {channels * pixels, pixels, 1}}, b = bias;
  if (channels_last) all = {to.data, to.dtype, {images, pixels, channels}, {channels * pixels, channels, 1}};
  b.shape = all.shape;
  b.strides = channels_last ? Strides{0, 0, bias.strides[0]} : Strides{0, bias.strides[0], 0};
  cuda::binary(q, Binary::add, all, b, all);
}

void sum_channels(const Queue& q, const TensorView& x, const TensorView& out, bool channels_last) {
  const int64_t images = x.shape[0], channels = x.shape[1], pixels = x.numel() / (images * channels), step = out.strides[0];
  if (channels_last)
    cuda::reduce(q, Reduce::sum, {x.data, x.dtype, {images * pixels, channels}, {channels, 1}},
                 {out.data, out.dtype, {1, channels}, {channels * step, step}});
  else
    cuda::reduce(q, Reduce::sum, {x.data, x.dtype, {images, channels, pixels}, {channels * pixels, pixels, 1}},
                 {out.data, out.dtype, {1, channels, 1}, {channels * step, step, 1}});
}

constexpr const char* kNames[] = {"a convolution", "a convolution's data gradient", "a convolution's weight gradient"};

}  // namespace

bool convolve(const Queue& q, const ConvCall& call, const std::function<void()>& otherwise) {
  const Direction direction = call.direction;
  const TensorView& first = direction == Direction::forward ? call.x : call.y;  // one of those that are read
  const TensorView& second = direction == Direction::weight ? call.x : call.w;
  const auto type = type_of(first.dtype);
  if (!type || second.dtype != first.dtype || call.x.numel() == 0 || call.w.numel() == 0 || call.y.numel() == 0) return false;
  Library* const library = Library::find(q);
  if (!library) return false;

  // All in one layout: the engines have no other. As in PyTorch, one tensor with the channels last says which.
  const bool last = only_channels_last(call.x) || only_channels_last(call.w) || only_channels_last(call.y);
  const auto staged = [&](const TensorView& v, Direction written_by) {
    return Staged(q, v, first.dtype, as_strides(numbers(v.shape), last), direction == written_by ? Staged::write : Staged::read);
  };
  const Staged x = staged(call.x, Direction::data), w = staged(call.w, Direction::weight), y = staged(call.y, Direction::forward);
  const bool adds = call.bias && direction != Direction::weight;
  const TensorView bias = adds ? call.bias : TensorView{};

  ConvProblem problem{.direction = direction, .type = *type};
  problem.x = with_rows(numbers(call.x.shape));
  problem.w = with_rows(numbers(call.w.shape));
  problem.y = with_rows(numbers(call.y.shape));
  problem.x_strides = dense_strides(problem.x, last);
  problem.w_strides = dense_strides(problem.w, last);
  problem.y_strides = dense_strides(problem.y, last);
  const auto sides = window_of(call.window, problem.x, problem.w, problem.y);
  if (!sides) return false;
  problem.window = *sides;
  problem.tensor_cores = first.dtype != DType::f32 || (allow_tf32() && capability() >= 80);
  problem.alignment = alignment({&x.view(), &w.view(), &y.view(), &bias});
  if (problem.alignment < int64_t(size_of(first.dtype))) return false;

  const auto run = [&](const TensorView& fused) {
    problem.bias = fused ? type_of(fused.dtype) : std::nullopt;
    if (fused && (!problem.bias || fused.strides[0] != 1)) return Done::declined;
    Work work{.name = kNames[int(direction)],
              .key = problem.key(),
              .rules = {.tensor_cores = problem.tensor_cores, .workspace = dnn_options().workspace},
              .graph = [&] { return conv_graph(problem); },
              .memory = {x.view().data, w.view().data, y.view().data},
              .otherwise = otherwise};
    work.key.push_back(work.rules.workspace);
    if (fused) work.memory.push_back(fused.data);
    return library->run(q, work);
  };
  const Staged& result = direction == Direction::forward ? y : direction == Direction::data ? x : w;
  Done done = adds ? run(bias) : Done::declined;
  if (done == Done::declined && (done = run({})) == Done::yes && adds) add_bias(q, result.view(), bias, last);
  if (done != Done::yes) return false;
  if (call.bias && direction == Direction::weight) sum_channels(q, y.view(), call.bias, last);
  result.deliver();
  return true;
}

}  // namespace halfstep::cuda::dnn
