# SPDX-License-Identifier: Apache-2.0
# What is compiled for which GPUs: cmake -P cuda_targets_test.cmake
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/../../scripts/cmake/HalfstepCudaTargets.cmake)

function(expect gpus ptx wanted)
  halfstep_cuda_targets(targets "${gpus}" ${ptx} "${ARGN}")
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
expect("all" ON "75-real;80-real;86-real;89-real;90" 50;75;80;86;87;89;90)              # CUDA 12.1 to 12.7
expect("all" ON "80-real;86-real;89-real;90;100-real;120-real" 80;86;89;90;100;110;120)  # a later one, without Turing
expect("12.0" OFF "90-virtual" 75;80;89;90)  # a GPU newer than nvcc
expect("8.6;10.3" OFF "86;100-virtual" 75;80;86;90;100;120)
expect("7.5" OFF "75" 80;90;100)  # one older than nvcc, which says so itself
set(CMAKE_SYSTEM_PROCESSOR aarch64)
expect("all" ON "75-real;80-real;86-real;87-real;89-real;90;100-real;120-real")
unset(CMAKE_SYSTEM_PROCESSOR)

set(boards ${CMAKE_CURRENT_BINARY_DIR}/compatible)
foreach(board "tegra234 8.7" "tegra194 " "bcm2711 ")
  string(REPLACE " " ";" board "${board}")
  list(GET board 0 chip)
  list(GET board 1 wanted)
  file(WRITE ${boards} "nvidia,board\nvendor,${chip}\n")
  halfstep_jetson_gpu(gpu ${boards})
  if(NOT gpu STREQUAL wanted)
    message(SEND_ERROR "${chip}: ${gpu}, not ${wanted}")
  endif()
endforeach()
file(REMOVE ${boards})
halfstep_jetson_gpu(gpu ${boards})
if(gpu)
  message(SEND_ERROR "no board: ${gpu}")
endif()

halfstep_package_note(note "all" "sm_75, sm_90" 12.9.86)
if(note)
  message(SEND_ERROR "packages for all GPUs need no note: ${note}")
endif()
halfstep_package_note(note "" "sm_90" 12.9.86)
if(NOT note MATCHES "for sm_90 alone.*-DHALFSTEP_GPUS=all" OR note MATCHES "driver")
  message(SEND_ERROR "packages for one GPU say so: ${note}")
endif()
halfstep_package_note(note "all" "sm_75, sm_90" 13.0.88)
if(NOT note MATCHES "^They need a driver of version 580")
  message(SEND_ERROR "packages of CUDA 13 name the driver: ${note}")
endif()

# Headers of cuDNN: 8 counts as none.
set(headers ${CMAKE_CURRENT_BINARY_DIR}/cudnn_headers)
foreach(case "8.9.2 " "9.0.0 9.0.0" "9.19.1 9.19.1" "10.0.0 ")
  string(REPLACE " " ";" case "${case}")
  list(GET case 0 has)
  list(GET case 1 wanted)
  string(REPLACE "." ";" part ${has})
  list(GET part 0 major)
  list(GET part 1 minor)
  list(GET part 2 patch)
  file(WRITE ${headers}/cudnn.h "")
  file(WRITE ${headers}/cudnn_version.h
       "#define CUDNN_MAJOR ${major}\n#define CUDNN_MINOR ${minor}\n#define CUDNN_PATCHLEVEL ${patch}\n"
       "#define CUDNN_VERSION (CUDNN_MAJOR * 10000 + CUDNN_MINOR * 100 + CUDNN_PATCHLEVEL)\n")
  halfstep_cudnn_headers(version why ${headers})
  if(NOT version STREQUAL wanted OR (NOT wanted AND NOT why MATCHES "cuDNN ${has} headers at .* left out: version 9 is needed"))
    message(SEND_ERROR "cuDNN ${has}: \"${version}\", \"${why}\"")
  endif()
endforeach()
file(WRITE ${headers}/cudnn.h "#define CUDNN_MAJOR 7\n")  # 7 had its version here
file(REMOVE ${headers}/cudnn_version.h)
halfstep_cudnn_headers(version why ${headers})
if(version OR NOT why)
  message(SEND_ERROR "cuDNN 7: \"${version}\", \"${why}\"")
endif()
file(REMOVE_RECURSE ${headers})
halfstep_cudnn_headers(version why ${headers})
if(version OR why)
  message(SEND_ERROR "no cuDNN: \"${version}\", \"${why}\"")
endif()

# A toolkit that is too old, before anything is compiled: a fake nvcc, which only says what it is.
set(project ${CMAKE_CURRENT_BINARY_DIR}/old_toolkit)
foreach(case "11.8 ON" "12.0 ON" "11.8 AUTO" "12.0 AUTO_GPU")
  string(REPLACE " " ";" case "${case}")
  list(GET case 0 version)
  list(GET case 1 option)
  string(REGEX REPLACE "_GPU" ";-DHALFSTEP_GPUS=8.6" option "${option}")
  file(REMOVE_RECURSE ${project})
  file(WRITE ${project}/nvcc "#!/bin/sh\n"
       "[ \"$*\" = --version ] && echo 'Cuda compilation tools, release ${version}, V${version}.89'\n")
  file(CHMOD ${project}/nvcc PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  file(WRITE ${project}/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)\nproject(old LANGUAGES NONE)\n"
       "list(APPEND CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR}/../../scripts/cmake)\ninclude(HalfstepCuda)\n"
       "message(STATUS \"with CUDA: \${HALFSTEP_WITH_CUDA}\")\n")
  execute_process(COMMAND ${CMAKE_COMMAND} -G Ninja -S ${project} -B ${project}/build -DHALFSTEP_CUDA=${option}
                          -DCMAKE_CUDA_COMPILER=${project}/nvcc -DHALFSTEP_NVIDIA_SMI=HALFSTEP_NVIDIA_SMI-NOTFOUND
                  RESULT_VARIABLE result OUTPUT_VARIABLE said ERROR_VARIABLE complaint)
  string(REGEX REPLACE "[ \n]+" " " complaint "${complaint}")
  set(good FALSE)
  if(option STREQUAL "ON")  # asked for: an error that names the version, and nothing else
    string(REGEX MATCHALL "CMake Error" errors "${complaint}")
    list(LENGTH errors count)
    if(result AND count EQUAL 1 AND complaint MATCHES "CUDA 12.1 or later is needed, got ${version} .*nvcc")
      set(good TRUE)
    endif()
  elseif(NOT result AND said MATCHES "with CUDA: OFF")  # not asked for: a warning, if there is a GPU that could have computed
    if((option MATCHES GPUS AND complaint MATCHES "Warning.*Built for the CPU: CUDA 12.1 or later is needed, got ${version}") OR
       (NOT option MATCHES GPUS AND NOT complaint))
      set(good TRUE)
    endif()
  endif()
  if(NOT good)
    message(SEND_ERROR "nvcc ${version}, HALFSTEP_CUDA=${option}: ${result}, ${said}, ${complaint}")
  endif()
endforeach()
file(REMOVE_RECURSE ${project})
