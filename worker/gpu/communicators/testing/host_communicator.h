#pragma once

#include "worker/gpu/communicators/communicator.h"

#include <memory>
#include <vector>

namespace crossmesh {

// All ranks of a communicator in one process, over host memory: addresses are pointers, streams are
// not looked at. Polls of any rank carry out what fits together, and a call is in progress until
// all of it is done. Stricter than NCCL: messages of other sizes than expected, collectives that
// differ, and ranks that all wait for each other fail the communicator, with what was found. Each
// object is confined to its thread, which may be another for each.
std::vector<std::unique_ptr<Communicator>> MakeHostCommunicators(int size);

}  // namespace crossmesh
