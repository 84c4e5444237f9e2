#pragma once

#include "crossmesh/v1/reshard.pb.h"

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace CLI {
class App;
}  // namespace CLI

namespace crossmesh {

// The flags that say what to move, from where to where, and how.
class SpecFlags {
 public:
  // Of planning.
  void AddTo(CLI::App& command);
  // Of execution, beside those of planning.
  void AddExecutionTo(CLI::App& command);

  // Of commands that look at one side: a side of which no mesh is given is as the other one.
  void MirrorMissingSide();

  // The specification of --request, if given, with what the other flags say put over it. A manifest
  // or mesh that is not a registered name is read, and given inline. InvalidArgument, naming flag
  // or file.
  absl::StatusOr<v1::ReshardSpec> Read() const;

 private:
  struct Side {
    std::string mesh;
    std::string rules;
    std::string layout;
    std::string storage;
  };

  void AddRedistributionTo(CLI::App& command);
  static void AddSideTo(CLI::App& command, const std::string& name, Side& side);
  static absl::Status ReadSide(const std::string& name, const Side& side, v1::ReshardSide& proto);
  absl::Status ReadManifestTo(v1::ReshardSpec& spec) const;
  absl::Status ReadPlanningTo(v1::ReshardSpec& spec) const;
  absl::Status ReadNetworkTo(v1::ReshardSpec& spec) const;
  absl::Status ReadExecutionTo(v1::ReshardSpec& spec) const;
  void ReadRedistributionTo(v1::ReshardSpec& spec) const;

  std::string request_;
  std::string manifest_;
  Side source_;
  Side destination_;
  std::vector<std::string> replica_axes_;
  std::string strategy_;
  uint64_t seed_ = 0;
  int64_t chunk_bytes_ = 0;
  bool no_broadcasts_ = false;
  double nic_share_ = 0;
  bool in_place_ = false;
  bool shadow_ = false;
  std::string topology_;
  std::string gpu_host_;
  int64_t device_bytes_max_ = 0;
  bool no_checksums_ = false;
  bool create_destination_ = false;
  std::string deadline_;
  std::string stall_limit_;
  std::vector<std::string> source_partial_;
  std::vector<std::string> destination_partial_;
  std::string reduction_;
  std::string objective_;
  std::string method_;
  bool no_relays_ = false;
};

}  // namespace crossmesh
