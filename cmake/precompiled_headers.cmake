# Headers from outside that most files read are parsed once, for all targets of a kind: they are most of what compiling
# a file costs. A file still includes what it uses; scripts/tidy compiles without these.

set(crossmesh_library_headers
  <absl/container/flat_hash_map.h> <absl/functional/any_invocable.h> <absl/functional/function_ref.h>
  <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/time/time.h> <algorithm> <chrono>
  <condition_variable> <cstdint> <filesystem> <functional> <map> <memory> <optional> <random> <ranges> <span> <string>
  <thread> <utility> <variant> <vector>
  # What generated messages include; a quarter of all files read some.
  <google/protobuf/descriptor.h> <google/protobuf/extension_set.h> <google/protobuf/generated_message_reflection.h>
  <google/protobuf/map.h> <google/protobuf/message.h> <google/protobuf/repeated_field.h>
  <google/protobuf/unknown_field_set.h>)

# _crossmesh_make_precompiled(library headers...): what targets of that kind reuse.
function(_crossmesh_make_precompiled kind)
  set(target crossmesh_precompiled_${kind})
  set(source "${PROJECT_BINARY_DIR}/${target}.cc")
  file(CONFIGURE OUTPUT "${source}" CONTENT "// Nothing but the precompiled headers.\n")
  add_library(${target} OBJECT "${source}")
  target_link_libraries(${target} PRIVATE crossmesh_options absl::flat_hash_map absl::statusor absl::time)
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>)
  target_precompile_headers(${target} PRIVATE ${ARGN})
endfunction()

_crossmesh_make_precompiled(library ${crossmesh_library_headers})
_crossmesh_make_precompiled(test ${crossmesh_library_headers} <gmock/gmock.h> <gtest/gtest.h>)
target_link_libraries(crossmesh_precompiled_test PRIVATE GTest::gmock)
set_target_properties(crossmesh_precompiled_test PROPERTIES CROSSMESH_TEST TRUE)
