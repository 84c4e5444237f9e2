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
  // Memory of other workers of this host that have it as well is read directly, where the system
  // allows it; that it does not is a warning.
  bool shared_memory = true;
};

// `worker`: its name, for the log. Errors: as the transport's Create.
absl::StatusOr<std::unique_ptr<Transport>> MakeDataTransport(const std::string& worker,
                                                             const DataTransportOptions& options,
                                                             TransportSink& sink);

}  // namespace crossmesh
