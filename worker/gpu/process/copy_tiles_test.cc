// Copies between memory of a GPU and of the host, in a GPU's process.

#include "common/base/unique_fd.h"
#include "common/plan/testing/random_source.h"
#include "common/testing/send_signal.h"
#include "common/wire/time_codec.h"
#include "worker/gpu/process/testing/gpu_process_fixture.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
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

// Of which the process has up to eight under way at a time.
constexpr int64_t kWindowBytes = int64_t{32} << 20;
const TaskKey kTask = {.operation = 1};

std::string RandomBytes(RandomSource& random, int64_t count) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.Below(256));
  return bytes;
}

class CopyTilesTest : public GpuProcessTest {
 protected:
  void Open(int64_t bytes) {
    bytes_ = bytes;
    child_ = &StartUp(OptionsOf(0));
    ASSERT_OK_AND_ASSIGN(arena_, MakeArena(*child_, bytes));
    ASSERT_OK_AND_ASSIGN(on_gpu_, child_->process->ExportArena(arena_));
    on_host_ = UniqueFd(memfd_create("test", MFD_CLOEXEC));
    ASSERT_EQ(ftruncate(on_host_.get(), bytes), 0);
  }

  static void Write(const UniqueFd& file, const std::string& bytes, int64_t offset = 0) {
    ASSERT_EQ(pwrite(file.get(), bytes.data(), bytes.size(), offset), std::ssize(bytes));
  }
  static std::string Read(const UniqueFd& file, const TileRange& range) {
    std::string bytes(range.bytes, '\0');
    EXPECT_EQ(pread(file.get(), bytes.data(), bytes.size(), range.offset), range.bytes);
    return bytes;
  }
  std::string All(const UniqueFd& file) const { return Read(file, {.bytes = bytes_}); }

  v1::GpuRequest RequestOf(CopyTiles::Direction direction,
                           const std::vector<TileRange>& ranges) const {
    v1::GpuRequest request;
    CopyTiles& copy = *request.mutable_copy_tiles();
    *copy.mutable_key() = ToProto(kTask);
    copy.set_direction(direction);
    copy.set_arena(arena_.value());
    for (const TileRange& range : ranges) {
      CopyTiles::Range& added = *copy.add_ranges();
      added.set_offset_bytes(range.offset);
      added.set_size_bytes(range.bytes);
    }
    copy.set_checksums(true);
    *copy.mutable_deadline() = ToProto(absl::Seconds(60));
    return request;
  }
  std::shared_ptr<Result> BeginCopy(v1::GpuRequest request) {
    return Begin(*child_, std::move(request), UniqueFd(fcntl(on_host_.get(), F_DUPFD_CLOEXEC, 0)));
  }
  absl::Status Copy(v1::GpuRequest request) {
    const auto result = BeginCopy(std::move(request));
    Await(*result);
    return result->status();
  }

  Child* child_ = nullptr;
  int64_t bytes_ = 0;
  ArenaId arena_;
  UniqueFd on_gpu_;
  UniqueFd on_host_;
};

TEST_F(CopyTilesTest, RandomRangesArriveAndNothingElseIsWritten) {
  Open(1'000'000);
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    std::vector<TileRange> ranges;
    for (int64_t end = random.Below(1000); end < bytes_;) {
      const int64_t bytes = random.Between(1, random.OneIn(3) ? 200'000 : 100);
      ranges.push_back({.offset = end, .bytes = std::min(bytes, bytes_ - end)});
      end = ranges.back().end() + random.Below(1000);
    }
    const CopyTiles::Direction direction =
        random.OneIn(2) ? CopyTiles::DIRECTION_LOAD : CopyTiles::DIRECTION_STORE;
    const UniqueFd& from = direction == CopyTiles::DIRECTION_LOAD ? on_gpu_ : on_host_;
    const UniqueFd& to = direction == CopyTiles::DIRECTION_LOAD ? on_host_ : on_gpu_;
    Write(from, RandomBytes(random, bytes_));
    std::string expected = All(to);
    for (const TileRange& range : ranges) {
      expected.replace(range.offset, range.bytes, Read(from, range));
    }
    v1::GpuRequest request = RequestOf(direction, ranges);
    request.mutable_copy_tiles()->set_checksums(!random.OneIn(3));
    EXPECT_OK(Copy(std::move(request)));
    EXPECT_TRUE(All(to) == expected);
  }
}

TEST_F(CopyTilesTest, ACopyGoesThroughAsManyWindowsAsItTakes) {
  Open(2 * kWindowBytes + 4096);
  RandomSource random(1);
  const std::vector<TileRange> ranges = {{.offset = kWindowBytes - 100, .bytes = 50},
                                         {.offset = kWindowBytes - 50, .bytes = 300'000},
                                         {.offset = 2 * kWindowBytes - 1, .bytes = 4097}};
  for (const TileRange& range : ranges)
    Write(on_host_, RandomBytes(random, range.bytes), range.offset);
  EXPECT_OK(Copy(RequestOf(CopyTiles::DIRECTION_STORE, ranges)));
  for (const TileRange& range : ranges) EXPECT_TRUE(Read(on_gpu_, range) == Read(on_host_, range));
}

TEST_F(CopyTilesTest, ACancelledCopyEndsWithItsCauseAndTheNextWorks) {
  Open(20 * kWindowBytes);
  std::vector<TileRange> ranges;
  for (int64_t window = 0; window < 20; ++window) {
    ranges.push_back({.offset = window * kWindowBytes, .bytes = 1});
  }
  // It finds all three requests there, and so cannot be done with more than eight windows.
  SendSignal(child_->process->pid(), SIGSTOP);
  const auto first = BeginCopy(RequestOf(CopyTiles::DIRECTION_STORE, ranges));
  const auto second = BeginCopy(RequestOf(CopyTiles::DIRECTION_STORE, ranges));
  const auto cancel = Begin(*child_, CancelTaskRequest(kTask, absl::CancelledError("enough")));
  SendSignal(child_->process->pid(), SIGCONT);
  for (const auto& result : {first, second, cancel}) Await(*result);
  EXPECT_OK(cancel->status());
  EXPECT_THAT(first->status(), StatusIs(absl::StatusCode::kCancelled, HasSubstr("enough")));
  EXPECT_THAT(second->status(), StatusIs(absl::StatusCode::kCancelled, HasSubstr("enough")));
  EXPECT_OK(Copy(RequestOf(CopyTiles::DIRECTION_STORE, ranges)));
}

TEST_F(CopyTilesTest, AReleasedBounceBufferMakesRoomForTheNextOfTheTask) {
  Open(100'000);
  const std::vector<TileRange> ranges = {{.offset = 0, .bytes = 1000}};
  EXPECT_OK(Copy(RequestOf(CopyTiles::DIRECTION_LOAD, ranges)));
  on_host_ = UniqueFd(memfd_create("other", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(on_host_.get(), bytes_), 0);
  EXPECT_THAT(Copy(RequestOf(CopyTiles::DIRECTION_LOAD, ranges)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found another one")));
  v1::GpuRequest release;
  *release.mutable_release_bounce_buffers()->mutable_key() = ToProto(kTask);
  const auto released = Begin(*child_, release);
  Await(*released);
  EXPECT_OK(released->status());
  EXPECT_OK(Copy(RequestOf(CopyTiles::DIRECTION_LOAD, ranges)));
}

TEST_F(CopyTilesTest, WhatCannotBeCopiedIsRefused) {
  Open(100'000);
  const std::vector<TileRange> ranges = {{.offset = 99'999, .bytes = 1}};
  v1::GpuRequest other = RequestOf(CopyTiles::DIRECTION_LOAD, ranges);
  other.mutable_copy_tiles()->set_arena(7);
  EXPECT_THAT(Copy(other), StatusIs(absl::StatusCode::kNotFound, HasSubstr("arena 7")));
  EXPECT_THAT(Copy(RequestOf(CopyTiles::DIRECTION_LOAD, {{.offset = 99'999, .bytes = 2}})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("one that ends at 100001")));
  EXPECT_THAT(Copy(RequestOf(CopyTiles::DIRECTION_UNSPECIFIED, ranges)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a load or a store")));
  EXPECT_THAT(Copy(RequestOf(CopyTiles::DIRECTION_LOAD, {{0, 8}, {7, 1}})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected at least 8")));
  const auto without = Begin(*child_, RequestOf(CopyTiles::DIRECTION_LOAD, ranges));
  Await(*without);
  EXPECT_THAT(without->status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found none")));
  ASSERT_EQ(ftruncate(on_host_.get(), 99'999), 0);
  EXPECT_THAT(Copy(RequestOf(CopyTiles::DIRECTION_LOAD, ranges)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found 99999 bytes")));
  EXPECT_OK(Copy(RequestOf(CopyTiles::DIRECTION_LOAD, {})));
}

}  // namespace
}  // namespace crossmesh
