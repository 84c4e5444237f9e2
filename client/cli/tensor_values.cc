#include "client/cli/tensor_values.h"

#include "common/base/check.h"
#include "common/mesh/conversion.h"
#include "common/numbers/block_scale.h"
#include "common/numbers/element_converter.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

// Of elements that are compared at a time; a multiple of every item size.
constexpr size_t kBlockBytes = 16 << 10;

// A bijection of 64 bits in which every bit of the result depends on every bit of the argument.
constexpr uint64_t Mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93;
  return x ^ x >> 32;
}

template <typename Item>
void WriteItems(uint64_t seed, uint64_t first, std::span<std::byte> out) {
  const size_t count = out.size() / sizeof(Item);
  for (size_t i = 0; i < count; ++i) {
    const auto item = static_cast<Item>(Mix(seed + first + i));
    std::memcpy(out.data() + i * sizeof(Item), &item, sizeof(Item));
  }
}

}  // namespace

std::optional<int64_t> TensorValues::FirstWrong(int64_t tensor, int64_t first,
                                                std::span<const std::byte> found) const {
  const auto item_bytes = static_cast<size_t>(ItemBytes(manifest().tensors()[tensor].type));
  std::array<std::byte, kBlockBytes> block;
  while (!found.empty()) {
    const std::span<std::byte> expected =
        std::span(block).first(std::min(found.size(), kBlockBytes));
    Write(tensor, first, expected);
    // Nearly every block is right, and costs no more than this; only a wrong one is searched.
    if (std::memcmp(expected.data(), found.data(), expected.size()) != 0) {
      const auto differs = std::ranges::mismatch(expected, found.first(expected.size())).in1;
      return first + (differs - expected.begin()) / static_cast<int64_t>(item_bytes);
    }
    first += static_cast<int64_t>(expected.size() / item_bytes);
    found = found.subspan(expected.size());
  }
  return std::nullopt;
}

std::string TensorValues::ElementText(int64_t tensor, int64_t element) const {
  std::array<std::byte, 8> bytes;
  const auto item = std::span(bytes).first(ItemBytes(manifest().tensors()[tensor].type));
  Write(tensor, element, item);
  return BytesText(item);
}

std::string BytesText(std::span<const std::byte> element) {
  std::string text = "0x";
  for (size_t i = element.size(); i-- > 0;) {
    absl::StrAppendFormat(&text, "%02x", std::to_integer<unsigned>(element[i]));
  }
  return text;
}

void GeneratedValues::Write(int64_t tensor, int64_t first, std::span<std::byte> out) const {
  const uint64_t seed = Mix(static_cast<uint64_t>(tensor) + 1);
  const auto begin = static_cast<uint64_t>(first);
  switch (ItemBytes(manifest_.tensors()[tensor].type)) {
    case 1:
      return WriteItems<uint8_t>(seed, begin, out);
    case 2:
      return WriteItems<uint16_t>(seed, begin, out);
    case 4:
      return WriteItems<uint32_t>(seed, begin, out);
    default:
      return WriteItems<uint64_t>(seed, begin, out);
  }
}

void FileValues::Write(int64_t tensor, int64_t first, std::span<std::byte> out) const {
  const int64_t item_bytes = ItemBytes(manifest().tensors()[tensor].type);
  const std::span<const std::byte> bytes = files_.Bytes(tensor);
  std::memcpy(out.data(), bytes.data() + first * item_bytes, out.size());
}

// Tensors of group -1 are not moved.
Manifest ReceivedManifest(const Manifest& manifest, const TensorTable& tensors) {
  std::vector<TensorSpec> specs = manifest.tensors();
  for (size_t tensor = 0; tensor < specs.size(); ++tensor) {
    const int32_t group = tensors.group_of_tensor()[tensor];
    if (group >= 0) specs[tensor].type = tensors.TypeOf(Side::kDestination, group);
  }
  for (const int32_t scaled : tensors.spec().scaled_tensors) {
    const int32_t group = tensors.group_of_tensor()[specs.size()];
    specs.push_back({.name = ScalesName(specs[scaled].name),
                     .type = DataType::kF32,
                     .shape = tensors.groups()[group].shape});
  }
  absl::StatusOr<Manifest> received = Manifest::Create(std::move(specs));
  CHECK_OK(received) << "a table has no more bytes than a manifest may have";
  return *std::move(received);
}

ReceivedValues::ReceivedValues(const TensorValues& values, const TensorTable& tensors)
    : values_(values), tensors_(tensors), manifest_(ReceivedManifest(values.manifest(), tensors)) {
  const std::vector<int32_t>& scaled = tensors.spec().scaled_tensors;
  for (size_t i = 0; i < scaled.size(); ++i) {
    const TensorSpec& spec = values.manifest().tensors()[scaled[i]];
    std::vector<std::byte> elements(spec.bytes());
    values.Write(scaled[i], 0, elements);
    QuantizedTensor quantized = QuantizeTensor(spec.shape, elements);
    quantized_[scaled[i]] = std::move(quantized.elements);
    quantized_[tensors.first_scales() + static_cast<int64_t>(i)] = std::move(quantized.scales);
  }
}

void ReceivedValues::Write(int64_t tensor, int64_t first, std::span<std::byte> out) const {
  if (const auto quantized = quantized_.find(tensor); quantized != quantized_.end()) {
    const int64_t item_bytes = ItemBytes(manifest_.tensors()[tensor].type);
    std::memcpy(out.data(), quantized->second.data() + first * item_bytes, out.size());
    return;
  }
  const ConversionIndex index = tensors_.conversion_of(tensors_.group_of_tensor()[tensor]);
  if (index == kNoConversion) return values_.Write(tensor, first, out);
  const Conversion& conversion = tensors_.conversions()[index];
  const size_t item_bytes = ItemBytes(conversion.to);
  std::array<std::byte, kBlockBytes> block;
  const size_t elements_max = kBlockBytes / ItemBytes(conversion.from);
  while (!out.empty()) {
    const size_t elements = std::min(out.size() / item_bytes, elements_max);
    values_.Write(tensor, first, std::span(block).first(elements * ItemBytes(conversion.from)));
    const std::span<std::byte> converted = out.first(elements * item_bytes);
    ConverterFor(conversion)(block.data(), converted.data(), std::ssize(converted));
    first += static_cast<int64_t>(elements);
    out = out.subspan(converted.size());
  }
}

}  // namespace crossmesh
