# Declares fuzz targets.
#
#   crossmesh_fuzz(NAME text_form RUNS 100000 SOURCES text_form_fuzz.cc DEPENDS crossmesh::common_mesh)
#     A program <NAME>_fuzz of the FuzzOne in SOURCES, and a test fuzz.<NAME>, labelled service, that starts from the
#     folder corpus/<NAME>. With libFuzzer, in preset asan, it makes RUNS runs with one seed; elsewhere it replays
#     the corpus.

function(crossmesh_fuzz)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;RUNS" "SOURCES;DEPENDS")
  _crossmesh_check_arguments("${arg_NAME}" "${arg_UNPARSED_ARGUMENTS}" SOURCES DEPENDS)
  if(NOT arg_RUNS MATCHES "^[0-9]+$")
    message(FATAL_ERROR "${arg_NAME}: RUNS is a number, not '${arg_RUNS}'")
  endif()
  # Into every program, not into a library: libFuzzer's own comes last and would find the function gone.
  list(APPEND arg_SOURCES fuzz_input.h fuzz_target.cc)
  set(with_fuzzer FALSE)
  if(CROSSMESH_SANITIZE MATCHES "fuzzer-no-link")
    set(with_fuzzer TRUE)
  else()
    list(APPEND arg_DEPENDS crossmesh::tests_fuzz)
  endif()

  set(program ${arg_NAME}_fuzz)
  set(corpus "${CMAKE_CURRENT_SOURCE_DIR}/corpus/${arg_NAME}")
  _crossmesh_add_executable(fuzz ${program} "${arg_SOURCES}" "${arg_DEPENDS}")
  if(NOT TARGET ${program})
    return()
  endif()
  target_precompile_headers(${program} REUSE_FROM crossmesh_precompiled_library)
  add_dependencies(service_tests ${program})
  if(with_fuzzer)
    target_link_options(${program} PRIVATE -fsanitize=fuzzer)
    add_test(NAME fuzz.${arg_NAME}
      COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/run" $<TARGET_FILE:${program}> "${corpus}"
        -seed=1 -runs=${arg_RUNS} "-artifact_prefix=${CMAKE_CURRENT_BINARY_DIR}/")
  else()
    add_test(NAME fuzz.${arg_NAME} COMMAND ${program} "${corpus}")
  endif()
  set_tests_properties(fuzz.${arg_NAME} PROPERTIES LABELS service TIMEOUT 120)
endfunction()
