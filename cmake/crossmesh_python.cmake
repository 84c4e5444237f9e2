# The Python that the package is built for and tested by, and what it is tested with: .python, which scripts/setup makes.
#
#   CROSSMESH_WITH_PYTHON   whether the package is built: not under sanitizers, whose runtime a Python has not loaded
#   CROSSMESH_PYTHON        the interpreter
#
#   crossmesh_python_module(NAME _core SOURCES module.cc DEPENDS crossmesh::common_mesh)
#     An extension of the package, in <build folder>/python/crossmesh, over the libraries that the programs have. All
#     extensions share the API's messages, in libcrossmesh_messages.so beside them: a process may register them once.
#
#   crossmesh_python_headers(NAME common_python HEADERS raised_status.h DEPENDS crossmesh::common_base)
#     A module of headers that only extensions include.
#
#   crossmesh_python_tests(layouts_test.py ...)
#     Files of pytest in this folder, each one test of ctest with label python, over the package in
#     <build folder>/python and the programs in <build folder>/bin, which $CROSSMESH_PROGRAMS names.

set(CROSSMESH_PYTHON_ENVIRONMENT "${PROJECT_SOURCE_DIR}/.python" CACHE PATH
  "Python environment that has the wheels of python-wheels.txt")
set(CROSSMESH_PYTHON "${CROSSMESH_PYTHON_ENVIRONMENT}/bin/python")
set(CROSSMESH_WITH_PYTHON ON)
if(CROSSMESH_SANITIZE OR CROSSMESH_ONLY_PURE)
  set(CROSSMESH_WITH_PYTHON OFF)
elseif(NOT EXISTS "${CROSSMESH_PYTHON}")
  message(FATAL_ERROR
    "No ${CROSSMESH_PYTHON}: run scripts/setup, or set CROSSMESH_PYTHON_ENVIRONMENT")
endif()

if(CROSSMESH_WITH_PYTHON)
  if(NOT DEFINED Python_EXECUTABLE)
    set(Python_EXECUTABLE "${CROSSMESH_PYTHON}")
  endif()
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
  execute_process(COMMAND "${CROSSMESH_PYTHON}" -m nanobind --cmake_dir
    OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  find_package(nanobind CONFIG REQUIRED)
endif()

function(_crossmesh_python_messages)
  if(TARGET crossmesh_python_messages)
    return()
  endif()
  add_library(crossmesh_python_messages SHARED $<TARGET_OBJECTS:crossmesh_proto_messages>)
  target_include_directories(crossmesh_python_messages SYSTEM INTERFACE
    $<TARGET_PROPERTY:crossmesh_proto_messages,INTERFACE_INCLUDE_DIRECTORIES>)
  target_link_libraries(crossmesh_python_messages PUBLIC protobuf::libprotobuf)
  set_target_properties(crossmesh_python_messages PROPERTIES
    LINKER_LANGUAGE CXX
    OUTPUT_NAME crossmesh_messages
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/python/crossmesh")
endfunction()

function(crossmesh_python_headers)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "HEADERS;DEPENDS")
  _crossmesh_check_arguments("${arg_NAME}" "${arg_UNPARSED_ARGUMENTS}" HEADERS DEPENDS)
  _crossmesh_record(module "${arg_NAME}" FALSE "${arg_HEADERS}" "${arg_DEPENDS}")
  add_library(crossmesh_${arg_NAME} INTERFACE)
  add_library(crossmesh::${arg_NAME} ALIAS crossmesh_${arg_NAME})
  target_link_libraries(crossmesh_${arg_NAME} INTERFACE ${arg_DEPENDS})
endfunction()

function(crossmesh_python_module)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SOURCES;DEPENDS")
  _crossmesh_check_arguments("${arg_NAME}" "${arg_UNPARSED_ARGUMENTS}" SOURCES DEPENDS)
  _crossmesh_record(program "${arg_NAME}" FALSE "${arg_SOURCES}" "${arg_DEPENDS}")
  if(NOT CROSSMESH_WITH_PYTHON)
    return()
  endif()
  nanobind_add_module(${arg_NAME} NB_STATIC NOMINSIZE ${arg_SOURCES})
  target_include_directories(${arg_NAME} PRIVATE "${PROJECT_SOURCE_DIR}")
  _crossmesh_python_messages()
  target_link_libraries(${arg_NAME} PRIVATE ${arg_DEPENDS} crossmesh_options)
  # What it is made of is its own: another extension of the process may have the same libraries.
  target_link_options(${arg_NAME} PRIVATE LINKER:--exclude-libs,ALL)
  set_target_properties(${arg_NAME} PROPERTIES
    COMPILE_WARNING_AS_ERROR ${CROSSMESH_WARNINGS_AS_ERRORS}
    CROSSMESH_SHARES_MESSAGES TRUE
    INSTALL_RPATH "$ORIGIN"
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/python/crossmesh")
endfunction()

function(crossmesh_python_tests)
  foreach(file IN LISTS ARGN)
    string(REGEX REPLACE "\\.py$" "" name "${file}")
    set(test "client_python.${name}")
    add_test(NAME ${test}
      COMMAND "${CROSSMESH_PYTHON}" -B -m pytest --quiet
        --config-file "${PROJECT_SOURCE_DIR}/client/python/pyproject.toml"
        "--junit-xml=${PROJECT_BINARY_DIR}/gtest/${test}.xml" "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
    set_tests_properties(${test} PROPERTIES LABELS python TIMEOUT 240
      ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/python;CROSSMESH_PROGRAMS=${PROJECT_BINARY_DIR}/bin")
  endforeach()
endfunction()
