// SPDX-License-Identifier: Apache-2.0
// Backend: everything a device must be able to compute. Kernels see TensorViews on their own device and never gradients.
//
// Contract, unless a function says otherwise:
//  * outputs are allocated by the caller and overwritten (`=`, not `+=`); an elementwise output may be exactly one of the
//    inputs (same memory, dtype and geometry), otherwise outputs never alias inputs;
//  * inputs of elementwise functions have the output's shape; broadcasting is a stride of 0; any strides are legal;
//  * arithmetic is done in float for f16, bf16 and f32, in double for f64, in int64 for integers and bool; operands of
//    different dtypes may be mixed; the result is rounded once, to the output's dtype;
//  * an input of binary, binary_backward, test, bitwise and where may be a C++ number (TensorView::number), which is read before
//    the call returns. Beside floats it is converted to the type that they are computed in;
//  * zero-size tensors are legal everywhere;
//  * scalars that a step reads or writes (scale, found_inf, step counts) are pointers to device memory: no host reads;
//  * the same calls give the same bits in every run; apart from matrix products, whose library may split long sums over
//    threads, also with any number of threads;
//  * any threads may call at once: a device runs their calls one after another, or in parallel if they share no memory. Calls of
//    one thread are done in their order. The backend does not synchronise memory between threads;
//  * a call may return before its work is done. The memory of its views and pointers must be freed only through the
//    device's allocator, which keeps memory until the work queued on it has passed; the views themselves, spans and structs of
//    arguments are read before the call returns. Between begin_recording and end_recording only one thread may use the device.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/backend/layer_args.h"
#include "framework/base/device.h"
#include "framework/base/generator.h"
#include "framework/math/op_kinds.h"
#include "framework/math/training.h"
#include "framework/tensor/view.h"

namespace halfstep {

struct UpdateRule;  // framework/math/update_rules.h

enum class Reduce : uint8_t { sum, mean, prod, max, min, any, all, sum_abs, sum_squares };
enum class Reduction : uint8_t { none, mean, sum };  // of a loss

enum class Activation : uint8_t { none, relu, gelu };  // gelu: the tanh form

// c = act( op(a) op(b) + bias ) (+ c when accumulate). a: [B?, M, K], b: [B?, K, N], c: [B?, M, N].
// a and b each have unit stride in one of their last two dimensions (a transposed matrix is a stride, not a copy);
// c is contiguous. A batch stride may be 0. Accumulation in f32 (f64 for f64, int64 for integers).
struct GemmArgs {
  TensorView a, b, c;         // a and b of one dtype; c of the same, or f32
  TensorView bias{};          // [N] or empty; of c's, a's or f32 dtype
  Activation activation = Activation::none;
  bool accumulate = false;    // needs c f32 or f64, no activation
  // For matrices (no batch) of floating dtype. `aux` is the tensor that the derivative of `activation` needs, laid out as
  // Backend::activation_aux says. Forward: written beside c where given. With `derivative`: read, there is no bias, and
  // c = act'(aux) * (op(a) op(b)), the gradient that a layer passes to the one whose activation it was.
  TensorView aux{};
  bool derivative = false;
  TensorView column_sum{};    // [N] or empty; written: the sums of c's columns (of the next bias's gradient). c's dtype or f32
  TensorView a_row_sum{};     // [M] or empty; written: the sums of op(a)'s rows (of this bias's gradient). c's dtype or f32
  TensorView b_column_sum{};  // [N] or empty; written: the sums of op(b)'s columns, likewise. Not with the others
  // b as Backend::pack laid it out; then b is not read, and there is no batch. Unless it is `shared`, the calling thread does the
  // product, whose c is f32 and which has no activation. Shared, it is as any other, of a dtype of gains_by_packing().
  TensorView packed{};
  bool shared = false;
};

// How `aux` looks. An empty shape: the forward needs none, and the backward takes the output c in its place.
struct AuxLayout {
  Shape shape;
  DType dtype = DType::u8;
};

struct CrossEntropyArgs {
  TensorView logits;          // [N, C], any floating dtype, any strides
  TensorView target{};        // [N] i64
  TensorView weight{};        // [C] or empty; f32 (f64 for f64 logits)
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  Reduction reduction = Reduction::mean;
};

// Asks mse for the gradient of `a` as well, as mse_backward writes it for this gradient of the loss.
struct MseGradient {
  TensorView grad{};  // []
  TensorView out{};   // [like a] contiguous; empty: not wanted
};

// How an optimizer kernel treats a step. The pointers are device memory and may be null.
struct StepControl {
  float* found_inf = nullptr;         // nonzero: leave every byte of parameters and state as it is
  const float* grad_scale = nullptr;  // gradients are multiplied by float(1 / double(*grad_scale))
  bool write_back = true;             // store the unscaled gradients
  const double* lr = nullptr;         // replaces the rule's learning rate
  const double* momentum = nullptr;   // replaces its momentum or beta1, if it has one
  bool check = false;                 // found_inf is written first: 1 when a gradient of the list is not finite, else 0
  math::StepTail tail{};              // done after the updates
};

// One parameter in a fused optimizer pass. Contiguous, same shape; states that the rule does not keep, and `shadow`, are empty.
struct ParamUpdate {
  static constexpr size_t kStates = 3;  // most that a rule keeps
  TensorView param;   // f32, f64, f16 or bf16 master
  TensorView grad;    // any floating dtype
  std::array<TensorView, kStates> state;  // f32 (f64 for f64 parameters), in the rule's order
  TensorView shadow;  // f16 or bf16 copy, written with the parameter
  float* step;        // applied steps so far; the kernel adds 1 when it applies the step. Null for rules that do not count
  float* number = nullptr;  // of rules that keep one for a whole parameter, or are given one; else null
};

// Work that was recorded once and can be done again, with the values its memory then has.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay() = 0;
  // From the next replay on, what was recorded as reading the memory of inputs[i] (begin_recording) reads `data` instead: memory
  // as large and laid out alike, which must live until the replays that read it have passed. False, and nothing changes, where
  // not all readers can be redirected (products of a library), or where `data` is not aligned as inputs[i] is, to 16 bytes.
  virtual bool read_input(size_t i, const void* data) = 0;
};

// Copies from the host beside the device's work: through page-locked buffers, on a stream of their own. Any threads may call it.
class UploadLane {
 public:
  virtual ~UploadLane() = default;
  // Queues a copy of `bytes` to `dst`, device memory that nothing queued from here on uses before receive(). `src` may be freed
  // when it returns. Waits while all buffers are in use. Returns the number of the copy.
  virtual uint64_t send(const void* src, void* dst, size_t bytes) = 0;
  // Once for each copy: work that is queued from here on comes after it. Call it even if `dst` is freed without being read.
  virtual void receive(uint64_t copy) = 0;
};

// A kernel, a copy or a fill that a device ran: nanoseconds of std::chrono::steady_clock.
struct DeviceWork {
  std::string name;
  int span = -1;  // the innermost that was entered when it was launched; -1: none, or another thread launched it
  uint32_t stream = 0;
  int64_t begin = 0, end = 0;
};

// Marks in the work that this thread queues on a device, and the times at which the device reached them.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  virtual void mark() = 0;
  virtual std::vector<double> seconds() = 0;  // of each mark, since the first. Waits for the device

  // The work that this thread launches between enter() and leave() is of `span`. work() waits for the device.
  virtual void enter(int span) noexcept = 0;
  virtual void leave() noexcept = 0;
  virtual std::vector<DeviceWork> work() = 0;      // all since the stopwatch was opened, or since the last call; by time
  virtual const std::string& no_work() const = 0;  // why work() is empty, whatever the device does; empty: it is not
};

// How a kernel takes a tensor: a reference to its view, of a type that says whether the memory is read or written. What a kernel
// reads and writes follows from the types (framework/backend/meta.cpp), and no type turns into another by mistake.
enum class Access : uint8_t { read, write, read_write };
inline const TensorView kNoView{};
template <Access access>
class ViewArgument {
 public:
  ViewArgument() : view_(kNoView) {}
  ViewArgument(const TensorView& view) : view_(view) {}
  operator const TensorView&() const { return view_; }

 private:
  const TensorView& view_;
};
using InView = ViewArgument<Access::read>;
using OutView = ViewArgument<Access::write>;  // overwritten
using InOutView = ViewArgument<Access::read_write>;
// A list of tensors: changed in place, or overwritten. A plain span is read.
struct InOutViews : std::span<const TensorView> {
  InOutViews(std::span<const TensorView> views) : std::span<const TensorView>(views) {}
  InOutViews(const std::vector<TensorView>& views) : std::span<const TensorView>(views) {}
};
struct OutViews : std::span<const TensorView> {
  OutViews(std::span<const TensorView> views) : std::span<const TensorView>(views) {}
  OutViews(const std::vector<TensorView>& views) : std::span<const TensorView>(views) {}
};

// The type of the function that implements a kernel: as the row of kernels.def says, with plain views.
template <class T>
struct PlainParameter {
  using type = T;
};
template <Access access>
struct PlainParameter<ViewArgument<access>> {
  using type = const TensorView&;
};
template <>
struct PlainParameter<InOutViews> {
  using type = std::span<const TensorView>;
};
template <>
struct PlainParameter<OutViews> {
  using type = std::span<const TensorView>;
};
template <class Function>
struct PlainFunction;
template <class... Parameters>
struct PlainFunction<void(Parameters...)> {
  using type = void(typename PlainParameter<Parameters>::type...);
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device::Type device_type() const = 0;
  virtual std::string describe() const = 0;  // one line for `halfstep devices`
  virtual void synchronize() = 0;            // waits until all work is done

#define HS_KERNEL(name, parameters, arguments) virtual void name parameters = 0;
#include "framework/backend/kernels.def"

  // ---- memory of the host. `src` may go when copy_from_host returns; copy_to_host returns when the bytes are there.
  virtual void copy_from_host(const void* src, void* dst, size_t bytes) = 0;
  virtual void copy_to_host(const void* src, void* dst, size_t bytes) = 0;
  virtual std::unique_ptr<UploadLane> open_upload_lane() { return nullptr; }  // null: copy_from_host is all there is
  virtual std::unique_ptr<Stopwatch> open_stopwatch() { return nullptr; }      // null: a call returns when its work is done
  // How often the host has waited for values of the device, ever: copies to the host and calls of synchronize.
  virtual uint64_t host_reads() const = 0;

  // The aux of a product of `rows` x `columns` in `dtype`, for activations other than none.
  // Unless a device says otherwise: of GELU its input, of ReLU nothing.
  virtual AuxLayout activation_aux(Activation activation, int64_t rows, int64_t columns, DType dtype) const;

  // ---- many products with one matrix b [k, n], which is laid out for them once. The memory that pack() fills; an empty shape
  // where products gain nothing by it.
  virtual AuxLayout packed_layout(int64_t k, int64_t n, DType dtype) const;
  virtual void pack(InView b, OutView packed);
  // Is a product of so many rows, which the present number of threads share, faster with b packed?
  virtual bool gains_by_packing(int64_t rows, int64_t k, int64_t n, DType dtype) const;

  // ---- many forward convolutions with one weight, which is laid out for them once. laid_weight_layout: the memory that
  // lay_weight() fills for images of these sizes and the present number of threads; 0 bytes where they gain nothing by it.
  // lay_weight reads the weight as contiguous memory. conv_laid: as conv(), with the filled memory in place of the weight, which is
  // not read; its last bits may differ from conv()'s.
  virtual ConvWeightLayout laid_weight_layout(const ConvArgs& args) const;
  virtual void lay_weight(const ConvArgs& args, InView weight, OutView laid);
  virtual void conv_laid(const ConvArgs& args, InView laid);

  // ---- independent calls: task(i) for i in [0, n), perhaps in parallel, on threads of the host. A device that queues its
  // work does them one after another.
  virtual void side_by_side(int64_t n, const std::function<void(int64_t)>& task);
  // Number of chunks to split `rows` rows into for that, where each multiplies by a packed matrix and `multiplications` is the cost
  // of a row. 0: the products are faster with the matrix as it is, shared by all threads.
  virtual int64_t sides(int64_t rows, int64_t multiplications, DType dtype) const;

  // ---- checks of values. The position of the first target outside [0, classes) that is not ignore_index, of the first index
  // outside [0, size), or -1. CUDA: checked on the device without a wait, so -1; the IndexError comes with the next value read by
  // the host.
  virtual int64_t check_targets(const TensorView& target, int64_t classes, int64_t ignore_index) = 0;
  virtual int64_t check_indices(const TensorView& index, int64_t size) = 0;

  // ---- recording: between begin and end, calls of this thread are kept instead of done. Reading values to the host, copying
  // from it and drawing from another generator than `generator` throw RecordingError; memory is taken from a pool that the
  // recording owns. A replay draws the numbers that the generator would give now, and moves it on. `inputs`: memory that replays
  // may read elsewhere (Recording::read_input); it must outlive the recording.
  virtual bool can_record() const { return false; }
  virtual void begin_recording(Generator& generator, std::span<const TensorView> inputs = {});
  virtual std::unique_ptr<Recording> end_recording();
  virtual void abandon_recording() noexcept {}  // after an exception between begin and end
};

// Throws DeviceError with the reason when the device is not built in or not present.
Backend& backend_for(Device device);
void register_backend(std::unique_ptr<Backend> backend);
bool has_backend(Device::Type type);

// Intra-op threads of the CPU backend; default: all cores. 0 restores the default.
void set_num_threads(int n);
int num_threads();
// How products and convolutions are cut into pieces for the CPU's threads: by their shapes alone, so that one seed gives the same
// bits on any number of threads, or for the present number of threads, which is faster on one. All other work of the CPU is always
// cut by shapes alone. Another value may also be set between two steps.
void set_threads_independent(bool on);
bool threads_independent();
// f32 products on CUDA through TF32: inputs rounded to 10 fraction bits, several times the speed. Off by default, as
// torch.backends.cuda.matmul.allow_tf32.
void set_allow_tf32(bool on);
bool allow_tf32();

}  // namespace halfstep
