#include "worker/arena_lender.h"

#include "common/base/byte_count.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/testing/status_matchers.h"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Writes down what it has been lent.
class Borrower final : public Transport {
 public:
  absl::string_view name() const override { return "borrower"; }
  const std::string& address() const override { return address_; }
  int64_t eager_bytes_max() const override { return 0; }
  int pieces_max() const override { return 1; }
  int useful_pieces_max(PeerId /*peer*/) const override { return 1; }
  void Lend(const LentMemory& memory) override { lent.push_back(memory.bytes.data()); }
  void Reclaim(std::span<const std::byte> memory) override {
    EXPECT_EQ(memory[0], std::byte{0});  // still there
    std::erase(lent, memory.data());
  }
  absl::StatusOr<PeerId> Connect(absl::string_view /*address*/) override { return PeerId(1); }
  absl::string_view link(PeerId /*peer*/) const override { return "local"; }
  void Send(PeerId /*peer*/, const MessageHeader& /*header*/, Pieces /*payload*/,
            Ticket /*ticket*/) override {}
  void Disconnect(PeerId /*peer*/) override {}
  void Break(PeerId /*peer*/, const absl::Status& /*why*/) override {}
  int Progress() override { return 0; }
  int event_fd() const override { return -1; }
  bool Arm() override { return true; }

  std::vector<const std::byte*> lent;

 private:
  const std::string address_;
};

std::unique_ptr<EventLoop> MakeLoop(const Clock& clock) {
  auto loop = EventLoop::Create(clock, {});
  CHECK_OK(loop);
  return *std::move(loop);
}

class ArenaLenderTest : public testing::Test {
 protected:
  ~ArenaLenderTest() override { lender_.Stop(); }
  void Start() { lender_.Start({.data = *data_, .memory = *memory_, .transport = borrower_}); }
  std::shared_ptr<Arena> Lend() { return lender_.Lend(*Arena::Create("test", ByteCount(100))); }
  void Run() { data_->RunOnce(absl::ZeroDuration()); }

  const RealClock clock_;
  const std::unique_ptr<EventLoop> memory_ = MakeLoop(clock_);
  const std::unique_ptr<EventLoop> data_ = MakeLoop(clock_);
  Borrower borrower_;
  ArenaLender lender_;
};

TEST_F(ArenaLenderTest, AnArenaIsLentWhileThereIsACopy) {
  Start();
  std::shared_ptr<Arena> arena = Lend();
  std::shared_ptr<Arena> copy = arena;
  Run();
  EXPECT_THAT(borrower_.lent, ElementsAre(arena->bytes().data()));
  arena.reset();
  Run();
  EXPECT_EQ(borrower_.lent.size(), 1);
  copy.reset();
  Run();
  EXPECT_THAT(borrower_.lent, IsEmpty());
}

TEST_F(ArenaLenderTest, AnArenaWithoutDescriptorIsNotLent) {
  Start();
  std::vector<std::byte> memory(100);
  const std::shared_ptr<Arena> arena = lender_.Lend(Arena::Borrow(memory));
  Run();
  EXPECT_THAT(borrower_.lent, IsEmpty());
}

TEST_F(ArenaLenderTest, ArenasMayOutliveTheLoops) {
  const std::shared_ptr<Arena> early = Lend();
  Start();
  std::shared_ptr<Arena> arena = Lend();
  Run();
  lender_.Stop();
  const std::shared_ptr<Arena> late = Lend();
  arena.reset();
  Run();
  EXPECT_EQ(borrower_.lent.size(), 1);
}

}  // namespace
}  // namespace crossmesh
