#pragma once

#include "common/plan/slicing.h"
#include "common/plan/tensor_table.h"

#include <cstdint>
#include <span>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The part of one tensor that belongs to one class: what the published strategies move as a whole
// (their unit task). It is the packed bytes [begin, end) of the class.
struct Slice {
  int32_t tensor = 0;
  ClassIndex slice_class = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int32_t item_bytes = 0;
  int32_t parties = 0;  // index into Slices

  int64_t bytes() const { return end - begin; }
};

// All slices of a request in the order of the published strategies: by tensor, then by the first
// element of what the receivers share, then of what the holders share. Immutable.
class Slices {
 public:
  // ResourceExhausted, naming the strategy, when there are more than a plan may have relays, or
  // more pairs of a slice and a device that holds or needs it than a plan may have hops; nothing is
  // listed before. Cost: linear in the slices, and in the devices of the classes of each tensor
  // group.
  static absl::StatusOr<Slices> List(absl::string_view strategy, const TensorTable& tensors,
                                     const Slicing& slicing);

  const std::vector<Slice>& all() const { return slices_; }
  // Devices that hold the slice, and those that need and do not hold it, in slot order.
  std::span<const DeviceRank> holders(const Slice& s) const { return Of(2 * int64_t{s.parties}); }
  std::span<const DeviceRank> receivers(const Slice& s) const {
    return Of(2 * int64_t{s.parties} + 1);
  }

 private:
  struct Ordered {  // a class of a group
    int64_t index;  // in the group's grid
    int32_t parties;
  };

  Slices() = default;
  std::span<const DeviceRank> Of(int64_t list) const {
    return {devices_.data() + first_[list], devices_.data() + first_[list + 1]};
  }
  std::vector<Ordered> AddParties(const TensorTable& tensors, const Slicing& slicing,
                                  int32_t group);

  std::vector<Slice> slices_;
  std::vector<int64_t> first_ = {0};  // list i is devices_[first_[i] .. first_[i + 1])
  std::vector<DeviceRank> devices_;
};

}  // namespace crossmesh
