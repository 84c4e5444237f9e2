#include "controller/operation/accusations.h"

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using Witnesses = std::vector<Accusations::Witness>;

Accusations::Witness Ended(const char* worker) { return {.worker = worker, .ended = true}; }
Accusations::Witness Silent(const char* worker) { return {.worker = worker}; }
Accusations::Witness Lacking(const char* worker) {
  return {.worker = worker, .ended = true, .lacks_bytes = true};
}

// Pairs of who accuses and who is accused.
Accusations Of(std::initializer_list<std::pair<const char*, const char*>> pairs) {
  Accusations accusations;
  for (const auto& [by, of] : pairs) accusations.Add(by, of);
  return accusations;
}

// "w0, says w1", or "none".
std::string Judged(const Accusations& accusations, const Witnesses& witnesses) {
  const auto verdict = accusations.Judge(witnesses);
  return verdict.has_value() ? absl::StrCat(verdict->guilty, ", says ", verdict->accuser) : "none";
}

TEST(AccusationsTest, NoneIsGuiltyWhileNoneIsAccused) {
  EXPECT_EQ(Judged(Of({}), {Silent("w0"), Lacking("w1")}), "none");
}

TEST(AccusationsTest, AllAreHeardThatAreNotAccused) {
  const Accusations accusations = Of({{"w0", "w1"}});
  EXPECT_TRUE(accusations.AllHeard({Ended("w0"), Silent("w1")}));
  EXPECT_TRUE(accusations.AllHeard({Ended("w0"), Ended("w1"), Ended("w2")}));
  EXPECT_FALSE(accusations.AllHeard({Ended("w0"), Silent("w1"), Silent("w2")}));
  EXPECT_FALSE(accusations.AllHeard({Silent("w0"), Silent("w1")}));
}

TEST(AccusationsTest, OfEqualSuspectsTheFirstOneThatWasAccusedIsGuilty) {
  EXPECT_EQ(Judged(Of({{"w0", "w1"}}), {Ended("w0"), Ended("w1")}), "w1, says w0");
  const Witnesses four = {Ended("w0"), Ended("w1"), Ended("w2"), Ended("w3")};
  EXPECT_EQ(Judged(Of({{"w2", "w3"}, {"w0", "w1"}}), four), "w3, says w2");
}

TEST(AccusationsTest, MoreBrokenLinksAreMoreSuspectThanSilence) {
  const Witnesses witnesses = {Ended("w0"), Silent("w1"), Ended("w2"), Ended("w3")};
  // That w2 is accused twice by one worker is one link; one that it accuses itself is another.
  EXPECT_EQ(Judged(Of({{"w0", "w1"}, {"w3", "w2"}, {"w3", "w2"}}), witnesses), "w1, says w0");
  EXPECT_EQ(Judged(Of({{"w0", "w1"}, {"w3", "w2"}, {"w2", "w0"}}), witnesses), "w0, says w2");
  EXPECT_EQ(Judged(Of({{"w0", "w2"}, {"w3", "w2"}, {"w0", "w1"}}), witnesses), "w2, says w0");
}

TEST(AccusationsTest, OneThatHasSaidNothingIsMoreSuspectThanOneThatLacksBytes) {
  EXPECT_EQ(Judged(Of({{"w0", "w1"}}), {Silent("w0"), Ended("w1")}), "w0, says w1");
  EXPECT_EQ(Judged(Of({{"w0", "w1"}}), {Silent("w0"), Lacking("w1")}), "w0, says w1");
  EXPECT_EQ(Judged(Of({{"w0", "w1"}}), {Lacking("w0"), Silent("w1")}), "w1, says w0");
  EXPECT_EQ(Judged(Of({{"w0", "w1"}}), {Lacking("w0"), Ended("w1")}), "w0, says w1");
}

TEST(AccusationsTest, OneThatTakesNoPartIsSilent) {
  EXPECT_EQ(Judged(Of({{"strange", "w1"}}), {Lacking("w1")}), "strange, says w1");
  EXPECT_EQ(Judged(Of({{"w1", "strange"}}), {Lacking("w1")}), "strange, says w1");
}

TEST(AccusationsTest, OneThatNoneAccusesMayBeRightWhileOneOfThoseItAccusesIsSilent) {
  const Accusations accusations = Of({{"w0", "w1"}, {"w0", "w2"}});
  EXPECT_EQ(Judged(accusations, {Ended("w0"), Ended("w1"), Silent("w2")}), "none");
  EXPECT_EQ(Judged(accusations, {Ended("w0"), Ended("w1"), Ended("w2")}), "w0, says w1");
  // It must have said its word.
  EXPECT_EQ(Judged(accusations, {Silent("w0"), Ended("w1"), Silent("w2")}), "w0, says w1");
  // What others accuse each other of does not matter.
  EXPECT_EQ(Judged(Of({{"w0", "w1"}, {"w0", "w2"}, {"w3", "w4"}}),
                   {Ended("w0"), Ended("w1"), Ended("w2"), Ended("w3"), Silent("w4")}),
            "w0, says w1");
  EXPECT_EQ(Judged(Of({{"w0", "w1"}, {"w0", "w2"}, {"w1", "w0"}}),
                   {Ended("w0"), Ended("w1"), Silent("w2")}),
            "w0, says w1");
}

TEST(AccusationsTest, TwoThatHaveSpokenAndHaveNoOtherBrokenLinkAreForgiven) {
  const Witnesses witnesses = {Ended("w0"), Lacking("w1"), Ended("w2"), Silent("w3"), Ended("w4")};
  const auto judged = [&](std::initializer_list<std::pair<const char*, const char*>> pairs) {
    Accusations accusations = Of(pairs);
    accusations.ForgiveEndsOfLinks(witnesses);
    return Judged(accusations, witnesses);
  };
  EXPECT_EQ(judged({{"w0", "w1"}}), "none");
  EXPECT_EQ(judged({{"w0", "w1"}, {"w1", "w0"}, {"w0", "w1"}}), "none");
  // One that is silent may be gone, and one with two broken links be cut off.
  EXPECT_EQ(judged({{"w0", "w3"}}), "w3, says w0");
  EXPECT_EQ(judged({{"w0", "w1"}, {"w1", "w0"}, {"w2", "w1"}}), "w1, says w0");
  EXPECT_EQ(judged({{"w0", "w1"}, {"w2", "w3"}}), "w3, says w2");
  EXPECT_EQ(judged({{"w0", "strange"}}), "strange, says w0");
}

TEST(AccusationsTest, OneThatIsSilentMayYetSpeakOfTheSameLink) {
  const Witnesses witnesses = {Ended("w0"), Ended("w1"), Silent("w2"), Silent("w3")};
  EXPECT_TRUE(Of({{"w0", "w2"}}).MayForgiveMore(witnesses));
  EXPECT_TRUE(Of({{"w0", "w1"}, {"w0", "w1"}, {"w2", "w3"}}).MayForgiveMore(witnesses));
  EXPECT_FALSE(Of({{"w0", "w1"}}).MayForgiveMore(witnesses));
  EXPECT_FALSE(Of({{"w0", "w2"}, {"w1", "w2"}}).MayForgiveMore(witnesses));
  EXPECT_FALSE(Of({{"w0", "w2"}, {"w0", "w3"}}).MayForgiveMore(witnesses));
}

TEST(AccusationsTest, OneThatIsForgottenNeitherAccusesNorIsAccused) {
  const Witnesses witnesses = {Ended("w0"), Ended("w1"), Ended("w2")};
  for (const char* lost : {"w0", "w1"}) {
    Accusations accusations = Of({{"w0", "w1"}});
    accusations.Forget("w2");
    EXPECT_EQ(Judged(accusations, witnesses), "w1, says w0");
    accusations.Forget(lost);
    EXPECT_EQ(Judged(accusations, witnesses), "none");
  }
}

}  // namespace
}  // namespace crossmesh
