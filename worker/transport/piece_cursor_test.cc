#include "worker/transport/piece_cursor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// `memory` in pieces of `step` bytes.
std::vector<iovec> Cut(std::vector<unsigned char>& memory, size_t step) {
  std::vector<iovec> pieces;
  for (size_t i = 0; i < memory.size(); i += step) {
    pieces.push_back({.iov_base = memory.data() + i, .iov_len = std::min(step, memory.size() - i)});
  }
  return pieces;
}

class PieceCursorTest : public testing::Test {
 protected:
  // What a cursor lists, with a bar between pieces.
  static std::string List(const PieceCursor& cursor, size_t pieces_max, size_t bytes_max) {
    std::array<iovec, 8> list;
    const PieceCursor::Listed listed = cursor.List(std::span(list).first(pieces_max), bytes_max);
    std::string text;
    size_t bytes = 0;
    for (size_t i = 0; i < listed.pieces; ++i) {
      if (i > 0) text += '|';
      text.append(static_cast<const char*>(list[i].iov_base), list[i].iov_len);
      bytes += list[i].iov_len;
    }
    EXPECT_EQ(bytes, listed.bytes);
    return listed.all ? text + "." : text;
  }

  std::string text_ = "abcdefghij";
  std::vector<iovec> pieces_ = {{.iov_base = text_.data(), .iov_len = 3},
                                {.iov_base = text_.data() + 3, .iov_len = 1},
                                {.iov_base = text_.data() + 4, .iov_len = 6}};
  PieceCursor cursor_{pieces_};
};

TEST_F(PieceCursorTest, ItListsWhatComesNextWithinBounds) {
  EXPECT_EQ(List(cursor_, 8, 100), "abc|d|efghij.");
  EXPECT_EQ(List(cursor_, 3, 10), "abc|d|efghij.");
  EXPECT_EQ(List(cursor_, 2, 100), "abc|d");
  EXPECT_EQ(List(cursor_, 8, 9), "abc|d|efghi");
  EXPECT_EQ(List(cursor_, 8, 4), "abc|d");
  EXPECT_EQ(List(cursor_, 8, 2), "ab");
}

TEST_F(PieceCursorTest, ItAdvancesByAnyNumberOfBytes) {
  for (size_t bytes = 0; bytes <= text_.size(); ++bytes) {
    PieceCursor cursor = cursor_;
    cursor.Advance(bytes);
    EXPECT_EQ(cursor.done(), bytes == text_.size());
    std::string left = List(cursor, 8, 100);
    std::erase(left, '|');
    EXPECT_EQ(left, text_.substr(bytes) + ".");
  }
}

TEST_F(PieceCursorTest, ItIsFilledStepByStep) {
  const std::string source = "0123456789more";
  size_t filled = 0;
  for (size_t step = 1; filled < text_.size(); ++step) {
    const auto bytes = std::as_bytes(std::span(source)).subspan(filled);
    filled += cursor_.Fill(bytes.first(step == 4 ? bytes.size() : step));
  }
  EXPECT_EQ(filled, text_.size());
  EXPECT_TRUE(cursor_.done());
  EXPECT_EQ(text_, "0123456789");
}

TEST(CopyNextTest, PiecesOfDifferentSizesAreCopiedStepByStep) {
  std::vector<unsigned char> from(100000);
  std::iota(from.begin(), from.end(), 0);
  std::vector<unsigned char> into(from.size());
  const std::vector<iovec> from_pieces = Cut(from, 7);
  const std::vector<iovec> into_pieces = Cut(into, 11);
  PieceCursor from_left(from_pieces);
  PieceCursor into_left(into_pieces);
  while (!into_left.done()) {
    const size_t bytes = CopyNext(from_left, into_left, 5000);
    EXPECT_TRUE(bytes == 5000 || into_left.done());
  }
  EXPECT_TRUE(from_left.done());
  EXPECT_TRUE(from == into);
  EXPECT_EQ(CopyNext(from_left, into_left, 5000), 0);
}

}  // namespace
}  // namespace crossmesh
