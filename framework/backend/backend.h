// Backend: everything a device must be able to compute. Kernels see TensorViews on their own device and never gradients.
//
// Contract, unless a function says otherwise:
//  * outputs are allocated by the caller and overwritten (`=`, not `+=`); an elementwise output may be exactly one of the
//    inputs (same memory, dtype and geometry), otherwise outputs never alias inputs;
//  * inputs of elementwise functions have the output's shape; broadcasting is a stride of 0; any strides are legal;
//  * arithmetic is done in float for f16, bf16 and f32, in double for f64, in int64 for integers and bool; operands of
//    different dtypes may be mixed; the result is rounded once, to the output's dtype;
//  * zero-size tensors are legal everywhere;
//  * scalars that a step reads or writes (scale, found_inf, step counts) are pointers to device memory: no host reads;
//  * the same calls give the same bits in every run; apart from matrix products, whose library may split long sums over
//    threads, also with any number of threads.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "framework/base/device.h"
#include "framework/base/generator.h"
#include "framework/math/functors.h"
#include "framework/math/training.h"
#include "framework/tensor/view.h"

namespace halfstep {

enum class Reduce : uint8_t { sum, mean, prod, max, min, any, all };
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
  // For matrices (no batch) of floating dtype. `aux` is what the derivative of `activation` needs, laid out as
  // Backend::activation_aux says. Forward: written beside c where given. With `derivative`: read, there is no bias, and
  // c = act'(aux) * (op(a) op(b)), what a layer hands down to the one whose activation it was.
  TensorView aux{};
  bool derivative = false;
  TensorView column_sum{};    // [N] or empty; written: the sums of c's columns (of the next bias's gradient). c's dtype or f32
  TensorView a_row_sum{};     // [M] or empty; written: the sums of op(a)'s rows (of this bias's gradient). c's dtype or f32
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

// How an optimizer kernel treats a step. Both pointers are device memory and may be null.
struct StepControl {
  const float* found_inf = nullptr;   // nonzero: leave every byte of parameters and state as it is
  const float* grad_scale = nullptr;  // gradients are multiplied by float(1 / double(*grad_scale))
  bool write_back = true;             // store the unscaled gradients
  const double* lr = nullptr;         // device memory; replaces the arguments' learning rate
};

// One parameter in a fused optimizer pass. Contiguous, same shape; `m`, `v`, `vmax`, `shadow` may be empty.
struct ParamUpdate {
  TensorView param;    // f32, f64, f16 or bf16 master
  TensorView grad;     // any floating dtype
  TensorView m, v, vmax;  // moments, f32 (f64 for f64 parameters)
  TensorView shadow;   // f16 or bf16 copy, written with the parameter
  float* step;         // applied steps so far; the kernel adds 1 when it applies the step
};

// Work that was recorded once and can be done again, with the values its memory then has.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay() = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device::Type device_type() const = 0;
  virtual std::string describe() const = 0;   // one line for `halfstep devices`
  virtual void synchronize() = 0;             // waits until all work is done

  // ---- data movement
  virtual void copy(const TensorView& src, const TensorView& dst) = 0;  // converts dtype; any strides on both sides
  virtual void fill(const TensorView& dst, double value) = 0;           // any strides
  virtual void arange(const TensorView& dst, double start, double step) = 0;  // dst[i] = start + i step; 1-D
  virtual void copy_from_host(const void* src, void* dst, size_t bytes) = 0;
  virtual void copy_to_host(const void* src, void* dst, size_t bytes) = 0;    // returns when the bytes are there

  // ---- elementwise (formulas: framework/math/elementwise.def). Outputs contiguous.
  virtual void unary(Unary op, const TensorView& x, const TensorView& out) = 0;
  virtual void unary_backward(Unary op, const TensorView& grad, const TensorView& saved, const TensorView& out) = 0;
  virtual void binary(Binary op, const TensorView& a, const TensorView& b, const TensorView& out) = 0;
  virtual void binary_backward(Binary op, int input, const TensorView& grad, const TensorView& a, const TensorView& b,
                               const TensorView& out) = 0;
  virtual void test(Test op, const TensorView& a, const TensorView& b, const TensorView& out) = 0;  // out: bool
  virtual void where(const TensorView& cond, const TensorView& a, const TensorView& b, const TensorView& out) = 0;

  // ---- matrix products
  virtual void gemm(const GemmArgs& args) = 0;
  // The aux of a product of `rows` x `columns` in `dtype`, for activations other than none.
  virtual AuxLayout activation_aux(Activation activation, int64_t rows, int64_t columns, DType dtype) const = 0;

  // ---- reductions
  // out has x's rank; dimensions of size 1 in out are reduced. Empty reductions: sum 0, prod 1, any false, all true, mean NaN.
  virtual void reduce(Reduce op, const TensorView& x, const TensorView& out) = 0;
  // First index of the extreme along `dim` (a NaN counts as extreme). `indices` i64 and `values` (may be empty): size 1 in dim.
  virtual void arg_reduce(bool largest, const TensorView& x, int dim, const TensorView& values, const TensorView& indices) = 0;

  // ---- rows: softmax over `dim`; log: log_softmax. out contiguous, any floating dtype.
  virtual void softmax(const TensorView& x, const TensorView& out, int dim, bool log) = 0;
  // y: the forward's output. dx = y (g - sum(g y));  log: dx = g - exp(y) sum(g)
  virtual void softmax_backward(const TensorView& grad, const TensorView& y, const TensorView& out, int dim, bool log) = 0;

  // ---- losses
  // loss: [] (mean, sum) or [N] (none); lse: [N] logsumexp of each row; total: [] sum of the weights of counted targets. All f32
  // (f64 for f64 logits). Targets must already be checked by check_targets.
  virtual void cross_entropy(const CrossEntropyArgs& args, const TensorView& loss, const TensorView& lse, const TensorView& total) = 0;
  // grad: like loss. out: [N, C] contiguous, any floating dtype.
  virtual void cross_entropy_backward(const CrossEntropyArgs& args, const TensorView& grad, const TensorView& lse,
                                      const TensorView& total, const TensorView& out) = 0;
  // Index of the first target outside [0, classes) that is not ignore_index, or -1. CUDA: checked on the device without a wait,
  // so -1; the IndexError comes with the next value read by the host.
  virtual int64_t check_targets(const TensorView& target, int64_t classes, int64_t ignore_index) = 0;
  // loss: [], mean or sum of (a - b)^2, f32 or f64; a and b of one shape, any floating dtypes.
  virtual void mse(const TensorView& a, const TensorView& b, Reduction reduction, const TensorView& loss,
                   const MseGradient& gradient = {}) = 0;
  // out = sign * 2 (a - b) grad (/ n for mean); grad: [].
  virtual void mse_backward(const TensorView& a, const TensorView& b, const TensorView& grad, Reduction reduction, double sign,
                            const TensorView& out) = 0;

  // ---- indexing. Indices are i64, in range (negative ones already wrapped): first bad position from check_indices, or -1
  // (CUDA: as check_targets; elements at bad indices are then not touched).
  virtual int64_t check_indices(const TensorView& index, int64_t size) = 0;
  virtual void gather(const TensorView& x, int dim, const TensorView& index, const TensorView& out) = 0;
  virtual void scatter_add(const TensorView& out, int dim, const TensorView& index, const TensorView& src) = 0;  // out += ; out contiguous

  // ---- random numbers (framework/math/random.h): element i, row-major, is a function of (state, i) alone. dst contiguous.
  virtual void random_uniform(const TensorView& dst, Generator::State state, double lo, double hi) = 0;
  virtual void random_normal(const TensorView& dst, Generator::State state, double mean, double stddev) = 0;
  virtual void random_integers(const TensorView& dst, Generator::State state, int64_t lo, int64_t hi) = 0;  // [lo, hi)
  // out = x / (1 - p) where uniform >= p, else 0. The backward is the same call on the gradient with the same state.
  virtual void dropout(const TensorView& x, const TensorView& out, double p, Generator::State state) = 0;

  // ---- the training tail, each over a list of tensors
  virtual void check_finite(std::span<const TensorView> grads, float* found_inf) = 0;  // sets 1, never writes 0
  // g *= float(1 / double(*scale)) after the check of the scaled value; a factor of 1 leaves the bits alone. Any strides.
  virtual void unscale(std::span<const TensorView> grads, const float* scale, float* found_inf) = 0;
  virtual void update_scale(float* scale, int32_t* tracker, const float* found_inf, double growth, double backoff, int32_t interval) = 0;
  // A schedule on the device: counts a step that was applied (found_inf null or 0), then rates[g] = table[g][*count % W].
  // table: [groups, W], rates: [groups], both f64 and contiguous.
  virtual void advance_rates(int64_t* count, const float* found_inf, const TensorView& table, const TensorView& rates) = 0;
  virtual void sgd(std::span<const ParamUpdate> params, const math::SgdArgs& args, const StepControl& control) = 0;
  virtual void adam(std::span<const ParamUpdate> params, const math::AdamArgs& args, const StepControl& control) = 0;
  // *out = (sum |g|^p)^(1/p) over all; p = inf: max. Accumulated in double per tensor, fixed order.
  virtual void norm(std::span<const TensorView> tensors, double p, float* out) = 0;
  // g *= min(1, max_norm / (*norm + 1e-6))
  virtual void clip(std::span<const TensorView> tensors, const float* norm, double max_norm) = 0;

  // ---- recording: between begin and end, calls of this thread are kept instead of done. Reading values to the host, copying
  // from it and drawing from another generator than `generator` throw RecordingError; memory is taken from a pool that the
  // recording owns. A replay draws the numbers that the generator would give now, and moves it on.
  virtual bool can_record() const { return false; }
  virtual void begin_recording(Generator& generator);
  virtual std::unique_ptr<Recording> end_recording();
  virtual void abandon_recording() noexcept {}  // after an exception between begin and end

  // How often the host has waited for values of the device, ever: copies to the host and calls of synchronize.
  virtual uint64_t host_reads() const = 0;
};

// Throws DeviceError with the reason when the device is not built in or not present.
Backend& backend_for(Device device);
void register_backend(std::unique_ptr<Backend> backend);
bool has_backend(Device::Type type);

// Intra-op threads of the CPU backend; default: all cores. 0 restores the default.
void set_num_threads(int n);
int num_threads();
// The same bits in every run (default). false allows a backend faster code without that promise; the CPU has none.
void set_deterministic(bool on);
bool deterministic();
// f32 products on CUDA through TF32: inputs rounded to 10 fraction bits, several times the speed. Off by default, as
// torch.backends.cuda.matmul.allow_tf32.
void set_allow_tf32(bool on);
bool allow_tf32();

}  // namespace halfstep
