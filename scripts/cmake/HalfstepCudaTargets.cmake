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
# KNOWN: the architectures that nvcc knows, "75;80;90", as halfstep_nvcc_knows lists them; empty: not known. "all" leaves out the
# others, and for a capability of GPUS it takes the PTX of the nearest lower one; either with a line.
function(halfstep_cuda_targets out gpus ptx known)
  set(targets)
  if(gpus STREQUAL "all")
    set(jetson)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
      set(jetson 87-real)
    endif()
    set(left_out)
    foreach(target 75-real 80-real 86-real ${jetson} 89-real 90 100-real 120-real)
      string(REPLACE "-real" "" architecture ${target})
      if(NOT known OR architecture IN_LIST known)
        list(APPEND targets ${target})
      else()
        list(APPEND left_out sm_${architecture})
      endif()
    endforeach()
    if(left_out)
      list(JOIN left_out ", " left_out)
      message(STATUS "halfstep: ${left_out} left out, which this nvcc does not know; GPUs after 9.0 take the PTX of that")
    endif()
    set(${out} ${targets} PARENT_SCOPE)
    return()
  endif()
  foreach(capability IN LISTS gpus)
    if(NOT capability MATCHES "^[0-9]+\\.[0-9]$")
      message(FATAL_ERROR "HALFSTEP_GPUS has \"${capability}\": it is a list of compute capabilities, \"8.6;9.0\", or \"all\"")
    elseif(capability VERSION_LESS 7.5)
      message(STATUS "halfstep: a GPU of compute capability ${capability} is left out: 7.5 (Turing) is the least")
    else()
      string(REPLACE "." "" architecture ${capability})
      if(known AND NOT architecture IN_LIST known)
        set(nearest)
        foreach(other IN LISTS known)
          if(other LESS architecture AND NOT other LESS 75 AND (NOT nearest OR other GREATER nearest))
            set(nearest ${other})
          endif()
        endforeach()
        if(nearest)
          message(STATUS "halfstep: this nvcc does not know the capability ${capability}; such a GPU's driver compiles the PTX of "
                         "compute_${nearest}, at the first start")
          set(architecture ${nearest}-virtual)
        endif()
      endif()
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

# halfstep_nvcc_knows(OUT NVCC): the architectures of `nvcc --list-gpu-arch`, "75;80;90"; empty where it says nothing.
function(halfstep_nvcc_knows out nvcc)
  execute_process(COMMAND ${nvcc} --list-gpu-arch OUTPUT_VARIABLE said ERROR_QUIET)
  string(REGEX MATCHALL "compute_[0-9]+" known "${said}")
  list(TRANSFORM known REPLACE "compute_" "")
  set(${out} ${known} PARENT_SCOPE)
endfunction()

# halfstep_check_nvcc(OUT VERSION): why this version of nvcc does not serve, or empty. nvcc of CUDA 11 has no C++20. That of 12.0
# bounds a kernel's parameters to 4 KB; the lists of the optimizers have 9.6 KB.
set(HALFSTEP_OLDEST_CUDA 12.1)
function(halfstep_check_nvcc out version)
  set(why "")
  if(version VERSION_LESS HALFSTEP_OLDEST_CUDA)
    set(why "CUDA ${HALFSTEP_OLDEST_CUDA} or later is needed, got ${version}")
  endif()
  set(${out} ${why} PARENT_SCOPE)
endfunction()

# halfstep_cudnn_headers(OUT WHY FOLDER): the version of cuDNN's headers there, "9.1.0"; empty, with the reason in WHY, where there
# are none or none that serve.
function(halfstep_cudnn_headers out why folder)
  set(version "")
  set(problem "")
  if(EXISTS ${folder}/cudnn.h)
    set(versions "")
    if(EXISTS ${folder}/cudnn_version.h)
      file(STRINGS ${folder}/cudnn_version.h versions REGEX "define +CUDNN_(MAJOR|MINOR|PATCHLEVEL) ")
    endif()
    string(REGEX REPLACE "[^;]*_(MAJOR|MINOR|PATCHLEVEL) +([0-9]+)[^;]*" "\\2" version "${versions}")
    list(JOIN version "." version)
    if(NOT version MATCHES "^9\\.")
      set(problem "cuDNN ${version} headers at ${folder} are left out: version 9 is needed")
      set(version "")
    endif()
  endif()
  set(${out} "${version}" PARENT_SCOPE)
  set(${why} "${problem}" PARENT_SCOPE)
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

# halfstep_package_note(OUT GPUS CODE VERSION): what to say when packages are made of a build with CUDA that run badly or not at
# all elsewhere: those for some GPUs alone, and those of a toolkit that old drivers refuse; else empty. CODE: what it was compiled
# to, in words. Code of CUDA 12 runs with every driver from 530 on, which takes the long parameters of our kernels; that of 13 from
# 580 on.
function(halfstep_package_note out gpus code version)
  set(note "")
  if(NOT gpus STREQUAL "all")
    set(note "The packages hold CUDA code for ${code} alone. For other GPUs, configure with -DHALFSTEP_GPUS=all before.")
  endif()
  if(version VERSION_GREATER_EQUAL 13)
    string(APPEND note " They need a driver of version 580 or later, since they were made with CUDA ${version}; those of CUDA 12.9 "
                       "need 530.")
  endif()
  string(STRIP "${note}" note)
  set(${out} ${note} PARENT_SCOPE)
endfunction()
