#include "worker/gpu/communicators/testing/host_communicator.h"

#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "worker/gpu/communicators/communicator_checks.h"
#include "worker/gpu/communicators/testing/host_elements.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// What a rank is in the middle of; nothing when all of it is done.
struct Call {
  std::map<int, std::deque<RankMessage>> sends;     // by peer
  std::map<int, std::deque<RankMessage>> receives;  // by peer
  std::deque<Collective> collectives;

  bool done() const { return sends.empty() && receives.empty() && collectives.empty(); }
};

std::byte* Pointer(CUdeviceptr address) { return reinterpret_cast<std::byte*>(address); }

std::map<int, std::deque<RankMessage>> ByPeer(std::span<const RankMessage> messages) {
  std::map<int, std::deque<RankMessage>> by_peer;
  for (const RankMessage& message : messages) by_peer[message.peer].push_back(message);
  return by_peer;
}

void PopFront(std::map<int, std::deque<RankMessage>>& by_peer, int peer) {
  std::deque<RankMessage>& messages = by_peer[peer];
  messages.pop_front();
  if (messages.empty()) by_peer.erase(peer);
}

std::string Describe(const Collective& collective) {
  std::string text = absl::StrCat(CollectiveKindName(collective.kind), " of ", collective.count,
                                  " ", DataTypeName(collective.type), ", root ", collective.root);
  if (Reduces(collective.kind)) {
    absl::StrAppend(&text, ", reduction ", static_cast<int>(collective.reduction));
  }
  return text;
}

// Where the ranks meet. Thread-safe.
class Group {
 public:
  explicit Group(int size) : size_(size), calls_(size) {}

  int size() const { return size_; }

  void Begin(int rank, Call call) {
    MutexLock lock(mutex_);
    calls_[rank] = std::move(call);
  }

  absl::StatusOr<Communicator::Progress> Poll(int rank) {
    MutexLock lock(mutex_);
    if (failure_.ok()) failure_ = CarryOut();
    RETURN_IF_ERROR(failure_);
    return calls_[rank].done() ? Communicator::Progress::kIdle
                               : Communicator::Progress::kInProgress;
  }

 private:
  absl::Status CarryOut() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    bool moved = false;
    for (int from = 0; from < size(); ++from) {
      for (int to = 0; to < size(); ++to) {
        ASSIGN_OR_RETURN(const bool matched, Match(from, to));
        moved |= matched;
      }
    }
    ASSIGN_OR_RETURN(const bool performed, PerformOfAll());
    if (moved || performed) return absl::OkStatus();
    if (std::ranges::any_of(calls_, [](const Call& call) { return call.done(); })) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError("all ranks wait for each other");
  }

  // Moves the messages of one pair that have both ends.
  absl::StatusOr<bool> Match(int from, int to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    bool moved = false;
    auto& sends = calls_[from].sends;
    auto& receives = calls_[to].receives;
    while (sends.contains(to) && receives.contains(from)) {
      const RankMessage sent = sends[to].front();
      const RankMessage received = receives[from].front();
      if (sent.bytes != received.bytes) {
        return absl::FailedPreconditionError(
            absl::StrCat("a message from rank ", from, " to rank ", to, " is sent as ", sent.bytes,
                         " bytes and received as ", received.bytes));
      }
      std::memcpy(Pointer(received.address), Pointer(sent.address), sent.bytes);
      PopFront(sends, to);
      PopFront(receives, from);
      moved = true;
    }
    return moved;
  }

  absl::StatusOr<bool> PerformOfAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const Call& call : calls_) {
      if (call.collectives.empty()) return false;
    }
    const std::string expected = Describe(calls_[0].collectives.front());
    for (int rank = 1; rank < size(); ++rank) {
      const std::string found = Describe(calls_[rank].collectives.front());
      if (found == expected) continue;
      return absl::FailedPreconditionError(absl::StrCat("the ranks differ: rank 0 makes ", expected,
                                                        ", rank ", rank, " makes ", found));
    }
    const std::vector<std::byte> result = ResultOfAll();
    for (int rank = 0; rank < size(); ++rank) Give(rank, result);
    return true;
  }

  // Made before anything is written, since a rank may write where it reads.
  std::vector<std::byte> ResultOfAll() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Collective& first = calls_[0].collectives.front();
    const int64_t bytes = first.count * ItemBytes(first.type);
    const bool is_wide =
        first.kind == CollectiveKind::kAllGather || first.kind == CollectiveKind::kReduceScatter;
    std::vector<std::byte> result(is_wide ? bytes * size() : bytes);
    std::vector<const std::byte*> sources;
    for (const Call& call : calls_) sources.push_back(Pointer(call.collectives.front().from));
    if (first.kind == CollectiveKind::kBroadcast) {
      std::memcpy(result.data(), sources[first.root], bytes);
    } else if (first.kind == CollectiveKind::kAllGather) {
      for (int rank = 0; rank < size(); ++rank) {
        std::memcpy(result.data() + rank * bytes, sources[rank], bytes);
      }
    } else {
      ReduceElements(first.type, first.reduction, sources, result);
    }
    return result;
  }

  void Give(int rank, std::span<const std::byte> result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Collective collective = calls_[rank].collectives.front();
    calls_[rank].collectives.pop_front();
    if (collective.kind == CollectiveKind::kReduce && rank != collective.root) return;
    if (collective.kind == CollectiveKind::kReduceScatter) {
      const int64_t bytes = collective.count * ItemBytes(collective.type);
      result = result.subspan(rank * bytes, bytes);
    }
    std::memcpy(Pointer(collective.to), result.data(), result.size());
  }

  const int size_;

  Mutex mutex_;
  std::vector<Call> calls_ ABSL_GUARDED_BY(mutex_);  // by rank
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

class HostCommunicator final : public Communicator {
 public:
  // All ranks own the group together.
  HostCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  absl::Status Exchange(std::span<const RankMessage> sends, std::span<const RankMessage> receives,
                        CUstream) override {
    RETURN_IF_ERROR(CheckIdle());
    RETURN_IF_ERROR(CheckMessages(sends, receives, size()));
    return Begin({.sends = ByPeer(sends), .receives = ByPeer(receives)});
  }

  absl::Status PerformAll(std::span<const Collective> collectives, CUstream) override {
    RETURN_IF_ERROR(CheckIdle());
    for (const Collective& collective : collectives) {
      RETURN_IF_ERROR(CheckCollective(collective, rank(), size()));
    }
    return Begin({.collectives = {collectives.begin(), collectives.end()}});
  }

  absl::StatusOr<Progress> Poll() override {
    ASSIGN_OR_RETURN(const Progress progress, group_->Poll(rank_));
    is_idle_ = progress == Progress::kIdle;
    return progress;
  }

 private:
  absl::Status CheckIdle() const {
    if (is_idle_) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", rank_, " calls while a call is in progress: Poll has not told of its end"));
  }
  absl::Status Begin(Call call) {
    is_idle_ = false;
    group_->Begin(rank_, std::move(call));
    return absl::OkStatus();
  }

  const std::shared_ptr<Group> group_;
  const int rank_;
  bool is_idle_ = true;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeHostCommunicators(int size) {
  const auto group = std::make_shared<Group>(size);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::make_unique<HostCommunicator>(group, rank));
  }
  return ranks;
}

}  // namespace crossmesh
