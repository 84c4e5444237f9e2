#include "planner/pipeline/formats/schedule_csv.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "planner/pipeline/formats/csv_action.h"
#include "planner/pipeline/formats/placed_ops.h"
#include "planner/pipeline/formats/shape.h"
#include "planner/pipeline/order_proof.h"
#include "planner/pipeline/rank_actions.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

namespace crossmesh {
namespace {

using Kind = CsvAction::Kind;

std::string Place(size_t row, size_t column) {
  return absl::StrCat("row ", row + 1, ", column ", column + 1);
}

// The actions of a file, and the columns of their cells.
struct CsvRows {
  std::vector<std::vector<CsvAction>> actions;
  std::vector<std::vector<size_t>> columns;
};

absl::StatusOr<std::vector<CsvAction>> ReadCell(absl::string_view cell, CsvDialect dialect) {
  const bool is_compute_only = dialect == CsvDialect::kComputeOnly;
  if (cell.empty() && is_compute_only) return std::vector<CsvAction>();
  ASSIGN_OR_RETURN(std::vector<CsvAction> actions, ParseCsvCell(cell));
  if (is_compute_only && actions[0].kind != Kind::kCompute) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected ops only in this dialect, found \"", cell, "\""));
  }
  return actions;
}

absl::StatusOr<CsvRows> ReadRows(absl::string_view text, CsvDialect dialect) {
  CsvRows rows;
  absl::ConsumeSuffix(&text, "\n");
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    // Files come from any system.
    absl::ConsumeSuffix(&line, "\r");
    const size_t row = rows.actions.size();
    rows.actions.emplace_back();
    rows.columns.emplace_back();
    size_t column = 0;
    for (const absl::string_view cell : absl::StrSplit(line, ',')) {
      ASSIGN_OR_RETURN(const std::vector<CsvAction> actions,
                       At(Place(row, column), ReadCell(absl::StripAsciiWhitespace(cell), dialect)));
      for (const CsvAction& action : actions) {
        rows.actions.back().push_back(action);
        rows.columns.back().push_back(column);
      }
      ++column;
    }
  }
  return rows;
}

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

// Checks what the rows of a file have beside the ops of a chain of stages. InvalidArgument, with
// place, what was expected and what was found, unless each transfer between ranks is sent once,
// after the op whose output it is, and received once, before the op that needs it; nothing else is
// sent or received; and stages that are sharded, or whose gradients are reduced, are of the rank,
// and reduced once at most.
absl::Status CheckCsvTransfers(const OpTable& ops, const std::vector<std::vector<CsvAction>>& rows,
                               PlaceName place) {
  for (RankIndex rank = 0; rank < std::ssize(rows); ++rank) {
    RETURN_IF_ERROR(RowChecker(ops, rank, place).Check(rows[rank]));
  }
  return absl::OkStatus();
}

absl::Status CheckChain(const PipelineProfile& profile) {
  std::vector<PipelineShape::Edge> edges = ShapeOf(profile).edges;
  std::ranges::sort(edges, {}, &PipelineShape::Edge::to);
  if (edges == ChainOf(static_cast<int32_t>(profile.stages.size()))) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "schedule: expected edges from each stage to the next and no others, which PyTorch takes for "
      "granted; found others");
}

std::string CellOfStep(const OpTable& ops, OpIndex step) {
  const Op& op = ops.op(step);
  return op.is_fused ? ToCsvCell(op, ops.op(step + 1)) : ToString(op);
}

// The cells of a rank's row, with those that PyTorch has around the ops of a stage.
class CsvRow {
 public:
  explicit CsvRow(const OpTable& ops) : ops_(ops), left_(ops.schedule().stages, 0) {}

  std::string Write(const std::vector<Action>& actions) && {
    for (const Action& action : actions) {
      if (action.kind == Action::Kind::kReceive) continue;
      for (const StageIndex stage : StagesOf(action)) ++left_[stage];
    }
    std::vector<bool> is_unsharded(left_.size(), false);
    for (const Action& action : actions) {
      if (action.kind == Action::Kind::kReceive) {
        Add(action);
        continue;
      }
      // As PyTorch does: a stage's parameters are gathered before its first op, and given back
      // after its last.
      for (const StageIndex stage : StagesOf(action)) {
        if (!is_unsharded[stage]) Add(Kind::kUnshard, stage);
        is_unsharded[stage] = true;
      }
      Add(action);
      for (const StageIndex stage : StagesOf(action)) {
        if (--left_[stage] > 0) continue;
        Add(Kind::kReduceGradient, stage);
        Add(Kind::kReshard, stage);
      }
    }
    return absl::StrJoin(cells_, ",");
  }

 private:
  // Of each op that is computed, or whose output is sent.
  std::vector<StageIndex> StagesOf(const Action& action) const {
    std::vector<StageIndex> stages;
    const bool is_step = action.kind == Action::Kind::kCompute;
    const OpIndex end = is_step ? ops_.EndOf(action.op) : action.op + 1;
    for (OpIndex index = action.op; index < end; ++index) stages.push_back(ops_.op(index).stage);
    return stages;
  }

  void Add(Kind kind, StageIndex stage) {
    cells_.push_back(ToString(CsvAction{kind, {.stage = stage}}));
  }

  void Add(const Action& action) {
    Op op = ops_.op(action.op);
    if (action.kind == Action::Kind::kCompute) {
      cells_.push_back(CellOfStep(ops_, action.op));
      return;
    }
    op.kind = OpTable::IsForward(action.transfer) ? OpKind::kForward : OpKind::kBackward;
    const bool is_send = action.kind == Action::Kind::kSend;
    // PyTorch names a receive after the stage that takes it in.
    if (!is_send) op.stage = ops_.op(ops_.ConsumerOf(action.transfer, op.microbatch)).stage;
    cells_.push_back(ToString(CsvAction{is_send ? Kind::kSend : Kind::kReceive, op}));
  }

  const OpTable& ops_;
  std::vector<int32_t> left_;  // ops and sends, by stage
  std::vector<std::string> cells_;
};

}  // namespace

absl::StatusOr<Schedule> ParseScheduleCsv(absl::string_view text, CsvDialect dialect) {
  ASSIGN_OR_RETURN(const CsvRows rows, ReadRows(text, dialect));
  std::vector<std::vector<Op>> ranks;
  std::vector<std::vector<size_t>> columns;  // of ops
  for (size_t row = 0; row < rows.actions.size(); ++row) {
    ranks.emplace_back();
    columns.emplace_back();
    for (size_t at = 0; at < rows.actions[row].size(); ++at) {
      if (rows.actions[row][at].kind != Kind::kCompute) continue;
      ranks.back().push_back(rows.actions[row][at].op);
      columns.back().push_back(rows.columns[row][at]);
    }
    if (!ranks.back().empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(Place(row, 0), ": expected ops, found a row without"));
  }
  ASSIGN_OR_RETURN(Schedule schedule,
                   ScheduleOfPlacedOps(std::move(ranks), [&](RankIndex rank, size_t at) {
                     return Place(rank, columns[rank][at]);
                   }));
  // The file says no times: a profile without any is enough to prove the order.
  const PipelineProfile profile =
      FreeProfile({.stage_ranks = StageRanks(schedule), .edges = ChainOf(schedule.stages)},
                  static_cast<RankIndex>(schedule.ranks.size()));
  ASSIGN_OR_RETURN(const OpTable ops, OpTable::Create(schedule, profile));
  RETURN_IF_ERROR(ProveOrder(ops));
  if (dialect == CsvDialect::kComputeComms) {
    RETURN_IF_ERROR(CheckCsvTransfers(ops, rows.actions, [&](RankIndex rank, size_t at) {
      return Place(rank, rows.columns[rank][at]);
    }));
  }
  return schedule;
}

absl::StatusOr<std::string> ToScheduleCsv(const OpTable& ops, CsvDialect dialect) {
  // The file has no edges: what is no chain could not be read back as it was.
  RETURN_IF_ERROR(CheckChain(ops.profile()));
  std::string text;
  if (dialect == CsvDialect::kComputeOnly) {
    RETURN_IF_ERROR(ProveOrder(ops));
    for (RankIndex rank = 0; rank < ops.profile().ranks(); ++rank) {
      std::vector<std::string> cells;
      for (OpIndex step = ops.first(rank); step < ops.first(rank + 1); step = ops.EndOf(step)) {
        cells.push_back(CellOfStep(ops, step));
      }
      absl::StrAppend(&text, absl::StrJoin(cells, ","), "\n");
    }
    return text;
  }
  ASSIGN_OR_RETURN(const RankActions actions_of_rank,
                   MakeRankActions(ops, ReceivePlacement::kAtSend));
  for (const std::vector<Action>& actions : actions_of_rank) {
    absl::StrAppend(&text, CsvRow(ops).Write(actions), "\n");
  }
  return text;
}

}  // namespace crossmesh
