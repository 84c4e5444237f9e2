#include "worker/pipeline/transfer_memory.h"

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/event_loop/event_loop.h"
#include "common/plan/testing/chain_plan.h"
#include "common/plan/worker_part.h"
#include "common/testing/status_matchers.h"
#include "common/wire/worker_part_codec.h"
#include "worker/memory/memory_budget.h"
#include "worker/pipeline/layer_worker_program.h"
#include "worker/pipeline/rank_queue.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr int kOps = 6;
constexpr int kBuffers = 2;

// Each op of the one rank gives the next one a message, and there is memory for two.
class TransferMemoryTest : public testing::Test {
 protected:
  TransferMemoryTest() {
    v1::LayerProgram proto;
    v1::LayerProgram::Rank& rank = *proto.add_ranks();
    const Plan plan = ChainPlan(TensorOf("[8]: x=1 on a.0 [-] -> x=1 on a.1 [-]"), {"a.0 > a.1"},
                                {.chunk_bytes = Plan::kLeafBytes});
    const auto parts = CutParts(plan, {{{"a", 0}, {"a", 1}}});
    CHECK_OK(parts);
    v1::LayerProgram::Transfer& transfer = *proto.add_transfers();
    transfer.set_name("sum");
    transfer.set_buffers(kBuffers);
    transfer.set_plan(1);
    *transfer.mutable_part() = ToProto(parts->front());
    transfer.add_tensors("x");
    for (int op = 0; op < kOps; ++op) {
      rank.add_ops()->set_name(std::string(1, static_cast<char>('a' + op)));
      if (op == 0) continue;
      v1::LayerProgram::Message& message = *transfer.add_messages();
      message.set_producer(op - 1);
      message.set_consumer(op);
    }
    MemoryBudget budget(ByteCount(1 << 20));
    absl::StatusOr<WorkerProgram> program = FromProto(proto, "program", budget);
    CHECK_OK(program.status());
    auto memory = ProgramMemory::Create(
        std::make_shared<const WorkerProgram>(*std::move(program)),
        [](const DeviceId&, ByteCount bytes) { return Arena::Create("messages", bytes); });
    CHECK_OK(memory.status());
    memory_ = *std::move(memory);
  }

  const TransferMemory& transfer() const { return memory_->transfers[0]; }
  std::span<std::byte> BytesOf(Side side, int32_t buffer) const {
    return transfer().Tensors(side, buffer).at(0).tiles.at(0).bytes;
  }

  std::shared_ptr<const ProgramMemory> memory_;
};

TEST_F(TransferMemoryTest, BuffersHaveBytesOfTheirOwn) {
  const std::vector<ReplaySpec::Buffer> buffers = transfer().Buffers();
  ASSERT_EQ(buffers.size(), kBuffers);
  for (const Side side : {Side::kSource, Side::kDestination}) {
    const std::span<std::byte> first = BytesOf(side, 0);
    const std::span<std::byte> second = BytesOf(side, 1);
    EXPECT_EQ(first.size(), second.size());
    EXPECT_GE(second.data(), first.data() + first.size());
    // What ops see is what the executor moves.
    for (int32_t buffer = 0; buffer < kBuffers; ++buffer) {
      const auto& bound =
          side == Side::kSource ? buffers[buffer].sources : buffers[buffer].destinations;
      ASSERT_EQ(bound.size(), 1U);
      EXPECT_EQ(bound.begin()->second.tensor.at(0), BytesOf(side, buffer).data());
    }
  }
}

TEST_F(TransferMemoryTest, MessagesTakeTurnsInTheBuffers) {
  const RealClock clock;
  const std::unique_ptr<EventLoop> data = *EventLoop::Create(clock, {});
  data->Start();
  const auto queue =
      std::make_shared<RankQueue>(RankQueue::Ports{.data = *data, .clock = clock}, memory_,
                                  /*rank=*/0, [](const RankQueue::Outcome&) {});
  const std::unique_ptr<PipelineLoop> loop = MakePipelineLoop(queue);
  for (int op = 0; op < kOps; ++op) {
    queue->GiveOp(/*iteration=*/0, op);
    const PipelineStep step = loop->Next();
    if (op + 1 < kOps) {
      EXPECT_EQ(step.op->outputs.at(0).tiles.at(0).bytes.data(),
                BytesOf(Side::kSource, op % kBuffers).data());
    }
    if (op > 0) {
      EXPECT_EQ(step.op->inputs.at(0).tiles.at(0).bytes.data(),
                BytesOf(Side::kDestination, (op - 1) % kBuffers).data());
    }
    loop->Done();
  }
  queue->End(absl::OkStatus());
}

}  // namespace
}  // namespace crossmesh
