#pragma once

#include "controller/store/etcd/etcd_client.h"
#include "controller/store/etcd/etcd_store.h"
#include "controller/store/etcd/records/etcd_keys.h"

#include <cstdint>
#include <string>

namespace crossmesh {

// Terms without an election: whoever calls this leads, and who led before does not any more.
// Returns the revision at which the leader's key was made. `epoch`, when it is not 0, is stored.
int64_t Usurp(EtcdClient& client, const EtcdKeys& keys, uint64_t epoch);

// Has the store write, in a term that it begins in this way.
void Lead(EtcdStore& store, EtcdClient& client, const EtcdKeys& keys, uint64_t epoch);

}  // namespace crossmesh
