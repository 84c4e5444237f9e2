#include "planner/pipeline/formats/csv_transfers.h"

#include "common/base/status_macros.h"

#include <optional>
#include <set>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

using Kind = CsvAction::Kind;

OpKind PassOf(OpKind kind) {
  return GivesInputGradient(kind) ? OpKind::kBackward : OpKind::kForward;
}

class RowChecker {
 public:
  RowChecker(const OpTable& ops, RankIndex rank, PlaceName place)
      : ops_(ops), rank_(rank), place_(place) {}

  absl::Status Check(const std::vector<CsvAction>& row) {
    for (size_t at = 0; at < row.size(); ++at) {
      at_ = at;
      RETURN_IF_ERROR(Enter(row[at]));
    }
    for (const CsvAction& action : row) {
      if (action.kind != Kind::kCompute) continue;
      const std::optional<CsvAction> send = TransferOf(Kind::kSend, action.op);
      if (!send || seen_.contains(*send)) continue;
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank_, ": expected ", ToString(*send),
                                                     " after ", ToString(action), ", found none"));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Enter(const CsvAction& action) {
    if (!IsOfRank(action.op)) return Error("a stage of this rank and a microbatch of it", action);
    switch (action.kind) {
      case Kind::kCompute:
        RETURN_IF_ERROR(CheckInput(action));
        // Nothing is sent of a gradient of the weights, and no op waits for it.
        if (action.op.kind != OpKind::kWeightGradient) {
          ran_.insert({PassOf(action.op.kind), action.op.stage, action.op.microbatch});
        }
        return absl::OkStatus();
      case Kind::kSend:
        if (!ran_.contains(action.op)) return Error("the op before the send of its output", action);
        return EnterOnce(action);
      case Kind::kReceive:
        if (ran_.contains(action.op)) return Error("the receive before its op", action);
        return EnterOnce(action);
      case Kind::kReduceGradient:
        return EnterOnce(action);
      case Kind::kUnshard:
      case Kind::kReshard:
        return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  absl::Status CheckInput(const CsvAction& action) const {
    const std::optional<CsvAction> receive = TransferOf(Kind::kReceive, action.op);
    if (!receive || seen_.contains(*receive)) return absl::OkStatus();
    return Error(absl::StrCat(ToString(*receive), " before its op"), action);
  }

  absl::Status EnterOnce(const CsvAction& action) {
    if (action.kind != Kind::kReduceGradient && TransferOf(action.kind, action.op) != action) {
      return Error("transfers with other ranks only", action);
    }
    if (!seen_.insert(action).second) return Error("it once", action);
    return absl::OkStatus();
  }

  // What the rank sends after an op, or receives before it.
  std::optional<CsvAction> TransferOf(Kind kind, const Op& op) const {
    if (op.kind == OpKind::kWeightGradient) return std::nullopt;
    const bool is_forward = op.kind == OpKind::kForward;
    const StageIndex peer = op.stage + (is_forward == (kind == Kind::kSend) ? 1 : -1);
    if (peer < 0 || peer >= ops_.schedule().stages) return std::nullopt;
    if (ops_.profile().stages[peer].rank == rank_) return std::nullopt;
    return CsvAction{kind, {PassOf(op.kind), op.stage, op.microbatch}};
  }

  bool IsOfRank(const Op& op) const {
    return op.stage < ops_.schedule().stages && ops_.profile().stages[op.stage].rank == rank_ &&
           op.microbatch < ops_.schedule().microbatches;
  }

  absl::Status Error(absl::string_view expected, const CsvAction& found) const {
    return absl::InvalidArgumentError(
        absl::StrCat(place_(rank_, at_), ": expected ", expected, ", found ", ToString(found)));
  }

  const OpTable& ops_;
  const RankIndex rank_;
  const PlaceName place_;
  size_t at_ = 0;
  std::set<Op> ran_;  // in either form of backward ops: kForward, kBackward
  std::set<CsvAction> seen_;
};

}  // namespace

absl::Status CheckCsvTransfers(const OpTable& ops, const std::vector<std::vector<CsvAction>>& rows,
                               PlaceName place) {
  for (RankIndex rank = 0; rank < std::ssize(rows); ++rank) {
    RETURN_IF_ERROR(RowChecker(ops, rank, place).Check(rows[rank]));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
