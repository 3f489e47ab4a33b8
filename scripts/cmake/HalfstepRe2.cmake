# SPDX-License-Identifier: Apache-2.0
# RE2 as re2::re2, when it is here: by its own config where it has one; Debian 12's package has none. Used by the build and by the
# installed package.
find_package(re2 CONFIG QUIET)
if(NOT TARGET re2::re2)
  find_path(RE2_INCLUDE_DIR re2/re2.h)
  find_library(RE2_LIBRARY re2)
  mark_as_advanced(RE2_INCLUDE_DIR RE2_LIBRARY)
  if(RE2_INCLUDE_DIR AND RE2_LIBRARY)
    add_library(re2::re2 UNKNOWN IMPORTED GLOBAL)
    set_target_properties(re2::re2 PROPERTIES IMPORTED_LOCATION ${RE2_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${RE2_INCLUDE_DIR}
                          INTERFACE_LINK_LIBRARIES Threads::Threads)
  endif()
endif()
