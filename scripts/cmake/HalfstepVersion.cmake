# SPDX-License-Identifier: Apache-2.0
# Facts about this build for `halfstep --version`.
execute_process(COMMAND git describe --always --dirty WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
                OUTPUT_VARIABLE HALFSTEP_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT HALFSTEP_COMMIT)
  set(HALFSTEP_COMMIT "unknown")
endif()
# Apart from the rest, which changes with each commit, for files of the library.
configure_file(${PROJECT_SOURCE_DIR}/scripts/cmake/release.h.in ${PROJECT_BINARY_DIR}/generated/halfstep_release.h)
configure_file(${PROJECT_SOURCE_DIR}/scripts/cmake/version.h.in ${PROJECT_BINARY_DIR}/generated/halfstep_version.h)
