#include "controller/store/testing/store_history.h"

#include "common/testing/status_matchers.h"

#include <string>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

class GoodHistory : public testing::TestWithParam<const char*> {};
class BadHistory : public testing::TestWithParam<const char*> {};

TEST_P(GoodHistory, IsLinearisable) {
  ASSERT_OK_AND_ASSIGN(const StoreHistory history, ParseStoreHistory(GetParam()));
  EXPECT_TRUE(IsLinearisable(history));
}

TEST_P(BadHistory, IsNot) {
  ASSERT_OK_AND_ASSIGN(const StoreHistory history, ParseStoreHistory(GetParam()));
  EXPECT_FALSE(IsLinearisable(history));
}

INSTANTIATE_TEST_SUITE_P(
    All, GoodHistory,
    testing::Values("0-1 get none", "0-1 put a =1; 2-3 get a@1",
                    "0-1 put a =1; 2-3 put b =2; 4-5 get b@2",
                    // A read at the same time sees either.
                    "0-9 put a =1; 1-2 get none", "0-9 put a =1; 1-2 get a@1",
                    "0-9 put a =1; 1-2 get none; 3-4 get a@1",
                    // Puts at the same time take effect in the order of their revisions.
                    "0-9 put a =2; 0-9 put b =1; 10-11 get a@2",
                    "0-9 put a =1; 0-9 put b =2; 1-2 get a@1; 3-4 get b@2",
                    "0-1 put a =1; 2-3 del =2; 4-5 get none",
                    "0-1 del =1; 2-3 get none; 4-5 put a =2; 6-7 get a@2",
                    "0-1 cas 0 a =1; 2-3 cas 1 b =2; 4-5 get b@2",
                    "0-1 put a =1; 2-3 cas 0 b =aborted; 4-5 get a@1",
                    // Of two compares at the same time one succeeds, whichever.
                    "0-1 put a =1; 2-9 cas 1 b =2; 2-9 cas 1 c =aborted; 10-11 get b@2",
                    "0-9 put a =1; 1-2 cas 1 b =2; 3-4 get b@2",
                    "0-1 put a =1; 2-3 del =2; 4-5 cas 0 b =3",
                    // What is unknown has happened or not, and may happen late.
                    "0-1 put a =?; 2-3 get none", "0-1 put a =?; 2-3 get a@1",
                    "0-1 put a =?; 2-3 get none; 4-5 get a@1",
                    "0-1 put a =1; 2-3 put b =?; 4-5 get a@1; 6-7 get b@7",
                    "0-1 put a =1; 2-3 del =?; 4-5 get a@1; 6-7 get none",
                    "0-1 put a =1; 2-3 cas 1 b =?; 4-5 get a@1",
                    "0-1 put a =1; 2-3 cas 1 b =?; 4-5 cas 1 c =aborted",
                    "0-1 put a =1; 2-3 cas 9 b =?; 4-5 get a@1",
                    "0-1 put a =?; 2-3 put b =?; 4-5 get a@2; 6-7 get b@3",
                    "0-1 put a =?; 2-3 cas 4 b =5; 4-5 get b@5",
                    // The same value again is another revision.
                    "0-1 put a =1; 2-3 put a =2; 4-5 get a@2"));

INSTANTIATE_TEST_SUITE_P(
    All, BadHistory,
    testing::Values(
        // Reads of what was never put, or is not there yet, or any more.
        "0-1 get a@1", "0-1 get a@1; 2-3 put a =1", "0-1 put a =1; 2-3 get none",
        "0-1 put a =1; 2-3 get b@1", "0-1 put a =1; 2-3 get a@2",
        "0-1 put a =1; 2-3 put b =2; 4-5 get a@1", "0-1 put a =1; 2-3 del =2; 4-5 get a@1",
        "0-1 put a =1; 2-3 get a@1; 4-5 get none",
        // Reads that go back in time.
        "0-9 put a =1; 1-2 get a@1; 3-4 get none",
        "0-1 put a =1; 2-9 put b =2; 3-4 get b@2; 5-6 get a@1",
        "0-9 put a =1; 0-9 put b =2; 1-2 get b@2; 3-4 get a@1",
        // Revisions that do not grow.
        "0-1 put a =2; 2-3 put b =1", "0-1 put a =1; 2-3 put b =1",
        "0-1 put a =2; 2-3 del =3; 4-5 put b =3", "0-9 put a =2; 0-9 put b =1; 10-11 get b@1",
        // Updates that are lost.
        "0-1 put a =1; 2-9 cas 1 b =2; 2-9 cas 1 c =3", "0-9 cas 0 a =1; 0-9 cas 0 b =2",
        // Compares that should have failed, or succeeded.
        "0-1 put a =1; 2-3 cas 2 b =3", "0-1 put a =1; 2-3 cas 0 b =2",
        "0-1 put a =1; 2-3 cas 1 b =aborted", "0-1 cas 0 a =aborted",
        "0-1 put a =1; 2-3 del =2; 4-5 cas 1 b =3",
        "0-1 put a =1; 2-3 del =2; 4-5 cas 0 b =aborted",
        // An aborted put that is seen; an unknown one that is seen and gone again, or seen as two.
        "0-1 put a =1; 2-3 cas 5 b =aborted; 4-5 get b@6",
        "0-1 put a =?; 2-3 get a@1; 4-5 get none", "0-1 put a =?; 2-3 get a@1; 4-5 get a@2",
        "0-1 put a =1; 2-3 put b =?; 4-5 get b@1", "2-3 put a =?; 0-1 get a@1"));

TEST(StoreHistoryTest, EachObjectIsLookedAtByItself) {
  ASSERT_OK_AND_ASSIGN(StoreHistory history, ParseStoreHistory("0-1 put a =1; 2-3 get a@1"));
  history[1].key = "other";
  EXPECT_FALSE(IsLinearisable(history));
}

}  // namespace
}  // namespace crossmesh
