# Headers of CUDA and NCCL, from wheels that scripts/setup installs. Nothing links the libraries: they are loaded at run
# time, so one binary serves machines with and without them (docs/adr/0005-cuda-and-nccl-at-run-time.md).
#
#   cuda::headers              cuda.h and nccl.h, as system headers
#   CROSSMESH_NVIDIA_FOLDER    the wheels' common folder: cu13/, nccl/
#   CROSSMESH_NCCL_LIBRARY     the real libnccl.so.2, for tests that load it

set(CROSSMESH_CUDA_ENVIRONMENT "${PROJECT_SOURCE_DIR}/.cuda" CACHE PATH
  "Python environment that has the wheels of CUDA and NCCL")

# The name of the folder between has the version of Python.
file(GLOB CROSSMESH_NVIDIA_FOLDER "${CROSSMESH_CUDA_ENVIRONMENT}/lib/python3.*/site-packages/nvidia")
foreach(file IN ITEMS cu13/include/cuda.h cu13/include/crt/host_config.h cu13/include/nv/target
                      nccl/include/nccl.h nccl/lib/libnccl.so.2)
  if(NOT EXISTS "${CROSSMESH_NVIDIA_FOLDER}/${file}")
    message(FATAL_ERROR
      "No nvidia/${file} in ${CROSSMESH_CUDA_ENVIRONMENT}: run scripts/setup, or set CROSSMESH_CUDA_ENVIRONMENT")
  endif()
endforeach()

add_library(cuda::headers INTERFACE IMPORTED GLOBAL)
target_include_directories(cuda::headers SYSTEM INTERFACE
  "${CROSSMESH_NVIDIA_FOLDER}/cu13/include"
  "${CROSSMESH_NVIDIA_FOLDER}/nccl/include")
set(CROSSMESH_NCCL_LIBRARY "${CROSSMESH_NVIDIA_FOLDER}/nccl/lib/libnccl.so.2")
