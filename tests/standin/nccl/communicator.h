#pragma once

#include "common/base/mutex.h"
#include "tests/standin/control/outcome.h"
#include "tests/standin/nccl/operation.h"
#include "tests/standin/nccl/rendezvous.h"
#include "tests/standin/nccl/work.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/strings/string_view.h>
#include <nccl.h>

namespace crossmesh {

// One rank of a communicator, of which no call blocks. Confined to its thread, but for its works,
// which run on the threads of streams, and for what calls() is held for. An object is never freed,
// so that late uses are found.
class Communicator {
 public:
  explicit Communicator(int device) : device_(device) {}

  // What the process says of itself at joining, to be the same on all ranks.
  struct Identity {
    int32_t version = 0;
    std::array<char, 16> uuid = {};  // the GPU's; to be another on each rank
    std::string environment;
  };

  // Life.

  // Where it meets the others.
  struct Place {
    std::string rendezvous_name;
    int ranks = 0;
    int rank = 0;
  };
  // Begins to make it. Communicators of a process are made one after the other.
  Result Init(absl::string_view call, Place place, const Identity& identity);

  // Begins to make the communicator of those ranks of this one that give the same color, in the
  // order of their keys, or none for NCCL_SPLIT_NOCOLOR. It is in `made` when all ranks have
  // called.
  Result Split(int color, int key, ncclComm_t* made);

  // Gets on with what is under way, and gives the state that ncclCommGetAsyncError tells.
  Result Poll();

  Result CheckOperation(const Operation& operation) const;
  // Of one group.
  Result Submit(std::span<const Operation> operations);
  Result Finalize();
  Result Revoke();
  Result Destroy();
  Result Abort();

  // What a call is for, which decides when it may be made.
  enum class Purpose : uint8_t { kCommunicate, kDeregister, kRevoke, kDestroy };
  Result Check(Purpose purpose);
  // Only that it was neither destroyed nor aborted.
  Result CheckOpen() const;

  // Memory.

  Result Register(void* memory, size_t bytes, void*& handle);
  Result Deregister(void* handle);

  // Held by calls that another thread may make meanwhile: one that waits for the communicator, and
  // one that aborts it.
  Mutex& calls() { return calls_; }

  int64_t taken_bytes() const { return taken_bytes_; }

  int device() const { return device_; }
  int rank() const { return rank_; }
  int ranks() const { return rendezvous_ == nullptr ? 0 : rendezvous_->ranks(); }

 private:
  enum class Phase : uint8_t { kBusy, kReady, kFailed, kFinal, kRevoked, kClosed };

  // What a call left under way. `advance` gives nothing while it has to wait.
  struct Pending {
    std::string call;
    absl::AnyInvocable<std::optional<Result>()> advance;
    Phase next = Phase::kReady;
    CUstream held = nullptr;  // a stream that must not be used meanwhile
  };
  struct Registration {
    void* memory = nullptr;
    size_t bytes = 0;
  };
  struct Queued;

  // NCCL's thread for the call needs at least that long, and no poll before sees its end.
  static constexpr std::chrono::microseconds kInProgressLeast{50};
  // What one takes of a device: channels and buffers.
  static constexpr int64_t kBytes = 16 << 20;

  Result Start(Pending pending);
  Result TakeMemory(absl::string_view what, int64_t bytes);
  void EndPending(const Result& result);
  void Fail(const Result& failure);

  // Only one at a time may be on its way to be made.
  Result BeginMaking();
  Result Join(const Place& place);
  bool AllJoined() const;
  Result CompareIdentities() const;
  std::optional<Result> AdvanceSplit(int color, ncclComm_t* made);
  // Among the ranks of that color; nothing until all have said theirs.
  std::optional<Place> PlaceIn(int color) const;
  Result CheckParts() const;
  // Tells the others of a call that all must make in the same order.
  Result Publish(const std::string& text);
  void Close(absl::string_view by);

  // Begins to connect with the peers of operations that had no messages before. `awaited` gets the
  // connections, of which both ends must have come before anything is on the stream.
  using Connections = std::vector<const RendezvousRing*>;
  Result Connect(std::span<const Operation> operations, Connections& awaited);
  void AddOperation(const Operation& operation, Work& work);
  Transfer NextTransfer(int peer, const void* memory, const Operation& operation,
                        std::vector<uint64_t>& counts);
  // Queues it after all earlier ones, on any stream.
  void Enqueue(std::unique_ptr<Work> work, CUstream stream);
  void Run(Work& work, uint64_t ticket);  // on a stream's thread
  // Whether all that was queued has run; whether nothing runs now.
  bool AllRan();
  bool NothingRuns();

  const int device_;
  Mutex calls_;

  Phase phase_ = Phase::kBusy;
  std::string closed_by_;
  Result failure_;
  std::optional<Result> async_error_;  // an injected one, to be told
  std::optional<Pending> pending_;
  int64_t polls_left_ = 0;
  std::chrono::steady_clock::time_point in_progress_until_;
  std::unique_ptr<Rendezvous> rendezvous_;
  int rank_ = -1;
  Identity identity_;
  int64_t taken_bytes_ = 0;
  uint64_t splits_ = 0;
  std::unique_ptr<Communicator> part_;      // that is being made
  std::vector<const Communicator*> parts_;  // all that were split from it
  uint64_t collectives_ = 0;
  uint64_t orders_ = 0;
  uint64_t order_hash_ = 0;
  std::set<int> connected_to_;
  std::set<int> connected_from_;
  std::vector<uint64_t> sent_;                   // messages, by peer
  std::vector<uint64_t> received_;               // messages, by peer
  std::map<void*, Registration> registrations_;  // by handle
  uintptr_t registration_count_ = 0;
  bool corrupts_ = false;  // the operation that is being added

  // Of streams' threads too.
  std::atomic<bool> stops_ = false;  // works end without having moved what is left

  Mutex mutex_;
  CondVar changed_;
  uint64_t queued_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t executed_ ABSL_GUARDED_BY(mutex_) = 0;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace crossmesh
