#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// Who leads, as the leader's key has it.
struct LeaderEntry {
  std::string address;      // at which clients and workers reach it
  std::string incarnation;  // that no other candidate ever has, nor this one after a restart
  int64_t lease = 0;        // of the key; the entry is gone when it ends

  friend bool operator==(const LeaderEntry&, const LeaderEntry&) = default;
};

// What a candidate reads before it acts, at one moment.
struct ElectionReading {
  std::optional<LeaderEntry> leader;
  uint64_t epoch = 0;          // that is stored
  int64_t epoch_revision = 0;  // at which it was stored
  int64_t revision = 0;        // of all
};

// Events. All times are of one clock that never goes back.
struct ElectionRead {
  ElectionReading reading;
  uint64_t clock_epoch = 0;  // the epoch that the wall clock gives
};
struct LeaseGranted {
  int64_t lease = 0;
  absl::Duration asked_at;
};
struct CampaignWon {
  int64_t fence = 0;  // the revision at which the leader's key was made
};
struct CampaignLost {};  // nothing was written
struct LeaseRenewed {
  int64_t lease = 0;
  absl::Duration asked_at;
};
struct LeaseExpired {  // found when it was to be renewed
  int64_t lease = 0;
};
struct RenewalFailed {
  int64_t lease = 0;
};
struct LeaseRevoked {};  // or it was gone
struct StepFailed {      // what became of it is not known
  absl::Status status;
};
struct LeaderGone {};  // the key was deleted, or the watch that would tell has ended
struct TimeHasPassed {};
struct ResignRequested {};
using ElectionEvent = std::variant<ElectionRead, LeaseGranted, CampaignWon, CampaignLost,
                                   LeaseRenewed, LeaseExpired, RenewalFailed, LeaseRevoked,
                                   StepFailed, LeaderGone, TimeHasPassed, ResignRequested>;

// Actions, to be carried out in order. Those that say so are steps: each is answered by one event,
// and there is no other before.
struct ReadElection {};  // a step: then ElectionRead or StepFailed
struct ObtainLease {};   // a step: then LeaseGranted or StepFailed
struct Campaign {        // a step: then CampaignWon, CampaignLost or StepFailed
  int64_t lease = 0;
  uint64_t epoch = 0;          // to be stored, in the same transaction as the leader's key, and
  int64_t epoch_revision = 0;  // only if none was stored since
};
struct RenewLease {  // then LeaseRenewed, LeaseExpired or RenewalFailed
  int64_t lease = 0;
};
struct RevokeLease {  // a step: then LeaseRevoked or StepFailed
  int64_t lease = 0;
};
struct WatchLeader {  // for LeaderGone: from this revision on; at most one watch at a time
  int64_t from_revision = 0;
};
struct StopWatching {};
struct WakeAt {  // for TimeHasPassed; replaces the one before
  absl::Duration time;
};
struct TellLeading {
  uint64_t epoch = 0;
  int64_t fence = 0;
};
struct TellNotLeading {
  std::optional<std::string> leader;  // the address of the one that leads
  absl::Status why;                   // OK: another one leads

  friend bool operator==(const TellNotLeading&, const TellNotLeading&) = default;
};
struct TellResigned {};  // the last
using ElectionAction =
    std::variant<ReadElection, ObtainLease, Campaign, RenewLease, RevokeLease, WatchLeader,
                 StopWatching, WakeAt, TellLeading, TellNotLeading, TellResigned>;

// One candidate's share in electing who leads: events in, actions out. Pure: no clock, no I/O, no
// randomness. Thread-compatible; its owner feeds it one event at a time.
//
//   reading --there is no leader--> granting --> campaigning --> leading
//      ^ \--there is--> standing by --it is gone--> reading
//      \--- releasing <--- whatever failed while there was a lease
//
// A term lasts at most two thirds of the lease's time after the last renewal that succeeded was
// asked for, by this machine's clock: it ends before the lease can, however long an answer takes or
// the process is stopped. A lease that is not needed any more is revoked before anything else is
// tried, so that nobody waits for its end; each term has a lease and an epoch of its own.
class ElectionMachine {
 public:
  struct Options {
    std::string incarnation;  // of this candidate
    absl::Duration lease_time = absl::Seconds(5);
    // Before what failed is tried again.
    absl::Duration pause = absl::Milliseconds(200);
  };

  explicit ElectionMachine(Options options) : options_(std::move(options)) {}

  // The first, at `now`.
  std::vector<ElectionAction> Start(absl::Duration now);
  // What to do now. An event that does not fit gives no action: answers come late.
  std::vector<ElectionAction> Handle(const ElectionEvent& event, absl::Duration now);

  // When the term ends, were no more events to come; nothing outside of a term.
  std::optional<absl::Duration> leads_until() const;

 private:
  enum class State : uint8_t {
    kReading,
    kGranting,
    kCampaigning,
    kLeading,
    kStandingBy,
    kReleasing,
    kPausing,  // then releases, or reads
    kResigned,
  };

  void On(const ElectionRead& event);
  void On(const LeaseGranted& event);
  void On(const CampaignWon& event);
  void On(const CampaignLost& event);
  void On(const LeaseRenewed& event);
  void On(const LeaseExpired& event);
  void On(const RenewalFailed& event);
  void On(const LeaseRevoked& event);
  void On(const StepFailed& event);
  void On(const LeaderGone& event);
  void On(const TimeHasPassed& event);
  void On(const ResignRequested& event);

  void Do(ElectionAction action) { actions_.push_back(std::move(action)); }
  absl::Duration term_end() const;
  void Tell(const std::optional<std::string>& leader, const absl::Status& why);
  void Read();
  void StandBy(const ElectionReading& reading);
  void Release();
  void Pause();
  void Resign();
  void WakeForTerm();

  const Options options_;
  State state_ = State::kReading;
  std::vector<ElectionAction> actions_;
  absl::Duration now_;

  int64_t lease_ = 0;         // that this candidate has, or may have; 0: none
  absl::Duration asked_at_;   // when the grant or the last renewal that succeeded was asked for
  absl::Duration next_step_;  // when to renew, to read again, or to go on after a pause
  uint64_t epoch_ = 0;        // of the campaign, or the term
  int64_t epoch_revision_ = 0;
  bool renewing_ = false;
  bool resigning_ = false;

  // The newest that was read.
  uint64_t seen_epoch_ = 0;
  int64_t seen_revision_ = 0;
  std::optional<TellNotLeading> told_;  // last, unless that was TellLeading
};

}  // namespace crossmesh
