// SPDX-License-Identifier: Apache-2.0
// Copies by the upload lane on a device that has failed.
#include "cuda/upload_lane.h"

#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <thread>

#include "framework/base/check.h"
#include "tests/emulators/source/runtime.h"

using namespace halfstep;

namespace {

// What the copies of a thread use. It outlives the test where one of them waits for ever.
struct Lane {
  std::recursive_mutex mutex;
  cudaStream_t stream = nullptr;
  char* to = nullptr;
  char from[64] = {};
  std::unique_ptr<cuda::CudaUploadLane> lane;
  std::promise<int> refused;

  Lane() {
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaMalloc(reinterpret_cast<void**>(&to), sizeof from);
    lane = std::make_unique<cuda::CudaUploadLane>(stream, mutex);
  }
  ~Lane() {
    lane.reset();
    cudaFree(to);
    cudaStreamDestroy(stream);
  }
  void count_refused(int copies) {
    int count = 0;
    for (int i = 0; i < copies; ++i) {
      try {
        lane->send(from, to, sizeof from);
      } catch (const DeviceError&) { ++count; }
    }
    refused.set_value(count);
  }
};
struct FailedDevice {
  FailedDevice() { emu::device_error = cudaErrorIllegalAddress; }
  ~FailedDevice() { emu::device_error = cudaSuccess; }
};

}  // namespace

TEST_CASE("each copy to a device that has failed ends with its error, those after the lane's eight slots too") {
  constexpr int kCopies = 20;
  const auto used = std::make_shared<Lane>();
  {
    const FailedDevice failed;
    std::future<int> refused = used->refused.get_future();
    std::thread([used] { used->count_refused(kCopies); }).detach();
    REQUIRE(refused.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
    CHECK(refused.get() == kCopies);
  }
  used->lane->receive(used->lane->send(used->from, used->to, sizeof used->from));
}
