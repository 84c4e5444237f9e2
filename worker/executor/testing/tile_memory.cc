#include "worker/executor/testing/tile_memory.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/numbers/block_scale.h"
#include "common/numbers/element_converter.h"

#include <algorithm>
#include <span>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int64_t kGuardBytes = 64;
constexpr std::byte kGuard{0xA5};
constexpr std::byte kUnwritten{0xCD};

std::byte ElementByte(int32_t tensor, int64_t element, int64_t byte) {
  uint64_t x = static_cast<uint64_t>(element) * 8 + byte + (static_cast<uint64_t>(tensor) << 48);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return static_cast<std::byte>(x >> 56);
}

// All elements of a tensor, as sources have it.
std::vector<std::byte> SourceElements(const TensorGroup& group, int32_t tensor) {
  const int64_t item_bytes = ItemBytes(group.type);
  std::vector<std::byte> bytes;
  for (int64_t element = 0; element < group.shape.elements(); ++element) {
    for (int64_t b = 0; b < item_bytes; ++b) bytes.push_back(ElementByte(tensor, element, b));
  }
  return bytes;
}

std::vector<std::byte> Converted(const std::vector<std::byte>& elements,
                                 const Conversion& conversion) {
  std::vector<std::byte> converted(std::ssize(elements) / ItemBytes(conversion.from) *
                                   ItemBytes(conversion.to));
  ConverterFor(conversion)(elements.data(), converted.data(), std::ssize(converted));
  return converted;
}

// Appends the elements of a box of a tensor, row-major.
void AppendBox(const Shape& shape, const Box& box, const std::vector<std::byte>& elements,
               std::vector<std::byte>& out) {
  const int64_t item_bytes = std::ssize(elements) / std::max<int64_t>(shape.elements(), 1);
  std::vector<int64_t> at(box.rank());
  for (int d = 0; d < box.rank(); ++d) at[d] = box[d].begin;
  for (int64_t left = box.volume(); left > 0; --left) {
    int64_t element = 0;
    for (int d = 0; d < box.rank(); ++d) element = element * shape[d] + at[d];
    const auto begin = elements.begin() + element * item_bytes;
    out.insert(out.end(), begin, begin + item_bytes);
    for (int d = box.rank() - 1; d >= 0; --d) {
      if (++at[d] < box[d].end) break;
      at[d] = box[d].begin;
    }
  }
}

}  // namespace

TileMemory::TileMemory(const Plan& plan) : plan_(plan) {
  const TensorTable& tensors = plan.tensors();
  const auto tensor_count = static_cast<int32_t>(tensors.group_of_tensor().size());
  const bool one_memory = plan.shared_storage() && plan.binding() == BindingMode::kInPlace;
  for (DeviceRank device = 0; device < std::ssize(tensors.devices()); ++device) {
    BoundTiles& source = sources_[device];
    BoundTiles& destination = destinations_[device];
    source.tensor.resize(tensor_count);
    destination.tensor.resize(tensor_count);
    for (int32_t tensor = 0; tensor < tensor_count; ++tensor) {
      if (tensors.group_of_tensor()[tensor] < 0) continue;
      source.tensor[tensor] = AddBlock(Side::kSource, tensor, device);
      if (one_memory && source.tensor[tensor] != nullptr) {
        const std::vector<std::byte> wanted = Expected(Side::kDestination, tensor, device);
        if (wanted.empty()) continue;
        CHECK_EQ(std::ssize(wanted), blocks_.back()->tile_bytes);
        blocks_.back()->destination = true;
        destination.tensor[tensor] = source.tensor[tensor];
      } else {
        destination.tensor[tensor] = AddBlock(Side::kDestination, tensor, device);
      }
    }
  }
}

std::byte* TileMemory::AddBlock(Side side, int32_t tensor, DeviceRank device) {
  const std::vector<std::byte> contents = Expected(side, tensor, device);
  if (contents.empty()) return nullptr;
  auto block = std::make_unique<Block>();
  block->tile_bytes = std::ssize(contents);
  block->tensor = tensor;
  block->device = device;
  block->source = side == Side::kSource;
  block->destination = side == Side::kDestination;
  block->bytes.assign(contents.size() + 2 * kGuardBytes, kGuard);
  const auto begin = block->bytes.begin() + kGuardBytes;
  if (block->source) {
    std::copy(contents.begin(), contents.end(), begin);
  } else {
    std::fill_n(begin, contents.size(), kUnwritten);
  }
  blocks_.push_back(std::move(block));
  return blocks_.back()->bytes.data() + kGuardBytes;
}

std::vector<std::byte> TileMemory::WholeTensor(Side side, int32_t tensor) const {
  const TensorTable& tensors = plan_.tensors();
  const int32_t index = tensors.group_of_tensor()[tensor];
  if (tensors.is_scales(index)) {
    const int32_t of = tensors.spec().scaled_tensors[tensor - tensors.first_scales()];
    const TensorGroup& scaled = tensors.groups()[tensors.group_of_tensor()[of]];
    return QuantizeTensor(scaled.shape, SourceElements(scaled, of)).scales;
  }
  const TensorGroup& group = tensors.groups()[index];
  const ConversionIndex conversion = tensors.conversion_of(index);
  std::vector<std::byte> elements = SourceElements(group, tensor);
  if (side == Side::kSource || conversion == kNoConversion) return elements;
  if (HasScales(group)) return QuantizeTensor(group.shape, elements).elements;
  return Converted(elements, tensors.conversions()[conversion]);
}

std::vector<std::byte> TileMemory::Expected(Side side, int32_t tensor, DeviceRank device) const {
  const TensorTable& tensors = plan_.tensors();
  const int32_t group = tensors.group_of_tensor()[tensor];
  std::vector<std::byte> bytes;
  const Tile tile = tensors.TileOf(side, group, device);
  if (tile.empty() || (side == Side::kSource && tensors.is_scales(group))) return bytes;
  const std::vector<std::byte> whole = WholeTensor(side, tensor);
  for (const Box& box : tile) AppendBox(tensors.groups()[group].shape, box, whole, bytes);
  return bytes;
}

const BoundTiles& TileMemory::tiles(Side side, DeviceRank device) const {
  const auto& all = side == Side::kSource ? sources_ : destinations_;
  const auto found = all.find(device);
  return found == all.end() ? none_ : found->second;
}

void TileMemory::SpoilDestination(DeviceRank device) {
  for (const auto& block : blocks_) {
    if (block->device != device || !block->destination) continue;
    std::byte* const tile = block->bytes.data() + kGuardBytes;
    std::fill(tile, tile + block->tile_bytes, std::byte{0xa5});
  }
}

std::vector<std::span<std::byte>> TileMemory::blocks() {
  std::vector<std::span<std::byte>> blocks;
  for (const auto& block : blocks_) blocks.emplace_back(block->bytes);
  return blocks;
}

absl::Status TileMemory::CheckDestination(DeviceRank device) const {
  const TensorTable& tensors = plan_.tensors();
  for (const auto& block : blocks_) {
    if (!block->destination || block->device != device) continue;
    const std::vector<std::byte> expected = Expected(Side::kDestination, block->tensor, device);
    const auto found = block->bytes.begin() + kGuardBytes;
    const auto [wrong, at] = std::mismatch(expected.begin(), expected.end(), found);
    if (wrong == expected.end()) continue;
    return absl::DataLossError(
        absl::StrCat("tensor ", block->tensor, " at ", ToString(tensors.devices()[device]),
                     ", byte ", wrong - expected.begin(), " of its tile of ", expected.size(),
                     ": expected ", static_cast<int>(*wrong), ", found ", static_cast<int>(*at)));
  }
  return absl::OkStatus();
}

absl::Status TileMemory::CheckUntouched() const {
  const TensorTable& tensors = plan_.tensors();
  for (const auto& block : blocks_) {
    const std::span<const std::byte> bytes(block->bytes);
    for (const auto guard : {bytes.first(kGuardBytes), bytes.last(kGuardBytes)}) {
      if (std::ranges::all_of(guard, [](std::byte b) { return b == kGuard; })) continue;
      return absl::DataLossError(absl::StrCat("memory beside tensor ", block->tensor, " at ",
                                              ToString(tensors.devices()[block->device]),
                                              " was written"));
    }
    if (block->destination) continue;
    if (std::ranges::equal(bytes.subspan(kGuardBytes, block->tile_bytes),
                           Expected(Side::kSource, block->tensor, block->device))) {
      continue;
    }
    return absl::DataLossError(absl::StrCat("the source of tensor ", block->tensor, " at ",
                                            ToString(tensors.devices()[block->device]),
                                            " was written"));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
