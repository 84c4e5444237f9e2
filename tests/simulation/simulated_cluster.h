#pragma once

#include "tests/simulation/sample_reshards.h"
#include "tests/simulation/simulated_candidate.h"
#include "tests/simulation/simulated_client.h"
#include "tests/simulation/simulated_controller.h"
#include "tests/simulation/simulated_etcd.h"
#include "tests/simulation/simulated_etcd_store.h"
#include "tests/simulation/simulated_fault.h"
#include "tests/simulation/simulated_history.h"
#include "tests/simulation/simulated_metadata_client.h"
#include "tests/simulation/simulated_network.h"
#include "tests/simulation/simulated_object_client.h"
#include "tests/simulation/simulated_pipeline_client.h"
#include "tests/simulation/simulated_run_history.h"
#include "tests/simulation/simulated_transport.h"
#include "tests/simulation/simulated_worker.h"
#include "tests/simulation/simulation.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/time/time.h>

namespace crossmesh {

class SimulatedStateFolder;

// The cluster of a simulation. Nodes are numbered: controllers, workers, clients, etcd.
class SimulatedCluster {
 public:
  explicit SimulatedCluster(const SimulationOptions& options);
  ~SimulatedCluster();

  SimulationResult Run();

 private:
  SimulatedNode& AddNode(std::string name);
  void AddNodes();
  void AddClients(const std::vector<SimulatedController*>& controllers);
  void AddPipelineClient(const std::vector<SimulatedController*>& controllers);
  bool HasClient(int number) const;
  void RunLong();
  absl::Duration FaultsEnd() const;
  SimulatedClient::Habits HabitsOfClient(int number) const;
  bool IsOfStore(const SimulatedFault& fault) const;
  bool RunUntil(absl::Duration end);
  void CheckEnd();

  void StartProcess(int node);
  void KillProcess(int node);
  void StartController(int node);
  void OpenStore(int node);
  void StartAgain(int node, absl::Duration pause);
  void StartCandidate(int node);
  void Lead(int node, std::shared_ptr<MetadataStore> store, uint64_t epoch);

  // Of short histories: simulated_cluster_short.cc.
  SimulatedPipelineClient::Habits HabitsOfPipelines() const;
  void AddObjectClient(const std::vector<SimulatedController*>& controllers);
  void RunShort();
  bool HasAllEnded() const;
  void LookAgain();
  void Crash(const SimulatedCrash& crash);

  void Apply(const SimulatedFault& fault);
  void ApplyToDisk(const SimulatedFault& fault);
  void Pause(SimulatedNode& node, absl::Duration length);
  void PauseInCommit(absl::Duration length);
  void PauseAtOrder(absl::Duration length);
  void Swizzle(const SimulatedFault& fault);
  void Heal();

  // A process of a controller that may lead.
  struct Candidate {
    Candidate(SimulatedNode& node, SimulatedNetwork& network, SimulatedEtcd& etcd)
        : calls(node, network, etcd), store(std::make_shared<SimulatedEtcdStore>(node, calls)) {}

    SimulatedEtcdCalls calls;
    const std::shared_ptr<SimulatedEtcdStore> store;
    std::unique_ptr<SimulatedCandidate> election;
  };

  // Between the end of a process and its next start.
  static constexpr absl::Duration kRestartPause = absl::Seconds(1);

  const SimulationOptions options_;
  const bool has_etcd_;
  const std::vector<SampleReshard> reshards_;
  SimulatedWorld world_;
  SimulatedNetwork network_{world_};
  SimulatedFabric fabric_{network_};
  SimulatedHistory history_{world_, reshards_};
  SimulatedRunHistory runs_{history_};
  std::vector<std::unique_ptr<SimulatedNode>> nodes_;
  std::vector<int64_t> versions_;
  std::vector<SimulatedWorker*> worker_list_;
  absl::Duration disturbed_;  // the store, last
  std::vector<SimulatedFault> faults_;
  std::unique_ptr<SimulatedEtcd> etcd_;  // null: the controller has a state folder
  std::unique_ptr<SimulatedStateFolder> state_;
  std::vector<std::unique_ptr<Candidate>> candidates_;
  std::vector<std::unique_ptr<SimulatedController>> controllers_;
  std::vector<std::unique_ptr<SimulatedWorker>> workers_;
  std::vector<std::unique_ptr<SimulatedClient>> clients_;
  std::vector<std::unique_ptr<SimulatedMetadataClient>> metadata_clients_;
  std::unique_ptr<SimulatedPipelineClient> pipeline_client_;  // null: there is none
  std::unique_ptr<SimulatedObjectClient> object_client_;      // of a short history
  std::vector<int64_t> effects_;                              // as SimulationResult has them
};

}  // namespace crossmesh
