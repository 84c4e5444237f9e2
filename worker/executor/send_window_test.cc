#include "worker/executor/send_window.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(SendWindowTest, CountsWhatIsUnderWayAndForHowLong) {
  SendWindow window(PeerId(3));
  window.OnSend(100);
  window.OnSend(20);
  EXPECT_EQ(window.open(), 2);
  EXPECT_EQ(window.open_bytes(), 120);
  window.OnTaken(100);
  EXPECT_EQ(window.busy().count(), 0) << "something is still under way";
  window.OnTaken(20);
  EXPECT_EQ(window.open(), 0);
  EXPECT_EQ(window.open_bytes(), 0);
  EXPECT_EQ(window.sent_bytes(), 120);
  EXPECT_GT(window.busy().count(), 0);
}

TEST(SendWindowTest, ARunThatBeginsAgainHasSentNothing) {
  SendWindow window(PeerId(3));
  window.OnSend(100);
  window.OnTaken(100);
  window.Rewind();
  EXPECT_EQ(window.sent_bytes(), 0);
  EXPECT_EQ(window.busy().count(), 0);
}

}  // namespace
}  // namespace crossmesh
