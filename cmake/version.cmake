# What was built: PROJECT_VERSION, and CROSSMESH_REVISION, the commit as `git describe` names it, empty outside a clone.
#
#   CROSSMESH_PACKAGE_VERSION  of packages: 0.2.0 of a tagged commit or outside a clone, else 0.2.0~12.g71c93f8, twelve
#                              commits after the tag before it, or 0.2.0~g71c93f8 when there is none: before the release

function(_crossmesh_git result)
  execute_process(COMMAND git -C "${PROJECT_SOURCE_DIR}" ${ARGN}
    OUTPUT_VARIABLE output OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failure)
  if(failure)
    set(output "")
  endif()
  set(${result} "${output}" PARENT_SCOPE)
endfunction()

_crossmesh_git(CROSSMESH_REVISION describe --always --tags --match "v*")
set(CROSSMESH_PACKAGE_VERSION "${PROJECT_VERSION}")
if(CROSSMESH_REVISION MATCHES "-([0-9]+)-(g[0-9a-f]+)$")
  string(APPEND CROSSMESH_PACKAGE_VERSION "~${CMAKE_MATCH_1}.${CMAKE_MATCH_2}")
elseif(CROSSMESH_REVISION MATCHES "^([0-9a-f]+)$")
  string(APPEND CROSSMESH_PACKAGE_VERSION "~g${CMAKE_MATCH_1}")
endif()

# The log of HEAD grows with every commit and checkout: then this is asked again.
_crossmesh_git(head_log rev-parse --path-format=absolute --git-path logs/HEAD)
if(EXISTS "${head_log}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${head_log}")
endif()
