# SPDX-License-Identifier: Apache-2.0
# `cpack` in the build folder writes a Debian package for each component of the installation, and a tarball of them all.
# The target `installation` builds what is in them, and `packages` calls cpack besides: scripts/build.sh default packages
set(CPACK_GENERATOR DEB TXZ)
set(CPACK_PACKAGE_CONTACT "The halfstep authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has one of its own
set(CPACK_STRIP_FILES ON)
set(CPACK_OUTPUT_FILE_PREFIX ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGE_FILE_NAME halfstep-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})  # the tarball
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENTS_ALL)

# halfstep_package(NAME SECTION SUMMARY TEXT TARGETS target... [DEPENDS package...])
# DEPENDS: besides the shared libraries, whose packages dpkg-shlibdeps finds.
function(halfstep_package name section summary text)
  cmake_parse_arguments(ARG "" "" "TARGETS;DEPENDS" ${ARGN})
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} RENAME copyright COMPONENT ${name})
  install(FILES NOTICE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} COMPONENT ${name})
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} ${name} PARENT_SCOPE)
  set(packaged ${packaged} ${ARG_TARGETS} PARENT_SCOPE)
  list(JOIN ARG_DEPENDS ", " depends)
  string(TOUPPER ${name} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${summary}\n${text}" PARENT_SCOPE)
endfunction()

set(same_version "(= ${PROJECT_VERSION})")
set(dev_packages libeigen3-dev libspdlog-dev nlohmann-json3-dev zlib1g-dev)
if(TARGET halfstep_dnnl)
  list(APPEND dev_packages libdnnl-dev)
endif()
if(LAPACK_FOUND)
  list(APPEND dev_packages liblapack-dev)
endif()
if(HALFSTEP_WITH_IMAGES)
  list(APPEND dev_packages libpng-dev libjpeg-dev)
endif()
if(HALFSTEP_APPS)
  halfstep_package(halfstep science "trains neural networks in mixed precision"
                   "The program with its manual page, configs, the JSON Schema of configs, and completions for shells."
                   TARGETS halfstep_program halfstep_pages)
  halfstep_package(libhalfstep-predict0 libs "uses models that halfstep has trained, from C and Python"
                   "The library libhalfstep_predict, and the Python package /usr/lib/halfstep/halfstep, which needs NumPy."
                   TARGETS halfstep_predict)
  set(CPACK_DEBIAN_LIBHALFSTEP-PREDICT0_PACKAGE_SUGGESTS python3-numpy)
  set(CPACK_DEBIAN_LIBHALFSTEP-PREDICT0_PACKAGE_GENERATE_SHLIBS ON)  # and calls ldconfig
  list(APPEND dev_packages libre2-dev "libhalfstep-predict0 ${same_version}")
endif()
halfstep_package(libhalfstep-dev libdevel "C++ library that trains neural networks in mixed precision"
                 "Headers, static libraries, and files for CMake's find_package and for pkg-config --static."
                 TARGETS halfstep DEPENDS ${dev_packages})
if(TARGET halfstep_torch)
  halfstep_package(libhalfstep-torch-dev libdevel "compiles programs for libtorch with halfstep"
                   "Headers with libtorch's names, a static library, and TorchConfig.cmake for CMake's find_package(Torch)."
                   TARGETS halfstep_torch DEPENDS "libhalfstep-dev ${same_version}")
endif()
foreach(transport mpi gloo)
  if(TARGET halfstep_${transport})
    halfstep_package(halfstep-${transport} science "trains with halfstep in several processes (${transport})"
                     "The plugin libhalfstep_${transport}.so." TARGETS halfstep_${transport} DEPENDS "halfstep ${same_version}")
  endif()
endforeach()
include(CPack)
set(say_gpus)
if(HALFSTEP_WITH_CUDA)
  include(HalfstepCudaTargets)
  halfstep_package_note(note "${HALFSTEP_GPUS}" "${HALFSTEP_CUDA_CODE}" ${CUDAToolkit_VERSION})
  if(note)
    set(say_gpus COMMAND ${CMAKE_COMMAND} -E echo ${note})
  endif()
endif()
add_custom_target(installation DEPENDS ${packaged})
# Without these, CPack makes packages that depend on nothing.
find_program(HALFSTEP_SHLIBDEPS dpkg-shlibdeps)
find_program(HALFSTEP_FILE file)
mark_as_advanced(HALFSTEP_SHLIBDEPS HALFSTEP_FILE)
if(HALFSTEP_SHLIBDEPS AND HALFSTEP_FILE)
  add_custom_target(packages DEPENDS installation VERBATIM COMMAND ${CMAKE_COMMAND} -E rm -rf ${CPACK_OUTPUT_FILE_PREFIX}
                    COMMAND ${CMAKE_CPACK_COMMAND} ${say_gpus})
else()
  add_custom_target(packages VERBATIM COMMAND ${CMAKE_COMMAND} -E echo
                    "packages need dpkg-shlibdeps and file: scripts/setup.sh --with packages, and build again"
                    COMMAND ${CMAKE_COMMAND} -E false)
endif()
