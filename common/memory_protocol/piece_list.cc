#include "common/memory_protocol/piece_list.h"

#include "common/base/status_macros.h"
#include "common/memory_protocol/memory_protocol.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using Json = nlohmann::json;

absl::Status MalformedPieces(absl::string_view field, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("field \"", field, "\" of a list of pieces: expected ", expected));
}

absl::Status Refused(size_t piece, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("piece ", piece, " of the storage: ", problem));
}

bool IsCount(const Json& json) {
  return json.is_number_integer() &&
         (!json.is_number_unsigned() || json.get<uint64_t>() <= uint64_t{INT64_MAX}) &&
         json.get<int64_t>() >= 0;
}

absl::StatusOr<MemoryPiece> PieceFromJson(const Json& json) {
  if (!json.is_array() || json.size() != 4 || !std::ranges::all_of(json, IsCount)) {
    return MalformedPieces("pieces",
                           "[offset, bytes, allocation, offset in it], from 0 to 2^63 - 1");
  }
  return MemoryPiece{.offset = json[0].get<int64_t>(),
                     .bytes = json[1].get<int64_t>(),
                     .allocation = json[2].get<int64_t>(),
                     .allocation_offset = json[3].get<int64_t>()};
}

// In a range of `size` bytes; neither sum overflows.
bool IsWithin(int64_t offset, int64_t bytes, int64_t size) {
  return bytes <= size && offset <= size - bytes;
}

absl::Status CheckPiece(size_t index, const MemoryPiece& piece, int64_t bytes,
                        const std::vector<int64_t>& allocation_bytes) {
  if (piece.bytes == 0) return Refused(index, "expected at least 1 byte, found none");
  if (!IsWithin(piece.offset, piece.bytes, bytes)) {
    return Refused(index, absl::StrCat("expected it to end within the ", bytes,
                                       " bytes of the storage, found ", piece.bytes, " bytes at ",
                                       piece.offset));
  }
  if (piece.allocation >= std::ssize(allocation_bytes)) {
    return Refused(index, absl::StrCat("expected one of ", allocation_bytes.size(),
                                       " allocations, found number ", piece.allocation));
  }
  const int64_t size = allocation_bytes[piece.allocation];
  if (IsWithin(piece.allocation_offset, piece.bytes, size)) return absl::OkStatus();
  return Refused(index, absl::StrCat("expected it to end within the ", size,
                                     " bytes of allocation ", piece.allocation, ", found ",
                                     piece.bytes, " bytes at ", piece.allocation_offset));
}

absl::Status CheckAllocationsApart(const PieceList& list) {
  std::vector<size_t> order(list.pieces.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto place_of = [&](size_t i) {
    return std::tuple(list.pieces[i].allocation, list.pieces[i].allocation_offset);
  };
  std::ranges::sort(order, {}, place_of);
  for (size_t i = 1; i < order.size(); ++i) {
    const MemoryPiece& before = list.pieces[order[i - 1]];
    const MemoryPiece& piece = list.pieces[order[i]];
    if (before.allocation != piece.allocation ||
        before.allocation_offset + before.bytes <= piece.allocation_offset) {
      continue;
    }
    return Refused(order[i],
                   absl::StrCat("expected memory of its own, found byte ", piece.allocation_offset,
                                " of allocation \"", list.allocations[piece.allocation],
                                "\", which piece ", order[i - 1], " has as well"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string Encode(const PieceList& list) {
  Json pieces = Json::array();
  for (const MemoryPiece& piece : list.pieces) {
    pieces.push_back({piece.offset, piece.bytes, piece.allocation, piece.allocation_offset});
  }
  Json json = {{"allocations", list.allocations}, {"pieces", std::move(pieces)}};
  if (!list.generations.empty()) json["generations"] = list.generations;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<PieceList> DecodePieceList(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("a list of pieces is a JSON object");
  const auto allocations = json.find("allocations");
  if (allocations == json.end() || !allocations->is_array()) {
    return MalformedPieces("allocations", "a list");
  }
  PieceList list;
  for (const Json& name : *allocations) {
    if (!name.is_string() ||
        name.get_ref<const std::string&>().size() > MemoryRequest::kNameBytesMax) {
      return MalformedPieces(
          "allocations", absl::StrCat("texts of at most ", MemoryRequest::kNameBytesMax, " bytes"));
    }
    list.allocations.push_back(name.get<std::string>());
  }
  if (const auto generations = json.find("generations"); generations != json.end()) {
    if (!generations->is_array() || generations->size() != list.allocations.size() ||
        !std::ranges::all_of(*generations, IsCount)) {
      return MalformedPieces("generations", "a number for each allocation, from 0 to 2^63 - 1");
    }
    list.generations = generations->get<std::vector<uint64_t>>();
  }
  const auto pieces = json.find("pieces");
  if (pieces == json.end() || !pieces->is_array() || std::ssize(*pieces) > PieceList::kPiecesMax) {
    return MalformedPieces("pieces", absl::StrCat("a list of at most ", PieceList::kPiecesMax));
  }
  for (const Json& piece : *pieces) {
    ASSIGN_OR_RETURN(list.pieces.emplace_back(), PieceFromJson(piece));
  }
  return list;
}

absl::Status CheckPieces(const PieceList& list, int64_t bytes,
                         const std::vector<int64_t>& allocation_bytes) {
  for (size_t i = 0; i < list.pieces.size(); ++i) {
    RETURN_IF_ERROR(CheckPiece(i, list.pieces[i], bytes, allocation_bytes));
    if (i == 0 || list.pieces[i - 1].end() <= list.pieces[i].offset) continue;
    return Refused(
        i, absl::StrCat("expected it after the end of piece ", i - 1, ", ",
                        list.pieces[i - 1].end(), ", found offset ", list.pieces[i].offset));
  }
  return CheckAllocationsApart(list);
}

}  // namespace crossmesh
