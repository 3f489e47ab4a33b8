// Backend: everything a device must be able to compute. Kernels see TensorViews on their own device and never gradients.
//
// Contract, unless a function says otherwise:
//  * outputs are allocated by the caller and overwritten (`=`, not `+=`); an elementwise output may be exactly one of the
//    inputs (same memory, dtype and geometry), otherwise outputs never alias inputs;
//  * inputs of elementwise functions have the output's shape; broadcasting is a stride of 0; any strides are legal;
//  * arithmetic is done in float for f16, bf16 and f32, in double for f64, in int64 for integers and bool; operands of
//    different dtypes may be mixed; the result is rounded once, to the output's dtype;
//  * an input of binary, binary_backward, test and where may be a C++ number (TensorView::number), which is read before the call
//    returns. Beside floats it is converted to the type that they are computed in;
//  * zero-size tensors are legal everywhere;
//  * scalars that a step reads or writes (scale, found_inf, step counts) are pointers to device memory: no host reads;
//  * the same calls give the same bits in every run; apart from matrix products, whose library may split long sums over
//    threads, also with any number of threads.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "framework/base/device.h"
#include "framework/backend/layer_args.h"
#include "framework/base/generator.h"
#include "framework/math/functors.h"
#include "framework/math/training.h"
#include "framework/tensor/view.h"

namespace halfstep {

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

// How an optimizer kernel treats a step. The pointers are device memory and may be null.
struct StepControl {
  float* found_inf = nullptr;         // nonzero: leave every byte of parameters and state as it is
  const float* grad_scale = nullptr;  // gradients are multiplied by float(1 / double(*grad_scale))
  bool write_back = true;             // store the unscaled gradients
  const double* lr = nullptr;         // replaces the arguments' learning rate
  bool check = false;                 // found_inf is written first: 1 when a gradient of the list is not finite, else 0
  math::StepTail tail{};              // done after the updates
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
  // From the next replay on, what was recorded as reading the memory of inputs[i] (begin_recording) reads `data` instead: memory
  // as large and laid out alike, which must live until the replays that read it have passed. False, and nothing changes, where
  // not all readers can be told (products of a library), or where `data` is not aligned as inputs[i] is, to 16 bytes.
  virtual bool read_input(size_t i, const void* data) = 0;
};

// Copies from the host beside the device's work: through page-locked buffers, on a stream of their own. Any threads may call it.
class UploadLane {
 public:
  virtual ~UploadLane() = default;
  // Queues a copy of `bytes` to `dst`, device memory that nothing queued from here on uses before receive(). `src` may go when
  // it returns. Waits where all buffers are still on their way. The number of the copy.
  virtual uint64_t send(const void* src, void* dst, size_t bytes) = 0;
  // Once a copy: work that is queued from here on comes after it. Also before `dst` is given back unused.
  virtual void receive(uint64_t copy) = 0;
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
  virtual std::unique_ptr<UploadLane> open_upload_lane() { return nullptr; }  // null: copy_from_host is all there is

  // ---- elementwise (formulas: framework/math/elementwise.def). Outputs contiguous.
  virtual void unary(Unary op, const TensorView& x, const TensorView& out) = 0;
  virtual void unary_backward(Unary op, const TensorView& grad, const TensorView& saved, const TensorView& out) = 0;
  virtual void binary(Binary op, const TensorView& a, const TensorView& b, const TensorView& out) = 0;
  virtual void binary_backward(Binary op, int input, const TensorView& grad, const TensorView& a, const TensorView& b,
                               const TensorView& out) = 0;
  virtual void test(Test op, const TensorView& a, const TensorView& b, const TensorView& out) = 0;  // out: bool
  virtual void where(const TensorView& cond, const TensorView& a, const TensorView& b, const TensorView& out) = 0;
  // Functions of one to three tensors and two numbers (framework/math/pointwise.def); out of any strides.
  virtual void pointwise(Pointwise op, std::span<const TensorView> in, double p, double q, const TensorView& out) = 0;
  // The gradient of in[input].
  virtual void pointwise_backward(Pointwise op, int input, const TensorView& grad, std::span<const TensorView> in, double p, double q,
                                  const TensorView& out) = 0;

  // ---- matrix products
  virtual void gemm(const GemmArgs& args) = 0;
  // The aux of a product of `rows` x `columns` in `dtype`, for activations other than none.
  // Unless a device says otherwise: of GELU its input, of ReLU nothing.
  virtual AuxLayout activation_aux(Activation activation, int64_t rows, int64_t columns, DType dtype) const;

  // ---- reductions
  // out has x's rank; dimensions of size 1 in out are reduced. Empty reductions: sum 0, prod 1, any false, all true, mean NaN.
  virtual void reduce(Reduce op, const TensorView& x, const TensorView& out) = 0;
  // First index of the extreme along `dim` (a NaN counts as extreme). `indices` i64 and `values` (may be empty): size 1 in dim.
  virtual void arg_reduce(bool largest, const TensorView& x, int dim, const TensorView& values, const TensorView& indices) = 0;

  // Mean and variance over the dimensions that are 1 in `var` (x's rank), two-pass or Welford: sum (x - mean)^2 / max(0, n -
  // correction). `mean` may be empty.
  virtual void variance(const TensorView& x, double correction, const TensorView& mean, const TensorView& var) = 0;
  // out[i] = x[0] op ... op x[i] along dim; reverse: x[i] op ... op x[n - 1].
  virtual void scan(Scan op, const TensorView& x, int dim, bool reverse, const TensorView& out) = 0;
  // The first k along dim in sorted order (stable; NaN counts as the largest). values, indices (i64): size k in dim.
  virtual void sort(const TensorView& x, int dim, bool descending, int64_t k, const TensorView& values, const TensorView& indices) = 0;

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
  // As scatter_add, but out = src; of several elements for one place the last (row-major) stays.
  virtual void scatter(const TensorView& out, int dim, const TensorView& index, const TensorView& src) = 0;
  // Whole slices along dim; index [n]: out[.., i, ..] = x[.., index[i], ..].
  virtual void index_select(const TensorView& x, int dim, const TensorView& index, const TensorView& out) = 0;
  virtual void index_add(const TensorView& out, int dim, const TensorView& index, const TensorView& src) = 0;   // out[index[i]] += src[i]
  virtual void index_copy(const TensorView& out, int dim, const TensorView& index, const TensorView& src) = 0;  // out[index[i]] = src[i]; the last stays

  // ---- layers. Tensors contiguous. Inputs of one call have one floating dtype, out has it too or is f32; weights, biases and
  // statistics of normalisations may be f32 beside 16-bit tensors. Sums in f32 (f64 for f64), rounded once.
  // x [N, C, in...], weight [O, C / groups, taps...], bias [O] or empty, out [N, O, out...]. window.size is weight's.
  virtual void conv(const TensorView& x, const TensorView& weight, const TensorView& bias, const Window& window, int64_t groups,
                    const TensorView& out) = 0;
  // The gradient of x, and the forward of the transposed convolution: grad [N, O, out...] -> out [N, C, in...] (+ bias [C]).
  virtual void conv_backward_data(const TensorView& grad, const TensorView& weight, const TensorView& bias, const Window& window,
                                  int64_t groups, const TensorView& out) = 0;
  // The gradients of weight and, where not empty, of bias.
  virtual void conv_backward_weight(const TensorView& x, const TensorView& grad, const Window& window, int64_t groups,
                                    const TensorView& out, const TensorView& bias_out) = 0;
  // x [N, C, in...] -> columns [N, C * taps, positions]; fold is the transpose: it sums what unfold repeats.
  virtual void unfold(const TensorView& x, const Window& window, const Spatial& positions, const TensorView& columns) = 0;
  virtual void fold(const TensorView& columns, const Window& window, const Spatial& positions, const TensorView& out) = 0;
  // indices (i64, like out; may be empty): where in x's plane [in...], row-major, the maximum lies: the first, or the first NaN.
  virtual void max_pool(const TensorView& x, const PoolArgs& args, const TensorView& out, const TensorView& indices) = 0;
  virtual void max_pool_backward(const TensorView& grad, const TensorView& indices, const TensorView& out) = 0;
  virtual void avg_pool(const TensorView& x, const PoolArgs& args, const TensorView& out) = 0;
  virtual void avg_pool_backward(const TensorView& grad, const PoolArgs& args, const TensorView& out) = 0;
  // y = (x - mean) rstd weight + bias. weight, bias: [groups * channels] or empty; mean (empty when not centered), rstd:
  // [rows * groups], f32 or f64, written by the forward.
  virtual void normalize(const NormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias,
                         const TensorView& out, const TensorView& mean, const TensorView& rstd) = 0;
  // dx, dweight, dbias: each may be empty.
  virtual void normalize_backward(const NormArgs& args, const TensorView& grad, const TensorView& x, const TensorView& weight,
                                  const TensorView& mean, const TensorView& rstd, const TensorView& dx, const TensorView& dweight,
                                  const TensorView& dbias) = 0;
  // As normalize, for each channel. running_mean, running_var: [C] or empty (training only); training updates them.
  virtual void batch_norm(const BatchNormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias,
                          const TensorView& running_mean, const TensorView& running_var, const TensorView& out,
                          const TensorView& mean, const TensorView& rstd) = 0;
  // mean, rstd: what the forward used. Without training they are constants.
  virtual void batch_norm_backward(const BatchNormArgs& args, const TensorView& grad, const TensorView& x, const TensorView& weight,
                                   const TensorView& mean, const TensorView& rstd, const TensorView& dx, const TensorView& dweight,
                                   const TensorView& dbias) = 0;
  // What follows the products of a cell. x_gates, h_gates: [N, 4H], in the order i f g o, biases included. activated [N, 4H]:
  // the gates after their activations, for backward. c' = f c + i g, h' = o tanh c'.
  virtual void lstm_cell(const TensorView& x_gates, const TensorView& h_gates, const TensorView& c, const TensorView& h_out,
                         const TensorView& c_out, const TensorView& activated) = 0;
  // dh, dc: gradients of h' and c', either may be empty. dgates [N, 4H] is the gradient of both gates.
  virtual void lstm_cell_backward(const TensorView& dh, const TensorView& dc, const TensorView& activated, const TensorView& c,
                                  const TensorView& c_out, const TensorView& dgates, const TensorView& dc_in) = 0;
  // Gates [N, 3H] in the order r z n. activated [N, 4H]: r z n and h_gates' n part. n = tanh(x_n + r h_n), h' = (1 - z) n + z h.
  virtual void gru_cell(const TensorView& x_gates, const TensorView& h_gates, const TensorView& h, const TensorView& h_out,
                        const TensorView& activated) = 0;
  virtual void gru_cell_backward(const TensorView& dh, const TensorView& activated, const TensorView& h, const TensorView& dx_gates,
                                 const TensorView& dh_gates, const TensorView& dh_in) = 0;
  // out = matrix x along dim (interpolation of every kind; its gradient is the transposed matrix).
  virtual void resample(const TensorView& x, int dim, const SparseRows& matrix, const TensorView& out) = 0;
  virtual void grid_sample(const SampleArgs& args, const TensorView& x, const TensorView& grid, const TensorView& out) = 0;
  virtual void grid_sample_backward(const SampleArgs& args, const TensorView& grad, const TensorView& x, const TensorView& grid,
                                    const TensorView& dx, const TensorView& dgrid) = 0;  // either may be empty

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
  // The end of a step whose optimizer's kernel did not take it (StepControl). found_inf null: applied.
  virtual void end_step(const float* found_inf, const math::StepTail& tail) = 0;
  virtual void sgd(std::span<const ParamUpdate> params, const math::SgdArgs& args, const StepControl& control) = 0;
  virtual void adam(std::span<const ParamUpdate> params, const math::AdamArgs& args, const StepControl& control) = 0;
  // *out = (sum |g|^p)^(1/p) over all; p = inf: max. Accumulated in double per tensor, fixed order.
  virtual void norm(std::span<const TensorView> tensors, double p, float* out) = 0;
  // g *= min(1, max_norm / (*norm + 1e-6))
  virtual void clip(std::span<const TensorView> tensors, const float* norm, double max_norm) = 0;

  // ---- recording: between begin and end, calls of this thread are kept instead of done. Reading values to the host, copying
  // from it and drawing from another generator than `generator` throw RecordingError; memory is taken from a pool that the
  // recording owns. A replay draws the numbers that the generator would give now, and moves it on. `inputs`: memory that replays
  // may read elsewhere (Recording::read_input); it must outlive the recording.
  virtual bool can_record() const { return false; }
  virtual void begin_recording(Generator& generator, std::span<const TensorView> inputs = {});
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
