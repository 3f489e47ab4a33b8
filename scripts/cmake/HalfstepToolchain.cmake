if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")

if(PROJECT_IS_TOP_LEVEL)
  find_program(CCACHE_PROGRAM ccache)
  if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  endif()
  find_program(MOLD_PROGRAM mold)
  if(MOLD_PROGRAM)
    add_link_options(-fuse-ld=mold)
  endif()
endif()

# Portable unless asked otherwise. Never -ffast-math: the scaler lives on inf and NaN.
add_library(halfstep_flags INTERFACE)
target_compile_options(halfstep_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow=compatible-local -Wno-missing-field-initializers -fno-math-errno -fno-trapping-math>)
if(HALFSTEP_NATIVE)
  target_compile_options(halfstep_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=native>)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(halfstep_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=x86-64-v2>)
endif()
if(HALFSTEP_SANITIZE)
  # What a sanitizer adds to every access is optimised at great cost for little gain: -O1 compiles in a third of the time.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1 -DNDEBUG")
  # With sanitizers GCC 12 suspects its own standard library of using uninitialised variables.
  add_compile_options(-fsanitize=${HALFSTEP_SANITIZE} -fno-omit-frame-pointer -Wno-maybe-uninitialized)
  add_link_options(-fsanitize=${HALFSTEP_SANITIZE})
endif()
# target_clones resolves through ifuncs, which run before a sanitizer's runtime is ready.
if(HALFSTEP_MULTIARCH AND NOT HALFSTEP_NATIVE AND NOT HALFSTEP_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
   AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_definitions(halfstep_flags INTERFACE HALFSTEP_MULTIARCH=1)
endif()
