# Compiles kernels to data that a program loads at run time: nothing is linked, and no CUDA language is enabled.
#
#   crossmesh_kernels(TARGET crossmesh_worker_gpu_kernels SOURCE kernels.cu IMAGE kernel_image.cc)
#     One image (a fatbin) of SOURCE, <build folder of this folder>/kernels.fatbin, with machine code for compute
#     capability 9.0 and 10.0, and PTX for what comes after. IMAGE, a source file of TARGET, embeds the file that
#     CROSSMESH_KERNEL_IMAGE names. The module that has IMAGE names SOURCE there too, for the layers test.

find_program(CROSSMESH_NVCC nvcc PATHS "${CROSSMESH_NVIDIA_FOLDER}/cu13/bin" NO_DEFAULT_PATH)
find_program(CROSSMESH_CUOBJDUMP cuobjdump PATHS "${CROSSMESH_NVIDIA_FOLDER}/cu13/bin" NO_DEFAULT_PATH)
if(NOT CROSSMESH_NVCC OR NOT CROSSMESH_CUOBJDUMP)
  message(FATAL_ERROR
    "No nvcc or cuobjdump in ${CROSSMESH_CUDA_ENVIRONMENT}: run scripts/setup, or set CROSSMESH_CUDA_ENVIRONMENT")
endif()

function(crossmesh_kernels)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "TARGET;SOURCE;IMAGE" "")
  set(fatbin "${CMAKE_CURRENT_BINARY_DIR}/kernels.fatbin")
  add_custom_command(
    OUTPUT "${fatbin}"
    COMMAND "${CROSSMESH_NVCC}" -fatbin -std=c++20 -O3
            # Products and sums are rounded one by one, as on the host: so both get the same bits.
            --fmad=false
            --Werror all-warnings
            -gencode arch=compute_90,code=sm_90
            -gencode "arch=compute_100,code=[sm_100,compute_100]"
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
  # So that two targets do not both run the command.
  add_custom_target(${arg_TARGET}_image DEPENDS "${fatbin}")
  add_dependencies(${arg_TARGET} ${arg_TARGET}_image)
endfunction()
