#pragma once

#include "common/mesh/device.h"
#include "common/mesh/topology.h"
#include "planner/parallelism/cluster_tables.h"
#include "planner/parallelism/device_profile.h"
#include "planner/parallelism/grid_ranking.h"
#include "planner/parallelism/measured_axes.h"
#include "planner/parallelism/step_model.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace CLI {
class App;
}  // namespace CLI

namespace crossmesh {

// What the flags of a command about grids say.
struct GridRequest {
  StepModel step;
  GridLimits limits;
  std::string network;           // where the rates come from, for people
  bool chooses_scatters = true;  // of programs: how many may be pending was not said
};

// Devices, and the network that they are on, as files and flags have it.
struct DescribedDevices {
  std::vector<DeviceId> devices;
  Topology topology;
};

// The flags that say which model is trained, how, and on what.
class GridFlags {
 public:
  void AddTo(CLI::App& command);
  // Of the model alone.
  void AddModelTo(CLI::App& command);
  // Of the ranking alone: which grids are looked at.
  void AddLimitsTo(CLI::App& command);

  // InvalidArgument names the flag or the file.
  absl::StatusOr<GridRequest> Read() const;
  // On devices of a cluster whose network is known: --devices alone says on what. Axes that were
  // measured over these devices have what was measured.
  absl::StatusOr<GridRequest> ReadOn(const Topology& topology,
                                     const std::optional<MeasuredAxes>& axes) const;
  absl::StatusOr<std::vector<DeviceId>> ReadDevices() const;
  // Of --devices, with or without --topology.
  absl::StatusOr<DescribedDevices> ReadDescribedDevices() const;

  // For models of the literature, which have less.
  absl::StatusOr<Transformer> ReadModel() const;
  absl::StatusOr<const PublishedCluster*> ReadCluster() const;
  int64_t batch() const { return batch_; }
  int64_t sequence() const { return sequence_; }
  int64_t count() const { return count_; }

 private:
  struct Network {
    PositionRates rates;
    std::string text;
  };

  void AddTrainingTo(CLI::App& command);
  void AddNetworkTo(CLI::App& command);
  absl::StatusOr<Training> ReadTraining() const;
  absl::StatusOr<Overlaps> ReadOverlaps() const;
  absl::StatusOr<DeviceProfile> ReadDevice() const;
  absl::StatusOr<Network> ReadNetwork() const;
  absl::StatusOr<GridRequest> ReadWith(Network network) const;
  absl::StatusOr<Network> ReadDescribedNetwork() const;
  absl::StatusOr<GridLimits> ReadLimits() const;

  std::string model_;
  int64_t layers_ = 0;
  int64_t hidden_ = 0;
  int64_t heads_ = 0;
  int64_t kv_heads_ = 0;
  int64_t feed_forward_ = 0;
  int64_t vocabulary_ = 0;
  int64_t batch_ = 0;
  int64_t sequence_ = 0;
  int64_t microbatch_ = 0;
  std::string activations_ = "replicated";
  bool keep_gathered_ = false;
  std::string vectors_ = "replicated";
  std::string recompute_ = "none";
  bool store_scores_ = false;
  std::string schedule_ = "1f1b";
  int64_t chunks_ = 1;
  std::string context_ = "ring";
  double imbalance_ = 1;
  int32_t zero_ = 0;
  int64_t cached_layers_ = 0;
  std::vector<std::string> overlaps_ = {"oar", "ors", "oag"};
  std::optional<int64_t> pending_scatters_;
  std::string order_;
  std::string device_ = "h100";
  std::string products_;
  double overlap_slowdown_ = DeviceProfile().overlap_slowdown;
  std::optional<int64_t> memory_;
  double flops_ = 0;  // 0: the maker's
  std::string devices_;
  std::string topology_;
  std::string gpu_host_;
  std::string cluster_;
  int64_t count_ = 0;
  std::string rates_;
  std::vector<std::string> most_;
};

}  // namespace crossmesh
