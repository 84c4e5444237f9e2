# What every target of ours is compiled with. Nothing here is global: targets get it by linking crossmesh_options.

option(CROSSMESH_WARNINGS_AS_ERRORS "Make compiler warnings errors" OFF)
option(CROSSMESH_JOINED "Compile the sources of a target as one, in half of the time" OFF)
option(CROSSMESH_ONLY_PURE "Skip every target that links gRPC or UCX, directly or not" OFF)
option(CROSSMESH_ONLY_THREADED "Leave out the tests without threads" OFF)
set(CROSSMESH_SANITIZE "" CACHE STRING "Value of -fsanitize=, e.g. address,undefined")
set(CROSSMESH_TEST_OPTIONS "" CACHE STRING "Further compiler options for test programs, e.g. -O0")
set(CROSSMESH_AS_TESTS "" CACHE STRING "Folders, by a regular expression, whose sources are compiled as tests are")

find_program(CROSSMESH_CCACHE ccache)
mark_as_advanced(CROSSMESH_CCACHE)
if(CROSSMESH_CCACHE)
  # What it must overlook to keep files that are compiled with precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros "${CROSSMESH_CCACHE}")
endif()

add_library(crossmesh_options INTERFACE)
target_compile_features(crossmesh_options INTERFACE cxx_std_20)
target_compile_options(crossmesh_options INTERFACE
  # What uses precompiled headers is compiled alike: with -pthread, as gRPC has it; fit for shared libraries, as the
  # stand-ins of the tests are. Their symbols are not replaced, so GCC may go on inlining them as in a program.
  -pthread -fPIC $<$<CXX_COMPILER_ID:GNU>:-fno-semantic-interposition>
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wimplicit-fallthrough
  # A designated initialiser that leaves defaults alone is the house style for options structs.
  -Wno-missing-field-initializers
  $<$<CXX_COMPILER_ID:Clang>:-Wno-missing-designated-field-initializers>
  # The standard library's own use of what it deprecates, in std::stable_sort.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>
  $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>  # for ccache
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  $<$<CXX_COMPILER_ID:Clang>:-Werror=thread-safety>)
# Test programs have the property CROSSMESH_TEST.
target_compile_options(crossmesh_options INTERFACE
  $<$<BOOL:$<TARGET_PROPERTY:CROSSMESH_TEST>>:${CROSSMESH_TEST_OPTIONS}>)
target_link_libraries(crossmesh_options INTERFACE Threads::Threads)
# A tenth of the time that the system's linker takes for a test program. GCC does not find it.
target_link_options(crossmesh_options INTERFACE $<$<CXX_COMPILER_ID:Clang>:-fuse-ld=lld>)

if(CROSSMESH_SANITIZE)
  target_compile_options(crossmesh_options INTERFACE
    -fsanitize=${CROSSMESH_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
    "-fsanitize-ignorelist=${CMAKE_CURRENT_LIST_DIR}/sanitizer_ignorelist.txt")
  target_link_options(crossmesh_options INTERFACE -fsanitize=${CROSSMESH_SANITIZE})
  # A fuzzer follows the paths through what is tested, not through tests.
  if(CROSSMESH_SANITIZE MATCHES "fuzzer-no-link")
    target_compile_options(crossmesh_options INTERFACE
      $<$<BOOL:$<TARGET_PROPERTY:CROSSMESH_TEST>>:-fno-sanitize=fuzzer-no-link>)
  endif()
endif()
