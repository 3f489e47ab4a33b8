// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/backend.h"
#include "torch/base/options.h"

namespace torch {

std::ostream& operator<<(std::ostream& out, const TypeMeta& t) {
  switch (t.t_) {
    case kByte: return out << "unsigned char";
    case kChar: return out << "signed char";
    case kShort: return out << "short int";
    case kInt: return out << "int";
    case kLong: return out << "long int";
    case kFloat: return out << "float";
    case kDouble: return out << "double";
    case kBool: return out << "bool";
    case kHalf: return out << "c10::Half";
    case kBFloat16: return out << "c10::BFloat16";
    default: return out << toString(t.t_);
  }
}
std::ostream& operator<<(std::ostream& out, const TensorOptions& o) {
  auto part = [&](const char* name, const std::string& value, bool given) {
    out << name << "=" << value << (given ? "" : " (default)");
  };
  auto flag = [](bool on) { return on ? "true" : "false"; };
  out << "TensorOptions(";
  part("dtype", str(o.dtype()), o.has_dtype());
  part(", device", str(o.device()), o.has_device());
  part(", layout", str(o.layout()), o.has_layout());
  part(", requires_grad", flag(o.requires_grad()), o.has_requires_grad());
  part(", pinned_memory", flag(o.pinned_memory()), o.has_pinned_memory());
  out << ", memory_format=";
  if (o.has_memory_format())
    out << *o.memory_format_opt();
  else
    out << "(nullopt)";
  return out << ")";
}

void init_num_threads() {}  // does nothing: the backend reads OMP_NUM_THREADS by itself
void set_num_threads(int threads) {
  TORCH_CHECK(threads > 0, "Expected positive number of threads");
  hs::set_num_threads(threads);
}
int get_num_threads() { return hs::num_threads(); }
void set_num_interop_threads(int threads) { TORCH_CHECK(threads > 0, "Expected positive number of threads"); }
int get_num_interop_threads() { return 1; }

namespace cuda {

size_t device_count() { return is_available() ? 1 : 0; }
bool is_available() { return hs::has_backend(hs::Device::Type::cuda); }
bool cudnn_is_available() { return is_available(); }
void manual_seed(uint64_t seed) { hs::manual_seed(seed, hs::GeneratorKind::mt19937); }
void manual_seed_all(uint64_t seed) { manual_seed(seed); }
void synchronize(int64_t device_index) {
  TORCH_CHECK(device_index <= 0, "halfstep computes on one GPU in each process, got the device index ", device_index);
  if (is_available()) hs::backend_for(hs::Device::cuda).synchronize();
}

}  // namespace cuda
}  // namespace torch
