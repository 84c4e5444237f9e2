#include "worker/data_transport.h"

#include "common/base/log.h"
#include "worker/transport/sibling_reads.h"
#include "worker/transport/socket/socket_transport.h"
#include "worker/transport/striped/striped_transport.h"
#include "worker/transport/transport.h"
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

StripedTransport::MakeNic MakeNic(DataTransport kind, const std::string& interface,
                                  bool shared_memory) {
  switch (kind) {
    case DataTransport::kSocket:
      return [interface, shared_memory](TransportSink& sink) {
        return SocketTransport::Create(sink,
                                       {.interface = interface, .shared_memory = shared_memory});
      };
    case DataTransport::kUcx:
      return [interface, shared_memory](TransportSink& sink) {
        return UcxTransport::Create(sink,
                                    {.net_devices = {interface}, .shared_memory = shared_memory});
      };
  }
  std::abort();
}

}  // namespace

DataTransportOptions AllowedDataTransport(const std::string& worker, DataTransportOptions wanted) {
  if (wanted.kind == DataTransport::kSocket) return wanted;
  wanted.shared_memory = wanted.shared_memory && MayReadSiblings(worker);
  return wanted;
}

absl::StatusOr<std::unique_ptr<Transport>> MakeDataTransport(const DataTransportOptions& options,
                                                             TransportSink& sink) {
  std::vector<StripedTransport::MakeNic> nics;
  for (const std::string& interface : options.interfaces) {
    // What stays inside the host goes by the first.
    const bool shared_memory = options.shared_memory && nics.empty();
    nics.push_back(MakeNic(options.kind, interface, shared_memory));
  }
  return StripedTransport::Create(sink, nics);
}

}  // namespace crossmesh
