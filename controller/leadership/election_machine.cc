#include "controller/leadership/election_machine.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

namespace crossmesh {

std::vector<ElectionAction> ElectionMachine::Start(absl::Duration now) {
  now_ = now;
  Read();
  return std::exchange(actions_, {});
}

std::vector<ElectionAction> ElectionMachine::Handle(const ElectionEvent& event,
                                                    absl::Duration now) {
  now_ = now;
  // Whatever comes, it comes too late for a term that is over.
  if (state_ == State::kLeading && now_ >= term_end()) {
    Tell(std::nullopt,
         absl::UnavailableError(absl::StrCat("the lease was not renewed for ",
                                             absl::FormatDuration(now_ - asked_at_))));
    Release();
  }
  std::visit([this](const auto& each) { On(each); }, event);
  return std::exchange(actions_, {});
}

std::optional<absl::Duration> ElectionMachine::leads_until() const {
  if (state_ != State::kLeading) return std::nullopt;
  return term_end();
}

absl::Duration ElectionMachine::term_end() const { return asked_at_ + options_.lease_time * 2 / 3; }

void ElectionMachine::On(const ElectionRead& event) {
  if (state_ != State::kReading) return;
  const ElectionReading& reading = event.reading;
  if (reading.revision < seen_revision_ || reading.epoch < seen_epoch_) {
    Tell(std::nullopt,
         absl::FailedPreconditionError(absl::StrCat(
             "etcd was set back: expected revision ", seen_revision_, " and epoch ", seen_epoch_,
             " or later, found ", reading.revision, " and ", reading.epoch,
             "; restore a newer backup, or accept the loss by starting all controllers again")));
    return Pause();
  }
  seen_revision_ = reading.revision;
  seen_epoch_ = reading.epoch;
  const bool is_mine =
      reading.leader.has_value() && reading.leader->incarnation == options_.incarnation;
  if (is_mine) {
    lease_ = reading.leader->lease;
    return Release();
  }
  if (resigning_) return Resign();
  if (reading.leader.has_value()) return StandBy(reading);
  epoch_ = std::max(reading.epoch + 1, event.clock_epoch);
  epoch_revision_ = reading.epoch_revision;
  state_ = State::kGranting;
  Do(ObtainLease{});
}

void ElectionMachine::On(const LeaseGranted& event) {
  if (state_ != State::kGranting) return;
  lease_ = event.lease;
  asked_at_ = event.asked_at;
  if (resigning_) return Release();
  state_ = State::kCampaigning;
  Do(Campaign{.lease = lease_, .epoch = epoch_, .epoch_revision = epoch_revision_});
}

void ElectionMachine::On(const CampaignWon& event) {
  if (state_ != State::kCampaigning) return;
  seen_epoch_ = epoch_;
  if (resigning_ || now_ >= term_end()) return Release();
  state_ = State::kLeading;
  renewing_ = false;
  told_.reset();
  Do(TellLeading{.epoch = epoch_, .fence = event.fence});
  next_step_ = asked_at_ + options_.lease_time / 3;
  WakeForTerm();
}

void ElectionMachine::On(const CampaignLost&) {
  if (state_ == State::kCampaigning) Release();
}

void ElectionMachine::On(const LeaseRenewed& event) {
  if (state_ != State::kLeading || event.lease != lease_) return;
  renewing_ = false;
  asked_at_ = event.asked_at;
  next_step_ = asked_at_ + options_.lease_time / 3;
  WakeForTerm();
}

void ElectionMachine::On(const LeaseExpired& event) {
  if (state_ != State::kLeading || event.lease != lease_) return;
  lease_ = 0;
  Tell(std::nullopt, absl::UnavailableError("the lease has ended"));
  Read();
}

void ElectionMachine::On(const RenewalFailed& event) {
  if (state_ != State::kLeading || event.lease != lease_) return;
  renewing_ = false;
  next_step_ = now_ + options_.pause;
  WakeForTerm();
}

void ElectionMachine::On(const LeaseRevoked&) {
  if (state_ != State::kReleasing) return;
  lease_ = 0;
  if (resigning_) return Resign();
  Read();
}

void ElectionMachine::On(const StepFailed& event) {
  const bool is_step = state_ == State::kReading || state_ == State::kGranting ||
                       state_ == State::kCampaigning || state_ == State::kReleasing;
  if (!is_step) return;
  // The lease ends by itself when nothing can be said to etcd.
  if (resigning_) return Resign();
  Tell(std::nullopt, event.status);
  Pause();
}

void ElectionMachine::On(const LeaderGone&) {
  if (state_ != State::kStandingBy) return;
  Do(StopWatching{});
  Read();
}

void ElectionMachine::On(const TimeHasPassed&) {
  if (now_ < next_step_) {
    // It came early, or the end of the term was what it was for.
    if (state_ == State::kLeading) WakeForTerm();
    return;
  }
  if (state_ == State::kPausing) {
    if (lease_ != 0) return Release();
    return Read();
  }
  if (state_ == State::kStandingBy) {
    // A watch that is silent could be dead.
    Do(StopWatching{});
    return Read();
  }
  if (state_ != State::kLeading || renewing_) return;
  renewing_ = true;
  Do(RenewLease{lease_});
  Do(WakeAt{term_end()});
}

void ElectionMachine::On(const ResignRequested&) {
  if (resigning_) return;
  resigning_ = true;
  if (state_ == State::kLeading) {
    Tell(std::nullopt, absl::UnavailableError("it has resigned"));
    return Release();
  }
  if (state_ == State::kStandingBy) {
    Do(StopWatching{});
    return Resign();
  }
  if (state_ != State::kPausing) return;  // when the step is answered
  if (lease_ != 0) return Release();
  Resign();
}

void ElectionMachine::Tell(const std::optional<std::string>& leader, const absl::Status& why) {
  TellNotLeading news{.leader = leader, .why = why};
  if (told_ == news) return;
  told_ = news;
  Do(std::move(news));
}

void ElectionMachine::Read() {
  state_ = State::kReading;
  Do(ReadElection{});
}

void ElectionMachine::StandBy(const ElectionReading& reading) {
  state_ = State::kStandingBy;
  Tell(reading.leader->address, absl::OkStatus());
  Do(WatchLeader{reading.revision + 1});
  next_step_ = now_ + options_.lease_time;
  Do(WakeAt{next_step_});
}

void ElectionMachine::Release() {
  state_ = State::kReleasing;
  Do(RevokeLease{lease_});
}

void ElectionMachine::Pause() {
  state_ = State::kPausing;
  next_step_ = now_ + options_.pause;
  Do(WakeAt{next_step_});
}

void ElectionMachine::Resign() {
  state_ = State::kResigned;
  Do(TellResigned{});
}

void ElectionMachine::WakeForTerm() { Do(WakeAt{std::min(next_step_, term_end())}); }

}  // namespace crossmesh
