#include "worker/pipeline/program_progress.h"

#include "common/base/check.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {

using ActionKind = WorkerProgram::Action::Kind;

ProgramProgress::ProgramProgress(const WorkerProgram& program)
    : program_(program), ranks_(program.ranks.size()) {
  for (const WorkerProgram::Transfer& transfer : program.transfers) {
    transfers_.push_back({.messages = std::vector<Message>(transfer.messages())});
    messages_ += transfer.messages();
  }
}

const std::vector<ProgramProgress::Work>& ProgramProgress::Begin() {
  for (Transfer& transfer : transfers_) {
    std::ranges::fill(transfer.messages, Message());
    transfer.opened = 0;
  }
  std::ranges::fill(ranks_, Rank());
  left_ = ranks_done_ = 0;
  work_.clear();
  GoOn();
  return work_;
}

const std::vector<ProgramProgress::Work>& ProgramProgress::OnOpDone(int32_t rank) {
  work_.clear();
  const WorkerProgram::Rank& of = program_.ranks[rank];
  CHECK(ranks_[rank].running) << "rank " << of.rank << " computes nothing";
  for (const WorkerProgram::RankOp& op : of.StepAt(of.actions[ranks_[rank].next].op)) {
    for (const TransferMessage& input : op.inputs) At(input).used = true;
    for (const TransferMessage& output : op.outputs) {
      // In a blocking program the rank fills it at its own place among the actions.
      if (!program_.blocking) Fill(output);
    }
  }
  ranks_[rank].running = false;
  ranks_[rank].next++;
  GoOn();
  return work_;
}

const std::vector<ProgramProgress::Work>& ProgramProgress::OnArrived(
    const TransferMessage& message) {
  work_.clear();
  At(message).arrived = true;
  GoOn();
  return work_;
}

const std::vector<ProgramProgress::Work>& ProgramProgress::OnLeft(const TransferMessage& message) {
  work_.clear();
  At(message).left = true;
  left_++;
  GoOn();
  return work_;
}

bool ProgramProgress::HasRoom(const TransferMessage& message) const {
  const WorkerProgram::Transfer& of = program_.transfers[message.transfer];
  if (message.index < of.buffers) return true;
  const Message& before = At({message.transfer, message.index - of.buffers});
  // The buffer is free when its message before has left, and what came with it was used.
  return before.left && (!of.receives || before.used);
}

bool ProgramProgress::MayOpen(const TransferMessage& next) const {
  if (next.index == std::ssize(transfers_[next.transfer].messages)) return false;
  const bool waits_for_its_place =
      program_.blocking && program_.transfers[next.transfer].receives && !At(next).wanted;
  return !waits_for_its_place && HasRoom(next);
}

bool ProgramProgress::MayRun(std::span<const WorkerProgram::RankOp> step) const {
  return std::ranges::all_of(step, [this](const WorkerProgram::RankOp& op) {
    return std::ranges::all_of(op.inputs, [this](const auto& in) { return At(in).arrived; }) &&
           std::ranges::all_of(op.outputs, [this](const auto& out) { return HasRoom(out); });
  });
}

void ProgramProgress::Fill(const TransferMessage& message) {
  At(message).filled = true;
  work_.push_back({.kind = Work::Kind::kFill, .message = message});
}

void ProgramProgress::GoOn() {
  // An action of a rank can make room in any transfer, and a message that opens lets ranks go on.
  for (bool more = true; more;) {
    more = false;
    for (int32_t index = 0; index < std::ssize(transfers_); ++index) {
      for (int32_t& next = transfers_[index].opened; MayOpen({index, next}); ++next) {
        work_.push_back({.kind = Work::Kind::kOpen, .message = {index, next}});
      }
    }
    for (int32_t rank = 0; rank < std::ssize(ranks_); ++rank) more = GoOn(rank) || more;
  }
}

// Returns whether something else may be possible now.
bool ProgramProgress::GoOn(int32_t index) {
  Rank& rank = ranks_[index];
  const WorkerProgram::Rank& of = program_.ranks[index];
  bool changed = false;
  while (!rank.running && rank.next < of.actions.size()) {
    const WorkerProgram::Action& action = of.actions[rank.next];
    if (action.kind == ActionKind::kRun) {
      if (!MayRun(of.StepAt(action.op))) break;
      rank.running = true;
      work_.push_back({.kind = Work::Kind::kRun, .rank = index, .op = action.op});
      break;
    }
    Message& message = At(action.message);
    if (action.kind == ActionKind::kSend) {
      if (!message.filled && IsOpen(action.message)) Fill(action.message);
      if (!message.left) break;
    } else {
      changed = changed || !message.wanted;
      message.wanted = true;
      if (!message.arrived) break;
    }
    rank.next++;
    changed = true;
  }
  if (!rank.running && rank.next == of.actions.size()) {
    rank.next++;  // counted once
    ranks_done_++;
  }
  return changed;
}

std::string ProgramProgress::PositionOf(int32_t index) const {
  const WorkerProgram::Rank& of = program_.ranks[index];
  const std::string name = absl::StrCat("rank ", of.rank, ": ");
  const Rank& rank = ranks_[index];
  if (rank.next >= of.actions.size()) return absl::StrCat(name, "done", MovingText(of));
  const WorkerProgram::Action& action = of.actions[rank.next];
  if (action.kind != ActionKind::kRun) {
    return absl::StrCat(name, action.kind == ActionKind::kSend ? "sends " : "receives ",
                        program_.NameOf(action.message));
  }
  const std::string step = of.NameOfStep(action.op);
  if (rank.running) return absl::StrCat(name, "computes ", step, MovingText(of));
  for (const WorkerProgram::RankOp& op : of.StepAt(action.op)) {
    for (const TransferMessage& input : op.inputs) {
      if (!At(input).arrived) {
        return absl::StrCat(name, step, " waits for ", program_.NameOf(input));
      }
    }
    for (const TransferMessage& output : op.outputs) {
      if (!HasRoom(output)) {
        return absl::StrCat(name, step, " waits for memory for ", program_.NameOf(output));
      }
    }
  }
  return absl::StrCat(name, "before ", step);
}

std::string ProgramProgress::MovingText(const WorkerProgram::Rank& rank) const {
  std::vector<std::string> moving;
  for (const WorkerProgram::RankOp& op : rank.ops) {
    for (const TransferMessage& output : op.outputs) {
      if (At(output).filled && !At(output).left) moving.push_back(program_.NameOf(output));
    }
  }
  if (moving.empty()) return "";
  const size_t told = std::min(moving.size(), kMovingTold);
  return absl::StrCat(
      ", moving ", absl::StrJoin(std::span(moving).first(told), ", "),
      told < moving.size() ? absl::StrCat(" and ", moving.size() - told, " more") : "");
}

}  // namespace crossmesh
