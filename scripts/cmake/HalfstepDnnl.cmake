# SPDX-License-Identifier: Apache-2.0
# oneDNN, version 2 or 3, as the target halfstep_dnnl, when it is here. Used by the build and by the installed package.
# Debian's own CMake config demands OpenCL, which libdnnl-dev does not bring, so it is found by hand.
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(DNNL_LIBRARY dnnl)
mark_as_advanced(DNNL_INCLUDE_DIR DNNL_LIBRARY)
# Another version may have another interface, and is taken for no oneDNN.
set(halfstep_dnnl_version)
if(DNNL_INCLUDE_DIR AND EXISTS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h)
  file(STRINGS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h halfstep_dnnl_version REGEX "define +DNNL_VERSION_MAJOR ")
  string(REGEX REPLACE ".*MAJOR +" "" halfstep_dnnl_version "${halfstep_dnnl_version}")
endif()
if(DNNL_LIBRARY AND halfstep_dnnl_version MATCHES "^[23]$" AND NOT TARGET halfstep_dnnl)
  add_library(halfstep_dnnl UNKNOWN IMPORTED GLOBAL)
  set_target_properties(halfstep_dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR} INTERFACE_COMPILE_DEFINITIONS HALFSTEP_WITH_DNNL=1)
endif()
