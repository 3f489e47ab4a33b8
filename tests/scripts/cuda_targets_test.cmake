# SPDX-License-Identifier: Apache-2.0
# What is compiled for which GPUs: cmake -P cuda_targets_test.cmake
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/../../scripts/cmake/HalfstepCudaTargets.cmake)

function(expect gpus ptx wanted)
  halfstep_cuda_targets(targets "${gpus}" ${ptx})
  if(NOT targets STREQUAL wanted)
    message(SEND_ERROR "GPUs \"${gpus}\", PTX ${ptx}: ${targets}, not ${wanted}")
  endif()
endfunction()

expect("" OFF "90")
expect("" ON "90;75-virtual;80-virtual")
expect("8.6;9.0" OFF "86;90")
expect("7.5" ON "75;80-virtual")
expect("8.0" ON "80;75-virtual")
expect("6.1;12.0" OFF "120")
expect("6.1" OFF "90")
expect("all" ON "75-real;80-real;86-real;89-real;90;100-real;120-real")

halfstep_package_note(note "all" "sm_75, sm_90")
if(note)
  message(SEND_ERROR "packages for all GPUs need no note: ${note}")
endif()
halfstep_package_note(note "" "sm_90")
if(NOT note MATCHES "for sm_90 alone.*-DHALFSTEP_GPUS=all")
  message(SEND_ERROR "packages for one GPU say so: ${note}")
endif()
