# SPDX-License-Identifier: Apache-2.0
# The CUDA compiler, the toolkit and the headers of the libraries opened at run time (cuBLASLt, cuDNN, NCCL).
# Sets HALFSTEP_WITH_CUDA by HALFSTEP_CUDA, and then, for each NAME of cublaslt, cudnn, nccl:
#   halfstep_NAME_headers      interface target, only where the header was found
#   HALFSTEP_NAME_LIBRARY      (NAME in upper case) full path of the shared library, false where there is none: then its plain
#                              name has to do at run time. Never linked
# Both are looked for in the toolkit, in the system and in the Python packages of NVIDIA (site-packages/nvidia/*) that
# HALFSTEP_PYTHON, by default python3, would import. To choose others: -DHALFSTEP_NAME_INCLUDE_DIR=, -DHALFSTEP_NAME_LIBRARY=.
set(HALFSTEP_WITH_CUDA OFF)
option(HALFSTEP_CUDA_PTX "Add PTX of compute_75 and compute_80, for GPUs other than those compiled for" ON)
if(HALFSTEP_CUDA STREQUAL "OFF")
  return()
endif()

# The compute capabilities of the GPUs that are here: "9.0;8.9".
set(HALFSTEP_GPUS "" CACHE STRING
    "Compute capabilities to compile for, \"8.6;9.0\", or \"all\"; empty: those of this machine's GPUs")
set(gpus ${HALFSTEP_GPUS})
find_program(HALFSTEP_NVIDIA_SMI nvidia-smi)
mark_as_advanced(HALFSTEP_NVIDIA_SMI)
if(HALFSTEP_NVIDIA_SMI AND NOT gpus)
  execute_process(COMMAND ${HALFSTEP_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE gpus ERROR_QUIET)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]" gpus "${gpus}")
  list(REMOVE_DUPLICATES gpus)
endif()
include(HalfstepCudaTargets)
if(NOT gpus)
  halfstep_jetson_gpu(gpus /proc/device-tree/compatible)
endif()
include(CheckLanguage)
check_language(CUDA)
if(HALFSTEP_CUDA STREQUAL "AUTO" AND CMAKE_CUDA_COMPILER AND NOT gpus)
  message(STATUS
          "halfstep: built for the CPU, since no GPU was found. "
          "HALFSTEP_CUDA=ON before the command builds the CUDA backend as well")
  return()
endif()
if(NOT CMAKE_CUDA_COMPILER)
  if(HALFSTEP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "HALFSTEP_CUDA=ON, but no CUDA compiler was found: put nvcc on PATH or set CMAKE_CUDA_COMPILER")
  endif()
  return()
endif()

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  halfstep_cuda_targets(CMAKE_CUDA_ARCHITECTURES "${gpus}" ${HALFSTEP_CUDA_PTX})
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake up to 3.25.1 does not know that nvcc has it
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
find_package(CUDAToolkit REQUIRED)
set(HALFSTEP_WITH_CUDA ON)
# The same in words, for people: "sm_90, PTX of compute_75".
set(HALFSTEP_CUDA_CODE)
foreach(architecture IN LISTS CMAKE_CUDA_ARCHITECTURES)
  if(architecture MATCHES "^(.*)-real$")
    list(APPEND HALFSTEP_CUDA_CODE "sm_${CMAKE_MATCH_1}")
  elseif(architecture MATCHES "^(.*)-virtual$")
    list(APPEND HALFSTEP_CUDA_CODE "PTX of compute_${CMAKE_MATCH_1}")
  elseif(architecture MATCHES "^[0-9]")
    list(APPEND HALFSTEP_CUDA_CODE "sm_${architecture}" "PTX of compute_${architecture}")
  else()
    list(APPEND HALFSTEP_CUDA_CODE "${architecture}")
  endif()
endforeach()
list(JOIN HALFSTEP_CUDA_CODE ", " HALFSTEP_CUDA_CODE)
message(STATUS "halfstep: CUDA ${CUDAToolkit_VERSION}, compiled to ${HALFSTEP_CUDA_CODE}")

# Folders with include/ and lib/ of their own, in the order of search.
set(HALFSTEP_CUDA_ROOTS ${CUDAToolkit_TARGET_DIR} ${CUDAToolkit_LIBRARY_ROOT} /usr/local/cuda /usr/local /usr)
find_program(HALFSTEP_PYTHON NAMES python3 python)
mark_as_advanced(HALFSTEP_PYTHON)
if(HALFSTEP_PYTHON)
  execute_process(COMMAND ${HALFSTEP_PYTHON} -c
    "import importlib.util as u; s = u.find_spec('nvidia'); print(';'.join(s.submodule_search_locations if s else []))"
    OUTPUT_VARIABLE packages OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  foreach(package IN LISTS packages)
    file(GLOB roots LIST_DIRECTORIES true ${package}/*)
    list(SORT roots COMPARE NATURAL ORDER DESCENDING)  # the newest toolkit first: cu13, cu12
    list(APPEND HALFSTEP_CUDA_ROOTS ${roots})
  endforeach()
endif()

# halfstep_cuda_library(NAME LABEL HEADER SONAME VERSION_HEADER PREFIX PATCH): SONAME with the library's major version, as the
# toolkit at hand needs it; PREFIX_MAJOR, PREFIX_MINOR, PREFIX_PATCH are macros of VERSION_HEADER.
function(halfstep_cuda_library name label header soname version_header prefix patch)
  string(TOUPPER ${name} upper)
  set(include HALFSTEP_${upper}_INCLUDE_DIR)
  set(library HALFSTEP_${upper}_LIBRARY)
  find_path(${include} ${header} PATHS ${HALFSTEP_CUDA_ROOTS} PATH_SUFFIXES include NO_DEFAULT_PATH DOC "Folder of ${header}")
  find_path(${include} ${header})
  # The library beside the header first, so that the two are of one version.
  get_filename_component(beside "${${include}}/.." ABSOLUTE)
  string(REGEX REPLACE "\\.so.*" ".so" unversioned ${soname})
  set(suffixes lib64 lib lib/x64 lib/${CMAKE_LIBRARY_ARCHITECTURE})
  find_library(${library} NAMES ${soname} PATHS ${beside} ${HALFSTEP_CUDA_ROOTS} PATH_SUFFIXES ${suffixes} NO_DEFAULT_PATH)
  find_library(${library} NAMES ${soname} ${unversioned} DOC "Opened at run time")
  mark_as_advanced(${include} ${library})
  if(NOT ${include})
    message(STATUS "halfstep: ${label} headers not found")
    return()
  endif()
  file(STRINGS ${${include}}/${version_header} lines REGEX "define +${prefix}_(MAJOR|MINOR|${patch}) ")
  string(REGEX REPLACE "[^;]*_(MAJOR|MINOR|${patch}) +([0-9]+)[^;]*" "\\2" version "${lines}")
  list(JOIN version "." version)
  set(where "library ${${library}}")
  if(NOT ${library})
    set(where "library not found: ${soname} is opened by its name")
  endif()
  message(STATUS "halfstep: ${label} ${version} headers at ${${include}}, ${where}")
  # Searched last: a Python package's folder also has headers of another CUDA runtime, which must not win over the toolkit's.
  add_library(halfstep_${name}_headers INTERFACE)
  target_compile_options(halfstep_${name}_headers INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${${include}}>")
endfunction()

set(major ${CUDAToolkit_VERSION_MAJOR})
halfstep_cuda_library(cublaslt cuBLASLt cublasLt.h libcublasLt.so.${major} cublas_api.h CUBLAS_VER PATCH)
halfstep_cuda_library(cudnn cuDNN cudnn.h libcudnn.so.9 cudnn_version.h CUDNN PATCHLEVEL)
halfstep_cuda_library(nccl NCCL nccl.h libnccl.so.2 nccl.h NCCL PATCH)
if(NOT TARGET halfstep_cublaslt_headers)
  set(kind FATAL_ERROR)
  if(HALFSTEP_CUDA STREQUAL "AUTO")
    set(kind WARNING)
  endif()
  message(${kind} "No CUDA backend: cublasLt.h was not found. Install libcublas-dev of the toolkit or the Python package "
                  "nvidia-cublas, or set HALFSTEP_CUBLASLT_INCLUDE_DIR to its folder")
  set(HALFSTEP_WITH_CUDA OFF)
endif()
