#pragma once

#include "common/base/clock.h"
#include "common/mesh/topology.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

class DaemonHealth;
class MetadataStore;
class StoreUpkeep;

// A controller that serves: the composition of everything under controller/. Thread-safe.
class Controller {
 public:
  struct Options {
    // Forms of RpcAddress, at least one.
    std::vector<std::string> listen;
    // For Prometheus, see MetricsExporter; empty: no metrics are kept.
    std::string metrics_listen = "127.0.0.1:0";
    // Allows addresses that are not local: its own, those of workers, and that of the metrics.
    bool insecure = false;
    // Becomes the current description of the network.
    std::optional<Topology> topology;
    absl::Duration lost_after = absl::Seconds(10);
    // Memory of all requests at once; if not given, as RequestBudget::DefaultOf the memory that
    // this process may use.
    std::optional<int64_t> request_bytes_max;
    // Memory of plans that are kept for further requests.
    int64_t plan_bytes_max = int64_t{512} << 20;
    // How long request ids are remembered.
    absl::Duration request_ids_for = absl::Hours(24);
    // Of workers that come: at once after a quiet time, and from then on.
    double registrations_at_once = 500;
    double registrations_per_second = 500;
    // What outlives this controller; null: a store in memory, which ends with it.
    std::shared_ptr<MetadataStore> store;
    // What the store is in, for people: "memory", "sqlite", "etcd".
    std::string store_kind = "memory";
    // Of a store in a folder; null otherwise.
    std::shared_ptr<StoreUpkeep> upkeep;
    // What is watched of it, and served beside the metrics; null: nothing.
    DaemonHealth* health = nullptr;
    // The fencing number, when the store knows it.
    std::optional<uint64_t> epoch;
    // With several controllers: OK while this one leads, else the NotLeaderError that all calls are
    // answered with from then on. Must not block.
    std::function<absl::Status()> may_answer;
  };

  // Listens and serves. InvalidArgument: an address malformed, or not local without `insecure`;
  // FailedPrecondition: an address is in use or cannot be listened on; DataLoss: the store has what
  // cannot be read. Takes up the operations and the runs of pipelines that a former controller of
  // the store has left.
  static absl::StatusOr<std::unique_ptr<Controller>> Create(const Options& options);
  // As Shutdown with no time.
  ~Controller();

  // As given, with the ports that were bound.
  const std::vector<std::string>& addresses() const;
  std::string metrics_address() const;  // empty when there is none
  // The fencing number: that of the options, or microseconds from 2020 to the start, so that a
  // controller that starts again fences its former self.
  uint64_t epoch() const;

  // In order: health says no, new operations and runs of pipelines are refused, those that run have
  // `deadline` to end (runs are stopped; with a store that outlives this controller, its next one
  // goes on with them), workers and watchers are told to come back to the next controller, the
  // server ends. Returns when all has stopped. Repeatable; a second call does not shorten the
  // first.
  void Shutdown(absl::Duration deadline);

 private:
  struct Parts;
  explicit Controller(std::unique_ptr<Parts> parts);

  const std::unique_ptr<Parts> parts_;
};

}  // namespace crossmesh
