#include "worker/pipeline/running_program.h"

#include "common/base/clock.h"
#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "worker/executor/part_replayer.h"
#include "worker/pipeline/transfer_memory.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/time/time.h>

namespace crossmesh {
namespace {

void Copy(const std::vector<int64_t>& from, google::protobuf::RepeatedField<int64_t>& to) {
  to.Assign(from.begin(), from.end());
}

}  // namespace

const WorkerProgram& RunningProgram::program() const { return *memory_->program; }

RunningProgram::RunningProgram(const Ports& ports, const std::string& worker, ProgramStart start,
                               std::shared_ptr<const ProgramMemory> memory)
    : ports_(ports),
      worker_(worker),
      start_(std::move(start)),
      memory_(std::move(memory)),
      progress_(*memory_->program) {
  for (const WorkerProgram::Transfer& transfer : program().transfers) {
    const size_t messages = transfer.messages();
    messages_max_ = std::max<uint32_t>(messages_max_, transfer.messages());
    transfer_of_plan_.emplace(transfer.plan, static_cast<int32_t>(transfers_.size()));
    transfers_.push_back(
        {.key = {.operation = start_.operation, .epoch = start_.epoch, .plan = transfer.plan},
         .devices = std::ssize(transfer.part->destinations),
         .devices_left = std::vector<int64_t>(messages),
         .produced_ns = std::vector<int64_t>(messages),
         .first_byte_ns = std::vector<int64_t>(messages),
         .arrived_ns = std::vector<int64_t>(messages),
         .fill_ns = std::vector<int64_t>(messages)});
  }
  for (int32_t rank = 0; rank < std::ssize(program().ranks); ++rank) {
    const size_t ops = program().ranks[rank].ops.size();
    ranks_.push_back({.asked = !start_.lost_ranks.empty(),
                      .begin_ns = std::vector<int64_t>(ops),
                      .end_ns = std::vector<int64_t>(ops)});
    queues_.push_back(std::make_shared<RankQueue>(
        RankQueue::Ports{.data = ports_.data, .clock = ports_.clock}, memory_, rank,
        [this, rank](const RankQueue::Outcome& outcome) { OnOutcome(rank, outcome); }));
    // The run was cut short before, and the process may not know that this one is complete.
    if (start_.complete_iteration.has_value()) {
      queues_.back()->GiveComplete(*start_.complete_iteration);
    }
    if (ranks_.back().asked) {
      queues_.back()->GiveStateLost(start_.complete_iteration.value_or(-1), start_.lost_ranks);
    }
  }
}

absl::Status RunningProgram::Open() {
  for (int32_t index = 0; index < std::ssize(transfers_); ++index) {
    RETURN_IF_ERROR(
        At(absl::StrCat("transfer ", program().transfers[index].Name()), OpenTransfer(index)));
  }
  TellIfReady();
  return absl::OkStatus();
}

void RunningProgram::TellIfReady() {
  if (!stopping_ && !Asks()) ports_.listener.OnReady(absl::OkStatus());
}

bool RunningProgram::Asks() const { return std::ranges::any_of(ranks_, &Rank::asked); }

absl::Status RunningProgram::OpenTransfer(int32_t index) {
  RETURN_IF_ERROR(ports_.replayer.StartReplays(SpecOf(index), *this));
  transfers_[index].open = true;
  return absl::OkStatus();
}

ReplaySpec RunningProgram::SpecOf(int32_t index) const {
  const WorkerProgram::Transfer& transfer = program().transfers[index];
  ReplaySpec spec{.key = transfers_[index].key,
                  .token_high = start_.token_high,
                  .token_low = start_.token_low,
                  .part = transfer.part->prepared,
                  .buffers = memory_->transfers[index].Buffers(),
                  .checksums = start_.checksums,
                  .stall_limit = start_.stall_limit};
  const TensorTable& tensors = transfer.part->prepared->part().tensors();
  for (const ProgramStart::Peer& peer : start_.peers) {
    if (peer.worker == worker_) continue;
    for (const DeviceId& device : peer.devices) {
      const std::optional<DeviceRank> rank = tensors.FindDevice(device);
      if (rank.has_value()) spec.peer_of_device[*rank] = static_cast<int32_t>(spec.peers.size());
    }
    spec.peers.push_back({.worker = peer.worker, .address = peer.data_address});
  }
  return spec;
}

absl::Status RunningProgram::BeginIteration(int64_t iteration) {
  RETURN_IF_ERROR(gone_);
  if (running_ || failed_ || stopping_ || Asks() || iteration <= iteration_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "iteration ", iteration, ": expected it after a complete one, found ", iteration_,
        running_    ? " running"
        : failed_   ? " failed"
        : stopping_ ? " the last"
        : Asks()    ? " before all ranks go on"
                    : " done"));
  }
  // Instances of all iterations are numbered on, in 32 bits.
  if (rounds_ >= std::numeric_limits<uint32_t>::max() / messages_max_ - 1) {
    return absl::OutOfRangeError(
        absl::StrCat("iteration ", iteration, ": expected at most ", rounds_, " without a stop"));
  }
  // The controller begins an iteration when the one before is complete at all workers.
  for (const auto& queue : queues_) {
    if (rounds_ > 0) queue->GiveComplete(iteration_);
  }
  iteration_ = iteration;
  rounds_++;
  running_ = true;
  for (Transfer& transfer : transfers_) {
    std::ranges::fill(transfer.devices_left, transfer.devices);
    for (std::vector<int64_t>* times : {&transfer.produced_ns, &transfer.first_byte_ns,
                                        &transfer.arrived_ns, &transfer.fill_ns}) {
      std::ranges::fill(*times, 0);
    }
  }
  for (Rank& rank : ranks_) {
    std::ranges::fill(rank.begin_ns, 0);
    std::ranges::fill(rank.end_ns, 0);
  }
  Do(progress_.Begin());
  return absl::OkStatus();
}

void RunningProgram::Stop(const absl::Status& why) {
  if (std::exchange(stopping_, true)) return;
  const absl::Status cut_short =
      why.ok() && running_ ? absl::CancelledError("stopped in the middle of an iteration") : why;
  if (running_) SendReport(cut_short);
  for (const auto& queue : queues_) {
    // With OK the last iteration is complete everywhere.
    if (cut_short.ok() && rounds_ > 0 && !failed_) queue->GiveComplete(iteration_);
    queue->End(cut_short);
  }
  const absl::Status cause = cut_short.ok() ? absl::CancelledError("done") : cut_short;
  for (const Transfer& transfer : transfers_) {
    if (transfer.open) {
      ports_.replayer.StopReplays(transfer.key, cause, std::numeric_limits<uint32_t>::max());
    }
  }
  TellIfStopped();
}

void RunningProgram::OnReplaysStopped(const ReplayKey& key) {
  transfers_[transfer_of_plan_.at(key.plan)].open = false;
  TellIfStopped();
}

void RunningProgram::TellIfStopped() {
  const bool open = std::ranges::any_of(transfers_, &Transfer::open);
  if (!stopping_ || open || std::exchange(stopped_, true)) return;
  // A thread may still end its op, when this program is gone.
  for (const auto& queue : queues_) queue->Detach();
  ports_.listener.OnStopped();
}

// Messages of a transfer are counted on from one iteration to the next.
uint32_t RunningProgram::InstanceOf(const TransferMessage& message) const {
  const size_t messages = transfers_[message.transfer].devices_left.size();
  return static_cast<uint32_t>((rounds_ - 1) * messages) + message.index;
}

std::optional<TransferMessage> RunningProgram::MessageOf(const TaskKey& key) const {
  const int32_t transfer = transfer_of_plan_.at(key.plan);
  const TransferMessage first{.transfer = transfer};
  const int64_t index = int64_t{key.instance} - InstanceOf(first);
  // One of an earlier iteration, which may still end.
  if (index < 0 || index >= std::ssize(transfers_[transfer].devices_left)) return std::nullopt;
  return TransferMessage{.transfer = transfer, .index = static_cast<int32_t>(index)};
}

int64_t RunningProgram::NowNs() const { return absl::ToUnixNanos(ports_.clock.Now()); }

void RunningProgram::Do(const std::vector<ProgramProgress::Work>& work) {
  using Kind = ProgramProgress::Work::Kind;
  for (const ProgramProgress::Work& item : work) {
    if (item.kind == Kind::kRun) {
      ranks_[item.rank].running = item.op;
      queues_[item.rank]->GiveOp(iteration_, item.op);
      continue;
    }
    const TransferMessage& message = item.message;
    Transfer& transfer = transfers_[message.transfer];
    if (item.kind == Kind::kOpen) {
      ports_.replayer.Replay(transfer.key,
                             message.index % program().transfers[message.transfer].buffers,
                             InstanceOf(message));
    } else {
      transfer.fill_ns[message.index] = NowNs() - transfer.produced_ns[message.index];
      ports_.replayer.ReplaySourceHere(transfer.key, InstanceOf(message));
    }
  }
  if (running_ && progress_.complete()) SendReport(absl::OkStatus());
}

void RunningProgram::OnDeviceDone(const TaskKey& key, const DeviceReport& report) {
  const std::optional<TransferMessage> message = MessageOf(key);
  if (!running_ || !message.has_value()) return;
  const WorkerProgram::Transfer& of = program().transfers[message->transfer];
  if (!report.status.ok()) {
    const DeviceId& device = of.part->prepared->part().tensors().devices()[report.device];
    return FailIteration(At(
        absl::StrCat(program().NameOf(*message), " at device ", ToString(device)), report.status));
  }
  Transfer& transfer = transfers_[message->transfer];
  if (--transfer.devices_left[message->index] > 0) return;
  transfer.arrived_ns[message->index] = NowNs();
  Do(progress_.OnArrived(*message));
}

void RunningProgram::OnTaskDone(const TaskReport& report) {
  const std::optional<TransferMessage> message = MessageOf(report.key);
  if (!running_ || !message.has_value()) return;
  absl::Status outcome = report.status;
  // A worker that only sends has no device that could fail: of a lost receiver it hears only here.
  outcome.Update(report.first_loss);
  if (!outcome.ok()) {
    return FailIteration(At(program().NameOf(*message), outcome));
  }
  Transfer& transfer = transfers_[message->transfer];
  if (program().transfers[message->transfer].sends) {
    // From the end of the op until its source was told, and from there to the first chunk.
    transfer.first_byte_ns[message->index] =
        transfer.fill_ns[message->index] + static_cast<int64_t>(report.seconds.first_byte * 1e9);
  }
  Do(progress_.OnLeft(*message));
}

void RunningProgram::OnOutcome(int32_t rank, const RankQueue::Outcome& outcome) {
  if (std::exchange(ranks_[rank].asked, false)) {
    OnAnswer(rank, outcome.status);
  } else if (outcome.status.ok()) {
    OnOpDone(rank, outcome);
  } else {
    OnOpFailed(rank, outcome.status);
  }
}

void RunningProgram::OnAnswer(int32_t index, const absl::Status& answer) {
  if (answer.ok()) return TellIfReady();
  // Whatever its code: a controller that started the program once more would be told the same.
  ports_.listener.OnReady(absl::FailedPreconditionError(absl::StrCat(
      "rank ", program().ranks[index].rank, " does not go on after the loss of the state of rank ",
      absl::StrJoin(start_.lost_ranks, ", "), ": ", answer.message())));
}

void RunningProgram::OnOpDone(int32_t index, const RankQueue::Outcome& outcome) {
  if (!running_) return;
  Rank& rank = ranks_[index];
  int32_t place = std::exchange(rank.running, -1);
  for (const WorkerProgram::RankOp& op : program().ranks[index].StepAt(place)) {
    rank.begin_ns[place] = outcome.begin_ns;
    rank.end_ns[place] = outcome.end_ns;
    for (const TransferMessage& output : op.outputs) {
      transfers_[output.transfer].produced_ns[output.index] = outcome.end_ns;
    }
    ++place;
  }
  Do(progress_.OnOpDone(index));
}

void RunningProgram::OnOpFailed(int32_t index, const absl::Status& why) {
  if (!running_) {
    // Nothing is lost yet, but no process computes the rank in the next iteration.
    gone_ = At(absl::StrCat("rank ", program().ranks[index].rank), why);
    return;
  }
  FailIteration(At(progress_.PositionOf(index), why));
}

void RunningProgram::FailIteration(const absl::Status& why) {
  failed_ = true;
  SendReport(why);
}

void RunningProgram::SendReport(const absl::Status& status) {
  running_ = false;
  report_.Clear();
  report_.set_iteration(iteration_);
  report_.set_code(static_cast<int32_t>(status.code()));
  report_.set_message(std::string(status.message()));
  for (int32_t rank = 0; rank < std::ssize(ranks_); ++rank) {
    v1::RunProgramResponse::OpTimes& times = *report_.add_ops();
    times.set_rank(program().ranks[rank].rank);
    Copy(ranks_[rank].begin_ns, *times.mutable_begin_ns());
    Copy(ranks_[rank].end_ns, *times.mutable_end_ns());
    if (!status.ok()) report_.add_positions(progress_.PositionOf(rank));
  }
  for (int32_t index = 0; index < std::ssize(transfers_); ++index) {
    v1::RunProgramResponse::TransferTimes& times = *report_.add_transfers();
    times.set_transfer(index);
    Copy(transfers_[index].produced_ns, *times.mutable_produced_ns());
    Copy(transfers_[index].first_byte_ns, *times.mutable_first_byte_ns());
    Copy(transfers_[index].arrived_ns, *times.mutable_arrived_ns());
  }
  ports_.listener.OnReport(report_);
}

}  // namespace crossmesh
