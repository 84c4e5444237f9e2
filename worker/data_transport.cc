#include "worker/data_transport.h"

#include "common/base/log.h"
#include "worker/transport/sibling_reads.h"
#include "worker/transport/socket/socket_transport.h"
#include "worker/transport/ucx/ucx_transport.h"

#include <cstdlib>

namespace crossmesh {
namespace {

// Where they are refused, transfers inside the host would fail one after the other.
bool MayReadSiblings(const std::string& worker) {
  const absl::Status allowed = CheckAllowed(ProbeSiblingReads());
  if (allowed.ok()) return true;
  LogWarning("shared_memory_refused",
             {{"worker_id", worker}, {"uses", "tcp"}, {"reason", allowed.message()}});
  return false;
}

}  // namespace

DataTransportOptions AllowedDataTransport(const std::string& worker, DataTransportOptions wanted) {
  if (wanted.kind == DataTransport::kSocket) return wanted;
  wanted.shared_memory = wanted.shared_memory && MayReadSiblings(worker);
  return wanted;
}

absl::StatusOr<std::unique_ptr<Transport>> MakeDataTransport(const DataTransportOptions& options,
                                                             TransportSink& sink) {
  if (options.interfaces.empty()) {
    return absl::InvalidArgumentError("data transport: expected an interface, found none");
  }
  switch (options.kind) {
    case DataTransport::kSocket:
      return SocketTransport::Create(
          sink, {.interface = options.interfaces.front(), .shared_memory = options.shared_memory});
    case DataTransport::kUcx:
      return UcxTransport::Create(
          sink, {.net_devices = options.interfaces, .shared_memory = options.shared_memory});
  }
  std::abort();
}

}  // namespace crossmesh
