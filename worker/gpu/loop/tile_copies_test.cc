// Copies between memory of a GPU and bounce buffers, on a loop whose time stands still unless a
// test moves it. What comes of the bytes copy_tiles_test.cc says, of the process of a GPU.

#include "worker/gpu/loop/tile_copies.h"

#include "common/base/fake_clock.h"
#include "common/base/unique_fd.h"
#include "common/event_loop/event_loop.h"
#include "common/testing/patience.h"
#include "crossmesh/v1/gpu_process.pb.h"
#include "tests/standin/control/stand_in_control.h"
#include "worker/executor/task.h"
#include "worker/gpu/device/testing/gpu_fixture.h"
#include "worker/gpu/kernels/testing/host_kernels.h"
#include "worker/gpu/loop/gpu_arenas.h"
#include "worker/gpu/protocol/gpu_message.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

using CopyTiles = v1::GpuRequest::CopyTiles;

constexpr int64_t kWindowBytes = BounceBuffer::kWindowBytes;
constexpr int64_t kWindows = 12;
constexpr TaskKey kTask = {.operation = 1};
constexpr TaskKey kOtherTask = {.operation = 2};

class TileCopiesTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    OpenGate();
    const HostKernel& pack = HostKernelOf("crossmesh_pack");
    stand_in_->AddKernel({.name = pack.name.data(),
                          .run = RunBehindTheGate,
                          .context = this,
                          .argument_count = 1,
                          .argument_bytes = &pack.argument_bytes});
    ASSERT_OK_AND_ASSIGN(loop_, EventLoop::Create(clock_, {}));
    ASSERT_OK_AND_ASSIGN(arenas_, GpuArenas::Create(*gpu_));
    ASSERT_OK_AND_ASSIGN(copies_,
                         TileCopies::Create({.loop = *loop_, .gpu = *gpu_, .arenas = *arenas_}));
    Open(kWindows * kWindowBytes);
  }
  void TearDown() override {
    copies_.reset();
    arenas_.reset();
    GpuTest::TearDown();
  }

  // An arena, 1, and memory of the host.
  void Open(int64_t bytes) {
    v1::GpuRequest::CreateArena create;
    create.set_arena(1);
    create.set_size_bytes(bytes);
    bool is_made = false;
    arenas_->CreateArena(create, [&](const auto& /*memory*/) { is_made = true; });
    RunUntil([&] {
      EXPECT_OK(arenas_->Poll());
      return is_made;
    });
    file_ = UniqueFd(memfd_create("test", MFD_CLOEXEC));
    ASSERT_EQ(ftruncate(file_.get(), bytes), 0);
  }

  // Hashes of a GPU wait at the gate, and what is on the stream after them.
  void CloseGate() { is_gate_open_ = false; }
  void OpenGate() {
    is_gate_open_ = true;
    is_gate_open_.notify_all();
  }

  // A byte of each of the first windows, with checksums.
  CopyTiles RequestOf(CopyTiles::Direction direction, int64_t windows) const {
    CopyTiles request;
    *request.mutable_key() = ToProto(task_);
    request.set_direction(direction);
    request.set_arena(1);
    request.set_checksums(true);
    for (int64_t window = 0; window < windows; ++window) {
      CopyTiles::Range& range = *request.add_ranges();
      range.set_offset_bytes(window * kWindowBytes + 100);
      range.set_size_bytes(1);
    }
    return request;
  }
  std::shared_ptr<std::optional<absl::Status>> Begin(CopyTiles::Direction direction,
                                                     int64_t windows) {
    auto result = std::make_shared<std::optional<absl::Status>>();
    copies_->Begin(RequestOf(direction, windows), UniqueFd(fcntl(file_.get(), F_DUPFD_CLOEXEC, 0)),
                   [result](absl::Status status) { *result = std::move(status); });
    return result;
  }
  absl::Status Copy(CopyTiles::Direction direction, int64_t windows) {
    const auto result = Begin(direction, windows);
    RunUntil([&] { return result->has_value(); });
    return **result;
  }
  absl::Status Release() {
    std::optional<absl::Status> result;
    copies_->Release(task_, [&](absl::Status status) { result = std::move(status); });
    RunUntil([&] { return result.has_value(); });
    return *result;
  }

  // Time goes on meanwhile.
  void RunUntil(absl::FunctionRef<bool()> condition) {
    const Patience patience;
    while (!condition()) {
      patience.Check();
      clock_.Advance(absl::Microseconds(100));
      loop_->RunOnce(absl::Milliseconds(1));
    }
  }

  int64_t Count(std::function<bool(const StandInCall&)> is_counted) const {
    return std::ranges::count_if(stand_in_->Calls(), is_counted);
  }
  int64_t Count(absl::string_view name) const {
    return Count([name](const StandInCall& call) { return call.name == name; });
  }
  static bool IsOfWindow(const StandInCall& call) {
    return call.name == absl::string_view("cuMemHostRegister") && call.bytes == kWindowBytes;
  }

  FakeClock clock_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<GpuArenas> arenas_;
  std::unique_ptr<TileCopies> copies_;
  UniqueFd file_;
  TaskKey task_ = kTask;  // of what is asked for

 private:
  static void RunBehindTheGate(const StandInLaunch* launch) {
    static_cast<const TileCopiesTest*>(launch->context)->is_gate_open_.wait(false);
    HostKernelOf("crossmesh_pack").run(static_cast<int32_t>(launch->grid[0]), launch->arguments[0]);
  }

  std::atomic<bool> is_gate_open_ = true;
};

TEST_F(TileCopiesTest, WindowsAreRegisteredOnceForATaskAndUntilItIsReleased) {
  EXPECT_OK(Copy(CopyTiles::DIRECTION_LOAD, 3));
  EXPECT_OK(Copy(CopyTiles::DIRECTION_STORE, 3));
  EXPECT_OK(Copy(CopyTiles::DIRECTION_STORE, 2));
  EXPECT_EQ(Count(IsOfWindow), 3);
  EXPECT_EQ(Count("cuMemHostUnregister"), 0);
  EXPECT_OK(Release());
  EXPECT_EQ(Count("cuMemHostUnregister"), 3);
  EXPECT_TRUE(copies_->is_empty());
  EXPECT_OK(Copy(CopyTiles::DIRECTION_STORE, 1));
  EXPECT_EQ(Count(IsOfWindow), 4);
}

TEST_F(TileCopiesTest, TheLoopRegistersNoWindowAndGivesNoneBack) {
  EXPECT_OK(Copy(CopyTiles::DIRECTION_LOAD, kWindows));
  EXPECT_OK(Release());
  const int64_t loop_thread = gettid();
  const auto is_of_loop = [loop_thread](const StandInCall& call) {
    return call.thread == loop_thread &&
           (IsOfWindow(call) || call.name == absl::string_view("cuMemHostUnregister"));
  };
  EXPECT_EQ(Count(IsOfWindow), kWindows);
  EXPECT_EQ(Count(is_of_loop), 0);
}

TEST_F(TileCopiesTest, EightBatchesAreUnderWayAtOnce) {
  CloseGate();
  const auto load = Begin(CopyTiles::DIRECTION_LOAD, kWindows);
  const auto is_load = [](const StandInCall& call) {
    return call.name == absl::string_view("cuMemcpyDtoHAsync");
  };
  RunUntil([&] { return Count(is_load) >= 8; });
  for (int i = 0; i < 100; ++i) {
    clock_.Advance(absl::Milliseconds(1));
    loop_->RunOnce(absl::ZeroDuration());
  }
  EXPECT_EQ(Count(is_load), 8);
  EXPECT_EQ(*load, std::nullopt);
  OpenGate();
  RunUntil([&] { return load->has_value(); });
  EXPECT_OK(**load);
  EXPECT_EQ(Count(is_load), kWindows);
}

TEST_F(TileCopiesTest, TheLookThatFindsABatchDoneHashesNothing) {
  const auto load = Begin(CopyTiles::DIRECTION_LOAD, 1);
  const auto is_done = [](const StandInCall& call) {
    return call.name == absl::string_view("cuEventQuery") && call.result == CUDA_SUCCESS;
  };
  const int64_t before = Count(is_done);
  RunUntil([&] { return Count(is_done) > before; });
  // What another thread has found comes to the next round of the loop.
  EXPECT_EQ(*load, std::nullopt);
  RunUntil([&] { return load->has_value(); });
  EXPECT_OK(**load);
}

TEST_F(TileCopiesTest, LooksComeSoonAtFirstAndSeldomLater) {
  CloseGate();
  const auto load = Begin(CopyTiles::DIRECTION_LOAD, 1);
  const auto is_look = [](const StandInCall& call) {
    return call.name == absl::string_view("cuEventQuery");
  };
  const int64_t before = Count(is_look);
  const int64_t records = Count("cuEventRecord");
  const Patience patience;
  while (Count("cuEventRecord") == records) {
    patience.Check();
    loop_->RunOnce(absl::Milliseconds(1));
  }
  const auto looks_within = [&](absl::Duration time) {
    for (absl::Duration passed; passed < time; passed += absl::Microseconds(20)) {
      clock_.Advance(absl::Microseconds(20));
      loop_->RunOnce(absl::ZeroDuration());
    }
    return Count(is_look) - before;
  };
  EXPECT_EQ(looks_within(absl::Microseconds(20)), 1);
  // 20, 40, 80 us and so on up to 4 ms.
  EXPECT_LE(looks_within(absl::Milliseconds(100)), 35);
  EXPECT_GE(looks_within(absl::ZeroDuration()), 25);
  OpenGate();
  RunUntil([&] { return load->has_value(); });
  EXPECT_OK(**load);
}

TEST_F(TileCopiesTest, ACopyWhoseMemoryCannotBeRegisteredEndsAndTheNextWorks) {
  const auto load = Begin(CopyTiles::DIRECTION_LOAD, kWindows);
  ASSERT_EQ(ftruncate(file_.get(), 3 * kWindowBytes), 0);
  RunUntil([&] { return load->has_value(); });
  EXPECT_THAT(**load, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected a file")));
  EXPECT_OK(Release());
  EXPECT_OK(Copy(CopyTiles::DIRECTION_LOAD, 3));
}

TEST_F(TileCopiesTest, ACopyOfWhichNoMemoryCanBeRegisteredEnds) {
  const auto load = Begin(CopyTiles::DIRECTION_LOAD, kWindows);
  ASSERT_EQ(ftruncate(file_.get(), 0), 0);
  RunUntil([&] { return load->has_value(); });
  EXPECT_THAT(**load, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found 0 bytes")));
}

TEST_F(TileCopiesTest, ACancelledCopyEndsWhenNothingOfItGoesOn) {
  CloseGate();
  const auto load = Begin(CopyTiles::DIRECTION_LOAD, kWindows);
  const auto waiting = Begin(CopyTiles::DIRECTION_STORE, kWindows);
  const int64_t records = Count("cuEventRecord");
  RunUntil([&] { return Count("cuEventRecord") > records; });
  copies_->Cancel(kTask, absl::CancelledError("enough"));
  RunUntil([&] { return waiting->has_value(); });
  EXPECT_EQ(*load, std::nullopt);
  bool is_refused = false;
  copies_->Release(
      kTask, [&](const absl::Status& status) { is_refused = absl::IsFailedPrecondition(status); });
  EXPECT_TRUE(is_refused);
  OpenGate();
  RunUntil([&] { return load->has_value(); });
  EXPECT_THAT(**load, StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_OK(Release());
}

TEST_F(TileCopiesTest, ACancelledTaskLeavesTheCopiesOfOthers) {
  CloseGate();
  const auto first = Begin(CopyTiles::DIRECTION_LOAD, 1);
  task_ = kOtherTask;
  const auto second = Begin(CopyTiles::DIRECTION_LOAD, 1);
  copies_->Cancel(kOtherTask, absl::CancelledError("enough"));
  RunUntil([&] { return second->has_value(); });
  EXPECT_THAT(**second, StatusIs(absl::StatusCode::kCancelled, "enough"));
  OpenGate();
  RunUntil([&] { return first->has_value(); });
  EXPECT_OK(**first);
}

TEST_F(TileCopiesTest, AReleasedTaskLeavesTheBounceBuffersOfOthers) {
  for (const TaskKey& task : {kTask, kOtherTask, kTask}) {
    task_ = task;
    EXPECT_OK(Copy(CopyTiles::DIRECTION_LOAD, 1));
  }
  EXPECT_EQ(Count(IsOfWindow), 2);
  EXPECT_OK(Release());
  EXPECT_EQ(Count("cuMemHostUnregister"), 1);
  EXPECT_OK(Copy(CopyTiles::DIRECTION_LOAD, 1));
  task_ = kOtherTask;
  EXPECT_OK(Copy(CopyTiles::DIRECTION_STORE, 1));
  EXPECT_EQ(Count(IsOfWindow), 3);
  EXPECT_OK(Release());
  EXPECT_EQ(Count("cuMemHostUnregister"), 2);
}

TEST_F(TileCopiesTest, ATaskKeepsItsBounceBuffer) {
  EXPECT_OK(Copy(CopyTiles::DIRECTION_LOAD, 1));
  const UniqueFd first = std::move(file_);
  file_ = UniqueFd(memfd_create("other", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file_.get(), kWindows * kWindowBytes), 0);
  EXPECT_THAT(Copy(CopyTiles::DIRECTION_STORE, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found another one")));
}

TEST_F(TileCopiesTest, ABounceBufferMayNotGrow) {
  EXPECT_OK(Copy(CopyTiles::DIRECTION_LOAD, 1));
  ASSERT_EQ(ftruncate(file_.get(), kWindows * kWindowBytes + 1), 0);
  EXPECT_THAT(Copy(CopyTiles::DIRECTION_STORE, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found another one")));
}

}  // namespace
}  // namespace crossmesh
