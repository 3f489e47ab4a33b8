// SPDX-License-Identifier: Apache-2.0
// Backend: the interface to a device. Kernels see TensorViews on their own device and never gradients.
//
// Contract, unless a function says otherwise:
//  * outputs are allocated by the caller and overwritten (`=`, not `+=`); an elementwise output may be exactly one of the
//    inputs (same memory, dtype and geometry), otherwise outputs never alias inputs;
//  * inputs of elementwise functions have the output's shape; broadcasting is a stride of 0; any strides are legal;
//  * arithmetic is done in float for f16, bf16 and f32, in double for f64, in int64 for integers and bool; operands may have
//    different dtypes; the result is rounded once, to the output's dtype;
//  * an input of binary, binary_backward, test, bitwise and where may be a C++ number (TensorView::number), which is read before
//    the call returns. With floating operands it is converted to the type in which they are computed;
//  * zero-size tensors are legal everywhere;
//  * scalars that a step reads or writes (scale, found_inf, step counts) are pointers to device memory: no host reads;
//  * the same calls give the same bits in every run, and with any number of threads, except for matrix products, whose library
//    may split long sums over threads;
//  * several threads may call at once: a device runs their calls one after another, or in parallel if they share no memory. Calls
//    of one thread run in their order. The backend does not synchronise memory between threads;
//  * a call may return before its work is done. The memory of its views and pointers must be freed only through the
//    device's allocator, which keeps memory until the work queued on it has finished; the views themselves, spans and structs of
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

// c = act( op(a) op(b) + bias ) (+ c if accumulate). a: [B?, M, K], b: [B?, K, N], c: [B?, M, N]. a and b each have unit stride in
// one of their last two dimensions (a transposed matrix is a stride, not a copy); c is contiguous, or a matrix without activation
// whose rows lie as far apart as Backend::product_row says. A batch stride may be 0. Sums are in f32 (f64 for f64, int64 for
// integers).
struct GemmArgs {
  TensorView a, b, c;         // a and b of one dtype; c of the same, or f32
  TensorView bias{};          // [N] or empty; of c's, a's or f32 dtype
  Activation activation = Activation::none;
  bool accumulate = false;    // needs c f32 or f64, no activation
  // `aux` holds the tensor that the derivative of `activation` needs, in the layout Backend::activation_aux. For matrices (no
  // batch) of floating dtype. Forward: if given, it is written beside c. With `derivative` it is read, there is no bias, and c =
  // act'(aux) * (op(a) op(b)): the gradient with respect to the input of the layer's activation.
  TensorView aux{};
  bool derivative = false;
  TensorView column_sum{};    // [N] or empty; receives the sums of c's columns (gradient of the next bias). c's dtype or f32
  TensorView a_row_sum{};     // [M] or empty; receives the sums of op(a)'s rows (gradient of this bias). c's dtype or f32
  TensorView b_column_sum{};  // [N] or empty; receives the sums of op(b)'s columns. Not with the others
  // b in the layout of Backend::pack; then b itself is not read, and there is no batch. Unless `shared`, the calling thread
  // computes the product alone, c is f32, and there is no activation. If shared, it is like any other product, and its dtype must
  // satisfy gains_by_packing().
  TensorView packed{};
  bool shared = false;
};

// Shape and dtype of `aux`. An empty shape: the forward writes none, and the backward uses the output c instead.
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

// Requests the gradient of a loss's first operand as well, as the loss's backward would compute it for this gradient of the loss.
struct LossGradient {
  TensorView grad{};  // []
  TensorView out{};   // [like the operand] contiguous, of cross entropy with rows at any distance; empty: not requested
};

// Options of an optimizer step. The pointers are to device memory and may be null.
struct StepControl {
  float* found_inf = nullptr;         // nonzero: parameters and state stay unchanged
  const float* grad_scale = nullptr;  // gradients are divided by it (math::gradient_factor)
  bool write_back = true;             // store the gradients multiplied by the factor
  const double* lr = nullptr;         // replaces the rule's learning rate
  const double* momentum = nullptr;   // replaces its momentum or beta1, if it has one
  bool test_gradients = false;        // sets found_inf first: 1 if a gradient in the list is not finite, else 0
  const float* grad_norm = nullptr;   // of all unscaled gradients; the factor also clips it to max_norm
  double max_norm = 0;
  math::StepTail tail{};              // runs after the updates
};

// One parameter in a fused optimizer pass. All tensors are contiguous and of one shape; unused states and `shadow` are empty.
struct ParamUpdate {
  static constexpr size_t kStates = 3;  // largest number of states of a rule
  TensorView param;   // f32, f64, f16 or bf16 master
  TensorView grad;    // any floating dtype
  std::array<TensorView, kStates> state;  // f32 (f64 for f64 parameters), in the rule's order
  TensorView shadow;  // f16 or bf16 copy, written with the parameter
  float* step;        // number of applied steps; the kernel adds 1 when it applies the step. Null for rules that do not count
  float* number = nullptr;  // a number for the whole parameter, kept by the rule or given to it; else null
};

// Recorded work that can be replayed on the current contents of its memory.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay() = 0;
  // Redirects reads of the memory of inputs[i] (begin_recording) to `data` from the next replay on. `data` must have the same size
  // and layout, and must live until the replays that read it are done. Returns false and changes nothing if some reader cannot be
  // redirected (products of a library), or if `data` is not aligned to 16 bytes like inputs[i].
  virtual bool read_input(size_t i, const void* data) = 0;
};

// Copies from the host while the device computes: through page-locked buffers, on a separate stream. Thread-safe.
class UploadLane {
 public:
  virtual ~UploadLane() = default;
  // Queues a copy of `bytes` to `dst`, device memory that no work queued before receive() may use. `src` may be freed after the
  // return. Waits while all buffers are in use. Returns the number of the copy.
  virtual uint64_t send(const void* src, void* dst, size_t bytes) = 0;
  // Orders work that is queued later after the copy. Call it once for each copy, even if `dst` is freed unread.
  virtual void receive(uint64_t copy) = 0;
};

// A kernel, copy or fill that a device ran; times are nanoseconds of std::chrono::steady_clock.
struct DeviceWork {
  std::string name;
  int span = -1;  // innermost span entered when it was launched; -1: none, or launched by another thread
  uint32_t stream = 0;
  int64_t begin = 0, end = 0;
};

// Puts marks into the work that this thread queues on a device, and returns the times at which the device reached them.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  virtual void mark() = 0;
  virtual std::vector<double> seconds() = 0;  // of each mark, since the first; waits for the device

  // Assign the work that this thread launches between enter() and leave() to `span`. work() waits for the device.
  virtual void enter(int span) noexcept = 0;
  virtual void leave() noexcept = 0;
  virtual std::vector<DeviceWork> work() = 0;      // all since the stopwatch was opened, or since the last call; by time
  virtual const std::string& no_work() const = 0;  // reason why work() is always empty; empty: it is not
};

// A kernel's tensor parameter: a reference to a view, whose type says whether the memory is read or written. So the types show
// what a kernel reads and writes (framework/backend/meta.cpp), and none converts to another by mistake.
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
// Lists of tensors that are changed in place, or overwritten. A plain span is read.
struct InOutViews : std::span<const TensorView> {
  InOutViews(std::span<const TensorView> views) : std::span<const TensorView>(views) {}
  InOutViews(const std::vector<TensorView>& views) : std::span<const TensorView>(views) {}
};
struct OutViews : std::span<const TensorView> {
  OutViews(std::span<const TensorView> views) : std::span<const TensorView>(views) {}
  OutViews(const std::vector<TensorView>& views) : std::span<const TensorView>(views) {}
};

// Maps the parameter types of a row of kernels.def to those of its implementation, which takes plain views.
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

  // ---- copies from and to the host. copy_from_host has read `src` when it returns; copy_to_host has written `dst`.
  virtual void copy_from_host(const void* src, void* dst, size_t bytes) = 0;
  virtual void copy_to_host(const void* src, void* dst, size_t bytes) = 0;
  virtual std::unique_ptr<UploadLane> open_upload_lane() { return nullptr; }  // null: only copy_from_host
  virtual std::unique_ptr<Stopwatch> open_stopwatch() { return nullptr; }      // null: calls return when their work is done
  // Returns how often the host has waited for values of the device: copies to the host and calls of synchronize.
  virtual uint64_t host_reads() const = 0;

  // Returns the aux of a product of `rows` x `columns` in `dtype`, for activations other than none. By default: the input for
  // GELU, nothing for ReLU.
  virtual AuxLayout activation_aux(Activation activation, int64_t rows, int64_t columns, DType dtype) const;

  // Returns how long the rows of a product's result [m, n] in `dtype`, with sums of k, should be in memory for the products that
  // compute and read it: at least n, by default n.
  virtual int64_t product_row(int64_t m, int64_t n, int64_t k, DType dtype) const;

  // Returns whether the kernel that writes a gradient in `dtype` should add up its columns for a bias, and not the product that
  // reads it (framework/autograd/column_sums.h). By default false.
  virtual bool adds_up_columns(DType dtype) const;

  // ---- many products with one matrix b [k, n], packed for them once. Returns the memory that pack() fills; an empty shape if
  // products do not gain by it.
  virtual AuxLayout packed_layout(int64_t k, int64_t n, DType dtype) const;
  virtual void pack(InView b, OutView packed);
  // Returns whether a product of `rows` rows, shared by the current number of threads, is faster with b packed.
  virtual bool gains_by_packing(int64_t rows, int64_t k, int64_t n, DType dtype) const;

  // ---- many forward convolutions with one weight, laid out for them once. laid_weight_layout returns the memory that
  // lay_weight() fills for images of these sizes and the current number of threads; 0 bytes if the calls do not gain by it.
  // lay_weight reads the weight as contiguous memory. conv_laid works like conv() but reads that memory instead of the weight; its
  // last bits may differ.
  virtual ConvWeightLayout laid_weight_layout(const ConvArgs& args) const;
  virtual void lay_weight(const ConvArgs& args, InView weight, OutView laid);
  virtual void conv_laid(const ConvArgs& args, InView laid);

  // ---- independent calls: runs task(i) for i in [0, n), perhaps in parallel on threads of the host. A device that queues its
  // work runs them one after another.
  virtual void run_side_by_side(int64_t n, const std::function<void(int64_t)>& task);
  // Returns into how many chunks run_side_by_side should split `rows` rows, if each multiplies by a packed matrix and a row costs
  // `multiplications`. 0: products are faster with the unpacked matrix, shared by all threads.
  virtual int64_t parallel_chunks(int64_t rows, int64_t multiplications, DType dtype) const;

  // ---- checks of values. Return the position of the first target outside [0, classes) that is not ignore_index, or of the first
  // index outside [0, size), or -1. CUDA checks on the device without waiting and returns -1; the IndexError comes with the next
  // value that the host reads.
  virtual int64_t check_targets(const TensorView& target, int64_t classes, int64_t ignore_index) = 0;
  virtual int64_t check_indices(const TensorView& index, int64_t size) = 0;

  // ---- recording: between begin and end, this thread's calls are recorded instead of run. Reading values to the host, copying
  // from it, and drawing from a generator other than `generator` throw RecordingError; memory comes from a pool of the recording.
  // A replay draws the numbers that the generator would give now, and advances it. `inputs`: memory that replays may read
  // elsewhere (Recording::read_input); it must outlive the recording.
  virtual bool can_record() const { return false; }
  virtual void begin_recording(Generator& generator, std::span<const TensorView> inputs = {});
  virtual std::unique_ptr<Recording> end_recording();
  virtual void abandon_recording() noexcept {}  // after an exception between begin and end
};

// Returns the device's backend, and starts it at the first call. Throws DeviceError with the reason if the device is not built in
// or not present. Gives an observer's backend to a thread that observes the device's kernels (observe.h).
Backend& backend_for(Device device);
// Adds the backend of a device, or replaces and destroys the one it had.
void register_backend(std::unique_ptr<Backend> backend);
// Returns whether backend_for() succeeds for device 0 of this type; starts it, too.
bool has_backend(Device::Type type);

// Sets the number of threads of the CPU backend; 0: all cores, the default.
void set_num_threads(int count);
int num_threads();
// Chooses how products and convolutions are split for the CPU's threads: by their shapes alone, so that one seed gives the same
// bits on any number of threads; or for the current number of threads, which is faster on one. All other CPU work is always split
// by shapes alone. It may change between two steps.
void set_threads_independent(bool on);
bool threads_independent();
// Allows TF32 for f32 products on CUDA: inputs are rounded to 10 fraction bits, at several times the speed. Off by default, like
// torch.backends.cuda.matmul.allow_tf32.
void set_allow_tf32(bool on);
bool allow_tf32();

}  // namespace halfstep
