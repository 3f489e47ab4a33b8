# SPDX-License-Identifier: Apache-2.0
# cmake -DBUILD=<build folder> -DSOURCE=<repository> -DWORK=<scratch folder> -DGENERATOR=... -DCXX=... -P run.cmake
# Installs halfstep, builds the consumers against it and runs them; then sees that add_subdirectory finds every target.
function(run)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${WORK} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(common -S ${SOURCE}/tests/consumer -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_BUILD_TYPE=RelWithDebInfo)
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} ${common} -B ${WORK}/installed -DCMAKE_PREFIX_PATH=${WORK}/prefix -DCMAKE_CXX_FLAGS=${FLAGS}
    -DCMAKE_C_FLAGS=${FLAGS})
run(${CMAKE_COMMAND} --build ${WORK}/installed)
run(${WORK}/installed/consumer)
run(${WORK}/installed/consumer_app)
run(${WORK}/prefix/bin/halfstep train ${SOURCE}/tests/consumer/plain.json --quiet --set output_dir=${WORK}/plain)
run(${WORK}/installed/consumer_predict plain)

# In another project's build, one without a build type: its own targets have no flags of ours, ours are optimised, and its
# installation has its own file alone.
list(REMOVE_ITEM common -DCMAKE_BUILD_TYPE=RelWithDebInfo)
run(${CMAKE_COMMAND} ${common} -B ${WORK}/subdirectory -DHALFSTEP_SOURCE=${SOURCE} -DHALFSTEP_CUDA=OFF)
file(READ ${WORK}/subdirectory/compile_commands.json commands)
string(JSON count LENGTH ${commands})
math(EXPR last "${count} - 1")
set(ours 0)
foreach(i RANGE ${last})
  string(JSON file GET ${commands} ${i} file)
  string(JSON command GET ${commands} ${i} command)
  if(file MATCHES "/consumer/(main|app)\\.cpp$" AND command MATCHES " -O| -DNDEBUG| -fmacro-prefix-map| -W")
    message(FATAL_ERROR "halfstep's flags reach the project: ${command}")
  elseif(file MATCHES "framework/base|unity_framework_base" AND command MATCHES " -O[23] ")
    math(EXPR ours "${ours} + 1")
  endif()
endforeach()
if(ours EQUAL 0)
  message(FATAL_ERROR "no file of halfstep is optimised")
endif()
run(${CMAKE_COMMAND} --install ${WORK}/subdirectory --prefix ${WORK}/own)
file(GLOB_RECURSE installed RELATIVE ${WORK}/own ${WORK}/own/*)
if(NOT installed STREQUAL "share/plain.json")
  message(FATAL_ERROR "the project's installation has ${installed}")
endif()
