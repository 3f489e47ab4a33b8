# SPDX-License-Identifier: Apache-2.0
# Writes the header OUT, if that changes it: cmake -D SOURCE=FOLDER -D OUT=FILE -D HALFSTEP_COMPILER=... -P write_version.cmake
# The commit is that of SOURCE, "-dirty" with changes, or "unknown" where SOURCE is no repository: sources within the repository of
# another project do not take its commit.
set(git ${CMAKE_COMMAND} -E env GIT_OPTIONAL_LOCKS=0 git)
execute_process(COMMAND ${git} rev-parse --show-prefix WORKING_DIRECTORY ${SOURCE} RESULT_VARIABLE failed OUTPUT_VARIABLE below
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
set(HALFSTEP_COMMIT "")
if(failed EQUAL 0 AND below STREQUAL "")
  execute_process(COMMAND ${git} describe --always --dirty WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE HALFSTEP_COMMIT
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT HALFSTEP_COMMIT)
  set(HALFSTEP_COMMIT "unknown")
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/version.h.in ${OUT} @ONLY)
