# The Python that the package is built for and tested by, and what it is tested with: .python, which scripts/setup makes.
#
#   CROSSMESH_WITH_PYTHON   whether the package is built: not under sanitizers, whose runtime a Python has not loaded
#   CROSSMESH_PYTHON        the interpreter
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
