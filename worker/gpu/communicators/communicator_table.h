#pragma once

#include "common/base/clock.h"
#include "common/communicators/communicator_key.h"
#include "worker/gpu/communicators/communicator_life.h"
#include "worker/gpu/communicators/nccl_communicator.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

class DriverApi;

// The communicators of this process, which is one rank in each of them. They are made and destroyed
// as the controller orders, never two at a time: an order carries a ticket, which grows from order
// to order of an epoch, so that one that came late or twice is noticed before it can make the
// processes disagree. Some are never seen here: those of other groups' orders, and of orders that
// were lost on their way, whose communicators fail at all ranks. A ticket in its turn is used up
// even when its order fails.
//
// Confined to the thread that issues all work of the GPU, whose context is current.
class CommunicatorTable {
 public:
  struct Options {
    RankName self;
    const RegisteredStaging* staging = nullptr;  // registered with each communicator; null: none
    CommunicatorTimeouts timeouts;
    CtaLimits ctas = {};        // of each communicator
    M2nRuntime* m2n = nullptr;  // likewise; null: none. Must outlive this
  };

  // All references, and the staging, must outlive this.
  CommunicatorTable(const Clock& clock, const DriverApi& driver, const NcclApi& nccl,
                    Options options);

  // Orders of this epoch are obeyed from now on, with any ticket; communicators of earlier epochs
  // are stopped. Aborted when a later one has begun; nothing happens when it is this one.
  absl::Status BeginEpoch(uint64_t epoch);

  // Begins to make a communicator with `id`, of MintId at rank 0. Poll tells what becomes of it.
  // Aborted for another epoch than has begun. FailedPrecondition when the ticket is out of turn, or
  // while another communicator is on its way. AlreadyExists. InvalidArgument when this process is
  // not in the group exactly once, or the id is none. Errors of the driver and NCCL.
  absl::Status Create(const CommunicatorKey& key, uint64_t ticket, const std::string& id);

  // Begins the orderly end of a communicator that is no longer used. Aborted and
  // FailedPrecondition as above, or because it is not ready. NotFound, as when it failed meanwhile.
  absl::Status Destroy(const CommunicatorKey& key, uint64_t ticket);

  // Begins to end a communicator at this rank alone, in any state. NotFound.
  absl::Status Stop(const CommunicatorKey& key, const absl::Status& cause);

  // What became of a communicator: it is ready, is on its way to an end, or has come to it.
  struct Change {
    CommunicatorKey key;
    CommunicatorState state = CommunicatorState::kReady;
    absl::Status cause;
    int64_t bytes = 0;  // of the GPU's memory, that it took
  };
  // Moves all on, and tells what changed since the last time. Those that are destroyed or aborted
  // are told of for the last time; one that hangs stays, and nothing more can be made.
  std::vector<Change> Poll();

  // Null unless it can be used.
  Communicator* Find(const CommunicatorKey& key);

  struct Listing {
    CommunicatorKey key;
    CommunicatorState state = CommunicatorState::kCreating;
    int64_t bytes = 0;
  };
  std::vector<Listing> List() const;
  // What each that can be used takes of the GPU's memory now, by the ticket that it was made with.
  std::map<uint64_t, int64_t> MemoryByTicket();

 private:
  struct Entry {
    std::unique_ptr<CommunicatorLife> life;
    CommunicatorState told = CommunicatorState::kCreating;
    uint64_t ticket = 0;
    int64_t free_bytes_before = 0;
    int64_t bytes = 0;  // once it was ready
  };

  absl::Status TakeTicket(const CommunicatorKey& key, uint64_t ticket);
  absl::Status CheckNothingUnderWay(const CommunicatorKey& key) const;
  absl::Status CheckKey(const CommunicatorKey& key) const;
  // Of one that has just become ready.
  int64_t Measure(const Entry& entry) const;

  const Clock& clock_;
  const DriverApi& driver_;
  const NcclApi& nccl_;
  const Options options_;
  uint64_t epoch_ = 0;
  uint64_t last_ticket_ = 0;
  std::map<CommunicatorKey, Entry> entries_;
};

}  // namespace crossmesh
