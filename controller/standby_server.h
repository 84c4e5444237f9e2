#pragma once

#include "common/rpc/server.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

class DaemonHealth;
class MetricsExporter;
class RpcMetrics;
class StandbyReports;

// What a controller serves while another one leads: health, of which kLeaderService says no, and
// to every other call the answer NotLeaderError. It tells the leader that it is there. Thread-safe.
class StandbyServer {
 public:
  struct Options {
    std::vector<std::string> listen;  // as Controller::Options, like what follows
    std::string metrics_listen;
    bool insecure = false;
    DaemonHealth* health = nullptr;
    // Where others reach this one when it leads; empty: the first of `listen`, as it was bound.
    std::string advertise;
    // The address of the one that leads, if that is known; must not block. Outlives the server.
    std::function<std::optional<std::string>()> leader;
  };

  // Errors as those of Controller::Create for addresses.
  static absl::StatusOr<std::unique_ptr<StandbyServer>> Start(const Options& options);
  // Ends all calls.
  ~StandbyServer();

  // As given, with the ports that were bound.
  const std::vector<std::string>& addresses() const { return server_->addresses(); }

 private:
  class OtherCalls;

  StandbyServer(const Options& options, std::unique_ptr<MetricsExporter> exporter);

  const std::unique_ptr<RpcMetrics> metrics_;
  const std::unique_ptr<MetricsExporter> exporter_;  // null: none are served
  const std::unique_ptr<OtherCalls> other_calls_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<StandbyReports> reports_;
};

}  // namespace crossmesh
