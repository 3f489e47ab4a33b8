// Kernels still to be written.
#include "framework/backend/cpu/kernels.h"
#include "framework/base/check.h"

namespace halfstep::cpu {

void pointwise(Pointwise, std::span<const TensorView>, double, double, const TensorView&) { fail<DeviceError>("pointwise", "has no kernel yet"); }
void pointwise_backward(Pointwise, int, const TensorView&, std::span<const TensorView>, double, double, const TensorView&) { fail<DeviceError>("pointwise_backward", "has no kernel yet"); }
void variance(const TensorView&, double, const TensorView&, const TensorView&) { fail<DeviceError>("variance", "has no kernel yet"); }
void norm_over(const TensorView&, double, const TensorView&) { fail<DeviceError>("norm_over", "has no kernel yet"); }
void scan(Scan, const TensorView&, int, bool, const TensorView&) { fail<DeviceError>("scan", "has no kernel yet"); }
void sort(const TensorView&, int, bool, int64_t, const TensorView&, const TensorView&) { fail<DeviceError>("sort", "has no kernel yet"); }
void scatter(const TensorView&, int, const TensorView&, const TensorView&) { fail<DeviceError>("scatter", "has no kernel yet"); }
void index_select(const TensorView&, int, const TensorView&, const TensorView&) { fail<DeviceError>("index_select", "has no kernel yet"); }
void index_add(const TensorView&, int, const TensorView&, const TensorView&) { fail<DeviceError>("index_add", "has no kernel yet"); }
void index_copy(const TensorView&, int, const TensorView&, const TensorView&) { fail<DeviceError>("index_copy", "has no kernel yet"); }
void conv(const TensorView&, const TensorView&, const TensorView&, const Window&, int64_t, const TensorView&) { fail<DeviceError>("conv", "has no kernel yet"); }
void conv_backward_data(const TensorView&, const TensorView&, const TensorView&, const Window&, int64_t, const TensorView&) { fail<DeviceError>("conv_backward_data", "has no kernel yet"); }
void conv_backward_weight(const TensorView&, const TensorView&, const Window&, int64_t, const TensorView&, const TensorView&) { fail<DeviceError>("conv_backward_weight", "has no kernel yet"); }
void unfold(const TensorView&, const Window&, const Spatial&, const TensorView&) { fail<DeviceError>("unfold", "has no kernel yet"); }
void fold(const TensorView&, const Window&, const Spatial&, const TensorView&) { fail<DeviceError>("fold", "has no kernel yet"); }
void max_pool(const TensorView&, const PoolArgs&, const TensorView&, const TensorView&) { fail<DeviceError>("max_pool", "has no kernel yet"); }
void max_pool_backward(const TensorView&, const TensorView&, const TensorView&) { fail<DeviceError>("max_pool_backward", "has no kernel yet"); }
void avg_pool(const TensorView&, const PoolArgs&, const TensorView&) { fail<DeviceError>("avg_pool", "has no kernel yet"); }
void avg_pool_backward(const TensorView&, const PoolArgs&, const TensorView&) { fail<DeviceError>("avg_pool_backward", "has no kernel yet"); }
void normalize(const NormArgs&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&) { fail<DeviceError>("normalize", "has no kernel yet"); }
void normalize_backward(const NormArgs&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&) { fail<DeviceError>("normalize_backward", "has no kernel yet"); }
void batch_norm(const BatchNormArgs&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&) { fail<DeviceError>("batch_norm", "has no kernel yet"); }
void batch_norm_backward(const BatchNormArgs&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&) { fail<DeviceError>("batch_norm_backward", "has no kernel yet"); }
void lstm_cell(const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&) { fail<DeviceError>("lstm_cell", "has no kernel yet"); }
void lstm_cell_backward(const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&) { fail<DeviceError>("lstm_cell_backward", "has no kernel yet"); }
void gru_cell(const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&) { fail<DeviceError>("gru_cell", "has no kernel yet"); }
void gru_cell_backward(const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&) { fail<DeviceError>("gru_cell_backward", "has no kernel yet"); }
void resample(const TensorView&, int, const SparseRows&, const TensorView&) { fail<DeviceError>("resample", "has no kernel yet"); }
void grid_sample(const SampleArgs&, const TensorView&, const TensorView&, const TensorView&) { fail<DeviceError>("grid_sample", "has no kernel yet"); }
void grid_sample_backward(const SampleArgs&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&) { fail<DeviceError>("grid_sample_backward", "has no kernel yet"); }

}  // namespace
