#pragma once

namespace crossmesh {

// Keeps gRPC initialised, and its threads that call streams back, until the process ends. Otherwise
// the thread that drops the last channel or server joins these threads: fatal when it is one of
// them, as it is when gRPC's share of a stream is the last to go.
//
// Also has Abseil no longer look for deadlocks whenever gRPC locks a mutex. Debian's is built as
// for debugging, and does that under one lock for all threads. Cheap after the first call.
// Thread-safe.
void HoldRpcLibrary();

}  // namespace crossmesh
