#include "controller/membership/name_guard.h"

#include "common/testing/status_matchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const NameGuard::Process kFirst = {1, "a:1"};
const NameGuard::Process kSecond = {2, "b:1"};
const NameGuard::Process kThird = {3, "a:1"};

TEST(NameGuardTest, ProcessesThatFollowEachOtherAreAdmitted) {
  NameGuard guard;
  absl::Duration now;
  EXPECT_OK(guard.Admit("w", kFirst, std::nullopt, now));
  EXPECT_OK(guard.Admit("w", kFirst, kFirst, now));
  EXPECT_OK(guard.Admit("w", kSecond, kFirst, now += absl::Seconds(1)));
  EXPECT_OK(guard.Admit("w", kThird, kSecond, now += absl::Seconds(1)));
}

TEST(NameGuardTest, OneThatComesBackAtOnceIsAFightOfWhichBothAreNamed) {
  NameGuard guard;
  ASSERT_OK(guard.Admit("w", kSecond, kFirst, absl::ZeroDuration()));
  EXPECT_THAT(guard.Admit("w", kFirst, kSecond, NameGuard::kTurn),
              StatusIs(absl::StatusCode::kAlreadyExists, AllOf(HasSubstr("incarnation 1 at a:1"),
                                                               HasSubstr("incarnation 2 at b:1"))));
  // Nobody has it then, whoever comes; other names are free.
  const absl::Duration end = NameGuard::kTurn + NameGuard::kQuarantine;
  EXPECT_THAT(guard.Admit("w", kThird, kSecond, end - absl::Seconds(1)),
              StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_TRUE(guard.WhyQuarantined("w", end - absl::Seconds(1)).has_value());
  EXPECT_OK(guard.Admit("v", kThird, std::nullopt, end - absl::Seconds(1)));
  EXPECT_FALSE(guard.WhyQuarantined("w", end).has_value());
  EXPECT_OK(guard.Admit("w", kThird, kSecond, end));
}

TEST(NameGuardTest, OneThatComesBackMuchLaterIsAdmitted) {
  NameGuard guard;
  ASSERT_OK(guard.Admit("w", kSecond, kFirst, absl::ZeroDuration()));
  EXPECT_OK(guard.Admit("w", kFirst, kSecond, NameGuard::kTurn + absl::Seconds(1)));
}

TEST(NameGuardTest, AnEvictedProcessIsKeptOutAndForgottenWithTheName) {
  NameGuard guard;
  guard.Evicted("w", kFirst);
  EXPECT_THAT(guard.Admit("w", kFirst, kFirst, absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_OK(guard.Admit("w", kSecond, kFirst, absl::ZeroDuration()));
  guard.Forget("w");
  EXPECT_OK(guard.Admit("w", kFirst, std::nullopt, absl::ZeroDuration()));
}

}  // namespace
}  // namespace crossmesh
