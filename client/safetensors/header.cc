#include "client/safetensors/header.h"

#include "common/base/error_place.h"
#include "common/base/little_endian.h"
#include "common/base/status_macros.h"
#include "common/mesh/json_reader.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using nlohmann::json;

constexpr std::array<absl::string_view, 3> kTensorKeys = {"dtype", "shape", "data_offsets"};

std::string NameOf(absl::string_view tensor) {
  return absl::StrCat("tensor \"", absl::CHexEscape(tensor.substr(0, 80)), "\"");
}

// The 8 bytes at the start, least significant first.
absl::StatusOr<int64_t> HeaderBytes(std::span<const std::byte> file) {
  const auto size = static_cast<int64_t>(file.size());
  if (size < kSafetensorsLengthBytes) {
    return absl::InvalidArgumentError(absl::StrCat("header: expected ", kSafetensorsLengthBytes,
                                                   " bytes of length at the start, found ", size));
  }
  const uint64_t length =
      FromLittleEndian({reinterpret_cast<const char*>(file.data()), kSafetensorsLengthBytes});
  if (length > static_cast<uint64_t>(kSafetensorsHeaderBytesMax)) {
    return absl::InvalidArgumentError(absl::StrCat("header: expected a length of at most ",
                                                   kSafetensorsHeaderBytesMax, " bytes, found ",
                                                   length));
  }
  if (static_cast<int64_t>(length) > size - kSafetensorsLengthBytes) {
    return absl::InvalidArgumentError(absl::StrCat("header: expected its length of ", length,
                                                   " bytes in the file, found ",
                                                   size - kSafetensorsLengthBytes));
  }
  return static_cast<int64_t>(length);
}

absl::Status ReadMetadata(const json& value, std::map<std::string, std::string>& metadata) {
  if (!value.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(
        kSafetensorsMetadataKey, ": expected an object of strings, found ", value.type_name()));
  }
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat(kSafetensorsMetadataKey, " \"", absl::CHexEscape(key.substr(0, 80)),
                       "\": expected a string, found ", text.type_name()));
    }
    metadata.emplace(key, text.get<std::string>());
  }
  return absl::OkStatus();
}

absl::StatusOr<SafetensorsTensor> ReadTensor(const std::string& name, const json& value) {
  const std::string where = NameOf(name);
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, where, kTensorKeys));
  ASSIGN_OR_RETURN(const std::string type_name, fields.String("dtype"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> lengths, fields.Integers("shape"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> offsets, fields.Integers("data_offsets"));
  ASSIGN_OR_RETURN(const DataType type, At(where, ParseDataType(type_name)));
  ASSIGN_OR_RETURN(Shape shape, At(where, Shape::Create(lengths)));
  if (offsets.size() != 2 || offsets[0] < 0 || offsets[1] < offsets[0]) {
    return absl::InvalidArgumentError(
        absl::StrCat(where,
                     ": expected data_offsets to be [begin, end] with 0 <= begin <= end, "
                     "found ",
                     value.at("data_offsets").dump()));
  }
  SafetensorsTensor tensor{.spec = {.name = name, .type = type, .shape = std::move(shape)},
                           .begin = offsets[0],
                           .end = offsets[1]};
  if (tensor.end - tensor.begin != tensor.spec.bytes()) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": expected data_offsets that span the ", tensor.spec.bytes(), " bytes of ",
        type_name, " ", ToString(tensor.spec.shape), ", found ", tensor.end - tensor.begin));
  }
  return tensor;
}

// Every byte of the data belongs to exactly one tensor.
absl::Status CheckBytes(const std::vector<SafetensorsTensor>& tensors, int64_t data_bytes) {
  int64_t next = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.begin != next) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOf(tensor.spec.name), ": expected its bytes to begin at ", next,
                       ", where those before it end, found ", tensor.begin));
    }
    if (tensor.end > data_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOf(tensor.spec.name), ": expected its bytes within the ", data_bytes,
                       " bytes of data in the file, found an end at ", tensor.end));
    }
    next = tensor.end;
  }
  if (next == data_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("data: expected ", next,
                                                 " bytes, as many as the header's tensors have, "
                                                 "found ",
                                                 data_bytes));
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> file) {
  ASSIGN_OR_RETURN(const int64_t header_bytes, HeaderBytes(file));
  const absl::string_view text(reinterpret_cast<const char*>(file.data()) + kSafetensorsLengthBytes,
                               header_bytes);
  // The format demands it, though JSON would allow spaces before.
  if (text.empty() || text.front() != '{') {
    return absl::InvalidArgumentError(absl::StrCat("header: expected JSON that begins with '{', ",
                                                   "found \"", absl::CHexEscape(text.substr(0, 8)),
                                                   "\""));
  }
  ASSIGN_OR_RETURN(const json document, ParseJson("header", text));
  SafetensorsHeader header;
  header.data_begin = kSafetensorsLengthBytes + header_bytes;
  for (const auto& [name, value] : document.items()) {
    if (name == kSafetensorsMetadataKey) {
      RETURN_IF_ERROR(ReadMetadata(value, header.metadata));
      continue;
    }
    ASSIGN_OR_RETURN(header.tensors.emplace_back(), ReadTensor(name, value));
  }
  // Tensors without elements have no bytes, and stand before the one that begins where they do.
  std::ranges::sort(header.tensors, {}, [](const SafetensorsTensor& tensor) {
    return std::tie(tensor.begin, tensor.end, tensor.spec.name);
  });
  RETURN_IF_ERROR(
      CheckBytes(header.tensors, static_cast<int64_t>(file.size()) - header.data_begin));
  return header;
}

}  // namespace crossmesh
