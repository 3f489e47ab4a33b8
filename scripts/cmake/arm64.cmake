# SPDX-License-Identifier: Apache-2.0
# CMake's toolchain file for Debian's arm64: cmake --toolchain scripts/cmake/arm64.cmake, or in the environment of scripts/build.sh
# CMAKE_TOOLCHAIN_FILE. scripts/setup.sh --with arm64 installs what it names. QEMU runs the programs that a build runs, and tests.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH /)
find_program(HALFSTEP_QEMU NAMES qemu-aarch64-static qemu-aarch64)
if(HALFSTEP_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${HALFSTEP_QEMU})
endif()
set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
