// SPDX-License-Identifier: Apache-2.0
// Which GPU a rank computes on: the first one that CUDA shows it.
#pragma once

#include <optional>
#include <string>

namespace halfstep::cuda {

// What CUDA_VISIBLE_DEVICES must be for the rank of this number among those of its machine: one of the GPUs that it names now, or
// of the machine's `gpus` where it is not set; ranks beyond begin again with the first. Empty where there is nothing to choose.
std::optional<std::string> gpu_of_rank(const std::optional<std::string>& visible, int gpus, int local_rank);

// How many GPUs the machine has: the entries of `listing`, the folder in which the driver lists them. Where there is none, as on
// WSL 2, NVIDIA's management library says it. 0: nobody does.
int count_gpus(const std::string& listing = "/proc/driver/nvidia/gpus");

// Sets it for this process, where the launcher says the local rank. Call before anything asks the driver, which reads it once.
void choose_gpu();

// Of the GPU that is computed on.
std::string device_uuid();

}  // namespace halfstep::cuda
