#pragma once

#include "client/cli/storage_tiles.h"
#include "client/cli/tensor_values.h"
#include "client/memory/memory_client.h"
#include "common/mesh/manifest.h"
#include "common/plan/tensor_table.h"
#include "crossmesh/v1/reshard.pb.h"
#include "tests/live/live_cluster.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Values that depend on tensor, element and version: no element of one version is that of another.
class VersionedValues final : public TensorValues {
 public:
  VersionedValues(const Manifest& manifest, uint8_t version)
      : generated_(manifest), version_(version) {}
  const Manifest& manifest() const override { return generated_.manifest(); }
  void Write(int64_t tensor, int64_t first, std::span<std::byte> out) const override;

 private:
  const GeneratedValues generated_;
  const uint8_t version_;
};

// Small whole numbers, whose sums are exact in any order; of F32 tensors, each `summands` times
// what one summand is.
class SummedValues final : public TensorValues {
 public:
  SummedValues(Manifest manifest, uint8_t version, int64_t summands)
      : manifest_(std::move(manifest)), version_(version), summands_(summands) {}
  const Manifest& manifest() const override { return manifest_; }
  void Write(int64_t tensor, int64_t first, std::span<std::byte> out) const override;

 private:
  const Manifest manifest_;
  const uint8_t version_;
  const int64_t summands_;
};

// A few tensors of `bytes` bytes together: large ones, and small ones of odd shapes.
Manifest TensorsOf(int64_t bytes);
// Some of 8 MiB, of which two devices can each have a half by the first dimension, or by the last.
Manifest EvenTensors();

// A reshard of all tensors of a manifest.
struct ReshardOptions {
  Manifest manifest;
  std::string source = "on node-0.0";  // mesh
  std::string source_layout = "[...]";
  std::string source_rules = {};  // docs/text-forms.md; in the place of the layout
  std::string destination = "replica=2 on node-1.0,node-2.0";
  std::string destination_layout = "[...]";
  std::string destination_rules = {};
  std::vector<std::string> whole_tensors = {};  // by name: not cut at the destination
  std::vector<std::string> replica_axes = {"replica"};
  // Axes of the source over which all hold the same summand: a redistribution, which sums them.
  std::vector<std::string> source_partial = {};
  v1::BindingMode binding = v1::BINDING_MODE_SHADOW;
  std::string source_storage = "training";
  std::string destination_storage = "serving";
};

// What a client asks for, and its table.
struct DescribedReshard {
  static absl::StatusOr<DescribedReshard> Create(const ReshardOptions& options);

  v1::ReshardSpec spec;
  std::unique_ptr<const TensorTable> tensors;
  int64_t summands = 1;  // that make a value of the destination
};

// A reshard between workers of a cluster, and the memory it works on.
// Source and destination tiles are versions of values: what arrived, and from when, can be told.
// Thread-compatible; keeps a reference to the cluster.
class ReshardCase {
 public:
  // Creates the storages; sources hold version 1, destinations version 0.
  static absl::StatusOr<std::unique_ptr<ReshardCase>> Create(const ReshardOptions& options,
                                                             LiveCluster& cluster);

  // What is to be done; tests change it.
  v1::ReshardSpec& spec() { return reshard_.spec; }
  const Manifest& manifest() const { return manifest_; }

  // Creates and fills the storages of one worker, e.g. after it was started again.
  absl::Status Prepare(const std::string& worker);
  // All of the source, from now on.
  absl::Status FillSource(uint8_t version);
  // All destination tiles of a worker as they are now; DataLoss for the first element that is not
  // of `version`.
  absl::Status Check(const std::string& worker, uint8_t version) const;
  absl::Status CheckAll(uint8_t version) const;
  // Is the destination of a worker marked as written in part?
  absl::StatusOr<bool> IsDirty(const std::string& worker) const;
  // Workers that have memory at the destination.
  std::vector<std::string> receivers() const;
  // Has some byte changed in the destination memory of a worker since it was prepared? Only for
  // in-place binding, where bytes arrive in the memory that this process has mapped.
  bool HasArrived(const std::string& worker) const;

 private:
  struct Holding {
    std::unique_ptr<StorageTiles> tiles;
    std::unique_ptr<MappedStorage> storage;
    std::vector<std::byte> samples;  // of the storage, as it was prepared
  };

  ReshardCase(Manifest manifest, DescribedReshard reshard, LiveCluster& cluster)
      : manifest_(std::move(manifest)), reshard_(std::move(reshard)), cluster_(cluster) {}
  std::unique_ptr<TensorValues> ValuesOf(Side side, uint8_t version) const;
  absl::StatusOr<MappedStorage> OpenDestination(const std::string& worker) const;
  absl::StatusOr<Holding> MakeHolding(const std::string& worker, Side side, uint8_t version);

  const Manifest manifest_;
  DescribedReshard reshard_;
  LiveCluster& cluster_;
  // By worker; those that take part on that side.
  std::map<std::string, Holding> sources_;
  std::map<std::string, Holding> destinations_;
};

}  // namespace crossmesh
