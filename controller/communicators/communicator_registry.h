#pragma once

#include "common/communicators/communicator_key.h"
#include "common/communicators/preflight_report.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Events, in the order in which they happened.
struct CommunicatorWanted {  // by a user, such as an operation
  std::string user;
  CommunicatorKey key;
};
struct CommunicatorReleased {  // all that the user did with it is done; or it waits no longer
  std::string user;
  CommunicatorKey key;
};
struct PreflightsCollected {
  CommunicatorKey key;
  std::vector<PreflightReport> reports;  // of all ranks
};
struct IdMinted {
  CommunicatorKey key;
  std::string id;
};
struct RankReady {
  CommunicatorKey key;
  RankName rank;
  int64_t bytes = 0;  // of the GPU's memory, that it took
};
// It refused an order, could not carry it out, or found its communicator broken.
struct RankFailed {
  CommunicatorKey key;
  RankName rank;
  absl::Status status;
};
struct RankGone {  // it holds nothing of the communicator, or no longer
  CommunicatorKey key;
  RankName rank;
};
struct ProcessLost {  // it has ended, or its worker was lost and may be back with it
  RankName rank;
  absl::Status status;
};
using CommunicatorEvent =
    std::variant<CommunicatorWanted, CommunicatorReleased, PreflightsCollected, IdMinted, RankReady,
                 RankFailed, RankGone, ProcessLost>;

// Actions, to be carried out in order.
struct CollectPreflights {  // then PreflightsCollected, or RankFailed
  CommunicatorKey key;
};
struct MintId {  // at rank 0; then IdMinted, or RankFailed
  CommunicatorKey key;
};
struct CreateCommunicator {  // at all ranks; then RankReady, or RankFailed, of each
  CommunicatorKey key;
  uint64_t ticket = 0;
  std::string id;
};
struct DestroyCommunicator {  // at all ranks; then RankGone of each
  CommunicatorKey key;
  uint64_t ticket = 0;
};
struct StopCommunicator {  // at these ranks, in any state; then RankGone of each
  CommunicatorKey key;
  std::vector<RankName> ranks;
  absl::Status cause;
};
struct GrantLease {
  std::string user;
  CommunicatorKey key;
};
struct EndLease {  // that was wanted or granted
  std::string user;
  CommunicatorKey key;
  absl::Status cause;
};
using CommunicatorAction =
    std::variant<CollectPreflights, MintId, CreateCommunicator, DestroyCommunicator,
                 StopCommunicator, GrantLease, EndLease>;

// Which communicators there are in the cluster, and in which order they are made and destroyed:
// events in, actions out. Pure: no clock, no I/O, no threads. Thread-compatible; its owner
// feeds it one event at a time.
//
//   wanted --> COMPARING --preflights fit, and there is room--> MINTING --id--> MINTED
//   MINTED --nothing is stopping--> CREATING --all ready--> READY
//   READY --no lease is left, its memory is needed--> DESTROYING --all gone--> out of the
//   registry any of them --a rank fails--> STOPPING --all gone--> out of the registry
//
// But for those that fail, one communicator at a time is on its way into the registry or out of it:
// NCCL's creations must not overlap on a host, and an order in which everything happens one after
// the other is one that all processes agree on. Each order to make or to destroy has a ticket,
// larger than those before, by which a process sees that it is neither late nor told twice.
//
// Users hold leases. A communicator that no user holds stays, for the next; when the communicators
// of a GPU would take more memory than their bound, those go first that were released longest ago.
// Where leases leave too little, the new one is refused rather than kept waiting, since a user
// that waits may hold what another one waits for. The only one of its GPUs is never refused: what
// one will take is a guess. A communicator that failed on one rank is gone for all.
//
// How much it takes grows with its first messages, so what the ranks hold is asked for again
// whenever another one is to be made. The last that was seen of a size is expected of the next.
//
// A process that was lost may be back, with all that it had, when only its worker was out of sight.
// So what it held is remembered, and stopped before anything is made with it again.
class CommunicatorRegistry {
 public:
  struct Options {
    int64_t gpu_bytes_max = 0;  // for the communicators of a GPU together
    // What one takes of a GPU, until one of as many ranks was seen.
    int64_t expected_bytes = 0;
  };

  explicit CommunicatorRegistry(const Options& options) : options_(options) {}

  // What to do now, in order. Events that came too late or twice give no action: messages repeat.
  std::vector<CommunicatorAction> Handle(const CommunicatorEvent& event);

  struct Counts {
    int64_t making = 0;
    int64_t ready = 0;
    int64_t ending = 0;

    friend bool operator==(const Counts&, const Counts&) = default;
  };
  Counts counts() const;

  // Taken by the communicators of a GPU, or expected to be, by all of its shares together.
  int64_t BytesOn(absl::string_view gpu) const;

 private:
  enum class State : uint8_t {
    kComparing,
    kMinting,
    kMinted,
    kCreating,
    kReady,
    kDestroying,
    kStopping
  };
  struct Communicator {
    State state = State::kComparing;
    std::string id;       // once it is minted
    uint64_t ticket = 0;  // of the order that made it
    std::set<std::string> users;
    // Ranks that may hold something, and what they took: -1 until they are ready.
    std::map<RankName, int64_t> held;
    uint64_t released = 0;  // when; larger is later
  };
  using Communicators = std::map<CommunicatorKey, Communicator>;
  using Wait = std::pair<std::string, CommunicatorKey>;  // user and what it waits for

  void On(const CommunicatorWanted& event);
  void On(const CommunicatorReleased& event);
  void On(const PreflightsCollected& event);
  void On(const IdMinted& event);
  void On(const RankReady& event);
  void On(const RankFailed& event);
  void On(const RankGone& event);
  void On(const ProcessLost& event);

  // Null unless the communicator is in that state.
  Communicator* FindIn(State state, const CommunicatorKey& key);
  void Fail(const CommunicatorKey& key, const RankName& rank, const absl::Status& status);
  void EraseIfGone(const CommunicatorKey& key);
  void EndWaits(const CommunicatorKey& key, const absl::Status& cause);

  // What one of so many ranks is expected to take at each rank.
  int64_t ExpectedBytes(const CommunicatorKey& key) const;
  // By all of its ranks on this GPU, and not more than there may be: its first is never refused.
  int64_t NeededBytes(const CommunicatorKey& key, absl::string_view gpu) const;
  void Expect(const CommunicatorKey& key, const Communicator& seen);
  // What the processes of a group say that they hold.
  void NoteHeld(const std::vector<PreflightReport>& reports);

  // Gives leases of what is ready, and begins the next thing when nothing is under way.
  void Settle();
  void GrantReady();
  void CreateMinted();
  bool IsBusy() const;
  void BeginOrMakeRoom(const CommunicatorKey& key);
  // Stops what processes of the group that were lost may still hold; false when that is nothing.
  bool StopLeftovers(const CommunicatorKey& key);
  // A GPU of the group on which one more would be too much; null when there is none.
  const std::string* FullGpu(const CommunicatorKey& key) const;
  Communicators::iterator LongestReleasedOn(const std::string& gpu);
  template <typename Action>
  void Do(Action action) {
    actions_.emplace_back(std::move(action));
  }

  Options options_;
  std::map<size_t, int64_t> expected_bytes_;  // by number of ranks, of those that were seen
  uint64_t releases_ = 0;
  uint64_t last_ticket_ = 0;
  Communicators communicators_;
  // Of the process of each GPU that was lost last: what it held, and how much that took.
  std::map<RankName, std::map<CommunicatorKey, int64_t>> leftovers_;
  std::vector<Wait> waits_;                  // in order
  std::vector<CommunicatorAction> actions_;  // of the event being handled
};

}  // namespace crossmesh
