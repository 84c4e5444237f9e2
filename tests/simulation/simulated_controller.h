#pragma once

#include "controller/store/metadata_store.h"
#include "crossmesh/v1/operation_service.pb.h"
#include "tests/simulation/sample_reshards.h"
#include "tests/simulation/simulated_history.h"
#include "tests/simulation/simulated_network.h"
#include "tests/simulation/simulated_session.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

class SimulatedPipelines;
class SimulatedWorker;

// A controller while it leads: the real operations, pipelines, records, registry and membership, on
// a simulated node. What is gRPC's between them and their clients is modelled.
class SimulatedController {
 public:
  struct Ports {
    SimulatedNode& node;
    SimulatedNetwork& network;
    const std::vector<SampleReshard>& reshards;
    const std::vector<SimulatedWorker*>& workers;
    SimulatedHistory& history;
    // Could commits be taken, at all times since then?
    std::function<bool(absl::Duration since)> can_record;
  };

  explicit SimulatedController(const Ports& ports);
  ~SimulatedController();

  SimulatedNode& node() const { return ports_.node; }
  bool leads() const { return term_ != nullptr; }

  // Leads from now on: takes up what is in the store. The store's errors.
  absl::Status BeginTerm(std::shared_ptr<MetadataStore> store, uint64_t epoch);
  // Breaks all calls off; what runs is left as it is. Repeatable.
  void EndTerm();

  // Null while it does not lead.
  SimulatedPipelines* pipelines() const;

  std::string address() const { return ports_.node.name() + ":7400"; }

  // A session of a worker, in this process, as the other end of `stream` has opened it. Null: it is
  // refused.
  std::shared_ptr<SimulatedWorkerSession> AcceptSession(
      const std::shared_ptr<SimulatedStream>& stream,
      SimulatedWorkerSession::OnResponse on_response);
  // A worker that should be registered, and ready, and is not; empty: none.
  std::string MissingWorker() const;

  struct Request {
    int reshard = 0;
    int64_t version = 0;
    std::string id;
    absl::Duration deadline;
  };
  // Both are called in the process of the client.
  using OnOperation = std::function<void(const v1::Operation&)>;
  void Execute(const std::shared_ptr<SimulatedStream>& stream, const Request& request,
               OnOperation on_operation);
  using OnAnswer = std::function<void(const absl::StatusOr<v1::Operation>&)>;
  void Get(const std::shared_ptr<SimulatedStream>& stream, const std::string& id,
           OnAnswer on_answer);
  void Cancel(const std::shared_ptr<SimulatedStream>& stream, const std::string& id,
              OnAnswer on_answer);

  // Adds one to a counter in the store, on the condition that nobody else has meanwhile.
  using OnCount = std::function<void(const absl::StatusOr<int64_t>&)>;
  void Count(const std::shared_ptr<SimulatedStream>& stream, OnCount on_count);
  // Writes an object, or deletes it; one that is not there it reads as no value.
  using OnChange = std::function<void(const absl::Status&)>;
  void Change(const std::shared_ptr<SimulatedStream>& stream, const StoreTransaction::Write& change,
              OnChange on_change);
  using OnValue = std::function<void(const std::optional<std::string>&)>;
  void Read(const std::shared_ptr<SimulatedStream>& stream, const std::string& key,
            OnValue on_value);
  // The commits after `revision`; when some of them are forgotten, and sometimes else, all that the
  // store has.
  struct Changes {
    bool is_compacted = false;
    std::vector<StoredCommit> commits;
    std::optional<std::vector<StoredObject>> objects;
    int64_t revision = 0;
  };
  void Follow(const std::shared_ptr<SimulatedStream>& stream, int64_t revision,
              std::function<void(const Changes&)> on_changes);

 private:
  struct Term;
  struct Metadata {
    MetadataStore& store;
    uint64_t epoch = 0;
  };

  // Nothing while it does not lead.
  std::optional<Metadata> metadata() const;

  // What was cancelled before it had begun never commits.
  void CheckCancelled(const v1::Operation& said);
  // Of an operation that is cancelled now.
  void ExpectEnd(const std::string& id);

  const Ports ports_;
  std::unique_ptr<Term> term_;  // null while it does not lead
};

}  // namespace crossmesh
