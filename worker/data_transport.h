#pragma once

#include "worker/transport/transport.h"

#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// How a worker's bytes travel to others. Workers that exchange bytes use the same.
enum class DataTransport {
  kSocket,  // TCP
  kUcx,     // RDMA where there is any, else TCP
};

struct DataTransportOptions {
  DataTransport kind = DataTransport::kSocket;
  std::vector<std::string> interfaces = {"lo"};  // for kUcx as UCX names them
  // Memory of other workers of this host that have it as well is read directly.
  bool shared_memory = true;
};

// What is wanted; for kUcx without shared memory where the system does not let workers read each
// other's, which is a warning in the log. kSocket finds out with each peer. `worker`: its name, for
// the log. Cost for kUcx: of ProbeSiblingReads.
DataTransportOptions AllowedDataTransport(const std::string& worker, DataTransportOptions wanted);

// `options`: allowed by the system. Errors: as the transport's Create.
absl::StatusOr<std::unique_ptr<Transport>> MakeDataTransport(const DataTransportOptions& options,
                                                             TransportSink& sink);

}  // namespace crossmesh
