#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

class Transport;
class TransportSink;

// How a worker's bytes travel to others. Workers that exchange bytes use the same.
enum class DataTransport {
  kSocket,  // TCP
  kUcx,     // RDMA where there is any, else TCP
};

struct DataTransportOptions {
  DataTransport kind = DataTransport::kSocket;
  // The NICs, all of which are used at once; for kUcx as UCX names them.
  std::vector<std::string> interfaces = {"lo"};
  // Memory of other workers of this host that have it as well is read directly.
  bool shared_memory = true;
  // What allows interfaces that are not loopback, as CheckDataExposure says.
  bool insecure = false;
  std::vector<std::string> trusted_networks = {};  // e.g. "10.1.0.0/16"
};

// What is wanted; for kUcx without shared memory where the system does not let workers read each
// other's, which is a warning in the log. kSocket finds out with each peer. `worker`: its name, for
// the log. Cost for kUcx: of ProbeSiblingReads.
DataTransportOptions AllowedDataTransport(const std::string& worker, DataTransportOptions wanted);

// One transport per interface, striped. That is so for one interface as well, since peers may have
// more. `options`: allowed by the system. InvalidArgument: no interface, or more than
// StripedAddress::kNicsMax. Else as the transport's Create says of one of the interfaces.
absl::StatusOr<std::unique_ptr<Transport>> MakeDataTransport(const DataTransportOptions& options,
                                                             TransportSink& sink);

}  // namespace crossmesh
