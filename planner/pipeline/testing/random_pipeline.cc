#include "planner/pipeline/testing/random_pipeline.h"

#include "planner/pipeline/op_table.h"
#include "planner/pipeline/order_proof.h"

#include <algorithm>
#include <set>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {
namespace {

class ScheduleDrawer {
 public:
  ScheduleDrawer(const PipelineProfile& profile, int32_t microbatches, BackwardForm form,
                 bool in_order)
      : profile_(profile), microbatches_(microbatches), form_(form), in_order_(in_order) {
    schedule_.stages = static_cast<int32_t>(profile.stages.size());
    schedule_.microbatches = microbatches;
    schedule_.ranks.resize(profile.ranks());
  }

  Schedule Draw(RandomSource& random) && {
    while (true) {
      const std::vector<Op> ready = ReadyOps();
      if (ready.empty()) return std::move(schedule_);
      const Op& op = random.Pick(ready);
      done_.insert(op);
      schedule_.ranks[profile_.stages[op.stage].rank].push_back(op);
    }
  }

 private:
  OpKind backward() const {
    return form_ == BackwardForm::kFull ? OpKind::kBackward : OpKind::kInputGradient;
  }
  bool IsDone(OpKind kind, StageIndex stage, MicrobatchIndex m) const {
    return done_.contains({kind, stage, m});
  }

  bool IsReady(const Op& op) const {
    const MicrobatchIndex m = op.microbatch;
    if (in_order_ && m > 0 && !IsDone(op.kind, op.stage, m - 1)) return false;
    if (op.kind == OpKind::kWeightGradient) return IsDone(backward(), op.stage, m);
    if (op.kind == OpKind::kForward) {
      return std::ranges::all_of(profile_.edges, [&](const EdgeProfile& edge) {
        return edge.to != op.stage || IsDone(OpKind::kForward, edge.from, m);
      });
    }
    return IsDone(OpKind::kForward, op.stage, m) &&
           std::ranges::all_of(profile_.edges, [&](const EdgeProfile& edge) {
             return edge.from != op.stage || IsDone(backward(), edge.to, m);
           });
  }

  std::vector<Op> ReadyOps() const {
    std::vector<OpKind> kinds = {OpKind::kForward, backward()};
    if (form_ == BackwardForm::kSplit) kinds.push_back(OpKind::kWeightGradient);
    std::vector<Op> ready;
    for (StageIndex s = 0; s < schedule_.stages; ++s) {
      for (MicrobatchIndex m = 0; m < microbatches_; ++m) {
        for (const OpKind kind : kinds) {
          const Op op = {kind, s, m};
          if (!done_.contains(op) && IsReady(op)) ready.push_back(op);
        }
      }
    }
    return ready;
  }

  const PipelineProfile& profile_;
  const int32_t microbatches_;
  const BackwardForm form_;
  const bool in_order_;
  std::set<Op> done_;
  Schedule schedule_;
};

}  // namespace

PipelineProfile RandomProfile(RandomSource& random, const RandomPipelineOptions& options) {
  const auto time = [&random](int64_t low) {
    return static_cast<double>(random.Between(low, 8)) / 4;
  };
  const auto stages = static_cast<int32_t>(random.Between(1, options.stages_max));
  const auto ranks = static_cast<int32_t>(options.may_share_ranks ? random.Between(1, stages)
                                                                  : static_cast<int64_t>(stages));
  PipelineProfile profile;
  profile.rank_bytes_max.resize(ranks);
  for (StageIndex s = 0; s < stages; ++s) {
    profile.stages.push_back({.rank = s < ranks ? s : static_cast<RankIndex>(random.Below(ranks)),
                              .forward_seconds = time(1),
                              .input_gradient_seconds = time(1),
                              .weight_gradient_seconds = time(0),
                              .input_gradient_bytes = ByteCount(random.Between(0, 3)),
                              .weight_gradient_bytes = ByteCount(random.Between(0, 3)),
                              .static_bytes = ByteCount(random.Between(0, 9))});
    for (StageIndex from = 0; from < s; ++from) {
      if (from + 1 != s && !(options.may_skip && random.OneIn(4))) continue;
      profile.edges.push_back({.from = from,
                               .to = s,
                               .forward_seconds = time(0),
                               .backward_seconds = time(0),
                               .forward_bytes = ByteCount(random.Between(0, 3)),
                               .backward_bytes = ByteCount(random.Between(0, 3))});
    }
  }
  return profile;
}

void AddRandomScales(RandomSource& random, int32_t microbatches, PipelineProfile& profile) {
  profile.microbatch_scale.clear();
  for (MicrobatchIndex m = 0; m < microbatches; ++m) {
    profile.microbatch_scale.push_back(static_cast<double>(random.Between(1, 4)) / 4);
  }
  profile.microbatch_scale[random.Below(microbatches)] = 1;
}

void AddRandomPorts(RandomSource& random, PipelineProfile& profile) {
  for (EdgeProfile& edge : profile.edges) {
    for (std::vector<PortIndex>* ports : {&edge.forward_ports, &edge.backward_ports}) {
      ports->clear();
      for (PortIndex port = 0; port < 6; ++port) {
        if (ports->size() < 3 && random.OneIn(3)) ports->push_back(port);
      }
    }
  }
}

void AddRandomPairs(RandomSource& random, PipelineProfile& profile) {
  profile.pairs.clear();
  for (StageIndex forward = 0; forward < std::ssize(profile.stages); ++forward) {
    for (StageIndex backward = 0; backward < std::ssize(profile.stages); ++backward) {
      const StageProfile& first = profile.stages[forward];
      const StageProfile& second = profile.stages[backward];
      if (first.rank != second.rank || random.OneIn(4)) continue;
      const double longer = std::max(first.forward_seconds, second.backward_seconds());
      const double shorter = std::min(first.forward_seconds, second.backward_seconds());
      profile.pairs.push_back(
          {forward, backward, longer + shorter * static_cast<double>(random.Between(0, 5)) / 4});
    }
  }
}

void FuseRandomOps(RandomSource& random, const PipelineProfile& profile, Schedule& schedule) {
  for (std::vector<Op>& row : schedule.ranks) {
    for (size_t i = 1; i < row.size(); ++i) {
      if (row[i - 1].kind != OpKind::kForward || !GivesInputGradient(row[i].kind)) continue;
      if (random.OneIn(3)) continue;
      row[i - 1].is_fused = true;
      const absl::StatusOr<OpTable> ops = OpTable::Create(schedule, profile);
      row[i - 1].is_fused = ops.ok() && ProveOrder(*ops).ok();
    }
  }
}

Schedule RandomSchedule(RandomSource& random, const PipelineProfile& profile, int32_t microbatches,
                        BackwardForm form, bool in_order) {
  return ScheduleDrawer(profile, microbatches, form, in_order).Draw(random);
}

}  // namespace crossmesh
