# Checks and measurements that load the driver and NCCL of the machine, run over the stand-ins of the tests.
#
#   crossmesh_over_the_stand_ins(tests_gpu_test [arguments...])
#     A test <target>.over_the_stand_ins, without the target's _test, with label gpu. Eight devices are there, nothing
#     may be skipped, and a violation fails it.

function(crossmesh_over_the_stand_ins target)
  if(NOT TARGET ${target})
    return()
  endif()
  string(REGEX REPLACE "_test$" "" name "${target}")
  string(APPEND name ".over_the_stand_ins")
  set(folder "${PROJECT_BINARY_DIR}/standin")
  add_test(NAME ${name} COMMAND ${target} ${ARGN} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set(environment
    "CROSSMESH_DRIVER_LIBRARY=${folder}/libcuda.so.1"
    "CROSSMESH_NCCL_LIBRARY=${folder}/libnccl.so.2"
    "CROSSMESH_STANDIN_DEVICES=8"
    "CROSSMESH_STANDIN_KERNELS=${folder}/libcrossmesh_host_kernels.so.1")
  set_tests_properties(${name} PROPERTIES
    ENVIRONMENT "${environment}"
    FAIL_REGULAR_EXPRESSION "SKIPPED;Nothing measured;Crossmesh stand-in, process"
    LABELS gpu
    TIMEOUT 300)
  add_dependencies(${target} crossmesh_tests_standin_kernels)
  add_dependencies(gpu_tests ${target})
endfunction()
