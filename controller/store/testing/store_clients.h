#pragma once

#include "controller/store/metadata_store.h"
#include "controller/store/testing/store_history.h"

#include <cstdint>

namespace crossmesh {

struct StoreClients {
  int clients = 8;
  int operations = 50;  // of each
  int keys = 4;
  uint64_t seed = 1;
};

// What clients, each a thread, find when they get, put, compare and delete the same few objects at
// random.
StoreHistory RunStoreClients(MetadataStore& store, const StoreClients& options);

}  // namespace crossmesh
