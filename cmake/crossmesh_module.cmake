# Declares libraries, tests and programs. A folder is one module; its declaration names its direct dependencies, and
# tests/lint/layers_test.py holds every #include to them.
#
#   crossmesh_module(NAME common_mesh [PURE] [EXTERNAL RPC|UCX]
#                    SOURCES box.cc HEADERS box.h DEPENDS absl::status crossmesh::common_base)
#     Static library crossmesh::common_mesh, or an interface library without SOURCES. NAME is the folder with `_` for
#     `/`. PURE: depends on pure modules and common/base only. EXTERNAL marks what ThreadSanitizer cannot see through;
#     depending on gRPC::*, ucx::* or a marked module marks as well.
#
#   crossmesh_test(LABEL unit|allocation|service|live|lab|gpu|install|python|lint SOURCES box_test.cc
#                  DEPENDS crossmesh::common_mesh [NAME common_mesh_slow_test] [TIMEOUT seconds] [SHARDS 4] [SERIAL]
#                  [UNTHREADED] [UNSANITIZED])
#     One GoogleTest binary, named <folder>_test unless NAME is given. Each of its tests is one of ctest, in a process of
#     its own; with label unit, which has thousands of short ones, the binary is one test of ctest, or as many as it has
#     SHARDS, and TIMEOUT is that of all of it. SERIAL: nothing else runs beside its tests.
#     UNTHREADED: what it tests has no threads, though what it links does. UNSANITIZED: it takes too long for sanitizers,
#     which do not build it. Label allocation: it counts what is allocated, and is not built for sanitizers. Target
#     <LABEL>_tests builds all binaries of a label.
#
#   crossmesh_program(NAME crossmesh-worker SOURCES main.cc DEPENDS crossmesh::worker)
#     An executable in <build folder>/bin. Target `programs` builds all.
#
#   crossmesh_shared_library(NAME cuda VERSION 1 EXPORTS exports.map SOURCES calls.cc DEPENDS crossmesh::common_base)
#     lib<NAME>.so.<VERSION> in <build folder>/standin, for tests to load. It shows only what EXPORTS, a script of the
#     linker, names.
#
# Lists are sorted as by `LC_ALL=C sort`.

set(crossmesh_labels unit allocation service live lab gpu install python lint)
foreach(label IN LISTS crossmesh_labels)
  add_custom_target(${label}_tests)
endforeach()
add_custom_target(programs)
add_custom_target(headers)
# Tests that start them.
add_dependencies(live_tests programs)
add_dependencies(lab_tests programs)
add_dependencies(gpu_tests programs)
add_dependencies(install_tests programs)
add_dependencies(python_tests programs)

function(crossmesh_module)
  cmake_parse_arguments(PARSE_ARGV 0 arg "PURE" "NAME;EXTERNAL" "SOURCES;HEADERS;DEPENDS")
  _crossmesh_check_arguments("${arg_NAME}" "${arg_UNPARSED_ARGUMENTS}" SOURCES HEADERS DEPENDS)
  _crossmesh_folder(folder)
  string(REPLACE "/" "_" expected_name "${folder}")
  if(NOT arg_NAME STREQUAL expected_name)
    message(FATAL_ERROR "The module of ${folder} must be named ${expected_name}, not ${arg_NAME}")
  endif()
  if(arg_EXTERNAL AND NOT arg_EXTERNAL MATCHES "^(RPC|UCX)$")
    message(FATAL_ERROR "${arg_NAME}: EXTERNAL is RPC or UCX, not ${arg_EXTERNAL}")
  endif()
  _crossmesh_record(module "${arg_NAME}" "${arg_PURE}" "${arg_SOURCES};${arg_HEADERS}" "${arg_DEPENDS}")

  _crossmesh_opaque(opaque "${arg_EXTERNAL}" "${arg_DEPENDS}")
  if(opaque)
    set_property(GLOBAL APPEND PROPERTY CROSSMESH_OPAQUE crossmesh::${arg_NAME})
  endif()
  # All depend on common/base, where threads are defined.
  _crossmesh_starts_threads(threaded "${arg_SOURCES};${arg_HEADERS}" "${arg_DEPENDS}")
  if(threaded AND NOT arg_NAME STREQUAL "common_base")
    set_property(GLOBAL APPEND PROPERTY CROSSMESH_THREADED crossmesh::${arg_NAME})
  endif()
  _crossmesh_skip(skip "${arg_NAME}" "${opaque}" "${arg_DEPENDS}")
  if(skip)
    return()
  endif()

  set(target crossmesh_${arg_NAME})
  if(arg_SOURCES)
    add_library(${target} STATIC ${arg_SOURCES})
    target_link_libraries(${target} PUBLIC ${arg_DEPENDS} PRIVATE crossmesh_options)
    set(visibility PUBLIC)
    _crossmesh_precompile(${target})
    _crossmesh_compile_as_ours(${target})
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE ${arg_DEPENDS})
    set(visibility INTERFACE)
  endif()
  add_library(crossmesh::${arg_NAME} ALIAS ${target})
  target_sources(${target} ${visibility} FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${arg_HEADERS})
  _crossmesh_compile_headers_alone(${target} "${arg_HEADERS}" "${arg_SOURCES}")
endfunction()

function(crossmesh_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "SERIAL;UNSANITIZED;UNTHREADED" "NAME;LABEL;TIMEOUT;SHARDS" "SOURCES;DEPENDS")
  _crossmesh_folder(folder)
  if(NOT arg_NAME)
    string(REPLACE "/" "_" arg_NAME "${folder}_test")
  endif()
  _crossmesh_check_arguments("${arg_NAME}" "${arg_UNPARSED_ARGUMENTS}" SOURCES DEPENDS)
  if(NOT arg_LABEL IN_LIST crossmesh_labels)
    message(FATAL_ERROR "${arg_NAME}: LABEL is one of ${crossmesh_labels}, not '${arg_LABEL}'")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
    if(arg_LABEL STREQUAL "unit")
      set(arg_TIMEOUT 900)
    endif()
  endif()
  if(CROSSMESH_SANITIZE)
    math(EXPR arg_TIMEOUT "2 * ${arg_TIMEOUT}")
  endif()
  _crossmesh_add_executable(test "${arg_NAME}" "${arg_SOURCES}" "${arg_DEPENDS}")
  if(NOT TARGET ${arg_NAME})
    return()
  endif()
  target_link_libraries(${arg_NAME} PRIVATE GTest::gmock_main)
  set_target_properties(${arg_NAME} PROPERTIES CROSSMESH_TEST TRUE)
  target_precompile_headers(${arg_NAME} REUSE_FROM crossmesh_precompiled_test)
  _crossmesh_starts_threads(threaded "${arg_SOURCES}" "${arg_DEPENDS}")
  if(CROSSMESH_ONLY_THREADED AND (arg_UNTHREADED OR NOT threaded))
    return()
  endif()
  if(CROSSMESH_SANITIZE AND (arg_UNSANITIZED OR arg_LABEL STREQUAL "allocation"))
    set_target_properties(${arg_NAME} PROPERTIES EXCLUDE_FROM_ALL TRUE)
    return()
  endif()
  add_dependencies(${arg_LABEL}_tests ${arg_NAME})
  string(REGEX REPLACE "_test$" "" prefix "${arg_NAME}")
  set(properties LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT} RUN_SERIAL ${arg_SERIAL})
  if(arg_LABEL STREQUAL "unit")
    _crossmesh_run_whole("${arg_NAME}" "${prefix}" "${arg_SHARDS}" "${properties}")
    return()
  endif()
  gtest_discover_tests(${arg_NAME}
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60
    TEST_PREFIX "${prefix}."
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    PROPERTIES ${properties})
endfunction()

# Each shard tells of its tests in <build folder>/gtest; scripts/test_reports.py reads that. The longest begin first.
function(_crossmesh_run_whole target prefix shards properties)
  if(NOT shards)
    set(shards 1)
  endif()
  foreach(shard RANGE 1 ${shards})
    set(name "${prefix}")
    if(shards GREATER 1)
      set(name "${prefix}.${shard}")
    endif()
    math(EXPR index "${shard} - 1")
    add_test(NAME ${name}
      COMMAND ${target} --gtest_brief=1 "--gtest_output=xml:${PROJECT_BINARY_DIR}/gtest/${name}.xml"
      WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    set_tests_properties(${name} PROPERTIES ${properties} COST ${shards}
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()

function(crossmesh_program)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SOURCES;DEPENDS")
  _crossmesh_check_arguments("${arg_NAME}" "${arg_UNPARSED_ARGUMENTS}" SOURCES DEPENDS)
  _crossmesh_add_executable(program "${arg_NAME}" "${arg_SOURCES}" "${arg_DEPENDS}")
  if(TARGET ${arg_NAME})
    set_target_properties(${arg_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
    _crossmesh_precompile(${arg_NAME})
    add_dependencies(programs ${arg_NAME})
  endif()
endfunction()

function(crossmesh_shared_library)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;VERSION;EXPORTS" "SOURCES;DEPENDS")
  _crossmesh_check_arguments("${arg_NAME}" "${arg_UNPARSED_ARGUMENTS}" SOURCES DEPENDS)
  _crossmesh_folder(folder)
  string(REPLACE "/" "_" target "crossmesh_${folder}")
  _crossmesh_record(library "${arg_NAME}" FALSE "${arg_SOURCES}" "${arg_DEPENDS}")
  add_library(${target} SHARED ${arg_SOURCES})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE ${arg_DEPENDS} crossmesh_options)
  target_link_options(${target} PRIVATE "LINKER:--version-script,${CMAKE_CURRENT_SOURCE_DIR}/${arg_EXPORTS}")
  set_target_properties(${target} PROPERTIES
    DEFINE_SYMBOL ""  # precompiled headers are those of programs
    OUTPUT_NAME "${arg_NAME}"
    SOVERSION "${arg_VERSION}"
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/standin"
    LINK_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${arg_EXPORTS}")
  _crossmesh_precompile(${target})
  _crossmesh_compile_as_ours(${target})
endfunction()

# Writes what was declared, as read by tests/lint/layers_test.py.
function(crossmesh_write_layers path)
  get_property(records GLOBAL PROPERTY CROSSMESH_RECORDS)
  file(CONFIGURE OUTPUT "${path}" CONTENT "[\n${records}null\n]\n" @ONLY)
endfunction()

function(_crossmesh_add_executable kind name sources depends)
  _crossmesh_record(${kind} "${name}" FALSE "${sources}" "${depends}")
  _crossmesh_opaque(opaque "" "${depends}")
  _crossmesh_skip(skip "${name}" "${opaque}" "${depends}")
  if(skip)
    return()
  endif()
  add_executable(${name} ${sources})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${depends} crossmesh_options)
  if(NOT CROSSMESH_SANITIZE)
    target_link_libraries(${name} PRIVATE PkgConfig::jemalloc)
  endif()
  _crossmesh_compile_as_ours(${name})
endfunction()

function(_crossmesh_precompile target)
  _crossmesh_folder(folder)
  set(kind library)
  if(CROSSMESH_AS_TESTS AND folder MATCHES "${CROSSMESH_AS_TESTS}")
    set(kind test)
    set_target_properties(${target} PROPERTIES CROSSMESH_TEST TRUE)
  endif()
  target_precompile_headers(${target} REUSE_FROM crossmesh_precompiled_${kind})
endfunction()

function(_crossmesh_compile_as_ours target)
  set_target_properties(${target} PROPERTIES
    COMPILE_WARNING_AS_ERROR ${CROSSMESH_WARNINGS_AS_ERRORS}
    UNITY_BUILD ${CROSSMESH_JOINED}
    UNITY_BUILD_BATCH_SIZE 0)
endfunction()

# A header is included first by the source of its name (lint.format sees to that), so compiling that source shows that the
# header stands by itself. For those without one, a source is made that includes nothing else. Joined, neither would show.
function(_crossmesh_compile_headers_alone target headers sources)
  _crossmesh_folder(folder)
  set(alone "")
  foreach(header IN LISTS headers)
    string(REGEX REPLACE "\\.h$" ".cc" source "${header}")
    if(NOT source IN_LIST sources)
      set(path "${CMAKE_CURRENT_BINARY_DIR}/alone/${source}")
      file(CONFIGURE OUTPUT "${path}" CONTENT "#include \"${folder}/${header}\"\n")
      list(APPEND alone "${path}")
    endif()
  endforeach()
  if(alone AND NOT CROSSMESH_JOINED)
    add_library(${target}_headers OBJECT ${alone})
    target_include_directories(${target}_headers PRIVATE "${PROJECT_SOURCE_DIR}")
    target_link_libraries(${target}_headers PRIVATE ${target} crossmesh_options GTest::gmock)
    # As for tests: most of these headers are fixtures, and nothing of what is compiled here runs.
    set_target_properties(${target}_headers PROPERTIES CROSSMESH_TEST TRUE)
    target_precompile_headers(${target}_headers REUSE_FROM crossmesh_precompiled_test)
    _crossmesh_compile_as_ours(${target}_headers)
    add_dependencies(headers ${target}_headers)
  endif()
endfunction()

function(_crossmesh_folder result)
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
  set(${result} "${folder}" PARENT_SCOPE)
endfunction()

# Each further argument names a list, arg_<name> of the caller, which must be sorted and without repetition.
function(_crossmesh_check_arguments name unparsed)
  if(NOT name)
    message(FATAL_ERROR "NAME is missing")
  endif()
  if(unparsed)
    message(FATAL_ERROR "${name}: unknown arguments ${unparsed}")
  endif()
  foreach(list IN LISTS ARGN)
    set(sorted ${arg_${list}})
    list(SORT sorted COMPARE STRING CASE SENSITIVE)
    list(REMOVE_DUPLICATES sorted)
    if(NOT "${sorted}" STREQUAL "${arg_${list}}")
      list(JOIN sorted " " sorted)
      message(FATAL_ERROR "${name}: ${list} must be sorted, each entry once: ${sorted}")
    endif()
  endforeach()
endfunction()

# Does a target with these sources and dependencies start threads? Only asked where ThreadSanitizer is to run; an edit of
# a source configures again there, so that the answer is that of today.
function(_crossmesh_starts_threads result sources depends)
  get_property(threaded_targets GLOBAL PROPERTY CROSSMESH_THREADED)
  set(threaded FALSE)
  foreach(dependency IN LISTS depends)
    if(dependency IN_LIST threaded_targets)
      set(threaded TRUE)
    endif()
  endforeach()
  if(CROSSMESH_ONLY_THREADED AND NOT threaded)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources})
    foreach(source IN LISTS sources)
      file(STRINGS "${source}" uses REGEX "common/base/thread\\.h|<thread>|<future>|pthread_create" LIMIT_COUNT 1)
      if(uses)
        set(threaded TRUE)
      endif()
    endforeach()
  endif()
  set(${result} ${threaded} PARENT_SCOPE)
endfunction()

# Is a target with these dependencies one that ThreadSanitizer cannot see through?
function(_crossmesh_opaque result external depends)
  get_property(opaque_targets GLOBAL PROPERTY CROSSMESH_OPAQUE)
  set(opaque FALSE)
  if(external)
    set(opaque TRUE)
  endif()
  foreach(dependency IN LISTS depends)
    if(dependency MATCHES "^(gRPC|ucx)::" OR dependency IN_LIST opaque_targets)
      set(opaque TRUE)
    endif()
  endforeach()
  set(${result} ${opaque} PARENT_SCOPE)
endfunction()

function(_crossmesh_skip result name opaque depends)
  set(skip FALSE)
  if(CROSSMESH_ONLY_PURE AND opaque)
    set(skip TRUE)
  else()
    foreach(dependency IN LISTS depends)
      if(dependency MATCHES "^crossmesh::" AND NOT TARGET ${dependency})
        message(FATAL_ERROR "${name}: its dependency ${dependency} is not declared before it")
      endif()
    endforeach()
  endif()
  set(${result} ${skip} PARENT_SCOPE)
endfunction()

function(_crossmesh_record kind name pure files depends)
  _crossmesh_folder(folder)
  list(TRANSFORM depends REPLACE "(.+)" "\"\\1\"")
  list(JOIN depends ", " depends)
  list(FILTER files EXCLUDE REGEX "^$")
  list(TRANSFORM files REPLACE "(.+)" "\"${folder}/\\1\"")
  list(JOIN files ", " files)
  if(pure)
    set(pure true)
  else()
    set(pure false)
  endif()
  string(CONCAT record
    "{\"kind\": \"${kind}\", \"name\": \"${name}\", \"folder\": \"${folder}\", \"pure\": ${pure},\n"
    " \"files\": [${files}],\n"
    " \"depends\": [${depends}]},\n")
  set_property(GLOBAL APPEND_STRING PROPERTY CROSSMESH_RECORDS "${record}")
endfunction()

# crossmesh_proto(SOURCES crossmesh/v1/mesh.proto ... SERVICES crossmesh/v1/worker_service.proto ...)
#   Two libraries from the .proto files of this folder: crossmesh::proto_messages, of all of them, which links no gRPC,
#   and crossmesh::proto, which adds the stubs of SERVICES. Included as "crossmesh/v1/mesh.pb.h". The include folder is
#   SYSTEM, because generated code does not pass our warnings.
function(crossmesh_proto)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "SOURCES;SERVICES")
  _crossmesh_check_arguments(proto "${arg_UNPARSED_ARGUMENTS}" SOURCES SERVICES)
  set(generated "${CMAKE_CURRENT_BINARY_DIR}/generated")
  file(MAKE_DIRECTORY "${generated}")

  set(protos ${arg_SOURCES} ${arg_SERVICES})
  if(NOT protos)
    return()
  endif()
  set(message_sources)
  foreach(proto IN LISTS protos)
    _crossmesh_protoc(${proto} "${generated}" "--cpp_out=${generated}" pb outputs)
    list(APPEND message_sources ${outputs})
  endforeach()
  _crossmesh_proto_library(proto_messages "${generated}" "${message_sources}" protobuf::libprotobuf)
  # Of what shares them with others of its process, from a shared library.
  add_library(crossmesh_linked_messages INTERFACE)
  target_link_libraries(crossmesh_linked_messages INTERFACE
    $<IF:$<BOOL:$<TARGET_PROPERTY:CROSSMESH_SHARES_MESSAGES>>,crossmesh_python_messages,crossmesh_proto_messages>)
  add_library(crossmesh::proto_messages ALIAS crossmesh_linked_messages)

  set_property(GLOBAL APPEND PROPERTY CROSSMESH_OPAQUE crossmesh::proto)
  if(CROSSMESH_ONLY_PURE OR NOT arg_SERVICES)
    return()
  endif()
  set(service_sources)
  foreach(proto IN LISTS arg_SERVICES)
    _crossmesh_protoc(${proto} "${generated}"
      "--grpc_out=${generated};--plugin=protoc-gen-grpc=${CROSSMESH_GRPC_CPP_PLUGIN}" grpc.pb outputs)
    list(APPEND service_sources ${outputs})
  endforeach()
  _crossmesh_proto_library(proto "${generated}" "${service_sources}" "crossmesh::proto_messages;gRPC::grpc++")
  add_library(crossmesh::proto ALIAS crossmesh_proto)
  # What scripts/tidy needs, which compiles nothing.
  add_custom_target(generated_sources DEPENDS ${message_sources} ${service_sources})
endfunction()

function(_crossmesh_protoc proto generated flags suffix result)
  string(REGEX REPLACE "\\.proto$" "" stem "${generated}/${proto}")
  set(outputs "${stem}.${suffix}.cc" "${stem}.${suffix}.h")
  # A change in an imported file changes this one's output as well; protos are few, so depend on all of them.
  list(TRANSFORM protos PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" OUTPUT_VARIABLE all_protos)
  add_custom_command(
    OUTPUT ${outputs}
    COMMAND protobuf::protoc "--proto_path=${CMAKE_CURRENT_SOURCE_DIR}" ${flags} ${proto}
    DEPENDS ${all_protos}
    COMMENT "protoc ${proto} (${suffix})"
    VERBATIM)
  set(${result} ${outputs} PARENT_SCOPE)
endfunction()

# Each generated file has tables of these names.
function(_crossmesh_join_generated target)
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ${CROSSMESH_JOINED}
    UNITY_BUILD_BATCH_SIZE 0
    UNITY_BUILD_UNIQUE_ID CROSSMESH_FILE
    UNITY_BUILD_CODE_BEFORE_INCLUDE [[
#include <google/protobuf/generated_message_reflection.h>
#define CROSSMESH_JOIN_EXPANDED(name, file) name##_##file
#define CROSSMESH_JOIN(name, file) CROSSMESH_JOIN_EXPANDED(name, file)
#define schemas CROSSMESH_JOIN(schemas, CROSSMESH_FILE)
#define file_default_instances CROSSMESH_JOIN(file_default_instances, CROSSMESH_FILE)]]
    UNITY_BUILD_CODE_AFTER_INCLUDE [[
#undef schemas
#undef file_default_instances]])
endfunction()

function(_crossmesh_proto_library name generated sources depends)
  add_library(crossmesh_${name} STATIC ${sources})
  target_include_directories(crossmesh_${name} SYSTEM PUBLIC "${generated}")
  target_link_libraries(crossmesh_${name} PUBLIC ${depends})
  if(CROSSMESH_WITH_PYTHON)  # whose extension has the messages
    set_target_properties(crossmesh_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endif()
  _crossmesh_join_generated(crossmesh_${name})
  # Uses of memory are watched, as in the code that uses the messages. Looking into generated code for undefined behaviour,
  # or following its paths, would make it twice as dear to compile.
  if(CROSSMESH_SANITIZE)
    string(REGEX MATCH "address|thread" sanitizer "${CROSSMESH_SANITIZE}")
    target_compile_options(crossmesh_${name} PRIVATE -fsanitize=${sanitizer})
    target_link_options(crossmesh_${name} PUBLIC -fsanitize=${CROSSMESH_SANITIZE})
  endif()
endfunction()
