# SPDX-License-Identifier: Apache-2.0
# `cmake --install`: the public headers, the library, a package for find_package(halfstep) and a file for pkg-config. apps/ installs
# the program, its library, and what other languages use.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/halfstep)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME libhalfstep-dev)

# The headers that promise something; docs/build.md lists them with apps/halfstep_app.h and halfstep_predict.h. What they include is
# installed below internal/, and may change with any version.
set(public_headers halfstep.h amp/amp.h framework/autograd/autograd.h framework/data/data.h
    framework/distributions/distributions.h framework/io/io.h framework/ops/ops.h framework/tensor/eigen.h framework/tensor/memory.h
    framework/tensor/tensor.h layers/nn.h optim/optim.h)
set(headers ${CMAKE_INSTALL_INCLUDEDIR}/halfstep)
set(others REGEX "framework/backend/cpu" EXCLUDE)
foreach(header IN LISTS public_headers)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${header} DESTINATION ${headers}/${folder})
  list(APPEND others REGEX "/${header}$" EXCLUDE)
endforeach()
install(DIRECTORY framework layers optim amp DESTINATION ${headers}/internal FILES_MATCHING PATTERN "*.h" PATTERN "*.def" ${others})
install(FILES ${PROJECT_BINARY_DIR}/generated/elementwise_names.def ${PROJECT_BINARY_DIR}/generated/pointwise_names.def
        DESTINATION ${headers}/internal/generated)
target_include_directories(halfstep PUBLIC "$<INSTALL_INTERFACE:${headers};${headers}/internal>")
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

# What the static library is linked with, for `pkg-config --static --libs halfstep`.
set(HALFSTEP_PC_MODULES spdlog zlib)
set(HALFSTEP_PC_LIBRARIES "${OpenMP_CXX_FLAGS} -pthread")
if(CMAKE_DL_LIBS)
  string(APPEND HALFSTEP_PC_LIBRARIES " -l${CMAKE_DL_LIBS}")
endif()
if(HALFSTEP_WITH_IMAGES)
  list(APPEND HALFSTEP_PC_MODULES libpng libjpeg)
endif()
if(TARGET halfstep_dnnl)
  string(PREPEND HALFSTEP_PC_LIBRARIES "-ldnnl ")
endif()
if(LAPACK_FOUND)
  string(PREPEND HALFSTEP_PC_LIBRARIES "-llapack -lblas ")
endif()
if(HALFSTEP_WITH_CUDA)
  string(PREPEND HALFSTEP_PC_LIBRARIES "-L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lrt ")
endif()
list(JOIN HALFSTEP_PC_MODULES ", " HALFSTEP_PC_MODULES)
file(RELATIVE_PATH HALFSTEP_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" HALFSTEP_PC_PREFIX ${HALFSTEP_PC_PREFIX})
configure_file(scripts/cmake/halfstep.pc.in ${PROJECT_BINARY_DIR}/generated/halfstep.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/generated/halfstep.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
