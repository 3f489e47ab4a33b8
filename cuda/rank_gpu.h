// SPDX-License-Identifier: Apache-2.0
// Chooses the GPU of a rank, by CUDA_VISIBLE_DEVICES: CUDA then shows this GPU as the first.
#pragma once

#include <optional>
#include <string>

namespace halfstep::cuda {

// Returns the value of CUDA_VISIBLE_DEVICES for a rank: GPU number local_rank of those in `visible`, the variable's present value,
// or of the machine's `gpus` if it is not set; surplus ranks begin again with the first. Empty if there are fewer than two GPUs.
std::optional<std::string> gpu_of_rank(const std::optional<std::string>& visible, int gpus, int local_rank);

// Returns the machine's number of GPUs: the entries of `listing`, the driver's folder of them. If it is missing, as on WSL 2, calls
// NVIDIA's management library. 0: unknown.
int count_gpus(const std::string& listing = "/proc/driver/nvidia/gpus");

// Sets CUDA_VISIBLE_DEVICES for this process if the launcher gives a local rank. Call before the first call of the driver, which
// reads it once.
void choose_gpu();

// Returns the UUID of the GPU in use.
std::string device_uuid();

}  // namespace halfstep::cuda
