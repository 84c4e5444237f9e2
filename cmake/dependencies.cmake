# Everything we use from outside, found once. Versions are Debian 12's; none is pinned, so newer ones work as well.
# packages.txt lists the Debian packages.

include(GoogleTest)

find_package(Threads REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(GTest CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(PkgConfig REQUIRED)

# Imported targets of pkg-config treat their headers as SYSTEM, as those of config packages do.
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET GLOBAL libxxhash)
add_library(xxhash::xxhash ALIAS PkgConfig::xxhash)
pkg_check_modules(clp REQUIRED IMPORTED_TARGET GLOBAL clp)  # of tests only
add_library(clp::clp ALIAS PkgConfig::clp)
pkg_check_modules(jemalloc REQUIRED IMPORTED_TARGET GLOBAL jemalloc)  # of programs, without sanitizers

find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_program(CROSSMESH_GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
find_package(benchmark CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(Eigen3 CONFIG REQUIRED)  # of examples
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(SQLite3 REQUIRED)  # SQLite::SQLite3
find_package(ucx CONFIG REQUIRED)  # ucx::ucp

include(cuda_wheels)
