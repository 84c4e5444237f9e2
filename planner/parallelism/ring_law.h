// What a device sends in a collective over rings: the part of all cost models that they share. A
// message is the whole buffer: the gathered result, the input of a scatter, the reduced buffer.

#pragma once

#include <cstdint>

#include <absl/strings/string_view.h>

namespace crossmesh {

enum class CollectiveOp : uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kSend,  // to the neighbour, of the whole message
};

// "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "send".
constexpr absl::string_view CollectiveOpName(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::kAllGather:
      return "all_gather";
    case CollectiveOp::kReduceScatter:
      return "reduce_scatter";
    case CollectiveOp::kAllReduce:
      return "all_reduce";
    case CollectiveOp::kAllToAll:
      return "all_to_all";
    case CollectiveOp::kSend:
      return "send";
  }
  return "";
}

// Messages one after the other; none in a group of one.
constexpr int64_t RingSteps(CollectiveOp op, int64_t group) {
  if (group <= 1) return 0;
  if (op == CollectiveOp::kSend) return 1;
  return (op == CollectiveOp::kAllReduce ? 2 : 1) * (group - 1);
}

// Bytes that one device sends.
constexpr double WireBytes(CollectiveOp op, int64_t group, double message_bytes) {
  if (group <= 1) return 0;
  if (op == CollectiveOp::kSend) return message_bytes;
  return static_cast<double>(RingSteps(op, group)) * message_bytes / static_cast<double>(group);
}

}  // namespace crossmesh
