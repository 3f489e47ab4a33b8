// Kernels still to be written.
#include "cuda/convolution.h"
#include "framework/base/check.h"

namespace halfstep::cuda {

void pointwise(const Queue&, Pointwise, std::span<const TensorView>, double, double, const TensorView&) { fail<DeviceError>("pointwise", "has no kernel yet"); }
void pointwise_backward(const Queue&, Pointwise, int, const TensorView&, std::span<const TensorView>, double, double, const TensorView&) { fail<DeviceError>("pointwise_backward", "has no kernel yet"); }
void variance(const Queue&, const TensorView&, double, const TensorView&, const TensorView&) { fail<DeviceError>("variance", "has no kernel yet"); }
void norm_over(const Queue&, const TensorView&, double, const TensorView&) { fail<DeviceError>("norm_over", "has no kernel yet"); }
void scan(const Queue&, Scan, const TensorView&, int, bool, const TensorView&) { fail<DeviceError>("scan", "has no kernel yet"); }
void sort(const Queue&, const TensorView&, int, bool, int64_t, const TensorView&, const TensorView&) { fail<DeviceError>("sort", "has no kernel yet"); }
void scatter(const Queue&, const TensorView&, int, const TensorView&, const TensorView&) { fail<DeviceError>("scatter", "has no kernel yet"); }
void index_select(const Queue&, const TensorView&, int, const TensorView&, const TensorView&) { fail<DeviceError>("index_select", "has no kernel yet"); }
void index_add(const Queue&, const TensorView&, int, const TensorView&, const TensorView&) { fail<DeviceError>("index_add", "has no kernel yet"); }
void index_copy(const Queue&, const TensorView&, int, const TensorView&, const TensorView&) { fail<DeviceError>("index_copy", "has no kernel yet"); }
void conv(const Queue&, const TensorView&, const TensorView&, const TensorView&, const Window&, int64_t, const TensorView&) { fail<DeviceError>("conv", "has no kernel yet"); }
void conv_backward_data(const Queue&, const TensorView&, const TensorView&, const TensorView&, const Window&, int64_t, const TensorView&) { fail<DeviceError>("conv_backward_data", "has no kernel yet"); }
void conv_backward_weight(const Queue&, const TensorView&, const TensorView&, const Window&, int64_t, const TensorView&, const TensorView&) { fail<DeviceError>("conv_backward_weight", "has no kernel yet"); }
void unfold(const Queue&, const TensorView&, const Window&, const Spatial&, const TensorView&) { fail<DeviceError>("unfold", "has no kernel yet"); }
void fold(const Queue&, const TensorView&, const Window&, const Spatial&, const TensorView&) { fail<DeviceError>("fold", "has no kernel yet"); }
void max_pool(const Queue&, const TensorView&, const PoolArgs&, const TensorView&, const TensorView&) { fail<DeviceError>("max_pool", "has no kernel yet"); }
void max_pool_backward(const Queue&, const TensorView&, const TensorView&, const TensorView&) { fail<DeviceError>("max_pool_backward", "has no kernel yet"); }
void avg_pool(const Queue&, const TensorView&, const PoolArgs&, const TensorView&) { fail<DeviceError>("avg_pool", "has no kernel yet"); }
void avg_pool_backward(const Queue&, const TensorView&, const PoolArgs&, const TensorView&) { fail<DeviceError>("avg_pool_backward", "has no kernel yet"); }
void normalize(const Queue&, const NormArgs&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&) { fail<DeviceError>("normalize", "has no kernel yet"); }
void normalize_backward(const Queue&, const NormArgs&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&) { fail<DeviceError>("normalize_backward", "has no kernel yet"); }
void batch_norm(const Queue&, const BatchNormArgs&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&) { fail<DeviceError>("batch_norm", "has no kernel yet"); }
void batch_norm_backward(const Queue&, const BatchNormArgs&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&) { fail<DeviceError>("batch_norm_backward", "has no kernel yet"); }
void lstm_cell(const Queue&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&) { fail<DeviceError>("lstm_cell", "has no kernel yet"); }
void lstm_cell_backward(const Queue&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&) { fail<DeviceError>("lstm_cell_backward", "has no kernel yet"); }
void gru_cell(const Queue&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&) { fail<DeviceError>("gru_cell", "has no kernel yet"); }
void gru_cell_backward(const Queue&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&) { fail<DeviceError>("gru_cell_backward", "has no kernel yet"); }
void resample(const Queue&, const TensorView&, int, const SparseRows&, const TensorView&) { fail<DeviceError>("resample", "has no kernel yet"); }
void grid_sample(const Queue&, const SampleArgs&, const TensorView&, const TensorView&, const TensorView&) { fail<DeviceError>("grid_sample", "has no kernel yet"); }
void grid_sample_backward(const Queue&, const SampleArgs&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&) { fail<DeviceError>("grid_sample_backward", "has no kernel yet"); }

}  // namespace
