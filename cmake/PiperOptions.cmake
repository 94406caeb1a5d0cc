# Compiler settings that every target shares: C++20, warnings as errors, sanitizers, ccache.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

find_program(PIPER_CCACHE ccache)
if(PIPER_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${PIPER_CCACHE})
  # Precompiled headers only hit the cache with these.
  set(ENV{CCACHE_SLOPPINESS} pch_defines,time_macros)
endif()
find_program(PIPER_MOLD mold)
if(PIPER_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

set(PIPER_SANITIZE "" CACHE STRING "sanitizers, as given to -fsanitize=")
if(PIPER_SANITIZE)
  add_compile_options(-fsanitize=${PIPER_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${PIPER_SANITIZE})
  # Instrumented, g++ 12 sees overflows in std::string that are none.
  add_compile_options(-Wno-error=array-bounds -Wno-error=stringop-overflow -Wno-error=stringop-overread -Wno-error=maybe-uninitialized)
endif()

# Warnings of our own code; targets link piper_warnings privately.
add_library(piper_warnings INTERFACE)
# -Wrestrict of g++ 12 is wrong about std::string operator+ (GCC bug 105651).
target_compile_options(piper_warnings INTERFACE -Wall -Wextra -Werror -Wno-missing-field-initializers -Wno-restrict)

# piper_library(NAME room SOURCES... DEPENDS...): a static library of one room.
function(piper_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PUBLIC ${ARG_PUBLIC} PRIVATE piper_warnings ${ARG_PRIVATE})
endfunction()
