// SPDX-License-Identifier: Apache-2.0
// GPUs of several generations, as HALFSTEP_EMU_CAPABILITY pretends them.
#include "tests/cuda/kernels/device.h"

#include <unistd.h>

#include <filesystem>
#include <string>

#include "cuda/blas/fusion.h"
#include "cuda/blas/gemm.h"
#include "cuda/rank_gpu.h"
#include "cuda/runtime.h"
#include "framework/base/check.h"
#include "halfstep.h"
#include "tests/emulators/source/behaviour.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("what the device can multiply") {
  const bool has_bf16 = cuda::capability() >= 80;
  CHECK(backend_for(Device::cuda).describe().find("sm_" + std::to_string(cuda::capability())) != std::string::npos);
  for (DType t : kFloating) {
    CAPTURE(name(t));
    manual_seed(3);
    const Tensor a = randn({5, 8}, {.dtype = t}), b = randn({8, 6}, {.dtype = t});
    const Tensor x = a.to(Device::cuda), y = b.to(Device::cuda);
    CHECK(equal((x + x).to(Device::cpu), a + a));  // every dtype is stored and computed with
    if (t == DType::bf16 && !has_bf16) {
      std::string message;
      try {
        matmul(x, y);
      } catch (const DeviceError& e) { message = e.what(); }
      CHECK(message ==
            "[gemm] [products] products of bfloat16 need compute capability 8.0 (Ampere) or later, and emulated device has 7.5 "
            "bfloat16[5, 8] bfloat16[8, 6] bfloat16[5, 6]\nhelp: train in float16 with a GradScaler (\"amp\": {\"dtype\": "
            "\"float16\"}), or in float32; HALFSTEP_CUDA_BLAS=plain multiplies bfloat16 without the library, slowly");
    } else {
      CHECK(allclose(matmul(x, y).to(Device::cpu), matmul(a, b), 1e-2, 1e-2));
    }
  }
}

TEST_CASE("what is fused by default, by dtype and GPU") {
  const auto text = [](DType t, int capability) {
    const cuda::Fusion f = cuda::default_fusion(t, capability);
    return std::string(f.gelu ? "gelu " : "") + (f.derivative ? "derivative " : "") + (f.row_sum ? "sum" : "");
  };
  CHECK(text(DType::f16, 90) == "gelu sum");
  CHECK(text(DType::bf16, 90) == "gelu ");
  CHECK(text(DType::f16, 100) == text(DType::f16, 90));
  CHECK(text(DType::f16, 89) == "");
  CHECK(text(DType::bf16, 80) == "");
  CHECK(text(DType::f32, 90) == "derivative sum");
  CHECK(text(DType::f64, 75) == "derivative sum");
}

TEST_CASE("which GPU a rank computes on") {
  using cuda::gpu_of_rank;
  CHECK(gpu_of_rank({}, 4, 2) == "2");
  CHECK(gpu_of_rank({}, 4, 5) == "1");  // more ranks than GPUs
  CHECK(gpu_of_rank("3,GPU-8f2a,7", 8, 1) == "GPU-8f2a");
  CHECK(gpu_of_rank("3,7", 8, 0) == "3");
  CHECK(!gpu_of_rank("5", 8, 3));  // the launcher has chosen
  CHECK(!gpu_of_rank("", 8, 3));
  CHECK(!gpu_of_rank({}, 1, 1));
  CHECK(!gpu_of_rank({}, 0, 1));  // nobody says how many there are
  CHECK(gpu_of_rank("4,7,-1,9", 8, 2) == "4");  // CUDA ends the list at an invalid entry
  CHECK(!gpu_of_rank("4,-1,9", 8, 1));
  CHECK(!gpu_of_rank("-1", 8, 1));
}

TEST_CASE("how many GPUs there are: the driver's list, or what NVML says where there is no list") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("halfstep_gpus_" + std::to_string(getpid()));
  for (const char* gpu : {"0000:01:00.0", "0000:41:00.0"}) fs::create_directories(folder / gpu);
  const Behaviour nvml("HALFSTEP_NVML", HALFSTEP_FAKE_NVML);
  CHECK(cuda::count_gpus(folder.string()) == 2);
  fs::remove_all(folder);
  CHECK(cuda::count_gpus(folder.string()) == 3);
  {
    const Behaviour fails("HALFSTEP_FAKE_NVML_FAILS", "1");
    CHECK(cuda::count_gpus(folder.string()) == 0);
  }
  const Behaviour absent("HALFSTEP_NVML", "/nothing_here.so");
  CHECK(cuda::count_gpus(folder.string()) == 0);
}
