#include "worker/executor/testing/replay_fixture.h"

#include "common/testing/status_matchers.h"
#include "worker/executor/testing/tile_memory.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// Of an instance, by its place in the whole tensor.
uint32_t Element(uint32_t instance, int64_t index) {
  return instance * 2654435761U + static_cast<uint32_t>(index);
}

}  // namespace

void ReplayedTensor::Fill(uint32_t instance) {
  for (size_t i = 0; i < whole.size(); ++i) whole[i] = Element(instance, static_cast<int64_t>(i));
}

int64_t ReplayedTensor::Wrong(uint32_t instance) const {
  int64_t wrong = 0;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t column = 0; column < kColumns; ++column) {
      const uint32_t found = halves[column / kHalf][row * kHalf + column % kHalf];
      wrong += found == Element(instance, row * kColumns + column) ? 0 : 1;
    }
  }
  return wrong;
}

void ReplayedTensor::Clear() {
  for (std::vector<uint32_t>& half : halves) std::ranges::fill(half, 0xdeadU);
}

void Replays::OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& report) {
  if (!report.status.ok()) failures.push_back(report.status);
}

void Replays::OnTaskDone(const TaskReport& report) {
  done.push_back(report.key.instance);
  if (!report.lost_peers.empty()) lost = report.lost_peers;
  first_loss = report.first_loss;
  first_byte = report.seconds.first_byte;
}

ReplaySpec ReplayTest::MakeReplays(int worker, const Plan& plan, uint32_t first_instance,
                                   absl::Duration stall_limit) {
  const TileMemory unused(plan);
  const TaskSpec task = MakeSpec(worker, plan, unused);
  ReplaySpec spec{.key = kReplayKey,
                  .token_high = task.token_high,
                  .token_low = task.token_low,
                  .part = task.part,
                  .peers = task.peers,
                  .peer_of_device = task.peer_of_device,
                  .stall_limit = stall_limit,
                  .first_instance = first_instance};
  for (ReplayedTensor& memory : memory_) {
    ReplaySpec::Buffer& buffer = spec.buffers.emplace_back();
    for (const auto& [device, tiles] : task.sources) {
      buffer.sources[device] = Bound(plan, Side::kSource, device, memory);
      buffer.destinations[device] = Bound(plan, Side::kDestination, device, memory);
    }
  }
  return spec;
}

BoundTiles ReplayTest::Bound(const Plan& plan, Side side, DeviceRank device,
                             ReplayedTensor& memory) {
  const Placement& placement = side == Side::kSource ? plan.tensors().spec().sources[0]
                                                     : plan.tensors().spec().destinations[0];
  const std::vector<DeviceId>& devices = placement.mesh.devices();
  const auto found = std::ranges::find(devices, plan.tensors().devices()[device]);
  if (found == devices.end()) return {.tensor = {nullptr}};
  uint32_t* const tile =
      side == Side::kSource ? memory.whole.data() : memory.halves[found - devices.begin()].data();
  return {.tensor = {reinterpret_cast<std::byte*>(tile)}};
}

void ReplayTest::StartBoth(const Plan& plan, uint32_t first_instance, absl::Duration stall_limit) {
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(
        Runner(i).StartReplays(MakeReplays(i, plan, first_instance, stall_limit), replays_[i]));
  }
}

void ReplayTest::Advance(uint32_t count) {
  while (sent_ < count && sent_ < looked_at_ + kBuffers) {
    memory_[sent_ % kBuffers].Fill(sent_);
    Send(sent_++);
  }
  while (received_ < count && received_ < looked_at_ + kBuffers) {
    memory_[received_ % kBuffers].Clear();
    Receive(received_++);
  }
  while (looked_at_ < count && IsDone(0, looked_at_) && IsDone(1, looked_at_)) {
    EXPECT_EQ(memory_[looked_at_ % kBuffers].Wrong(looked_at_), 0) << "instance " << looked_at_;
    ++looked_at_;
  }
}

void ReplayTest::RunAll(uint32_t count) {
  RunUntil("the last instance", [&] {
    Advance(count);
    return looked_at_ == count;
  });
}

void ReplayTest::StopBoth(uint32_t next_instance) {
  for (int i = 0; i < 2; ++i) {
    Runner(i).StopReplays(kReplayKey, absl::CancelledError("enough"), next_instance);
  }
  RunUntil("both workers to stop", [&] { return replays_[0].stopped && replays_[1].stopped; });
}

void ReplayTest::RunFor(absl::Duration time) {
  bool over = false;
  loop_->RunAfter(time, [&over] { over = true; });
  RunUntil("time to go by", [&over] { return over; });
}

}  // namespace crossmesh
