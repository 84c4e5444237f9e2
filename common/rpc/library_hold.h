#pragma once

namespace crossmesh {

// Keeps gRPC initialised until the process ends. Otherwise whoever drops the last channel or server
// shuts the library down, which joins its threads: fatal when that is one of them, as it can be
// when the last reference is held by a stream. Cheap after the first call. Thread-safe.
void HoldRpcLibrary();

}  // namespace crossmesh
