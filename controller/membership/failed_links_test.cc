#include "controller/membership/failed_links.h"

#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::Duration kBegin = absl::Hours(3);

std::vector<std::string> LinksAt(const FailedLinks& links, absl::Duration now) {
  std::vector<std::string> names;
  for (const FailedLinks::Failure& failure : links.Now(now)) {
    names.push_back(absl::StrCat(failure.worker, "-", failure.peer, ": ", failure.reason));
  }
  return names;
}

TEST(FailedLinksTest, BothEndsNameOneLink) {
  FailedLinks links;
  links.Fail("b", "a", "no bytes", kBegin);
  links.Fail("a", "b", "silent", kBegin + absl::Seconds(1));
  EXPECT_THAT(LinksAt(links, kBegin), ElementsAre("a-b: no bytes"));
}

TEST(FailedLinksTest, ALinkIsTriedAgainAfterAMinuteAndLaterEachTimeThatItFails) {
  FailedLinks links;
  absl::Duration now = kBegin;
  for (const int minutes : {1, 2, 4, 8, 16, 16}) {
    links.Fail("a", "b", "no bytes", now);
    now += absl::Minutes(minutes);
    EXPECT_THAT(LinksAt(links, now - absl::Milliseconds(1)), ElementsAre("a-b: no bytes"));
    EXPECT_THAT(LinksAt(links, now), IsEmpty());
  }
  links.Work("b", "a");
  links.Fail("a", "b", "no bytes", now);
  EXPECT_THAT(LinksAt(links, now + absl::Minutes(1)), IsEmpty());
}

TEST(FailedLinksTest, ALinkThatWorksIsForgottenAtOnceAndSoAreThoseOfAWorkerThatIsGone) {
  FailedLinks links;
  links.Fail("a", "b", "x", kBegin);
  links.Fail("b", "c", "x", kBegin);
  links.Fail("c", "d", "x", kBegin);
  links.Work("b", "a");
  EXPECT_THAT(LinksAt(links, kBegin), ElementsAre("b-c: x", "c-d: x"));
  links.Forget("b");
  EXPECT_THAT(LinksAt(links, kBegin), ElementsAre("c-d: x"));
}

TEST(FailedLinksTest, ThereIsRoomForSoMany) {
  FailedLinks links;
  for (size_t i = 0; i < FailedLinks::kLinksMax + 7; ++i) {
    links.Fail("a", absl::StrCat("w", i), "x", kBegin);
  }
  EXPECT_EQ(links.Now(kBegin).size(), FailedLinks::kLinksMax);
}

}  // namespace
}  // namespace crossmesh
