# SPDX-License-Identifier: Apache-2.0
# halfstep_cuda_targets(OUT GPUS PTX): the GPU architectures to compile for, as CMAKE_CUDA_ARCHITECTURES has them.
#
# GPUS: compute capabilities, "8.6;9.0". For each there is machine code, and the PTX that it is made from, which costs no time;
# tests/emulators/ptx runs it. Without any it is 9.0, Hopper. (CMake's own `native` is an error where its probe finds no GPU.)
# PTX, a Boolean: besides, PTX from which the driver compiles for every other GPU at the program's first start. There are two:
# compute_75 for Turing, and compute_80 for all later GPUs, since code for Turing makes the arithmetic of bfloat16 from several
# integer operations. That of compute_75 alone adds a third to the time of the compiler.
# GPUS "all": for packages. Machine code for every GPU from Turing to Blackwell, and the PTX of Hopper for what comes later.
# On aarch64 there is besides that of Jetson Orin, 8.7, which runs no code of the others.
function(halfstep_cuda_targets out gpus ptx)
  set(targets)
  if(gpus STREQUAL "all")
    set(jetson)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
      set(jetson 87-real)
    endif()
    set(${out} 75-real 80-real 86-real ${jetson} 89-real 90 100-real 120-real PARENT_SCOPE)
    return()
  endif()
  foreach(capability IN LISTS gpus)
    if(NOT capability MATCHES "^[0-9]+\\.[0-9]$")
      message(FATAL_ERROR "HALFSTEP_GPUS has \"${capability}\": it is a list of compute capabilities, \"8.6;9.0\", or \"all\"")
    elseif(capability VERSION_LESS 7.5)
      message(STATUS "halfstep: a GPU of compute capability ${capability} is left out: 7.5 (Turing) is the least")
    else()
      string(REPLACE "." "" architecture ${capability})
      list(APPEND targets ${architecture})
    endif()
  endforeach()
  if(NOT targets)
    set(targets 90)
  endif()
  if(ptx)
    foreach(architecture 75 80)
      if(NOT architecture IN_LIST targets)
        list(APPEND targets ${architecture}-virtual)
      endif()
    endforeach()
  endif()
  set(${out} ${targets} PARENT_SCOPE)
endfunction()

# halfstep_jetson_gpu(OUT FILE): the compute capability of a Jetson's GPU, by the FILE /proc/device-tree/compatible; else empty. The
# nvidia-smi of such a board does not know it.
function(halfstep_jetson_gpu out file)
  set(${out} "" PARENT_SCOPE)
  if(EXISTS ${file})
    file(STRINGS ${file} boards REGEX "tegra(194|234)")
    if(boards MATCHES "tegra234")
      set(${out} 8.7 PARENT_SCOPE)
    elseif(boards)
      message(STATUS "halfstep: Jetson Xavier's GPU, of compute capability 7.2, is left out: 7.5 (Turing) is the least")
    endif()
  endif()
endfunction()

# halfstep_package_note(OUT GPUS CODE): what to say when packages are made of a build with CUDA that was not compiled for all GPUs,
# since they then run badly or not at all elsewhere; else empty. CODE: what it was compiled to, in words.
function(halfstep_package_note out gpus code)
  set(note "")
  if(NOT gpus STREQUAL "all")
    set(note "The packages hold CUDA code for ${code} alone. For other GPUs, configure with -DHALFSTEP_GPUS=all before.")
  endif()
  set(${out} ${note} PARENT_SCOPE)
endfunction()
