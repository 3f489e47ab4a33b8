# SPDX-License-Identifier: Apache-2.0
set(HALFSTEP_LEVELS "" CACHE INTERNAL "")
set(HALFSTEP_LINK "" CACHE INTERNAL "")

# With HALFSTEP_UNITY the sources of a folder become one translation unit, so that a header is read once a folder and not once a
# file. halfstep_unity(TARGET source...): sources by their path from the current folder. Call it where the target is created.
function(halfstep_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${HALFSTEP_UNITY} UNITY_BUILD_MODE GROUP)
  foreach(source IN LISTS ARGN)
    if(NOT source MATCHES "^\\$<")  # objects are compiled already
      get_filename_component(folder ${source} ABSOLUTE)
      get_filename_component(folder ${folder} DIRECTORY)
      file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${folder})
      string(MAKE_C_IDENTIFIER "${folder}" group)
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
    endif()
  endforeach()
endfunction()

# halfstep_level(NAME DIRS dir... [ALONE dir...] [EXCLUDE file...] [PACKAGES target...])
# All .cpp of the folders, not of those below them, as the object library halfstep_NAME. dir/*: each folder in dir. ALONE: folders
# in which each file stays a translation unit.
function(halfstep_level name)
  cmake_parse_arguments(ARG "" "" "DIRS;ALONE;EXCLUDE;PACKAGES" ${ARGN})
  foreach(kind DIRS ALONE)
    set(${kind}_sources)
    foreach(dir IN LISTS ARG_${kind})
      file(GLOB found CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/${dir}/*.cpp)
      list(APPEND ${kind}_sources ${found})
    endforeach()
  endforeach()
  if(ARG_EXCLUDE)
    list(REMOVE_ITEM DIRS_sources ${ARG_EXCLUDE})
  endif()
  add_library(halfstep_${name} OBJECT ${DIRS_sources} ${ALONE_sources})
  halfstep_unity(halfstep_${name} ${DIRS_sources})
  target_include_directories(halfstep_${name} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})  # the latter for generated/
  target_link_libraries(halfstep_${name} PRIVATE halfstep_flags ${ARG_PACKAGES})
  set(HALFSTEP_LEVELS ${HALFSTEP_LEVELS} ${name} CACHE INTERNAL "")
  set(HALFSTEP_LINK ${HALFSTEP_LINK} ${ARG_PACKAGES} CACHE INTERNAL "")
endfunction()

# Joins the object libraries into the static library halfstep::halfstep.
function(halfstep_library)
  add_library(halfstep STATIC)
  add_library(halfstep::halfstep ALIAS halfstep)
  foreach(level IN LISTS HALFSTEP_LEVELS)
    target_sources(halfstep PRIVATE $<TARGET_OBJECTS:halfstep_${level}>)
  endforeach()
  target_include_directories(halfstep PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR};${PROJECT_BINARY_DIR}>")
  target_compile_features(halfstep PUBLIC cxx_std_20)
  list(REMOVE_DUPLICATES HALFSTEP_LINK)
  target_link_libraries(halfstep PRIVATE ${HALFSTEP_LINK} Threads::Threads PUBLIC nlohmann_json::nlohmann_json)  # in checkpoint.h
endfunction()

# How tests run. Threads that wait sleep: spinning, on cores that other tests want, makes a test forty times slower.
set(HALFSTEP_TEST_ENVIRONMENT OMP_WAIT_POLICY=PASSIVE)
# Tests ask for too much on purpose. The bound is for damaged_calls.h, as ulimit would keep a sanitizer from starting.
set(bounds allocator_may_return_null=1:max_allocation_size_mb=1280)
if(HALFSTEP_SANITIZE MATCHES "address")
  # Freed memory is kept for a while, to find late uses: by default 256 MB, which the fuzzers' bound on memory would count.
  string(APPEND bounds ":quarantine_size_mb=64")
  set(strict malloc_fill_byte=255:check_initialization_order=1:strict_init_order=1:strict_string_checks=1)
  list(APPEND HALFSTEP_TEST_ENVIRONMENT ASAN_OPTIONS=${bounds}:${strict}
       LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/lsan.supp:print_suppressions=0)
elseif(HALFSTEP_SANITIZE MATCHES "thread")
  list(APPEND HALFSTEP_TEST_ENVIRONMENT TSAN_OPTIONS=${bounds}:suppressions=${PROJECT_SOURCE_DIR}/tests/support/tsan.supp)
endif()
if(HALFSTEP_SANITIZE MATCHES "undefined")
  list(APPEND HALFSTEP_TEST_ENVIRONMENT UBSAN_OPTIONS=print_stacktrace=1)
endif()

# halfstep_test(DIR [LIBS target...] [PARTS folder...]): all .cpp in and below that folder as one doctest program, run as DIR (label
# cpu), and as DIR.SUITE for the suites `data`, `slow`, `cuda` and `values` where the folder has them. `values`: sweeps that compare
# numbers and run no code that other tests do not run. Under sanitizers, which look for errors of memory, these are slow tests.
# PARTS: folders below DIR whose tests run apart, as DIR.FOLDER, so that they may run beside the rest.
function(halfstep_test dir)
  cmake_parse_arguments(ARG "" "" "LIBS;PARTS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/*.cpp)
  # An object library, which several programs link, and a program of its own.
  list(REMOVE_ITEM sources ops/op_cases.cpp torch/libtorch_program.cpp)
  set(target test_${dir})
  add_executable(${target} ${sources})
  halfstep_unity(${target} ${sources})
  target_link_libraries(${target} PRIVATE halfstep_test_main halfstep_source_dir halfstep::halfstep halfstep_flags ${ARG_LIBS})
  target_compile_options(${target} PRIVATE ${HALFSTEP_TEST_OPTIMIZATION})
  set(of_suites --test-suite-exclude=data,slow,cuda,values)
  set(apart)
  foreach(part IN LISTS ARG_PARTS)
    add_test(NAME ${dir}.${part} COMMAND ${target} ${of_suites} "--source-file=*tests/${dir}/${part}/*")
    set_tests_properties(${dir}.${part} PROPERTIES LABELS cpu ENVIRONMENT "${HALFSTEP_TEST_ENVIRONMENT}")
    list(APPEND apart "*tests/${dir}/${part}/*")
  endforeach()
  if(apart)
    list(JOIN apart "," apart)
    list(APPEND of_suites "--source-file-exclude=${apart}")
  endif()
  add_test(NAME ${dir} COMMAND ${target} ${of_suites})
  set_tests_properties(${dir} PROPERTIES LABELS cpu ENVIRONMENT "${HALFSTEP_TEST_ENVIRONMENT}")
  foreach(suite data slow cuda values)
    set(has FALSE)
    foreach(source IN LISTS sources)
      file(STRINGS ${source} lines REGEX "(TEST_SUITE|test_suite)\\(\"${suite}\"\\)")
      if(lines)
        set(has TRUE)
      endif()
    endforeach()
    if(has)
      add_test(NAME ${dir}.${suite} COMMAND ${target} --test-suite=${suite})
      set_tests_properties(${dir}.${suite} PROPERTIES LABELS ${suite} SKIP_REGULAR_EXPRESSION "SKIPPED: "
                           ENVIRONMENT "${HALFSTEP_TEST_ENVIRONMENT}")
      if(suite STREQUAL "values" AND HALFSTEP_SANITIZE)
        set_property(TEST ${dir}.values APPEND PROPERTY LABELS slow)
      endif()
    endif()
  endforeach()
endfunction()
