# SPDX-License-Identifier: Apache-2.0
# Packages that travel with the sources instead of being installed (scripts/vendor_deps.sh): HALFSTEP_DEPS, by default deps/
# beside the sources where it exists, is searched before the system. Include this before the first find_package().
if(NOT DEFINED HALFSTEP_DEPS AND EXISTS ${PROJECT_SOURCE_DIR}/deps/usr)
  set(HALFSTEP_DEPS ${PROJECT_SOURCE_DIR}/deps)
endif()
if(HALFSTEP_DEPS)
  get_filename_component(HALFSTEP_DEPS "${HALFSTEP_DEPS}" ABSOLUTE BASE_DIR ${PROJECT_SOURCE_DIR})
  if(NOT EXISTS ${HALFSTEP_DEPS}/usr/include)
    message(FATAL_ERROR "HALFSTEP_DEPS=${HALFSTEP_DEPS} has no usr/include: make the folder with scripts/vendor_deps.sh")
  endif()
  list(PREPEND CMAKE_PREFIX_PATH ${HALFSTEP_DEPS}/usr)
  message(STATUS "halfstep: packages of ${HALFSTEP_DEPS} before the system's")
endif()
