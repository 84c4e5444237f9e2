#include "worker/executor/transfer_table.h"

#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

class NoOwner final : public TransferOwner {
 public:
  void OnSent(Ticket /*ticket*/, const absl::Status& /*status*/) override {}
  void OnReceived(Ticket /*ticket*/, const absl::Status& /*status*/) override {}
};

TEST(TransferTableTest, PlacesBeyondThoseReservedHaveRoomForAsManyPieces) {
  TransferTable table;
  NoOwner owner;
  table.Reserve(1, 8);
  table.Reserve(1, 3);  // of another task, whose messages have fewer
  std::vector<Ticket> tickets;
  for (int i = 0; i < 3; ++i) tickets.push_back(table.Add(owner, {}));
  for (const Ticket ticket : tickets) EXPECT_GE(table.at(ticket).pieces.capacity(), 8u);
}

TEST(TransferTableTest, APlaceThatWasGivenBackIsTakenAgain) {
  TransferTable table;
  NoOwner owner;
  const Ticket first = table.Add(owner, {});
  table.Remove(first);
  EXPECT_EQ(table.Add(owner, {}), first);
}

}  // namespace
}  // namespace crossmesh
