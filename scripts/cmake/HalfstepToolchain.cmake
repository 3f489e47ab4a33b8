# SPDX-License-Identifier: Apache-2.0
# Below another project it holds for our targets alone.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
  if(PROJECT_IS_TOP_LEVEL)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
  endif()
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(HALFSTEP_STATIC_LINK -static-pie)
if(HALFSTEP_STATIC AND CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  # Debian's libc.a finds addresses in a table that may have 4096 entries there; position-independent code of this size needs more.
  set(CMAKE_POSITION_INDEPENDENT_CODE OFF)
  add_compile_options(-fno-pie)
  set(HALFSTEP_STATIC_LINK -static)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
if(HALFSTEP_ASSERTIONS)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
  add_compile_definitions(_GLIBCXX_ASSERTIONS=1)  # its layouts stay the same, so that other code may be linked with it
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")  # loops that gain by more ask for it: see the backend in CMakeLists.txt

# __FILE__ begins at the root of the sources, so that an object is the same in every clone. ccache says paths from the build folder.
file(RELATIVE_PATH up ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR})
string(REGEX REPLACE "/$" "" up "${up}")
foreach(root ${PROJECT_SOURCE_DIR} ${up})
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fmacro-prefix-map=${root}/=>)
endforeach()

if(PROJECT_IS_TOP_LEVEL)
  find_program(CCACHE_PROGRAM ccache)
  if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  endif()
  find_program(MOLD_PROGRAM mold)
  if(MOLD_PROGRAM)
    include(CheckLinkerFlag)
    check_linker_flag(CXX -fuse-ld=mold HALFSTEP_LINKS_WITH_MOLD)  # a cross compiler looks for it under another name
    if(HALFSTEP_LINKS_WITH_MOLD)
      add_link_options(-fuse-ld=mold)
    endif()
  endif()
endif()

# Portable unless asked otherwise. Never -ffast-math: the scaler lives on inf and NaN.
add_library(halfstep_flags INTERFACE)
set(compiler_warnings -Wshadow=compatible-local)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # framework/math computes with & and | on truth values, so that loops have no branches; GCC's pragmas are hints.
  set(compiler_warnings -Wno-bitwise-instead-of-logical -Wno-bitwise-conditional-parentheses -Wno-unknown-pragmas)
  # libstdc++ 12's stable_sort calls a function of its own that is deprecated, and Clang 19 warns of that.
  if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 19)
    list(APPEND compiler_warnings -Wno-deprecated-declarations)
  endif()
endif()
target_compile_options(halfstep_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;${compiler_warnings};-Wno-missing-field-initializers;-fno-math-errno;-fno-trapping-math>")
# GCC collects garbage while it compiles; less often, it takes a tenth less time and at most 300 MB more memory.
target_compile_options(halfstep_flags INTERFACE
  "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param ggc-min-expand=100 --param ggc-min-heapsize=1048576>")
if(HALFSTEP_UNITY)  # here a class of one .cpp may well have members of its anonymous namespace
  target_compile_options(halfstep_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endif()
# GCC 12 warns of its own std::string when it inlines operator+ at -O3 (https://gcc.gnu.org/PR105651).
target_compile_options(halfstep_flags INTERFACE
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<CONFIG:Release>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
# On aarch64 GCC notes that since version 10 it passes structs such as std::pair<float, float> differently.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  target_compile_options(halfstep_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-psabi>)
endif()
target_compile_definitions(halfstep_flags INTERFACE EIGEN_MPL2_ONLY=1)  # none of Eigen's few files under the LGPL
if(HALFSTEP_NATIVE)
  target_compile_options(halfstep_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=native>)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(halfstep_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=x86-64-v2>)
  set(HALFSTEP_NEEDS_V2 ON)
endif()
# Where the CPU has an instruction for a product and a sum (all of ARM's, and x86-64 from v3 on), compilers use it, and its rounding
# is another one. Only loops that gain by it may be compiled so (HALFSTEP_FUSES): what is computed once, as data by a formula and
# first values of weights, has the same bits on every CPU.
include(CheckCXXSourceCompiles)
check_cxx_source_compiles("#if !defined(__aarch64__) && !defined(__FMA__)\n#error none\n#endif\nint main() {}" HALFSTEP_MAY_FUSE)
if(HALFSTEP_MAY_FUSE OR HALFSTEP_NATIVE)
  target_compile_options(halfstep_flags INTERFACE
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<BOOL:$<TARGET_PROPERTY:HALFSTEP_FUSES>>>>:-ffp-contract=off>)
endif()
set(HALFSTEP_LOOP_OPTIMIZATION -O3)
set(HALFSTEP_LIGHT_OPTIMIZATION -O1)  # of what computes little: it compiles in three quarters of the time
set(HALFSTEP_TEST_OPTIMIZATION -O0)   # of the tests: in six tenths
if(HALFSTEP_SANITIZE)
  set(HALFSTEP_LOOP_OPTIMIZATION -O1)
  # Optimising the checks that a sanitizer adds to every access takes long: -O0 compiles in half the time. What tests run most gets
  # -O1: the levels up to ops, the program, and tests with loops of their own.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O0 -g1")
  # A finding ends the program, so that no test with one passes.
  add_compile_options(-fsanitize=${HALFSTEP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized -Wno-uninitialized)  # with sanitizers GCC 12 suspects its own library and fmt
  endif()
  if(HALFSTEP_SANITIZE MATCHES "address")
    add_compile_options(-ftrivial-auto-var-init=pattern)  # what reads a variable that nobody has set gets a value that shows
  endif()
  add_link_options(-fsanitize=${HALFSTEP_SANITIZE})
endif()
if(HALFSTEP_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
# target_clones resolves through ifuncs, which run before a sanitizer's runtime is ready.
if(HALFSTEP_MULTIARCH AND NOT HALFSTEP_NATIVE AND NOT HALFSTEP_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
   AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # musl's loader has no ifuncs, and GCC for it refuses the attribute.
  check_cxx_source_compiles("__attribute__((target_clones(\"arch=x86-64-v3\", \"default\"))) int f(int x) { return x; }
                             int main(int n, char**) { return f(n); }" HALFSTEP_HAS_CLONES)
  if(HALFSTEP_HAS_CLONES)
    target_compile_definitions(halfstep_flags INTERFACE HALFSTEP_MULTIARCH=1)
  endif()
endif()
