#pragma once

#include "tests/standin/nccl/rendezvous.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <nccl.h>

namespace crossmesh {

// What goes before the bytes of a message; both ends must agree on it.
struct MessageHead {
  uint64_t index = 0;  // among those from this rank to that one
  uint64_t bytes = 0;
  uint64_t collective = 0;   // number of the collective that it is part of; 0 for send and receive
  uint64_t collectives = 0;  // that the rank had begun before
  uint32_t type = 0;

  friend bool operator==(const MessageHead&, const MessageHead&) = default;
  std::string ToString() const;
};

// One message's way into or out of a ring.
struct Transfer {
  int peer = -1;
  std::byte* memory = nullptr;
  MessageHead head;
  bool corrupts = false;  // an injected fault: a byte is changed on the way
  uint64_t moved = 0;     // bytes of head and payload
};

// All messages of a group, and what follows when they are through. Confined to its stream's thread
// once it is queued.
class Work {
 public:
  // The rendezvous must outlive its running; an unfinished work may go without it.
  Work(const Rendezvous& rendezvous, int rank);
  ~Work() { ReleaseMemory(); }

  void Send(Transfer transfer) { sends_[transfer.peer].push_back(transfer); }
  void Receive(Transfer transfer) { receives_[transfer.peer].push_back(transfer); }
  // Memory that lives as long as the work.
  std::byte* Scratch(size_t bytes);
  void Then(absl::AnyInvocable<void()> finish) { finishes_.push_back(std::move(finish)); }
  // Device memory that must stay until the work is through.
  void Use(const void* memory, size_t bytes);
  void StallForever() { stalls_ = true; }
  void ReleaseMemory();

  // Moves what can be moved; false when nothing could. Messages that do not match break the
  // rendezvous.
  bool Progress();
  // A send is through when its bytes were received, as if there were no buffers between.
  bool IsDone() const;
  void Finish();

 private:
  bool ProgressSend(Transfer& transfer);
  bool ProgressReceive(Transfer& transfer);

  const Rendezvous& rendezvous_;
  const int rank_;
  bool stalls_ = false;
  std::vector<std::deque<Transfer>> sends_;     // by peer
  std::vector<std::deque<Transfer>> receives_;  // by peer
  std::deque<std::vector<std::byte>> scratch_;
  std::vector<absl::AnyInvocable<void()>> finishes_;
  std::vector<std::pair<const void*, size_t>> used_;
};

}  // namespace crossmesh
