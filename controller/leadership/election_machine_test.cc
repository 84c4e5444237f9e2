#include "controller/leadership/election_machine.h"

#include "common/testing/status_matchers.h"

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// An action in a line.
struct ActionText {
  std::string operator()(const ReadElection&) const { return "read"; }
  std::string operator()(const ObtainLease&) const { return "grant"; }
  std::string operator()(const Campaign& campaign) const {
    return absl::StrCat("campaign ", campaign.lease, " epoch ", campaign.epoch, " after ",
                        campaign.epoch_revision);
  }
  std::string operator()(const RenewLease& renew) const {
    return absl::StrCat("renew ", renew.lease);
  }
  std::string operator()(const RevokeLease& revoke) const {
    return absl::StrCat("revoke ", revoke.lease);
  }
  std::string operator()(const WatchLeader& watch) const {
    return absl::StrCat("watch from ", watch.from_revision);
  }
  std::string operator()(const StopWatching&) const { return "stop watching"; }
  std::string operator()(const WakeAt& wake) const {
    return absl::StrCat("wake at ", absl::FormatDuration(wake.time));
  }
  std::string operator()(const TellLeading& leading) const {
    return absl::StrCat("leading ", leading.epoch, " fence ", leading.fence);
  }
  std::string operator()(const TellNotLeading& told) const {
    return absl::StrCat("not leading, ", told.leader.value_or("nobody"), " ", told.why.ToString());
  }
  std::string operator()(const TellResigned&) const { return "resigned"; }
};

std::vector<std::string> Texts(const std::vector<ElectionAction>& actions) {
  std::vector<std::string> texts;
  for (const ElectionAction& action : actions) texts.push_back(std::visit(ActionText(), action));
  return texts;
}

absl::Duration At(double seconds) { return absl::Seconds(seconds); }

class ElectionMachineTest : public testing::Test {
 protected:
  std::vector<std::string> Handle(double seconds, const ElectionEvent& event) {
    return Texts(machine_.Handle(event, At(seconds)));
  }
  static ElectionRead Nobody(uint64_t epoch = 7, int64_t revision = 20) {
    return {.reading = {.epoch = epoch, .epoch_revision = 12, .revision = revision}};
  }
  static ElectionRead LedBy(const std::string& incarnation) {
    ElectionRead read = Nobody();
    read.reading.leader = LeaderEntry{.address = "other:1", .incarnation = incarnation, .lease = 5};
    return read;
  }
  // Leads from second 0 on, with lease 9, epoch 8 and fence 21.
  void Lead() {
    EXPECT_THAT(Texts(machine_.Start(At(0))), ElementsAre("read"));
    EXPECT_THAT(Handle(0, Nobody()), ElementsAre("grant"));
    EXPECT_THAT(Handle(0, LeaseGranted{.lease = 9, .asked_at = At(0)}),
                ElementsAre("campaign 9 epoch 8 after 12"));
    EXPECT_THAT(Handle(0, CampaignWon{21}), ElementsAre("leading 8 fence 21", "wake at 1s"));
  }

  ElectionMachine machine_{
      {.incarnation = "me", .lease_time = At(3), .pause = absl::Milliseconds(200)}};
};

TEST_F(ElectionMachineTest, WhereNobodyLeadsACandidateCampaignsAndLeads) {
  Lead();
  EXPECT_EQ(machine_.leads_until(), At(2));
}

TEST_F(ElectionMachineTest, TheEpochIsThatOfTheClockWhenThatIsLater) {
  machine_.Start(At(0));
  ElectionRead read = Nobody();
  read.clock_epoch = 1000;
  Handle(0, read);
  EXPECT_THAT(Handle(0, LeaseGranted{.lease = 9, .asked_at = At(0)}),
              ElementsAre("campaign 9 epoch 1000 after 12"));
}

TEST_F(ElectionMachineTest, ALeaseIsRenewedAfterAThirdOfItsTimeFromWhenItWasAskedFor) {
  Lead();
  EXPECT_THAT(Handle(1, TimeHasPassed{}), ElementsAre("renew 9", "wake at 2s"));
  EXPECT_THAT(Handle(1.5, LeaseRenewed{.lease = 9, .asked_at = At(1)}), ElementsAre("wake at 2s"));
  EXPECT_EQ(machine_.leads_until(), At(3));
}

TEST_F(ElectionMachineTest, ARenewalThatFailedIsTriedAgainSoon) {
  Lead();
  Handle(1, TimeHasPassed{});
  EXPECT_THAT(Handle(1.4, RenewalFailed{9}), ElementsAre("wake at 1.6s"));
  EXPECT_THAT(Handle(1.6, TimeHasPassed{}), ElementsAre("renew 9", "wake at 2s"));
  EXPECT_THAT(Handle(1.9, RenewalFailed{9}), ElementsAre("wake at 2s"));
}

TEST_F(ElectionMachineTest, ATermEndsAfterTwoThirdsOfTheLeasesTimeAndTheLeaseIsGivenUp) {
  Lead();
  Handle(1, TimeHasPassed{});
  EXPECT_EQ(machine_.leads_until(), At(2));
  EXPECT_THAT(
      Handle(2, TimeHasPassed{}),
      ElementsAre("not leading, nobody UNAVAILABLE: the lease was not renewed for 2s", "revoke 9"));
  EXPECT_EQ(machine_.leads_until(), std::nullopt);
  EXPECT_THAT(Handle(2.1, LeaseRenewed{.lease = 9, .asked_at = At(1)}), IsEmpty());
  EXPECT_THAT(Handle(2.2, LeaseRevoked{}), ElementsAre("read"));
}

TEST_F(ElectionMachineTest, AnAnswerThatComesAfterTheTermDoesNotSaveIt) {
  Lead();
  Handle(1, TimeHasPassed{});
  EXPECT_THAT(Handle(9, LeaseRenewed{.lease = 9, .asked_at = At(1)}),
              ElementsAre(HasSubstr("not leading"), "revoke 9"));
}

TEST_F(ElectionMachineTest, ACampaignThatWasWonTooLateIsGivenUp) {
  machine_.Start(At(0));
  Handle(0, Nobody());
  Handle(0, LeaseGranted{.lease = 9, .asked_at = At(0)});
  EXPECT_THAT(Handle(2, CampaignWon{21}), ElementsAre("revoke 9"));
}

TEST_F(ElectionMachineTest, ACampaignOfUnknownOutcomeIsUndoneFirst) {
  machine_.Start(At(0));
  Handle(0, Nobody());
  Handle(0, LeaseGranted{.lease = 9, .asked_at = At(0)});
  EXPECT_THAT(Handle(1, StepFailed{absl::UnavailableError("away")}),
              ElementsAre("not leading, nobody UNAVAILABLE: away", "wake at 1.2s"));
  EXPECT_THAT(Handle(1.2, TimeHasPassed{}), ElementsAre("revoke 9"));
  EXPECT_THAT(Handle(1.3, StepFailed{absl::UnavailableError("away")}), ElementsAre("wake at 1.5s"));
  EXPECT_THAT(Handle(1.5, TimeHasPassed{}), ElementsAre("revoke 9"));
  EXPECT_THAT(Handle(1.6, LeaseRevoked{}), ElementsAre("read"));
}

TEST_F(ElectionMachineTest, WhereAnotherOneLeadsACandidateStandsByUntilThatIsGone) {
  machine_.Start(At(0));
  EXPECT_THAT(Handle(0, LedBy("other")),
              ElementsAre("not leading, other:1 OK", "watch from 21", "wake at 3s"));
  EXPECT_THAT(Handle(2, LeaderGone{}), ElementsAre("stop watching", "read"));
  EXPECT_THAT(Handle(2, Nobody()), ElementsAre("grant"));
}

TEST_F(ElectionMachineTest, ACandidateThatStandsByLooksForItselfInCaseTheWatchIsDead) {
  machine_.Start(At(0));
  Handle(0, LedBy("other"));
  EXPECT_THAT(Handle(3, TimeHasPassed{}), ElementsAre("stop watching", "read"));
  EXPECT_THAT(Handle(3, LedBy("other")), ElementsAre("watch from 21", "wake at 6s"));
}

TEST_F(ElectionMachineTest, AKeyOfItsOwnThatACandidateKnowsNothingOfIsRemoved) {
  machine_.Start(At(0));
  EXPECT_THAT(Handle(0, LedBy("me")), ElementsAre("revoke 5"));
  EXPECT_THAT(Handle(0, LeaseRevoked{}), ElementsAre("read"));
}

TEST_F(ElectionMachineTest, ALeaseThatWasEndedByOthersEndsTheTerm) {
  Lead();
  Handle(1, TimeHasPassed{});
  EXPECT_THAT(Handle(1.1, LeaseExpired{9}),
              ElementsAre("not leading, nobody UNAVAILABLE: the lease has ended", "read"));
}

TEST_F(ElectionMachineTest, ALeaderThatResignsSaysSoBeforeItLetsOthersLead) {
  Lead();
  EXPECT_THAT(Handle(1, ResignRequested{}),
              ElementsAre("not leading, nobody UNAVAILABLE: it has resigned", "revoke 9"));
  EXPECT_THAT(Handle(1, LeaseRevoked{}), ElementsAre("resigned"));
  EXPECT_THAT(Handle(2, TimeHasPassed{}), IsEmpty());
}

TEST_F(ElectionMachineTest, ACandidateResignsInEveryState) {
  EXPECT_THAT(Texts(machine_.Start(At(0))), ElementsAre("read"));
  EXPECT_THAT(Handle(0, ResignRequested{}), IsEmpty());
  EXPECT_THAT(Handle(0, Nobody()), ElementsAre("resigned"));

  ElectionMachine away({.incarnation = "me"});
  away.Start(At(0));
  away.Handle(StepFailed{absl::UnavailableError("away")}, At(0));
  EXPECT_THAT(Texts(away.Handle(ResignRequested{}, At(0))), ElementsAre("resigned"));

  ElectionMachine standing_by({.incarnation = "me"});
  standing_by.Start(At(0));
  standing_by.Handle(LedBy("other"), At(0));
  EXPECT_THAT(Texts(standing_by.Handle(ResignRequested{}, At(0))),
              ElementsAre("stop watching", "resigned"));

  ElectionMachine granting({.incarnation = "me"});
  granting.Start(At(0));
  granting.Handle(Nobody(), At(0));
  granting.Handle(ResignRequested{}, At(0));
  EXPECT_THAT(Texts(granting.Handle(LeaseGranted{.lease = 9}, At(0))), ElementsAre("revoke 9"));
  EXPECT_THAT(Texts(granting.Handle(StepFailed{absl::UnavailableError("away")}, At(0))),
              ElementsAre("resigned"));
}

TEST_F(ElectionMachineTest, AnEtcdThatIsSetBackIsRefusedUntilItIsNot) {
  machine_.Start(At(0));
  Handle(0, LedBy("other"));
  Handle(1, LeaderGone{});
  EXPECT_THAT(Handle(1, Nobody(/*epoch=*/7, /*revision=*/19)),
              ElementsAre(HasSubstr("FAILED_PRECONDITION: etcd was set back"), "wake at 1.2s"));
  EXPECT_THAT(Handle(1.2, TimeHasPassed{}), ElementsAre("read"));
  EXPECT_THAT(Handle(1.2, Nobody(/*epoch=*/6, /*revision=*/30)),
              ElementsAre(HasSubstr("epoch 7 or later, found 30 and 6"), "wake at 1.4s"));
  Handle(1.4, TimeHasPassed{});
  EXPECT_THAT(Handle(1.4, Nobody()), ElementsAre("grant"));
}

}  // namespace
}  // namespace crossmesh
