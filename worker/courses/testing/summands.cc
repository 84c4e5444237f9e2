#include "worker/courses/testing/summands.h"

#include "common/mesh/data_type.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Of the element at a place of a box, row-major, in a tensor.
int64_t IndexOf(const Shape& shape, const Box& box, int64_t place) {
  int64_t index = 0;
  int64_t stride = 1;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    index += (box[d].begin + place % box[d].length()) * stride;
    place /= box[d].length();
    stride *= shape[d];
  }
  return index;
}

// Calls `visit` with the tensor and index, in the whole tensor, of every element of a device's
// tile, and where it lies.
template <typename Visit>
void ForEachElement(const TensorTable& table, const TileMemory& memory, Side side,
                    DeviceRank device, Visit visit) {
  const BoundTiles& tiles = memory.tiles(side, device);
  for (int32_t t = 0; t < std::ssize(table.group_of_tensor()); ++t) {
    const int32_t group = table.group_of_tensor()[t];
    std::byte* element = tiles.tensor[t];
    const int64_t item_bytes = ItemBytes(table.groups()[group].type);
    for (const Box& box : table.TileOf(side, group, device)) {
      for (int64_t i = 0; i < box.volume(); ++i) {
        visit(t, IndexOf(table.groups()[group].shape, box, i), element);
        element += item_bytes;
      }
    }
  }
}

// Slots with their coordinates on partial axes, as numbers.
class PartialSlots {
 public:
  PartialSlots(const Mesh& mesh, const std::vector<std::string>& axes) : mesh_(mesh) {
    for (const std::string& axis : axes) axes_.push_back(*mesh.FindAxis(axis));
  }
  int64_t count() const {
    int64_t count = 1;
    for (const int axis : axes_) count *= mesh_.axes()[axis].size;
    return count;
  }
  // Of a slot: the coordinates as one number.
  int64_t Of(int64_t slot) const {
    int64_t number = 0;
    for (const int axis : axes_) {
      number = number * mesh_.axes()[axis].size + mesh_.Coordinate(slot, axis);
    }
    return number;
  }

 private:
  const Mesh& mesh_;
  std::vector<int> axes_;
};

// Small whole numbers, so that sums are exact in any order.
int32_t Summand(int32_t tensor, int64_t index, int64_t partial) {
  return static_cast<int32_t>((tensor * 7 + index * 13 + partial * 29 + index * partial) % 61 - 30);
}

uint32_t BitsOf(DataType type, int32_t number) {
  return type == DataType::kI32 ? static_cast<uint32_t>(number)
                                : std::bit_cast<uint32_t>(static_cast<float>(number));
}

uint32_t BitsOfReduced(DataType type, const std::string& reduction,
                       const std::vector<int32_t>& summands) {
  if (reduction == "min") return BitsOf(type, std::ranges::min(summands));
  if (reduction == "max") return BitsOf(type, std::ranges::max(summands));
  const int32_t sum = std::accumulate(summands.begin(), summands.end(), 0);
  const auto count = static_cast<int32_t>(summands.size());
  if (reduction != "mean") return BitsOf(type, sum);
  if (type == DataType::kI32) return BitsOf(type, sum / count);
  return std::bit_cast<uint32_t>(static_cast<float>(sum) / static_cast<float>(count));
}

// Of 24 bits, above and below one, so that nearly every sum is rounded.
float RoundedSummand(int32_t tensor, int64_t index, int64_t partial) {
  std::seed_seq seed = {int64_t{tensor}, index, partial};
  uint32_t bits[2];
  seed.generate(std::begin(bits), std::end(bits));
  const auto fraction = static_cast<float>(static_cast<int32_t>(bits[0]) >> 7);
  return std::ldexp(fraction, static_cast<int>(bits[1] % 8) - 24);
}

std::vector<float> RoundedSummands(int32_t tensor, int64_t index,
                                   const std::vector<int64_t>& numbers) {
  std::vector<float> summands;
  for (const int64_t number : numbers) summands.push_back(RoundedSummand(tensor, index, number));
  return summands;
}

// Of one summand after the other, from one of them on.
uint32_t BitsOfSumFrom(size_t first, const RedistributionInputs& inputs,
                       const std::vector<float>& summands) {
  const size_t count = summands.size();
  float sum = summands[first];
  for (size_t i = 1; i < count; ++i) sum += summands[(first + i) % count];
  return std::bit_cast<uint32_t>(inputs.reduction == "mean" ? sum / static_cast<float>(count)
                                                            : sum);
}

DataType TypeOf(const TensorTable& table, int32_t tensor) {
  return table.groups()[table.group_of_tensor()[tensor]].type;
}

// DataLoss, naming a slot, when the bits of an element of a destination are not right by what
// `is_right` says of the tensor, the index in it, the numbers of the summands, in the order of
// their slots, and these bits.
template <typename IsRight>
absl::Status CheckReduced(const RedistributionInputs& inputs, const Plan& plan,
                          const TileMemory& memory, std::optional<DeviceRank> only,
                          IsRight is_right) {
  const TensorTable& table = plan.tensors();
  const Mesh& mesh = table.placements(Side::kSource)[0].mesh;
  const PartialSlots before(mesh, inputs.source_partial);
  const PartialSlots after(mesh, inputs.destination_partial);
  // [what stays partial]: the summands, by their numbers before.
  std::vector<std::vector<int64_t>> numbers(after.count());
  for (int64_t slot = 0; slot < mesh.slots(); ++slot) {
    std::vector<int64_t>& of = numbers[after.Of(slot)];
    if (std::ranges::find(of, before.Of(slot)) == of.end()) of.push_back(before.Of(slot));
  }
  for (int64_t slot = 0; slot < mesh.slots(); ++slot) {
    const DeviceRank device = table.slots(Side::kDestination, 0)[slot];
    if (only.has_value() && device != *only) continue;
    int64_t wrong = 0;
    ForEachElement(table, memory, Side::kDestination, device,
                   [&](int32_t tensor, int64_t index, const std::byte* element) {
                     uint32_t found = 0;
                     std::memcpy(&found, element, sizeof(found));
                     if (!is_right(tensor, index, numbers[after.Of(slot)], found)) ++wrong;
                   });
    if (wrong == 0) continue;
    return absl::DataLossError(absl::StrCat("slot ", slot, ": ", wrong, " elements are wrong"));
  }
  return absl::OkStatus();
}

// Of each element of each source tile: what `write` puts there, of a tensor, the index of the
// element in it, and the number of its summand.
template <typename Write>
void FillSources(const RedistributionInputs& inputs, const Plan& plan, const TileMemory& memory,
                 Write write) {
  const TensorTable& table = plan.tensors();
  const Mesh& mesh = table.placements(Side::kSource)[0].mesh;
  const PartialSlots before(mesh, inputs.source_partial);
  for (int64_t slot = 0; slot < mesh.slots(); ++slot) {
    ForEachElement(table, memory, Side::kSource, table.slots(Side::kSource, 0)[slot],
                   [&](int32_t tensor, int64_t index, std::byte* element) {
                     write(tensor, index, before.Of(slot), element);
                   });
  }
}

}  // namespace

absl::Status CheckSums(const RedistributionInputs& inputs, const Plan& plan,
                       const TileMemory& memory, std::optional<DeviceRank> only) {
  return CheckReduced(
      inputs, plan, memory, only,
      [&](int32_t tensor, int64_t index, const std::vector<int64_t>& numbers, uint32_t bits) {
        std::vector<int32_t> summands;
        for (const int64_t number : numbers) summands.push_back(Summand(tensor, index, number));
        return bits == BitsOfReduced(TypeOf(plan.tensors(), tensor), inputs.reduction, summands);
      });
}

absl::Status CheckSumsInOrder(const RedistributionInputs& inputs, const Plan& plan,
                              const TileMemory& memory) {
  return CheckReduced(
      inputs, plan, memory, std::nullopt,
      [&](int32_t tensor, int64_t index, const std::vector<int64_t>& numbers, uint32_t bits) {
        return bits == BitsOfSumFrom(0, inputs, RoundedSummands(tensor, index, numbers));
      });
}

absl::Status CheckSumsRoundRing(const RedistributionInputs& inputs, const Plan& plan,
                                const TileMemory& memory) {
  return CheckReduced(
      inputs, plan, memory, std::nullopt,
      [&](int32_t tensor, int64_t index, const std::vector<int64_t>& numbers, uint32_t bits) {
        const std::vector<float> summands = RoundedSummands(tensor, index, numbers);
        for (size_t first = 0; first < summands.size(); ++first) {
          if (bits == BitsOfSumFrom(first, inputs, summands)) return true;
        }
        return false;
      });
}

void FillSummands(const RedistributionInputs& inputs, const Plan& plan, const TileMemory& memory) {
  FillSources(inputs, plan, memory,
              [&](int32_t tensor, int64_t index, int64_t partial, std::byte* element) {
                const uint32_t bits =
                    BitsOf(TypeOf(plan.tensors(), tensor), Summand(tensor, index, partial));
                std::memcpy(element, &bits, sizeof(bits));
              });
}

void FillRoundedSummands(const RedistributionInputs& inputs, const Plan& plan,
                         const TileMemory& memory) {
  FillSources(inputs, plan, memory,
              [](int32_t tensor, int64_t index, int64_t partial, std::byte* element) {
                const float summand = RoundedSummand(tensor, index, partial);
                std::memcpy(element, &summand, sizeof(summand));
              });
}

void FillRandomSummands(const RedistributionInputs& inputs, const Plan& plan,
                        const TileMemory& memory) {
  const TensorTable& table = plan.tensors();
  FillSources(inputs, plan, memory,
              [&](int32_t tensor, int64_t index, int64_t partial, std::byte* element) {
                std::seed_seq seed = {int64_t{tensor}, index, partial};
                uint32_t bits[2];
                seed.generate(std::begin(bits), std::end(bits));
                std::memcpy(element, bits, ItemBytes(TypeOf(table, tensor)));
              });
}

}  // namespace crossmesh
