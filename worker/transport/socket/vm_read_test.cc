#include "worker/transport/socket/vm_read.h"

#include "common/testing/status_matchers.h"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace crossmesh {
namespace {

// `size` bytes of `memory` in pieces of `step`.
std::vector<iovec> Cut(std::vector<unsigned char>& memory, size_t step) {
  std::vector<iovec> pieces;
  for (size_t i = 0; i < memory.size(); i += step) {
    pieces.push_back({.iov_base = memory.data() + i, .iov_len = std::min(step, memory.size() - i)});
  }
  return pieces;
}

TEST(ReadMemoryTest, ManyPiecesAreReadStepByStep) {
  std::vector<unsigned char> from(100000);
  std::iota(from.begin(), from.end(), 0);
  std::vector<unsigned char> into(from.size());
  const std::vector<iovec> from_pieces = Cut(from, 7);
  const std::vector<iovec> into_pieces = Cut(into, 11);
  PieceCursor from_left(from_pieces);
  PieceCursor into_left(into_pieces);
  while (!into_left.done()) {
    ASSERT_OK_AND_ASSIGN(const size_t bytes, ReadMemory(getpid(), from_left, into_left, 5000));
    EXPECT_GT(bytes, 0);
    EXPECT_LE(bytes, 5000);
  }
  EXPECT_TRUE(from_left.done());
  EXPECT_TRUE(from == into);
}

TEST(ReadMemoryTest, MemoryThatIsNotThereIsUnavailable) {
  const long page = sysconf(_SC_PAGESIZE);
  void* gone = mmap(nullptr, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(gone, MAP_FAILED);
  std::vector<unsigned char> into(100);
  const iovec from_piece = {.iov_base = gone, .iov_len = 100};
  const iovec into_piece = {.iov_base = into.data(), .iov_len = 100};
  PieceCursor from({&from_piece, 1});
  PieceCursor into_left({&into_piece, 1});
  EXPECT_THAT(ReadMemory(getpid(), from, into_left, 100), StatusIs(absl::StatusCode::kUnavailable));
  munmap(gone, page);
}

TEST(ReadMemoryTest, AProcessThatIsNotThereIsUnavailable) {
  std::vector<unsigned char> memory(100);
  const std::vector<iovec> pieces = Cut(memory, 100);
  PieceCursor from(pieces);
  PieceCursor into(pieces);
  EXPECT_THAT(ReadMemory(1 << 30, from, into, 100), StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace crossmesh
