#include "worker/gpu/communicators/communicator_checks.h"

#include "common/base/status_macros.h"

#include <iterator>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::Status CheckRank(absl::string_view what, int rank, int size) {
  if (rank >= 0 && rank < size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " ", rank, " is none of ", size, " ranks"));
}

absl::Status CheckMessage(absl::string_view what, const RankMessage& message, int size) {
  RETURN_IF_ERROR(CheckRank(what, message.peer, size));
  if (message.address != 0 && message.bytes > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " ", message.peer, ": ", message.bytes,
                                                 " bytes at address ", message.address,
                                                 ", expected some at some"));
}

bool CanBeReduced(DataType type) {
  switch (type) {
    case DataType::kBool:
    case DataType::kF8E5M2:
    case DataType::kF8E4M3:
    case DataType::kI16:
    case DataType::kU16:
      return false;
    case DataType::kU8:
    case DataType::kI8:
    case DataType::kF16:
    case DataType::kBF16:
    case DataType::kI32:
    case DataType::kU32:
    case DataType::kF32:
    case DataType::kI64:
    case DataType::kU64:
    case DataType::kF64:
      return true;
  }
  return false;
}

}  // namespace

absl::string_view CollectiveKindName(CollectiveKind kind) {
  // In the order of CollectiveKind.
  constexpr absl::string_view kNames[] = {"broadcast", "all-gather", "reduce", "all-reduce",
                                          "reduce-scatter"};
  static_assert(std::size(kNames) == static_cast<size_t>(CollectiveKind::kReduceScatter) + 1);
  return kNames[static_cast<size_t>(kind)];
}

bool Reduces(CollectiveKind kind) {
  return kind != CollectiveKind::kBroadcast && kind != CollectiveKind::kAllGather;
}

absl::Status CheckMessages(std::span<const RankMessage> sends,
                           std::span<const RankMessage> receives, int size) {
  for (const RankMessage& send : sends) RETURN_IF_ERROR(CheckMessage("send to", send, size));
  for (const RankMessage& receive : receives) {
    RETURN_IF_ERROR(CheckMessage("receive from", receive, size));
  }
  return absl::OkStatus();
}

absl::Status CheckCollective(const Collective& collective, int rank, int size) {
  const absl::string_view name = CollectiveKindName(collective.kind);
  RETURN_IF_ERROR(CheckRank("root", collective.root, size));
  const bool is_root = rank == collective.root;
  const bool reads = is_root || collective.kind != CollectiveKind::kBroadcast;
  const bool writes = is_root || collective.kind != CollectiveKind::kReduce;
  if (collective.count <= 0 || (reads && collective.from == 0) || (writes && collective.to == 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " of ", collective.count, " elements from address ", collective.from,
                     " to ", collective.to, ", expected some from somewhere to somewhere"));
  }
  if (Reduces(collective.kind) && !CanBeReduced(collective.type)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " of ", DataTypeName(collective.type), ", which is not reduced"));
  }
  return absl::OkStatus();
}

absl::Status CheckGroups(const RankGroups& groups, int size) {
  std::vector<bool> seen(size, false);
  for (const std::vector<int>& group : groups) {
    for (const int rank : group) {
      RETURN_IF_ERROR(CheckRank("of a group, rank", rank, size));
      if (seen[rank]) {
        return absl::InvalidArgumentError(
            absl::StrCat("rank ", rank, ": expected in one group at most, found in two"));
      }
      seen[rank] = true;
    }
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
