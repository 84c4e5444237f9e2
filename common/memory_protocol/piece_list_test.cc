#include "common/memory_protocol/piece_list.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(PieceListTest, ListsSurviveTheWire) {
  const PieceList list = {.allocations = {"pool-0", "po\"ol"},
                          .pieces = {{.offset = 0, .bytes = 4096, .allocation_offset = 512},
                                     {.offset = 8192, .bytes = 1, .allocation = 1}}};
  EXPECT_THAT(DecodePieceList(Encode(list)), IsOkAndHolds(list));
  EXPECT_THAT(DecodePieceList(Encode(PieceList())), IsOkAndHolds(PieceList()));
  const PieceList of_generations = {.allocations = {"pool-0"}, .generations = {3}};
  EXPECT_THAT(DecodePieceList(Encode(of_generations)), IsOkAndHolds(of_generations));
}

TEST(PieceListTest, AListOfFiftyThousandTensorsFitsIntoAFile) {
  PieceList list = {.allocations = {std::string(255, 'x')}};
  for (int64_t i = 0; i < 50'000; ++i) {
    list.pieces.push_back({.offset = i << 44, .bytes = 1, .allocation_offset = i << 44});
  }
  EXPECT_LE(std::ssize(Encode(list)), PieceList::kFileBytesMax);
}

TEST(PieceListTest, NamesTheFieldThatIsWrong) {
  const auto error = [](const std::string& text, const std::string& part) {
    EXPECT_THAT(DecodePieceList(text), IsRefused(part)) << text;
  };
  error("", "JSON object");
  error("[]", "JSON object");
  error(R"({"pieces":[]})", "\"allocations\"");
  error(R"({"allocations":[7],"pieces":[]})", "\"allocations\"");
  error(R"({"allocations":[]})", "\"pieces\"");
  error(R"({"allocations":["a"],"generations":[],"pieces":[]})", "\"generations\"");
  error(R"({"allocations":["a"],"generations":[-1],"pieces":[]})", "\"generations\"");
  error(R"({"allocations":[],"pieces":[7]})", "\"pieces\"");
  error(R"({"allocations":[],"pieces":[[0,1,0]]})", "\"pieces\"");
  error(R"({"allocations":[],"pieces":[[0,1,0,-1]]})", "\"pieces\"");
  error(R"({"allocations":[],"pieces":[[0,1,0,1.5]]})", "\"pieces\"");
  error(R"({"allocations":[],"pieces":[[0,1,0,18446744073709551615]]})", "\"pieces\"");
}

class CheckPiecesTest : public testing::Test {
 protected:
  // Of a storage of 100 bytes and allocations of 100 and 50.
  static absl::Status Check(std::vector<MemoryPiece> pieces) {
    return CheckPieces({.allocations = {"a", "b"}, .pieces = std::move(pieces)}, 100, {100, 50});
  }
};

TEST_F(CheckPiecesTest, PiecesMayTouchAndLieInAnyOrderInAllocations) {
  EXPECT_OK(Check({}));
  EXPECT_OK(Check({{.offset = 0, .bytes = 50, .allocation_offset = 50},
                   {.offset = 50, .bytes = 50, .allocation_offset = 0}}));
  EXPECT_OK(Check({{.offset = 50, .bytes = 50, .allocation = 1}}));
}

TEST_F(CheckPiecesTest, APieceOutsideOfTheStorageIsRefused) {
  EXPECT_THAT(Check({{.offset = 51, .bytes = 50}}),
              IsRefused("within the 100 bytes of the storage"));
  EXPECT_THAT(Check({{.offset = INT64_MAX, .bytes = 1}}), IsRefused("within the 100 bytes"));
  EXPECT_THAT(Check({{.offset = 0, .bytes = 0}}), IsRefused("piece 0 of the storage: expected at"));
}

TEST_F(CheckPiecesTest, APieceOutsideOfItsAllocationIsRefused) {
  EXPECT_THAT(Check({{.bytes = 50, .allocation = 1, .allocation_offset = 1}}),
              IsRefused("within the 50 bytes of allocation 1, found 50 bytes at 1"));
  EXPECT_THAT(Check({{.bytes = 1, .allocation_offset = INT64_MAX}}), IsRefused("allocation 0"));
  EXPECT_THAT(Check({{.bytes = 1, .allocation = 2}}), IsRefused("one of 2 allocations"));
}

TEST_F(CheckPiecesTest, PiecesThatShareAByteAreRefused) {
  EXPECT_THAT(Check({{.offset = 0, .bytes = 11}, {.offset = 10, .bytes = 1, .allocation = 1}}),
              IsRefused("piece 1 of the storage: expected it after the end of piece 0, 11"));
  EXPECT_THAT(Check({{.offset = 0, .bytes = 10, .allocation_offset = 9},
                     {.offset = 10, .bytes = 10, .allocation_offset = 0}}),
              IsRefused("found byte 9 of allocation \"a\", which piece 1 has as well"));
}

}  // namespace
}  // namespace crossmesh
