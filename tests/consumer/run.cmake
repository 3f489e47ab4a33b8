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
run(${CMAKE_COMMAND} ${common} -B ${WORK}/subdirectory -DHALFSTEP_SOURCE=${SOURCE} -DHALFSTEP_CUDA=OFF)
