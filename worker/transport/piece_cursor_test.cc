#include "worker/transport/piece_cursor.h"

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

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

}  // namespace
}  // namespace crossmesh
