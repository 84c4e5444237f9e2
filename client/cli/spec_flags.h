#pragma once

#include "crossmesh/v1/reshard.pb.h"

#include <cstdint>
#include <optional>
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
  // Of planning inside one mesh, instead: --mesh, and layouts as --source and --destination; of a
  // manifest, or of one tensor by its shape.
  void AddInsideMeshTo(CLI::App& command);
  // Of execution, beside those of planning.
  void AddExecutionTo(CLI::App& command);

  // Of commands that look at one side: a side of which no mesh is given is as the other one.
  void MirrorMissingSide();

  // The specification of --request, if given, with what the other flags say put over it. A manifest
  // or mesh that is not a registered name is read, and given inline. InvalidArgument, naming flag
  // or file.
  absl::StatusOr<v1::ReshardSpec> Read() const;

  // By its shape, and not of a manifest.
  bool is_one_tensor() const { return !shape_.empty(); }

 private:
  struct Side {
    std::string mesh;
    std::string rules;
    std::string layout;
    std::string storage;
  };

  void AddTensorsTo(CLI::App& command);
  void AddMovingTo(CLI::App& command);
  void AddRedistributionTo(CLI::App& command, const std::string& method_flag);
  static void AddSideTo(CLI::App& command, const std::string& name, Side& side);
  std::string MeshFlag(const std::string& side) const;
  std::string LayoutFlag(const std::string& side) const;
  absl::Status ReadSide(const std::string& name, const Side& side, v1::ReshardSide& proto) const;
  absl::StatusOr<v1::Manifest> ReadOneTensor() const;
  absl::Status ReadManifestTo(v1::ReshardSpec& spec) const;
  absl::Status ReadPlanningTo(v1::ReshardSpec& spec) const;
  absl::Status ReadNetworkTo(v1::ReshardSpec& spec) const;
  absl::Status ReadExecutionTo(v1::ReshardSpec& spec) const;
  void ReadRedistributionTo(v1::ReshardSpec& spec) const;

  bool inside_mesh_ = false;
  std::string request_;
  std::string manifest_;
  std::string shape_;  // of one tensor, instead of a manifest
  std::string type_ = "F32";
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
  std::optional<int64_t> cap_;  // the same, where there is one mesh
  bool no_checksums_ = false;
  bool create_destination_ = false;
  std::string deadline_;
  std::string stall_limit_;
  std::vector<std::string> source_partial_;
  std::vector<std::string> destination_partial_;
  std::string reduction_;
  std::string reduction_order_;
  std::string objective_;
  std::string method_;
  bool no_relays_ = false;
  bool release_source_ = false;
};

}  // namespace crossmesh
