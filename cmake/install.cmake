# What `cmake --install` puts below its prefix, in three components: controller, worker (with the process of a GPU) and
# client (the command line, its demo with what that moves, and what draws its pictures). Every program finds the others
# beside it, and these files in share/crossmesh beside the folder of programs, so any prefix will do.
#
# A component <name>_service has what makes a Debian machine run the daemon as a service. It goes to absolute paths, so
# only packages have it (packages.cmake).

include(GNUInstallDirs)

if(CROSSMESH_ONLY_PURE)
  return()  # there are no programs
endif()

install(TARGETS crossmesh-controller RUNTIME COMPONENT controller)
install(TARGETS crossmesh-worker crossmesh-gpu RUNTIME COMPONENT worker)
install(TARGETS crossmesh RUNTIME COMPONENT client)
install(FILES examples/demo.py examples/gpt2.fsdp.rules examples/gpt2.json examples/gpt2.tp.rules
  client/memory/crossmesh_dlpack.h client/memory/crossmesh_memory.py
  DESTINATION "${CMAKE_INSTALL_DATADIR}/crossmesh" COMPONENT client)
install(DIRECTORY client/draw client/emit DESTINATION "${CMAKE_INSTALL_DATADIR}/crossmesh" COMPONENT client
  FILES_MATCHING PATTERN "*.py" PATTERN "*_test.py" EXCLUDE PATTERN "__pycache__" EXCLUDE)

# All of it once more in a Python wheel, beside the package: what programs read is no module of it.
set(wheel COMPONENT python EXCLUDE_FROM_ALL)
install(TARGETS crossmesh crossmesh-controller crossmesh-gpu crossmesh-worker
  RUNTIME DESTINATION crossmesh.programs/bin ${wheel})
install(FILES examples/demo.py examples/gpt2.fsdp.rules examples/gpt2.json examples/gpt2.tp.rules
  client/memory/crossmesh_memory.py DESTINATION crossmesh.programs/share/crossmesh ${wheel})
install(DIRECTORY client/draw client/emit DESTINATION crossmesh.programs/share/crossmesh ${wheel}
  FILES_MATCHING PATTERN "*.py" PATTERN "*_test.py" EXCLUDE PATTERN "__pycache__" EXCLUDE)
# Manual pages and completion are made from the programs' own help, where they are installed.
function(crossmesh_install_output component path)
  get_filename_component(folder "${path}" DIRECTORY)
  set(file "\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${path}")
  string(JOIN " " command ${ARGN})
  install(CODE "
    file(MAKE_DIRECTORY \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${folder}\")
    execute_process(COMMAND ${command} OUTPUT_FILE \"${file}\" COMMAND_ERROR_IS_FATAL ANY)
    message(STATUS \"Made: ${file}\")"
    COMPONENT ${component})
endfunction()
set(man "${CMAKE_INSTALL_DATADIR}/man")
crossmesh_install_output(client "${man}/man1/crossmesh.1.gz"
  "\"$<TARGET_FILE:crossmesh>\"" manual COMMAND gzip -9n)
crossmesh_install_output(client "${CMAKE_INSTALL_DATADIR}/bash-completion/completions/crossmesh"
  "\"$<TARGET_FILE:crossmesh>\"" completion bash)
crossmesh_install_output(client "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d/crossmesh.fish"
  "\"$<TARGET_FILE:crossmesh>\"" completion fish)
crossmesh_install_output(client "${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions/_crossmesh"
  "\"$<TARGET_FILE:crossmesh>\"" completion zsh)
foreach(component IN ITEMS controller worker)
  crossmesh_install_output(${component} "${man}/man8/crossmesh-${component}.8.gz"
    "\"$<TARGET_FILE:crossmesh-${component}>\"" --manual COMMAND gzip -9n)
endforeach()

foreach(component IN ITEMS controller worker client)
  install(FILES deploy/debian/copyright docs/operations.md
    DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/crossmesh-${component}" COMPONENT ${component})
endforeach()

foreach(component IN ITEMS controller worker)
  set(package crossmesh-${component})
  set(where COMPONENT ${component}_service EXCLUDE_FROM_ALL)
  install(FILES deploy/systemd/${package}.service DESTINATION /usr/lib/systemd/system ${where})
  install(FILES deploy/systemd/crossmesh.sysusers DESTINATION /usr/lib/sysusers.d RENAME ${package}.conf ${where})
  install(FILES deploy/systemd/${package}.default DESTINATION /etc/default RENAME ${package} ${where})
endforeach()
install(FILES deploy/systemd/crossmesh-worker.tmpfiles
  DESTINATION /usr/lib/tmpfiles.d RENAME crossmesh-worker.conf COMPONENT worker_service EXCLUDE_FROM_ALL)

include(packages)
