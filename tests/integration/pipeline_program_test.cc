// Programs of random pipelines on workers of their own, between which messages move in random
// order: an iteration ends if its buffers are proven, nothing is done before it may be.
// CROSSMESH_SEED and CROSSMESH_CASES choose what is run.

#include "common/plan/testing/random_source.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/op_table.h"
#include "planner/pipeline/planning/buffer_proof.h"
#include "planner/pipeline/testing/random_pipeline.h"
#include "planner/pipeline/timeline.h"
#include "worker/pipeline/program_progress.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using Work = ProgramProgress::Work;
using Kind = Work::Kind;
using ActionKind = WorkerProgram::Action::Kind;

// The program of one rank's worker, without parts. Transfers are those of the table that the rank
// has an end of.
class RankProgram {
 public:
  RankProgram(const OpTable& ops, const PipelineTimeline* blocking, RankIndex rank,
              const std::vector<int32_t>& buffers)
      : ops_(ops), rank_(rank) {
    program_.blocking = blocking != nullptr;
    program_.samples.assign(ops.schedule().microbatches, 1);
    program_.ranks.push_back({.rank = rank});
    for (TransferIndex transfer = 0; transfer < ops.transfers(); ++transfer) {
      AddTransfer(transfer, buffers[transfer]);
    }
    for (OpIndex op = ops.first(rank); op < ops.first(rank + 1); ++op) AddOp(op);
    AddActions(blocking);
  }

  const WorkerProgram& program() const { return program_; }
  // The table's index of a transfer of the program.
  TransferIndex IndexAt(int32_t transfer) const { return table_index_[transfer]; }
  int32_t Find(TransferIndex transfer) const {
    const auto found = std::ranges::find(table_index_, transfer);
    return found == table_index_.end() ? -1 : static_cast<int32_t>(found - table_index_.begin());
  }

 private:
  void AddTransfer(TransferIndex transfer, int32_t buffers) {
    if (!ops_.Passes(transfer)) return;
    const bool sends = ops_.rank_of(ops_.ProducerOf(transfer, 0)) == rank_;
    const bool receives = ops_.rank_of(ops_.ConsumerOf(transfer, 0)) == rank_;
    if (!sends && !receives) return;
    table_index_.push_back(transfer);
    program_.transfers.push_back({.backward = !OpTable::IsForward(transfer),
                                  .from = ops_.EdgeOf(transfer).from,
                                  .to = ops_.EdgeOf(transfer).to,
                                  .samples = 1,
                                  .buffers = buffers,
                                  .sends = sends,
                                  .receives = receives});
  }

  void AddOp(OpIndex op) {
    WorkerProgram::RankOp added{.op = ops_.op(op), .samples = 1};
    for (int32_t c = 0; c < std::ssize(table_index_); ++c) {
      WorkerProgram::Transfer& transfer = program_.transfers[c];
      const MicrobatchIndex m = added.op.microbatch;
      const TransferMessage message{c, static_cast<int32_t>(transfer.microbatches.size())};
      if (ops_.ProducerOf(table_index_[c], m) == op) {
        added.outputs.push_back(message);
      } else if (ops_.ConsumerOf(table_index_[c], m) == op) {
        added.inputs.push_back(message);
      } else {
        continue;
      }
      transfer.microbatches.push_back(m);
    }
    program_.ranks[0].ops.push_back(added);
  }

  void AddActions(const PipelineTimeline* blocking) {
    std::vector<std::tuple<double, int, OpIndex, WorkerProgram::Action>> timed;
    const WorkerProgram::Rank& rank = program_.ranks[0];
    const auto count = static_cast<int32_t>(rank.ops.size());
    for (int32_t op = 0; op < count; op += static_cast<int32_t>(rank.StepAt(op).size())) {
      const OpIndex index = ops_.first(rank_) + op;
      timed.emplace_back(blocking == nullptr ? op : blocking->ops[index].begin, 1, index,
                         WorkerProgram::Action{.op = op});
    }
    for (int32_t c = 0; blocking != nullptr && c < std::ssize(table_index_); ++c) {
      const WorkerProgram::Transfer& transfer = program_.transfers[c];
      for (int32_t k = 0; k < std::ssize(transfer.microbatches); ++k) {
        const MessageIndex t = ops_.MessageOf(table_index_[c], transfer.microbatches[k]);
        timed.emplace_back(
            blocking->messages[t].begin, 0, t,
            WorkerProgram::Action{.kind = transfer.sends ? ActionKind::kSend : ActionKind::kReceive,
                                  .message = {c, k}});
      }
    }
    std::ranges::sort(timed, [](const auto& a, const auto& b) {
      return std::tie(std::get<0>(a), std::get<1>(a), std::get<2>(a)) <
             std::tie(std::get<0>(b), std::get<1>(b), std::get<2>(b));
    });
    for (const auto& [time, order, index, action] : timed) {
      program_.ranks[0].actions.push_back(action);
    }
  }

  const OpTable& ops_;
  const RankIndex rank_;
  WorkerProgram program_;
  std::vector<TransferIndex> table_index_;
};

// All workers and the network between them.
class Simulation {
 public:
  Simulation(RandomSource& random, const OpTable& ops, const PipelineTimeline* blocking,
             const std::vector<int32_t>& buffers)
      : random_(random), ops_(ops), buffers_(buffers) {
    for (RankIndex rank = 0; rank < ops.profile().ranks(); ++rank) {
      programs_.push_back(std::make_unique<RankProgram>(ops, blocking, rank, buffers));
      progress_.push_back(std::make_unique<ProgramProgress>(programs_.back()->program()));
    }
  }

  // Returns whether it came to its end.
  bool RunIteration() {
    open_.clear();
    filled_.clear();
    done_.clear();
    arrived_.clear();
    held_.clear();
    left_.clear();
    used_.clear();
    for (size_t rank = 0; rank < progress_.size(); ++rank) Do(rank, progress_[rank]->Begin());
    while (!events_.empty()) {
      std::swap(events_[random_.Below(std::ssize(events_))], events_.back());
      const Event event = events_.back();
      events_.pop_back();
      Happen(event);
    }
    const bool complete =
        std::ranges::all_of(progress_, [](const auto& progress) { return progress->complete(); });
    EXPECT_EQ(complete, std::ssize(done_) == ops_.size());
    return complete;
  }

 private:
  enum class EventKind : uint8_t { kOpDone, kArrived, kLeft };
  struct Event {
    EventKind kind;
    size_t rank;
    int32_t op = 0;
    TransferMessage message;
  };
  using Passing = std::pair<TransferIndex, MicrobatchIndex>;

  void Do(size_t rank, const std::vector<Work>& work) {
    const WorkerProgram& program = programs_[rank]->program();
    for (const Work& item : work) {
      if (item.kind == Kind::kRun) {
        CheckOp(rank, item.op);
        events_.push_back({EventKind::kOpDone, rank, item.op});
        continue;
      }
      const Passing passing{
          programs_[rank]->IndexAt(item.message.transfer),
          program.transfers[item.message.transfer].microbatches[item.message.index]};
      if (item.kind == Kind::kFill) {
        EXPECT_TRUE(done_.contains(ops_.ProducerOf(passing.first, passing.second)));
        EXPECT_TRUE(filled_.insert(passing).second);
      } else {
        EXPECT_TRUE(open_[passing].insert(rank).second);
        int64_t& held = held_[{rank, item.message.transfer}];
        EXPECT_LE(++held, buffers_[passing.first]);
      }
      if (filled_.contains(passing) && open_[passing].size() == 2) Move(passing);
    }
  }

  void Move(const Passing& passing) {
    for (size_t rank = 0; rank < programs_.size(); ++rank) {
      const int32_t transfer = programs_[rank]->Find(passing.first);
      if (transfer < 0) continue;
      const WorkerProgram::Transfer& of = programs_[rank]->program().transfers[transfer];
      const auto index = static_cast<int32_t>(std::ranges::find(of.microbatches, passing.second) -
                                              of.microbatches.begin());
      if (of.receives) events_.push_back({EventKind::kArrived, rank, 0, {transfer, index}});
      events_.push_back({EventKind::kLeft, rank, 0, {transfer, index}});
    }
  }

  void CheckOp(size_t rank, int32_t op) {
    const OpIndex step = ops_.first(static_cast<RankIndex>(rank)) + op;
    if (op > 0) EXPECT_TRUE(done_.contains(step - 1));
    for (OpIndex index = step; index < ops_.EndOf(step); ++index) {
      for (const TransferIndex transfer : ops_.TransfersInto(ops_.op(index))) {
        if (!ops_.Passes(transfer)) continue;
        EXPECT_TRUE(arrived_.contains(Passing{transfer, ops_.op(index).microbatch}))
            << ops_.op(index);
      }
    }
  }

  void EndStep(const Event& event) {
    OpIndex index = ops_.first(static_cast<RankIndex>(event.rank)) + event.op;
    for (const WorkerProgram::RankOp& op :
         programs_[event.rank]->program().ranks[0].StepAt(event.op)) {
      done_.insert(index++);
      for (const TransferMessage& input : op.inputs) {
        const std::tuple key{event.rank, input.transfer, input.index};
        if (left_.contains(key)) held_[{event.rank, input.transfer}]--;
        used_.insert(key);
      }
    }
  }

  void Happen(const Event& event) {
    const RankProgram& program = *programs_[event.rank];
    switch (event.kind) {
      case EventKind::kOpDone:
        EndStep(event);
        return Do(event.rank, progress_[event.rank]->OnOpDone(0));
      case EventKind::kArrived:
        arrived_.insert(
            {program.IndexAt(event.message.transfer), program.program()
                                                          .transfers[event.message.transfer]
                                                          .microbatches[event.message.index]});
        return Do(event.rank, progress_[event.rank]->OnArrived(event.message));
      case EventKind::kLeft: {
        const std::tuple key{event.rank, event.message.transfer, event.message.index};
        const bool receives = program.program().transfers[event.message.transfer].receives;
        if (!receives || used_.contains(key)) held_[{event.rank, event.message.transfer}]--;
        left_.insert(key);
        return Do(event.rank, progress_[event.rank]->OnLeft(event.message));
      }
    }
  }

  RandomSource& random_;
  const OpTable& ops_;
  const std::vector<int32_t> buffers_;  // by transfer
  std::vector<std::unique_ptr<RankProgram>> programs_;
  std::vector<std::unique_ptr<ProgramProgress>> progress_;
  std::vector<Event> events_;
  std::map<Passing, std::set<size_t>> open_;
  std::set<Passing> filled_;
  std::set<Passing> arrived_;
  std::set<OpIndex> done_;
  std::map<std::pair<size_t, int32_t>, int64_t> held_;  // messages that have memory
  std::set<std::tuple<size_t, int32_t, int32_t>> left_;
  std::set<std::tuple<size_t, int32_t, int32_t>> used_;
};

std::vector<int32_t> RandomBuffers(RandomSource& random, const OpTable& ops) {
  std::vector<int32_t> buffers(ops.transfers());
  for (int32_t& each : buffers) each = static_cast<int32_t>(random.Between(1, 4));
  return buffers;
}

// As ProveBuffers wants them: a plan for each transfer that there is.
absl::Status Prove(const OpTable& ops, const std::vector<int32_t>& buffers) {
  std::vector<EdgePlan> plans;
  std::vector<int32_t> of_plan;
  for (TransferIndex transfer = 0; transfer < ops.transfers(); ++transfer) {
    if (!ops.Passes(transfer)) continue;
    plans.push_back({.transfer = transfer, .samples = 1});
    of_plan.push_back(buffers[transfer]);
  }
  return ProveBuffers(ops, std::vector<int64_t>(ops.schedule().microbatches, 1), plans, of_plan);
}

TEST(PipelineProgram, RandomProgramsEndIfTheirBuffersAreProven) {
  const uint64_t seed = FromEnvironment("CROSSMESH_SEED", 1);
  const int64_t cases = RandomCases(600);
  int64_t proven = 0;
  for (int64_t i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed + i, " CROSSMESH_CASES=1"));
    RandomSource random(seed + i);
    const PipelineProfile profile = RandomProfile(random);
    const auto microbatches = static_cast<int32_t>(random.Between(1, 8));
    const BackwardForm form = random.OneIn(2) ? BackwardForm::kFull : BackwardForm::kSplit;
    Schedule schedule = RandomSchedule(random, profile, microbatches, form, true);
    if (random.OneIn(2)) FuseRandomOps(random, profile, schedule);
    ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
    const std::vector<int32_t> buffers = RandomBuffers(random, ops);
    const bool ends = Prove(ops, buffers).ok();
    proven += ends ? 1 : 0;
    Simulation simulation(random, ops, nullptr, buffers);
    EXPECT_EQ(simulation.RunIteration(), ends);
    if (ends) EXPECT_TRUE(simulation.RunIteration());
  }
  // Both happen.
  if (cases >= 100) {
    EXPECT_GT(proven, cases / 2);
    EXPECT_LT(proven, cases);
  }
}

TEST(PipelineProgram, SoDoThoseWhoseRanksWaitForTheirTransfers) {
  const uint64_t seed = FromEnvironment("CROSSMESH_SEED", 1000);
  const int64_t cases = RandomCases(400);
  for (int64_t i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed + i, " CROSSMESH_CASES=1"));
    RandomSource random(seed + i);
    PipelineProfile profile = RandomProfile(random);
    for (StageProfile& stage : profile.stages) {
      stage.forward_seconds += 1;
      stage.input_gradient_seconds += 1;
      stage.weight_gradient_seconds += 1;
    }
    for (EdgeProfile& edge : profile.edges) {
      edge.forward_seconds += 0.25;
      edge.backward_seconds += 0.25;
    }
    const auto microbatches = static_cast<int32_t>(random.Between(1, 8));
    Schedule schedule = RandomSchedule(random, profile, microbatches, BackwardForm::kSplit, true);
    if (random.OneIn(2)) FuseRandomOps(random, profile, schedule);
    ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
    ASSERT_OK_AND_ASSIGN(const PipelineTimeline run,
                         SimulatePipeline(ops, TransferModel::kBlocking));
    Simulation simulation(random, ops, &run, std::vector<int32_t>(ops.transfers(), microbatches));
    EXPECT_TRUE(simulation.RunIteration());
  }
}

}  // namespace
}  // namespace crossmesh
