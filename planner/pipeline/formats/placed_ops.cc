#include "planner/pipeline/formats/placed_ops.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// What each stage and microbatch has once. A backward op is two of these.
enum class Pass : uint8_t { kForward, kInputGradient, kWeightGradient };

constexpr std::array<Pass, 3> kPasses = {Pass::kForward, Pass::kInputGradient,
                                         Pass::kWeightGradient};

std::span<const Pass> PassesOf(OpKind kind) {
  const std::span<const Pass> all = kPasses;
  switch (kind) {
    case OpKind::kForward:
      return all.subspan(0, 1);
    case OpKind::kBackward:
      return all.subspan(1, 2);
    case OpKind::kInputGradient:
      return all.subspan(1, 1);
    case OpKind::kWeightGradient:
      return all.subspan(2, 1);
  }
  return {};
}

absl::string_view PassName(Pass pass) {
  constexpr std::array<absl::string_view, 3> kNames = {"a forward op", "a gradient of the input",
                                                       "a gradient of the weights"};
  return kNames[static_cast<size_t>(pass)];
}

class PlacedOps {
 public:
  PlacedOps(const std::vector<std::vector<Op>>& ranks, PlaceName place)
      : ranks_(ranks), place_(place) {}

  absl::Status Enter(RankIndex rank, size_t at) {
    const Op& op = ranks_[rank][at];
    const auto error = [&](absl::string_view expected, absl::string_view found) {
      return absl::InvalidArgumentError(
          absl::StrCat(place_(rank, at), ": expected ", expected, ", found ", found));
    };
    const auto owner = owners_.try_emplace(op.stage, rank).first->second;
    if (owner != rank) {
      return error(absl::StrCat("ops of stage ", op.stage, " on rank ", owner, " alone"),
                   ToString(op));
    }
    const std::span<const Pass> passes = PassesOf(op.kind);
    if (passes[0] != Pass::kForward) {
      // What a backward op needs is the pass before the first of its own.
      const auto before = static_cast<Pass>(static_cast<uint8_t>(passes[0]) - 1);
      if (!places_.contains({op.stage, op.microbatch, before})) {
        return error(absl::StrCat(PassName(before), " of the stage and microbatch before it"),
                     ToString(op));
      }
    }
    for (const Pass pass : passes) {
      const auto [found, is_new] = places_.try_emplace({op.stage, op.microbatch, pass}, at);
      if (is_new) continue;
      return error(absl::StrCat(PassName(pass), " once"),
                   absl::StrCat(ToString(op), " after ", ToString(ranks_[rank][found->second]),
                                " at ", place_(rank, found->second)));
    }
    stages_ = std::max(stages_, int64_t{op.stage} + 1);
    microbatches_ = std::max(microbatches_, int64_t{op.microbatch} + 1);
    return absl::OkStatus();
  }

  // Looks at no more passes than were entered, and one that was not.
  absl::Status CheckComplete() const {
    if (places_.empty()) return absl::InvalidArgumentError("schedule: expected ops, found none");
    for (int64_t stage = 0; stage < stages_; ++stage) {
      for (int64_t m = 0; m < microbatches_; ++m) {
        for (const Pass pass : kPasses) {
          if (places_.contains({stage, m, pass})) continue;
          return Missing(stage, m, pass);
        }
      }
    }
    return absl::OkStatus();
  }

  // Of complete ones.
  int32_t stages() const { return static_cast<int32_t>(stages_); }
  int32_t microbatches() const { return static_cast<int32_t>(microbatches_); }

 private:
  struct Key {
    int64_t stage = 0;
    int64_t microbatch = 0;
    Pass pass = Pass::kForward;

    friend auto operator<=>(const Key&, const Key&) = default;
  };

  absl::Status Missing(int64_t stage, int64_t m, Pass pass) const {
    const auto owner = owners_.find(stage);
    const std::string where =
        owner == owners_.end() ? "schedule" : absl::StrCat("rank ", owner->second);
    return absl::InvalidArgumentError(absl::StrCat(where, ": expected ", PassName(pass),
                                                   " of stage ", stage, ", microbatch ", m,
                                                   ", found none"));
  }

  const std::vector<std::vector<Op>>& ranks_;
  const PlaceName place_;
  std::map<int64_t, RankIndex> owners_;  // by stage
  std::map<Key, size_t> places_;         // on the owner
  int64_t stages_ = 0;
  int64_t microbatches_ = 0;
};

}  // namespace

absl::StatusOr<Schedule> ScheduleOfPlacedOps(std::vector<std::vector<Op>> ranks, PlaceName place) {
  PlacedOps ops(ranks, place);
  for (RankIndex rank = 0; rank < std::ssize(ranks); ++rank) {
    for (size_t at = 0; at < ranks[rank].size(); ++at) RETURN_IF_ERROR(ops.Enter(rank, at));
  }
  RETURN_IF_ERROR(ops.CheckComplete());
  return Schedule{
      .stages = ops.stages(), .microbatches = ops.microbatches(), .ranks = std::move(ranks)};
}

std::vector<RankIndex> StageRanks(const Schedule& schedule) {
  std::vector<RankIndex> ranks(schedule.stages);
  for (RankIndex rank = 0; rank < std::ssize(schedule.ranks); ++rank) {
    for (const Op& op : schedule.ranks[rank]) ranks[op.stage] = rank;
  }
  return ranks;
}

}  // namespace crossmesh
