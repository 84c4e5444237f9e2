# Compiles kernels to data that a program loads at run time: nothing is linked, and no CUDA language is enabled.
#
#   crossmesh_kernels(MODULE worker_gpu_kernels SOURCE kernels.cu IMAGE kernel_image.cc TABLE kernel_table.h)
#     kernels.fatbin, in the build folder of this folder, of SOURCE: machine code for compute capability 9.0 and 10.0,
#     and PTX for what comes after. IMAGE embeds the file that CROSSMESH_KERNEL_IMAGE names. All three files are of
#     MODULE. A test lint.<MODULE> looks for the kernels of TABLE in what was compiled.
#     With sanitizers, which are never near a GPU, the image has one kind of machine code, and nothing looks into it.

find_package(Python3 REQUIRED COMPONENTS Interpreter)
foreach(tool IN ITEMS nvcc cuobjdump)
  string(TOUPPER "CROSSMESH_${tool}" variable)
  find_program(${variable} ${tool} PATHS "${CROSSMESH_NVIDIA_FOLDER}/cu13/bin" NO_DEFAULT_PATH)
  if(NOT ${variable})
    message(FATAL_ERROR
      "No ${tool} in ${CROSSMESH_CUDA_ENVIRONMENT}: run scripts/setup, or set CROSSMESH_CUDA_ENVIRONMENT")
  endif()
endforeach()

function(crossmesh_kernels)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "MODULE;SOURCE;IMAGE;TABLE" "")
  set(fatbin "${CMAKE_CURRENT_BINARY_DIR}/kernels.fatbin")
  set(kinds -gencode arch=compute_90,code=sm_90)
  if(NOT CROSSMESH_SANITIZE)
    list(APPEND kinds -gencode "arch=compute_100,code=[sm_100,compute_100]")
  endif()
  add_custom_command(
    OUTPUT "${fatbin}"
    COMMAND "${CROSSMESH_NVCC}" -fatbin -std=c++20 -O3 --Werror all-warnings
            # Products and sums are rounded one by one, as on the host: so both get the same bits.
            --fmad=false
            ${kinds}
            "-I${PROJECT_SOURCE_DIR}"
            -MD -MF "${fatbin}.d" -MT "${fatbin}"
            -o "${fatbin}" "${CMAKE_CURRENT_SOURCE_DIR}/${arg_SOURCE}"
    DEPENDS "${arg_SOURCE}" "${CROSSMESH_NVCC}"
    DEPFILE "${fatbin}.d"
    COMMENT "nvcc ${arg_SOURCE}"
    VERBATIM)
  set_source_files_properties("${arg_IMAGE}" PROPERTIES
    OBJECT_DEPENDS "${fatbin}"
    COMPILE_DEFINITIONS "CROSSMESH_KERNEL_IMAGE=\"${fatbin}\"")

  if(CROSSMESH_SANITIZE)
    return()
  endif()
  add_test(NAME lint.${arg_MODULE}
    COMMAND Python3::Interpreter -B "${PROJECT_SOURCE_DIR}/tests/lint/kernel_image_test.py"
            "${CROSSMESH_CUOBJDUMP}" "${fatbin}" "${CMAKE_CURRENT_SOURCE_DIR}/${arg_TABLE}")
  set_tests_properties(lint.${arg_MODULE} PROPERTIES LABELS lint TIMEOUT 120)
  add_custom_target(crossmesh_${arg_MODULE}_image DEPENDS "${fatbin}")
  add_dependencies(lint_tests crossmesh_${arg_MODULE}_image)
endfunction()
