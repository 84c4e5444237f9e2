# Debian packages of what install.cmake installs: `cpack --config <build folder>/CPackConfig.cmake` writes
# crossmesh-controller, crossmesh-worker and crossmesh-client into the current folder. No program is built for them that
# is not built anyway.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME crossmesh)
set(CPACK_PACKAGE_VERSION "${CROSSMESH_PACKAGE_VERSION}")
set(CPACK_PACKAGE_CONTACT "The Crossmesh authors")
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_SET_DESTDIR ON)  # for the absolute paths of services
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_COMPONENTS_ALL controller controller_service worker worker_service client)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)

# The programs of one package, and what it is, in a line.
function(_crossmesh_package component summary)
  string(TOUPPER "${component}" upper)
  set(CPACK_COMPONENT_${upper}_GROUP ${component} PARENT_SCOPE)
  set(CPACK_COMPONENT_${upper}_SERVICE_GROUP ${component} PARENT_SCOPE)
  set(CPACK_COMPONENT_GROUP_${upper}_DESCRIPTION "${summary}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME crossmesh-${component} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${summary}
 Crossmesh moves sharded tensors between device meshes." PARENT_SCOPE)
endfunction()

# What a package that has a service does when it is installed and removed.
function(_crossmesh_package_of_service component)
  string(TOUPPER "${component}" upper)
  set(package crossmesh-${component})
  set(scripts "")
  foreach(script IN ITEMS postinst postrm prerm)
    set(path "${PROJECT_BINARY_DIR}/debian/${component}/${script}")
    configure_file("${PROJECT_SOURCE_DIR}/deploy/debian/${script}.in" "${path}" @ONLY
      FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
    list(APPEND scripts "${path}")
  endforeach()
  set(path "${PROJECT_BINARY_DIR}/debian/${component}/conffiles")
  file(CONFIGURE OUTPUT "${path}" CONTENT "/etc/default/${package}\n")
  list(APPEND scripts "${path}")
  set(CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA "${scripts}" PARENT_SCOPE)
  # The first is for machines without systemd, such as containers.
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "systemd-standalone-sysusers | systemd-sysusers" PARENT_SCOPE)
endfunction()

_crossmesh_package(controller "controller of a cluster that moves sharded tensors")
_crossmesh_package(worker "worker of a cluster that moves sharded tensors")
_crossmesh_package(client "command line of a cluster that moves sharded tensors")
_crossmesh_package_of_service(controller)
_crossmesh_package_of_service(worker)
# `crossmesh demo` is a script, and starts daemons of its own. Only pictures need matplotlib.
set(CPACK_DEBIAN_CLIENT_PACKAGE_DEPENDS "python3")
set(CPACK_DEBIAN_CLIENT_PACKAGE_RECOMMENDS "python3-matplotlib")
set(CPACK_DEBIAN_CLIENT_PACKAGE_SUGGESTS "crossmesh-controller, crossmesh-worker")

include(CPack)
