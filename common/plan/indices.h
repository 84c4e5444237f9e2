#pragma once

#include <cstddef>
#include <cstdint>

namespace crossmesh {

// How what belongs to a plan is named: by its place in one of the plan's tables.

// Index into TensorTable::devices(): how everything of a plan names a device. A device is at most
// one source slot and at most one destination slot, so it also names those.
using DeviceRank = int32_t;
// Index into TensorTable::hosts().
using HostRank = int32_t;
// Index into TensorTable::conversions().
using ConversionIndex = int32_t;
inline constexpr ConversionIndex kNoConversion = -1;
// Index into Slicing::classes().
using ClassIndex = int32_t;
inline constexpr ClassIndex kNoClass = -1;
// Number of a channel in the whole plan: its place among all (from, to) pairs, sorted.
using ChannelIndex = int32_t;

// Of a table that has `size` places.
inline bool IsIndexOf(int64_t index, size_t size) {
  return index >= 0 && index < static_cast<int64_t>(size);
}

enum class Side : uint8_t { kSource, kDestination };

}  // namespace crossmesh
