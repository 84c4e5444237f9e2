// Operations of a communicator: the order in which all ranks make them, from calls to messages, and
// how these run.

#include "tests/standin/control/stand_in_control.h"
#include "tests/standin/nccl/communicator.h"
#include "tests/standin/nccl/reduction.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

// What a receiver keeps for the messages of one peer.
constexpr int64_t kConnectionBytes = 4 << 20;

struct Extents {
  size_t from = 0;
  size_t to = 0;
};

// Bytes that an operation reads and writes on a rank.
Extents ExtentsOf(const Operation& operation, int ranks, int rank) {
  const size_t bytes = operation.count * BytesOf(operation.type);
  const bool is_root = operation.peer == rank;
  switch (operation.kind) {
    case OperationKind::kSend:
      return {.from = bytes};
    case OperationKind::kReceive:
      return {.to = bytes};
    case OperationKind::kBroadcast:
      return {.from = is_root ? bytes : 0, .to = bytes};
    case OperationKind::kReduce:
      return {.from = bytes, .to = is_root ? bytes : 0};
    case OperationKind::kAllReduce:
      return {.from = bytes, .to = bytes};
    case OperationKind::kAllGather:
      return {.from = bytes, .to = bytes * ranks};
    case OperationKind::kReduceScatter:
      return {.from = bytes * ranks, .to = bytes};
  }
  return {};
}

bool IsReduction(OperationKind kind) {
  return kind == OperationKind::kReduce || kind == OperationKind::kAllReduce ||
         kind == OperationKind::kReduceScatter;
}

// What all ranks must say of a collective.
std::string DescribeCollective(const Operation& operation) {
  std::string text = absl::StrCat(operation.name, " of ", operation.count, " ",
                                  NameOf(operation.type), ", root ", operation.peer);
  if (IsReduction(operation.kind)) absl::StrAppend(&text, ", ", NameOf(operation.reduction));
  return text;
}

const std::byte* Bytes(const void* memory, size_t offset = 0) {
  return static_cast<const std::byte*>(memory) + offset;
}

Result CheckBuffer(absl::string_view what, const void* memory, size_t bytes) {
  if (bytes == 0 || crossmeshStandInMemoryKind(memory, bytes) != kStandInNoMemory) return {};
  return Violation(
      ncclInvalidArgument,
      absl::StrFormat("the %s, %p of %d bytes, is not all device memory", what, memory, bytes));
}

// Sends and receives of a group run in any order, so nothing may be written that another reads.
Result CheckOverlaps(std::span<const Operation> operations) {
  std::vector<std::tuple<const std::byte*, const std::byte*, bool>> ranges;  // begin, end, written
  for (const Operation& operation : operations) {
    const size_t bytes = operation.count * BytesOf(operation.type);
    if (operation.is_collective() || bytes == 0) continue;
    const bool is_written = operation.kind == OperationKind::kReceive;
    const std::byte* begin = Bytes(is_written ? operation.to : operation.from);
    ranges.emplace_back(begin, begin + bytes, is_written);
  }
  std::ranges::sort(ranges);
  const std::byte* used_end = nullptr;
  const std::byte* written_end = nullptr;
  for (const auto& [begin, end, is_written] : ranges) {
    if (begin < (is_written ? used_end : written_end)) {
      return Violation(
          ncclInvalidUsage,
          absl::StrFormat("buffers of the group overlap at %p, and one is received into",
                          static_cast<const void*>(begin)));
    }
    used_end = std::max(used_end, end);
    if (is_written) written_end = std::max(written_end, end);
  }
  return {};
}

// Of a call and all before it.
uint64_t HashOf(uint64_t before, absl::string_view text) {
  return std::hash<std::string>()(absl::StrCat(before, " ", text));
}

}  // namespace

Result Communicator::Publish(const std::string& text) {
  ++orders_;
  order_hash_ = HashOf(order_hash_, text);
  RendezvousCell& cell = rendezvous_->cell(rank_);
  const size_t slot = orders_ % cell.orders.size();
  SetText(cell.orders[slot].text, text);
  cell.orders[slot].hash = order_hash_;
  cell.orders[slot].number = orders_;
  // Of two ranks that publish at the same time, one at least sees the other.
  for (int rank = 0; rank < rendezvous_->ranks(); ++rank) {
    const RendezvousOrder& other = rendezvous_->cell(rank).orders[slot];
    if (other.number != orders_ || other.hash == order_hash_) continue;
    const Result broken = Violation(
        ncclInvalidUsage,
        absl::StrCat("the ranks differ in call ", orders_, " of the communicator: rank ", rank_,
                     " makes ", text, ", rank ", rank, " makes ", other.text.data()));
    rendezvous_->Break(broken.text);
    Fail(broken);
    return broken;
  }
  return {};
}

Result Communicator::CheckOperation(const Operation& operation) const {
  if (BytesOf(operation.type) == 0) {
    return Violation(ncclInvalidArgument, absl::StrCat("no data type ", operation.type));
  }
  if (IsReduction(operation.kind) && !CanReduce(operation.type, operation.reduction)) {
    return Violation(ncclInvalidArgument, absl::StrCat("no reduction ", NameOf(operation.reduction),
                                                       " of ", NameOf(operation.type)));
  }
  if (operation.peer < 0 || operation.peer >= ranks()) {
    return Violation(ncclInvalidArgument,
                     absl::StrCat("rank ", operation.peer, " of ", ranks(), " ranks"));
  }
  if (crossmeshStandInStreamDevice(operation.stream) != device()) {
    return Violation(ncclInvalidArgument,
                     "the stream is a default stream, not there, or of another device");
  }
  const Extents extents = ExtentsOf(operation, ranks(), rank());
  RETURN_IF_FAILED(CheckBuffer("source", operation.from, extents.from));
  return CheckBuffer("destination", operation.to, extents.to);
}

Result Communicator::Connect(std::span<const Operation> operations, Connections& awaited) {
  for (const Operation& operation : operations) {
    if (operation.is_collective() || operation.peer == rank_) continue;
    const int peer = operation.peer;
    const bool sends = operation.kind == OperationKind::kSend;
    if (!(sends ? connected_to_ : connected_from_).insert(peer).second) continue;
    if (!sends) RETURN_IF_FAILED(TakeMemory("a connection", kConnectionBytes));
    RendezvousRing& ring = sends ? rendezvous_->ring(rank_, peer) : rendezvous_->ring(peer, rank_);
    ring.ends |= sends ? RendezvousRing::kSender : RendezvousRing::kReceiver;
    awaited.push_back(&ring);
  }
  return {};
}

Result Communicator::Submit(std::span<const Operation> operations) {
  for (const Operation& operation : operations) {
    if (operation.is_collective() != operations[0].is_collective()) {
      return Violation(ncclInvalidUsage, "a group of collectives and of sends and receives");
    }
  }
  RETURN_IF_FAILED(CheckOverlaps(operations));
  Connections awaited;
  RETURN_IF_FAILED(Connect(operations, awaited));

  auto work = std::make_unique<Work>(*rendezvous_, rank_);
  for (const Operation& operation : operations) {
    corrupts_ = crossmeshStandInFaultDue("corrupt_at") != 0;
    if (crossmeshStandInFaultDue("stall_at") != 0) work->StallForever();
    if (crossmeshStandInFaultDue("async_error_at") != 0) {
      work->StallForever();
      async_error_ = Failure(ncclRemoteError, "injected fault async_error_at");
    }
    if (operation.is_collective()) {
      ++collectives_;
      RETURN_IF_FAILED(Publish(DescribeCollective(operation)));
    }
    AddOperation(operation, *work);
  }
  const CUstream stream = operations[0].stream;
  const std::string call = operations.size() > 1 ? "ncclGroupEnd" : std::string(operations[0].name);
  const std::string reason =
      absl::StrCat("while ", call,
                   " is in progress: ncclCommGetAsyncError has not told that it is on the stream");
  if (crossmeshStandInHoldStream(stream, reason.c_str()) != 0) {
    return Violation(ncclInvalidUsage, "the stream is held by another communicator in progress");
  }
  // The analyzer does not see that the work goes with what advances it.
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks)
  auto advance = [this, stream, ready = std::move(work),
                  awaited = std::move(awaited)]() mutable -> std::optional<Result> {
    const bool all_came = std::ranges::all_of(
        awaited, [](const RendezvousRing* ring) { return ring->ends == RendezvousRing::kBoth; });
    if (!all_came) return std::nullopt;
    Enqueue(std::move(ready), stream);
    return Result{};
  };
  return Start({.call = call, .advance = std::move(advance), .held = stream});
}

Transfer Communicator::NextTransfer(int peer, const void* memory, const Operation& operation,
                                    std::vector<uint64_t>& counts) {
  const size_t bytes = operation.count * BytesOf(operation.type);
  return {.peer = peer,
          .memory = const_cast<std::byte*>(Bytes(memory)),
          .head = {.index = ++counts[peer],
                   .bytes = bytes,
                   .collective = operation.is_collective() ? collectives_ : 0,
                   .collectives = collectives_,
                   .type = static_cast<uint32_t>(operation.type)},
          .corrupts = corrupts_ && bytes > 0};
}

void Communicator::AddOperation(const Operation& operation, Work& work) {
  const size_t bytes = operation.count * BytesOf(operation.type);
  const Extents extents = ExtentsOf(operation, ranks(), rank_);
  work.Use(operation.from, extents.from);
  work.Use(operation.to, extents.to);
  const auto send = [&](int peer, size_t offset) {
    work.Send(NextTransfer(peer, Bytes(operation.from, offset), operation, sent_));
  };
  const auto receive = [&](int peer, const void* memory) {
    work.Receive(NextTransfer(peer, memory, operation, received_));
  };
  const auto copy_own = [&](size_t offset) {
    work.Then([to = operation.to, from = operation.from, offset, bytes] {
      if (bytes > 0) std::memmove(static_cast<std::byte*>(to) + offset, from, bytes);
    });
  };
  const bool is_root = operation.peer == rank_;
  std::vector<const void*> sources;
  for (int peer = 0; peer < ranks(); ++peer) {
    const size_t block = operation.kind == OperationKind::kReduceScatter ? peer * bytes : 0;
    const bool is_peer = peer != rank_;
    switch (operation.kind) {
      case OperationKind::kSend:
        if (peer == operation.peer) send(peer, 0);
        break;
      case OperationKind::kReceive:
        if (peer == operation.peer) receive(peer, operation.to);
        break;
      case OperationKind::kBroadcast:
        if (is_root && is_peer) send(peer, 0);
        if (is_root && !is_peer) copy_own(0);
        if (!is_root && peer == operation.peer) receive(peer, operation.to);
        break;
      case OperationKind::kAllGather:
        if (is_peer) send(peer, 0);
        if (is_peer) receive(peer, Bytes(operation.to, peer * bytes));
        if (!is_peer) copy_own(peer * bytes);
        break;
      case OperationKind::kReduce:
        if (!is_root && peer == operation.peer) send(peer, 0);
        if (!is_root) break;
        [[fallthrough]];
      case OperationKind::kAllReduce:
      case OperationKind::kReduceScatter:
        if (is_peer && operation.kind != OperationKind::kReduce) send(peer, block);
        sources.push_back(is_peer ? work.Scratch(bytes) : Bytes(operation.from, block));
        if (is_peer) receive(peer, sources.back());
        break;
    }
  }
  if (sources.empty()) return;
  work.Then([operation, sources] { Reduce(operation, sources); });
}

// A work on a stream, until its thread comes to it.
struct Communicator::Queued {
  Communicator& communicator;
  std::unique_ptr<Work> work;
  uint64_t ticket = 0;
};

void Communicator::Enqueue(std::unique_ptr<Work> work, CUstream stream) {
  auto queued = std::make_unique<Queued>(*this, std::move(work));
  {
    MutexLock lock(mutex_);
    queued->ticket = queued_++;
  }
  const auto run = [](void* argument) {
    const std::unique_ptr<Queued> taken(static_cast<Queued*>(argument));
    taken->communicator.Run(*taken->work, taken->ticket);
  };
  Queued* const argument = queued.release();
  if (crossmeshStandInEnqueue(stream, run, argument) != 0) {
    crossmeshStandInViolate("the stream was destroyed before the work was on it");
    run(argument);
  }
}

void Communicator::Run(Work& work, uint64_t ticket) {
  {
    MutexLock lock(mutex_);
    while (executed_ != ticket && !stops_) changed_.WaitFor(mutex_, absl::Milliseconds(20));
    ++running_;
  }
  while (!stops_) {
    const uint32_t seen = rendezvous_->cell(rank_).doorbell;
    const bool moved = !rendezvous_->is_broken() && work.Progress();
    if (work.IsDone()) {
      work.Finish();
      break;
    }
    if (!moved) rendezvous_->WaitDoorbell(rank_, seen);
  }
  work.ReleaseMemory();
  MutexLock lock(mutex_);
  ++executed_;
  --running_;
  changed_.SignalAll();
}

bool Communicator::AllRan() {
  MutexLock lock(mutex_);
  return executed_ == queued_;
}

bool Communicator::NothingRuns() {
  MutexLock lock(mutex_);
  return running_ == 0;
}

}  // namespace crossmesh
