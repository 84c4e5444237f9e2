#include "worker/gpu/device/host_threads.h"

#include "common/base/clock.h"
#include "common/event_loop/event_loop.h"
#include "common/testing/patience.h"
#include "worker/gpu/device/registered_memory.h"
#include "worker/gpu/device/testing/gpu_fixture.h"

#include <memory>
#include <set>
#include <thread>
#include <utility>

#include <absl/status/statusor.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr int kThreads = 3;

class HostThreadsTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    ASSERT_OK_AND_ASSIGN(loop_, EventLoop::Create(clock_, {}));
    ASSERT_OK_AND_ASSIGN(threads_, HostThreads::Create(*gpu_, *loop_, kThreads));
  }
  void TearDown() override {
    threads_.reset();
    GpuTest::TearDown();
  }

  const RealClock clock_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<HostThreads> threads_;
};

TEST_F(HostThreadsTest, WorkTakesTurnsOnThemAndItsResultComesToTheLoop) {
  std::set<std::thread::id> used;
  int done = 0;
  for (int i = 0; i < 2 * kThreads; ++i) {
    threads_->Run([] { return std::this_thread::get_id(); },
                  [&](std::thread::id thread) {
                    used.insert(thread);
                    ++done;
                  });
  }
  const Patience patience;
  while (done < 2 * kThreads) {
    patience.Check();
    loop_->RunOnce(absl::Seconds(1));
  }
  EXPECT_EQ(used.size(), kThreads);
  EXPECT_FALSE(used.contains(std::this_thread::get_id()));
}

TEST_F(HostThreadsTest, MemoryIsRegisteredThereAndGivenBack) {
  using Memory = absl::StatusOr<std::unique_ptr<RegisteredMemory>>;
  bool is_gone = false;
  const auto use = [&](Memory memory) {
    ASSERT_OK(memory);
    EXPECT_EQ((*memory)->bytes().size(), 5000);
    auto give_back = [memory = *std::move(memory)]() mutable {
      memory.reset();
      return true;
    };
    threads_->Run(std::move(give_back), [&](bool gone) { is_gone = gone; });
  };
  threads_->Run([this] { return RegisteredMemory::Create(*gpu_, ByteCount(5000)); }, use);
  const Patience patience;
  while (!is_gone) {
    patience.Check();
    loop_->RunOnce(absl::Seconds(1));
  }
}

}  // namespace
}  // namespace crossmesh
