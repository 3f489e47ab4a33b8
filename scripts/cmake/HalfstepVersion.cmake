# SPDX-License-Identifier: Apache-2.0
# Facts about this build for `halfstep --version`. Each build asks for the commit, as it may be another one than when CMake ran.
# The release is apart from the rest, which changes with each commit, for files of the library.
configure_file(${PROJECT_SOURCE_DIR}/scripts/cmake/release.h.in ${PROJECT_BINARY_DIR}/generated/halfstep_release.h)
add_custom_target(halfstep_version BYPRODUCTS ${PROJECT_BINARY_DIR}/generated/halfstep_version.h VERBATIM
                  COMMAND ${CMAKE_COMMAND} -D SOURCE=${PROJECT_SOURCE_DIR} -D OUT=${PROJECT_BINARY_DIR}/generated/halfstep_version.h
                          -D "HALFSTEP_COMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
                          -D HALFSTEP_BUILD_TYPE=${CMAKE_BUILD_TYPE} -D HALFSTEP_CUDA_VERSION=${CUDAToolkit_VERSION}
                          -P ${CMAKE_CURRENT_LIST_DIR}/write_version.cmake
                  COMMENT "Asking for the commit")
