# SPDX-License-Identifier: Apache-2.0
# `cmake --install`: the public headers, the library, and a package for find_package(halfstep). apps/ installs the program, its
# library, and what other languages use.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/halfstep)

install(DIRECTORY framework layers optim amp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/halfstep
        FILES_MATCHING PATTERN "*.h" PATTERN "*.def" REGEX "framework/backend/cpu" EXCLUDE)
install(FILES halfstep.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/halfstep)
install(FILES ${PROJECT_BINARY_DIR}/generated/elementwise_names.def ${PROJECT_BINARY_DIR}/generated/pointwise_names.def
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/halfstep/generated)
target_include_directories(halfstep PUBLIC $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/halfstep>)
install(TARGETS halfstep EXPORT halfstepTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT halfstepTargets NAMESPACE halfstep:: DESTINATION ${package_dir})
if(HALFSTEP_APPS)
  install(EXPORT halfstepAppTargets NAMESPACE halfstep:: DESTINATION ${package_dir})
  install(FILES scripts/cmake/HalfstepRe2.cmake DESTINATION ${package_dir})
endif()

configure_package_config_file(scripts/cmake/halfstepConfig.cmake.in ${PROJECT_BINARY_DIR}/generated/halfstepConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/halfstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/halfstepConfig.cmake ${PROJECT_BINARY_DIR}/generated/halfstepConfigVersion.cmake
              scripts/cmake/HalfstepDnnl.cmake DESTINATION ${package_dir})
