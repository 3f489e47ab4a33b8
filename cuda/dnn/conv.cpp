// SPDX-License-Identifier: Apache-2.0
#include "cuda/dnn/conv.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "cuda/dnn/library.h"
#include "cuda/kernels/pixels.h"
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

// Returns the alignment in bytes of the least aligned address, at most 16; null is aligned.
int64_t alignment(std::initializer_list<const void*> addresses) {
  int64_t least = 16;
  for (const void* p : addresses) {
    const auto address = reinterpret_cast<uintptr_t>(p);
    if (address) least = std::min(least, int64_t(address & (~address + 1)));
  }
  return least;
}

Numbers numbers(const Dims& d) { return {d.begin(), d.end()}; }

// Returns a sequence as an image of one row.
TensorView as_image(const TensorView& v) {
  const Shape &n = v.shape, &step = v.strides;
  if (n.size() != 3) return v;
  return {v.data, v.dtype, {n[0], n[1], 1, n[2]}, {step[0], step[1], step[2] * n[2], step[2]}};
}

// Returns the window of x [N, C, in...], w [O, C, size...], y [N, O, out...]. Padding after the last row equals that before the
// first, unless y has another size: padding "same" of an even window, or a transposed convolution that leaves rows of its output
// empty. Returns nothing if rows would have to be skipped.
std::optional<ConvWindow> window_of(const Window& window, const Numbers& x, const Numbers& w, const Numbers& y) {
  ConvWindow out;
  const size_t spatial = x.size() - 2, missing = spatial - size_t(window.dims);
  for (size_t d = 0; d < spatial; ++d) {
    const bool given = d >= missing;
    const int64_t padding = given ? window.padding[d - missing] : 0, stride = given ? window.stride[d - missing] : 1,
                  dilation = given ? window.dilation[d - missing] : 1;
    // least: the padding behind the last element that the last window needs; most: the largest with which no further window fits.
    const int64_t least = (y[d + 2] - 1) * stride + dilation * (w[d + 2] - 1) + 1 - x[d + 2] - padding, most = least + stride - 1;
    if (most < 0) return {};
    out.before.push_back(padding);
    out.after.push_back(std::clamp(padding, std::max<int64_t>(least, 0), most));
    out.stride.push_back(stride);
    out.dilation.push_back(dilation);
  }
  return out;
}

std::atomic<double>& least_widened() {
  static std::atomic<double> multiplications{0x1p28};
  return multiplications;
}

std::atomic<int64_t>& largest() {
  static std::atomic<int64_t> elements{std::numeric_limits<int32_t>::max()};
  return elements;
}

// Returns one of the tensors that are read.
const TensorView& read_by(const ConvCall& call) { return call.direction == Direction::forward ? call.x : call.y; }

// Returns whether copies of a 16-bit image in channels_last take less time than they can save.
bool copies_pay(const ConvCall& call) {
  return is_half(read_by(call).dtype) && call.w.numel() > 0 &&
         conv_format({call.x, call.w, call.y}) == MemoryFormat::channels_last &&
         double(call.y.numel()) * double(call.w.numel() / call.w.shape[0]) >= least_widened();
}

// Returns whether to add a fourth channel: for 16-bit images of 3 channels, as in a network's first layer. cuDNN has no fast
// engine for them that accumulates in float32, but faster ones for 4 channels: on an H100 ResNet-18's first layer took less
// time with 4 channels than with 3 or 8.
bool widens(const ConvCall& call) {
  const Shape& x = call.x.shape;
  return call.direction != Direction::data && x.size() == 4 && x[1] == 3 && call.w.shape[1] == 3 && copies_pay(call);
}

// Returns the form of blocks for 16-bit images in channels_last. For it cuDNN takes the engines of later layers, without a
// workspace; for 3 or 4 channels it pads them to 8, in a large workspace. Values that are not finite may reach the results of
// neighbouring windows too, since the blocks of a window have more pixels than it, with weight 0. A result with a bias for each of
// its few channels, of a transposed convolution, is left as it is.
std::optional<BlockForm> blocks_of(const ConvCall& call) {
  if ((call.direction == Direction::data && call.bias) || !copies_pay(call)) return {};
  return block_form(call.x.shape, call.w.shape, call.y.shape, call.window);
}

// Returns `memory` as v, [N, 3, H, W] in channels_last, with a fourth channel.
TensorView widened(const TensorView& v, void* memory) {
  const Shape shape{v.shape[0], 4, v.shape[2], v.shape[3]};
  return {memory, v.dtype, shape, strides_of(shape, MemoryFormat::channels_last)};
}

constexpr const char* kWorkNames[] = {"a convolution", "a convolution's data gradient", "a convolution's weight gradient"};

// Returns the library's form of a convolution of tensors with one format; nothing if it has no such window.
std::optional<ConvProblem> conv_problem(Direction direction, cudnnDataType_t type, const Window& window, const TensorView& x,
                                        const TensorView& w, const TensorView& y, bool channels_last) {
  ConvProblem problem{.direction = direction, .type = type};
  problem.x = numbers(x.shape);
  problem.w = numbers(w.shape);
  problem.y = numbers(y.shape);
  problem.x_strides = dense_strides(problem.x, channels_last);
  problem.w_strides = dense_strides(problem.w, channels_last);
  problem.y_strides = dense_strides(problem.y, channels_last);
  const auto sides = window_of(window, problem.x, problem.w, problem.y);
  if (!sides) return {};
  problem.window = *sides;
  problem.tensor_cores = type != CUDNN_DATA_FLOAT || (allow_tf32() && capability() >= 80);
  return problem;
}

// What tuning times beside the library's plans: the same work in another way, and the copies that the plans need before.
struct Rival {
  std::function<void()> alternative, copies;
};

bool convolve_as_given(const Queue& q, const ConvKernels& kernels, const ConvCall& call, const Rival& rival) {
  const Direction direction = call.direction;
  const TensorView given[] = {as_image(call.x), as_image(call.w), as_image(call.y)};
  const auto &x = given[0], &w = given[1], &y = given[2];
  const TensorView& first = direction == Direction::forward ? x : y;  // one of the tensors that are read
  const TensorView& second = direction == Direction::weight ? x : w;
  const TensorView& wanted = direction == Direction::forward ? y : direction == Direction::data ? x : w;
  const auto type = type_of(first.dtype);
  if (!type || second.dtype != first.dtype || x.numel() == 0 || w.numel() == 0 || y.numel() == 0) return false;
  if (std::max({x.numel(), w.numel(), y.numel()}) > largest()) return false;
  Library* const library = Library::find(q);
  if (!library) return false;

  const MemoryFormat format = conv_format({x, w, y});
  const Staged result(q, wanted, first.dtype, strides_of(wanted.shape, format), Staged::write);
  const bool adds = call.bias && direction != Direction::weight;
  const TensorView bias = adds ? call.bias : TensorView{};

  std::optional<ConvProblem> form = conv_problem(direction, *type, call.window, x, w, y, format == MemoryFormat::channels_last);
  if (!form) return false;
  ConvProblem& problem = *form;
  const auto memory = [&](const TensorView& v) { return &v == &wanted ? result.view().data : v.data; };
  const std::vector<void*> pointers{memory(x), memory(w), memory(y)};
  problem.alignment = alignment({pointers[0], pointers[1], pointers[2], bias.data});
  if (problem.alignment < int64_t(size_of(first.dtype))) return false;

  // Runs a graph. The library either adds the bias and applies ReLU in the same pass, or does neither. For ReLU alone it only has
  // engines that are compiled when needed, and none for rows.
  const auto run = [&](const TensorView& fused, bool relu) {
    problem.bias = fused ? type_of(fused.dtype) : std::nullopt;
    problem.relu = relu;
    if (fused && (!problem.bias || fused.strides[0] != 1)) return Outcome::declined;
    Work work{.name = kWorkNames[int(direction)],
              .key = problem.key(),
              .rules = {.tensor_cores = problem.tensor_cores,
                        .tensor_cores_first = problem.prefers_tensor_cores(),
                        .relu = relu,
                        .workspace = dnn_options().workspace},
              .graph = [&] { return conv_graph(problem); },
              .memory = pointers,
              .alternative = rival.alternative,
              .copies = rival.copies};
    work.key.push_back(work.rules.workspace);
    if (rival.copies) work.key.push_back(1);  // has another rival than a convolution that is given in this form
    if (fused) work.memory.push_back(fused.data);
    return library->run(q, work);
  };
  Outcome outcome = adds ? run(bias, call.relu) : Outcome::declined;
  if (outcome == Outcome::declined && (outcome = run({}, false)) == Outcome::computed) {
    if (adds) add_channel_bias(kernels, result.view(), bias, result.view());
    if (call.relu) kernels.relu(in_memory_order(result.view(), format));
  }
  if (outcome != Outcome::computed) return false;
  if (call.bias && direction == Direction::weight) channel_sums(kernels, y, call.bias);
  result.deliver();
  return true;
}

bool convolve_widened(const Queue& q, const ConvKernels& kernels, const ConvCall& call, const std::function<void()>& unfold) {
  const auto pixels = [](const TensorView& v) { return v.numel() / v.shape[1]; };
  const auto bytes = [&](const TensorView& v) { return size_t(pixels(v) * 4) * size_of(v.dtype); };
  const auto dense = [&](const TensorView& v, Staged::Use use) {
    return Staged(q, v, call.x.dtype, strides_of(v.shape, MemoryFormat::channels_last), use);
  };
  const bool forward = call.direction == Direction::forward;
  const Staged x = dense(call.x, Staged::read), w = dense(call.w, forward ? Staged::read : Staged::write);
  const Workspace x_memory(Device::cuda, bytes(x.view())), w_memory(Device::cuda, bytes(w.view()));
  ConvCall inner = call;
  inner.x = widened(x.view(), x_memory.data());
  inner.w = widened(w.view(), w_memory.data());
  widen_pixels(q.stream, x.view().data, x_memory.data(), pixels(x.view()), 3);
  if (forward) widen_pixels(q.stream, w.view().data, w_memory.data(), pixels(w.view()), 3);
  if (!convolve_as_given(q, kernels, inner, {})) return convolve_as_given(q, kernels, call, {unfold, {}});
  if (!forward) {
    narrow_pixels(q.stream, w_memory.data(), w.view().data, pixels(w.view()), 3);
    w.deliver();
  }
  return true;
}

bool convolve_blocks(const Queue& q, const ConvKernels& kernels, const ConvCall& call, const BlockForm& form,
                     const std::function<void()>& alternative) {
  // An operand, and its blocks in memory of their own.
  struct Operand {
    Staged given;
    PixelBlocks blocks;
    Workspace memory;
    TensorView view;

    Operand(const Queue& q, const TensorView& v, DType dtype, Staged::Use use, const int64_t (&size)[2], const int (&shift)[2])
        : given(q, v, dtype, strides_of(v.shape, MemoryFormat::channels_last), use),
          blocks{v.shape[0], v.shape[2], v.shape[3], v.shape[1], size[0], size[1], shift[0], shift[1]},
          memory(Device::cuda, size_t(v.shape[0] * size[0] * size[1] * BlockForm::kChannels) * size_of(dtype)) {
      const Shape shape{v.shape[0], BlockForm::kChannels, size[0], size[1]};
      view = {memory.data(), dtype, shape, strides_of(shape, MemoryFormat::channels_last)};
    }
  };
  constexpr int kNoShift[2] = {0, 0};
  const DType dtype = read_by(call).dtype;
  const bool reads_x = call.direction != Direction::data, reads_w = call.direction != Direction::weight;
  const Operand x(q, call.x, dtype, reads_x ? Staged::read : Staged::write, form.image, kNoShift),
      w(q, call.w, dtype, reads_w ? Staged::read : Staged::write, form.weight, form.shift);
  const Operand& result = reads_x ? w : x;  // unless the direction is forward
  ConvCall inner = call;
  inner.x = x.view;
  inner.w = w.view;
  inner.window = form.window;
  const auto copies = [&] {
    if (reads_x) gather_blocks(q.stream, x.given.view().data, x.memory.data(), x.blocks);
    if (reads_w) gather_blocks(q.stream, w.given.view().data, w.memory.data(), w.blocks);
  };
  copies();
  if (!convolve_as_given(q, kernels, inner, {alternative, copies})) return false;
  if (call.direction == Direction::forward) return true;
  scatter_blocks(q.stream, result.memory.data(), result.given.view().data, result.blocks);
  result.given.deliver();
  return true;
}

bool convolve_whole(const Queue& q, const ConvKernels& kernels, const ConvCall& call, const std::function<void()>& unfold) {
  const bool has_library = Library::find(q) != nullptr;
  const auto without_blocks = [&] {
    if (has_library && widens(call)) return convolve_widened(q, kernels, call, unfold);
    return convolve_as_given(q, kernels, call, {unfold, {}});
  };
  const auto form = has_library ? blocks_of(call) : std::nullopt;
  return (form && convolve_blocks(q, kernels, call, *form, [&] { without_blocks(); })) || without_blocks();
}

// Returns how many samples a part may have, so that all parts but the last have as many, and none has too many elements; 0: even
// one sample has.
int64_t samples_of_part(const ConvCall& call) {
  const int64_t samples = call.x.shape[0], most = largest() / (std::max(call.x.numel(), call.y.numel()) / samples);
  if (most == 0) return 0;
  const int64_t parts = (samples + most - 1) / most;
  return (samples + parts - 1) / parts;
}

// Returns samples [begin, begin + count) of a tensor.
TensorView samples_in(TensorView v, int64_t begin, int64_t count) {
  v.data = static_cast<char*>(v.data) + begin * v.strides[0] * int64_t(size_of(v.dtype));
  v.shape[0] = count;
  return v;
}

bool convolve_in_parts(const Queue& q, const ConvKernels& kernels, const ConvCall& call) {
  const int64_t samples = call.x.shape[0], step = samples_of_part(call);
  if (step == 0) return false;
  const bool adds = call.direction == Direction::weight;
  const size_t bytes = adds ? size_t(call.w.numel()) * sizeof(float) : 0;
  const Workspace sum_memory(Device::cuda, bytes), part_memory(Device::cuda, bytes);
  const Strides strides = strides_of(call.w.shape, conv_format({call.x, call.w, call.y}));
  const TensorView sum{sum_memory.data(), DType::f32, call.w.shape, strides},
      part{part_memory.data(), DType::f32, call.w.shape, strides};
  for (int64_t begin = 0; begin < samples; begin += step) {
    const int64_t count = std::min(step, samples - begin);
    ConvCall inner = call;
    inner.x = samples_in(call.x, begin, count);
    inner.y = samples_in(call.y, begin, count);
    if (adds) inner.w = begin == 0 ? sum : part, inner.bias = {};
    if (!convolve_whole(q, kernels, inner, {})) return false;
    if (adds && begin > 0) kernels.add(sum, part, sum);
  }
  if (!adds) return true;
  kernels.copy(sum, call.w);
  if (call.bias) channel_sums(kernels, as_image(call.y), call.bias);
  return true;
}

}  // namespace

void set_least_widened_convolution(double multiplications) { least_widened() = multiplications; }
void set_largest_convolution(int64_t elements) { largest() = elements; }

bool convolve(const Queue& q, const ConvKernels& kernels, const ConvCall& call, const std::function<void()>& unfold) {
  if (std::max(call.x.numel(), call.y.numel()) > largest()) return convolve_in_parts(q, kernels, call);
  return convolve_whole(q, kernels, call, unfold);
}

}  // namespace halfstep::cuda::dnn
