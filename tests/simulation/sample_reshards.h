#pragma once

#include "common/mesh/conversion.h"
#include "common/mesh/device.h"
#include "common/plan/tensor_table.h"
#include "planner/reshard/plan_reshard.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace crossmesh {

// A reshard that clients ask for again and again, with another version of the source each time: all
// of a version's elements tell the version and their place, so that bytes that were mixed or
// misplaced show. Tensors are cut by rows, by columns or not at all. Immutable.
struct SampleReshard {
  struct Cut {
    int64_t rows = 1;  // pieces
    int64_t columns = 1;
    int64_t parts() const { return rows * columns; }
  };

  ReshardRequest asked;
  std::vector<DeviceId> sources;
  std::vector<DeviceId> destinations;
  Cut source_cut;
  Cut destination_cut;
  std::string source_storage;
  std::string destination_storage;

  int64_t replica_of(size_t destination) const {
    return static_cast<int64_t>(destination) / destination_cut.parts();
  }
};

// Between four workers of the hosts a to d, each of which has the devices 0 and 1.
std::vector<SampleReshard> MakeSampleReshards();
// These, and after them one in place, and a redistribution that reduces: the largest of equal
// summands, so that it brings the version of all of them.
std::vector<SampleReshard> MakeSamplesOfAllKinds();

// Of what the device, by its place in `sources` or `destinations`, holds.
int64_t StorageBytesOf(const SampleReshard& reshard, Side side, size_t device);
void FillStorage(const SampleReshard& reshard, size_t source, int64_t version,
                 std::span<std::byte> bytes);
// Nothing: it is not one version, whole and in place. 0: what a new storage holds.
std::optional<int64_t> VersionIn(const SampleReshard& reshard, size_t destination,
                                 std::span<const std::byte> bytes);

}  // namespace crossmesh
