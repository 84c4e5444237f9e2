#pragma once

#include "planner/pipeline/op.h"

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What PyTorch's schedule files have a rank do.
struct CsvAction {
  enum class Kind : uint8_t { kCompute, kSend, kReceive, kUnshard, kReshard, kReduceGradient };

  Kind kind = Kind::kCompute;
  // kCompute: the op. kSend and kReceive: kForward for an activation, kBackward for a gradient, the
  // microbatch, and the stage at this end of the transfer. Otherwise only the stage counts.
  Op op;

  friend auto operator<=>(const CsvAction&, const CsvAction&) = default;
};

// "0F1"; "0SEND_F1", "1RECV_F1", "1SEND_B1", "0RECV_B1"; "0UNSHARD", "0RESHARD", "0REDUCE_GRAD".
std::string ToString(const CsvAction& action);

// The cell of two fused ops: "(0F7;3B3)OVERLAP_F_B".
std::string ToCsvCell(const Op& forward, const Op& backward);

// The actions of a cell: one such text as a whole, or two fused ops. InvalidArgument with what was
// expected and found otherwise.
absl::StatusOr<std::vector<CsvAction>> ParseCsvCell(absl::string_view cell);

}  // namespace crossmesh
