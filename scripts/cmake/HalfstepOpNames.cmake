# SPDX-License-Identifier: Apache-2.0
# generated/TABLE_names.def: the names of the rows of framework/math/TABLE.def, which enums and declarations are made of
# (op_kinds.h). A file whose text would be the same is left alone, so that an edit of a formula does not recompile them.
foreach(table elementwise pointwise)
  set(source ${PROJECT_SOURCE_DIR}/framework/math/${table}.def)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  file(READ ${source} rows)
  string(REGEX MATCHALL "\nHS_[A-Z]+\\([a-z0-9_]+" rows "${rows}")
  list(JOIN rows ")" rows)
  set(before "// Written by CMake from framework/math/${table}.def.\n")
  set(after ")\n\n")
  foreach(macro HS_UNARY HS_BINARY HS_TEST HS_POINTWISE)
    string(APPEND before "#ifndef ${macro}\n#define ${macro}(...)\n#endif\n")
    string(APPEND after "#undef ${macro}\n")
  endforeach()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/${table}_names.def CONTENT "${before}${rows}${after}" @ONLY)
endforeach()
