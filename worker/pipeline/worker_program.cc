#include "worker/pipeline/worker_program.h"

#include "common/base/status_macros.h"
#include "worker/pipeline/transfer_part.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <utility>

#include <absl/container/btree_map.h>
#include <absl/container/btree_set.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

template <typename... Parts>
absl::Status Refused(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("program: ", parts...));
}

// "0>1F3": the message that passes from stage 0 to stage 1 after 0F3.
struct InlineMessage {
  StageIndex source = 0;
  StageIndex destination = 0;
  MicrobatchIndex microbatch = 0;

  bool backward() const { return source > destination; }
};

absl::StatusOr<InlineMessage> ParseMessage(absl::string_view text) {
  InlineMessage message;
  const std::vector<absl::string_view> ends = absl::StrSplit(text, absl::MaxSplits('>', 1));
  const size_t letter = ends[1].find_first_of("FB");
  if (!absl::SimpleAtoi(ends[0], &message.source) || letter == absl::string_view::npos ||
      !absl::SimpleAtoi(ends[1].substr(0, letter), &message.destination) ||
      !absl::SimpleAtoi(ends[1].substr(letter + 1), &message.microbatch) ||
      (ends[1][letter] == 'B') != message.backward()) {
    return Refused("expected an op or a transfer such as 0>1F3, found \"", text, "\"");
  }
  return message;
}

absl::Status FusedWithNone(RankIndex rank, const Op& op, absl::string_view after) {
  return Refused("rank ", rank, ", op ", ToString(op),
                 ": expected a forward op, fused with the backward op right after it, found ",
                 after, " after it");
}

class Decoder {
 public:
  Decoder(const v1::PipelineProgram& proto, absl::string_view name, MemoryBudget& memory)
      : proto_(proto), name_(name), memory_(memory) {}

  absl::StatusOr<WorkerProgram> Decode() {
    RETURN_IF_ERROR(DecodeMicrobatches());
    RETURN_IF_ERROR(DecodeStages());
    RETURN_IF_ERROR(DecodePairs());
    RETURN_IF_ERROR(DecodeRanks());
    for (const v1::PipelineProgram::Transfer& transfer : proto_.transfers()) {
      RETURN_IF_ERROR(DecodeTransfer(transfer));
    }
    RETURN_IF_ERROR(PlaceMessages());
    return std::move(program_);
  }

 private:
  struct Stage {
    RankIndex rank = 0;
    double seconds[4] = {};  // by OpKind

    double SecondsOf(OpKind kind) const { return seconds[static_cast<size_t>(kind)]; }
  };
  // A message's place among the actions of a rank, to be resolved when the transfers are known.
  struct Placed {
    size_t rank = 0;
    InlineMessage message;
    size_t before_op = 0;  // of the rank
  };

  absl::Status DecodeMicrobatches() {
    for (const v1::PipelineProgram::Microbatches& run : proto_.microbatches()) {
      // Bounded before they take memory.
      if (run.count() < 1 || run.samples() < 1 ||
          run.count() > WorkerProgram::kOpsMax - std::ssize(program_.samples)) {
        return Refused("microbatches: expected 1 to ", WorkerProgram::kOpsMax,
                       " of at least one sample, found ", run.count(), " of ", run.samples());
      }
      program_.samples.insert(program_.samples.end(), run.count(), run.samples());
    }
    if (program_.samples.empty()) return Refused("expected microbatches, found none");
    return absl::OkStatus();
  }

  absl::Status DecodeStages() {
    for (const v1::PipelineProgram::Stage& stage : proto_.stages()) {
      Stage decoded{.rank = stage.rank()};
      const auto set = [&](OpKind kind, double seconds) {
        decoded.seconds[static_cast<size_t>(kind)] = seconds;
        return std::isfinite(seconds) && seconds >= 0;
      };
      if (!set(OpKind::kForward, stage.forward_seconds()) ||
          !set(OpKind::kInputGradient, stage.input_gradient_seconds()) ||
          !set(OpKind::kWeightGradient, stage.weight_gradient_seconds()) ||
          !set(OpKind::kBackward,
               stage.input_gradient_seconds() + stage.weight_gradient_seconds())) {
        return Refused("stage ", stage.stage(), ": expected times of 0 or more");
      }
      if (!stages_.emplace(stage.stage(), decoded).second) {
        return Refused("stage ", stage.stage(), " is there twice");
      }
    }
    return absl::OkStatus();
  }

  absl::Status DecodePairs() {
    for (const v1::PipelinePair& pair : proto_.pairs()) {
      const auto refused = [&pair](const auto&... why) {
        return Refused("pair of stages ", pair.forward_stage(), " and ", pair.backward_stage(),
                       ": ", why...);
      };
      const auto forward = stages_.find(pair.forward_stage());
      const auto backward = stages_.find(pair.backward_stage());
      if (forward == stages_.end() || backward == stages_.end() ||
          forward->second.rank != backward->second.rank) {
        return refused("expected stages of one rank");
      }
      if (!std::isfinite(pair.seconds()) || pair.seconds() < 0) {
        return refused("expected a time of 0 or more, found ", pair.seconds());
      }
      const double overlap = forward->second.SecondsOf(OpKind::kForward) +
                             backward->second.SecondsOf(OpKind::kBackward) - pair.seconds();
      if (!overlap_.emplace(std::pair(forward->first, backward->first), overlap).second) {
        return refused("is there twice");
      }
    }
    return absl::OkStatus();
  }

  absl::Status DecodeRanks() {
    absl::btree_set<RankIndex> seen;
    for (const v1::PipelineProgram::Rank& rank : proto_.ranks()) {
      if (!seen.insert(rank.rank()).second) return Refused("rank ", rank.rank(), " is there twice");
      program_.ranks.push_back({.rank = rank.rank()});
      for (const absl::string_view text : absl::StrSplit(rank.actions(), ' ', absl::SkipEmpty())) {
        RETURN_IF_ERROR(DecodeAction(text));
      }
      RETURN_IF_ERROR(FuseOps(program_.ranks.back()));
    }
    if (program_.ranks.empty()) return Refused("expected ranks, found none");
    return absl::OkStatus();
  }

  absl::Status DecodeAction(absl::string_view text) {
    WorkerProgram::Rank& rank = program_.ranks.back();
    if (absl::StrContains(text, '>')) {
      ASSIGN_OR_RETURN(const InlineMessage message, ParseMessage(text));
      // Two fused ops are one action.
      if (!rank.ops.empty() && rank.ops.back().op.is_fused) {
        return FusedWithNone(rank.rank, rank.ops.back().op, text);
      }
      placed_.push_back({program_.ranks.size() - 1, message, rank.ops.size()});
      program_.blocking = true;
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const Op op, ParseOp(text));
    const auto stage = stages_.find(op.stage);
    if (stage == stages_.end() || stage->second.rank != rank.rank) {
      return Refused("rank ", rank.rank, ": expected ops of its stages, found ", ToString(op));
    }
    if (op.microbatch >= std::ssize(program_.samples)) {
      return Refused("op ", ToString(op), ": expected microbatches below ",
                     program_.samples.size());
    }
    if (!ops_.insert(Unfused(op)).second) return Refused("op ", ToString(op), " is there twice");
    const int64_t samples = program_.samples[op.microbatch];
    rank.ops.push_back({.op = op,
                        .samples = samples,
                        .seconds = stage->second.SecondsOf(op.kind) * ScaleOf(samples)});
    return absl::OkStatus();
  }

  // Gives fused ops their time; each is a forward op before a backward op.
  absl::Status FuseOps(WorkerProgram::Rank& rank) const {
    for (size_t i = 0; i < rank.ops.size(); ++i) {
      WorkerProgram::RankOp& forward = rank.ops[i];
      if (!forward.op.is_fused) continue;
      if (i + 1 == rank.ops.size()) return FusedWithNone(rank.rank, forward.op, "nothing");
      const WorkerProgram::RankOp& backward = rank.ops[i + 1];
      if (forward.op.kind != OpKind::kForward || !GivesInputGradient(backward.op.kind)) {
        return FusedWithNone(rank.rank, forward.op, ToString(backward.op));
      }
      forward.seconds += backward.seconds - OverlapOf(forward, backward);
    }
    return absl::OkStatus();
  }

  // As far as the smaller microbatch goes: PipelineProfile::SecondsOfPair.
  double OverlapOf(const WorkerProgram::RankOp& forward,
                   const WorkerProgram::RankOp& backward) const {
    const auto overlap = overlap_.find(std::pair(forward.op.stage, backward.op.stage));
    if (overlap == overlap_.end() || backward.op.kind != OpKind::kBackward) return 0;
    return std::min(ScaleOf(forward.samples), ScaleOf(backward.samples)) * overlap->second;
  }

  // Times are those of the first microbatch, and grow with the samples.
  double ScaleOf(int64_t samples) const {
    return static_cast<double>(samples) / static_cast<double>(program_.samples.front());
  }

  absl::Status DecodeTransfer(const v1::PipelineProgram::Transfer& proto) {
    WorkerProgram::Transfer transfer{.edge = proto.edge(),
                                     .backward = proto.backward(),
                                     .from = proto.from(),
                                     .to = proto.to(),
                                     .samples = proto.samples(),
                                     .buffers = proto.buffers(),
                                     .plan = proto.plan(),
                                     .tensors = {proto.tensors().begin(), proto.tensors().end()}};
    const auto refused = [&](const auto&... why) {
      return Refused("transfer ", transfer.Name(), " for ", transfer.samples, " samples: ", why...);
    };
    if (!plans_.insert(transfer.plan).second ||
        !transfer_of_.emplace(KeyOf(transfer), program_.transfers.size()).second) {
      return refused("is there twice, or its plan ", transfer.plan, " is");
    }
    const absl::Status admitted =
        AdmitPart(proto.part(), {.program = name_, .memory = memory_}, transfer);
    if (absl::IsResourceExhausted(admitted)) return admitted;
    if (!admitted.ok()) return refused(admitted.message());
    const auto index = static_cast<int32_t>(program_.transfers.size());
    if (transfer.sends) {
      transfer.microbatches =
          Join(transfer, transfer.producer(), index, &WorkerProgram::RankOp::outputs);
      if (transfer.microbatches.empty()) return refused("has no op that gives what it sends");
    }
    if (transfer.receives) {
      std::vector<MicrobatchIndex> received =
          Join(transfer, transfer.consumer(), index, &WorkerProgram::RankOp::inputs);
      if (received.empty()) return refused("has no op that needs what it receives");
      if (transfer.sends && received != transfer.microbatches) {
        return refused("expected messages in one order at both ends");
      }
      transfer.microbatches = std::move(received);
    }
    program_.transfers.push_back(std::move(transfer));
    return absl::OkStatus();
  }

  // Tells the ops of a stage of the transfer's messages; returns their microbatches.
  std::vector<MicrobatchIndex> Join(
      const WorkerProgram::Transfer& transfer, StageIndex stage, int32_t index,
      std::vector<TransferMessage> WorkerProgram::RankOp::* messages) {
    std::vector<MicrobatchIndex> microbatches;
    for (WorkerProgram::Rank& rank : program_.ranks) {
      for (WorkerProgram::RankOp& op : rank.ops) {
        const bool passes =
            transfer.backward ? GivesInputGradient(op.op.kind) : op.op.kind == OpKind::kForward;
        if (op.op.stage != stage || op.samples != transfer.samples || !passes) continue;
        (op.*messages).push_back({index, static_cast<int32_t>(microbatches.size())});
        microbatches.push_back(op.op.microbatch);
      }
    }
    return microbatches;
  }

  // Everything a rank does, in its order.
  absl::Status PlaceMessages() {
    // In the order of ranks and ops, as they were read.
    auto placed = placed_.begin();
    for (size_t r = 0; r < program_.ranks.size(); ++r) {
      WorkerProgram::Rank& rank = program_.ranks[r];
      for (size_t op = 0;; op += rank.StepAt(static_cast<int32_t>(op)).size()) {
        for (; placed != placed_.end() && placed->rank == r && placed->before_op == op; ++placed) {
          RETURN_IF_ERROR(PlaceMessage(rank, placed->message));
        }
        if (op == rank.ops.size()) break;
        rank.actions.push_back({.op = static_cast<int32_t>(op)});
      }
    }
    return absl::OkStatus();
  }

  absl::Status PlaceMessage(WorkerProgram::Rank& rank, const InlineMessage& placed) {
    const auto [from, to] = std::minmax(placed.source, placed.destination);
    if (placed.microbatch < 0 || placed.microbatch >= std::ssize(program_.samples)) {
      return Refused("transfer ", placed.source, ">", placed.destination,
                     ": expected microbatches below ", program_.samples.size(), ", found ",
                     placed.microbatch);
    }
    const auto found = transfer_of_.find(
        std::tuple(from, to, placed.backward(), program_.samples[placed.microbatch]));
    // One of which no device of this worker has a part.
    if (found == transfer_of_.end()) return absl::OkStatus();
    const WorkerProgram::Transfer& transfer = program_.transfers[found->second];
    const auto found_message = std::ranges::find(transfer.microbatches, placed.microbatch);
    if (found_message == transfer.microbatches.end()) {
      return Refused("transfer ", transfer.Name(), ": no op has microbatch ", placed.microbatch);
    }
    const auto stage = stages_.find(placed.source);
    const bool sends = stage != stages_.end() && stage->second.rank == rank.rank;
    if (!(sends ? transfer.sends : transfer.receives)) return absl::OkStatus();
    using Kind = WorkerProgram::Action::Kind;
    rank.actions.push_back(
        {.kind = sends ? Kind::kSend : Kind::kReceive,
         .message = {static_cast<int32_t>(found->second),
                     static_cast<int32_t>(found_message - transfer.microbatches.begin())}});
    return absl::OkStatus();
  }

  using TransferKey = std::tuple<StageIndex, StageIndex, bool, int64_t>;
  static TransferKey KeyOf(const WorkerProgram::Transfer& transfer) {
    return {transfer.from, transfer.to, transfer.backward, transfer.samples};
  }

  const v1::PipelineProgram& proto_;
  const absl::string_view name_;
  MemoryBudget& memory_;
  WorkerProgram program_;
  absl::btree_map<StageIndex, Stage> stages_;
  // By stages of a pair: how much less than both ops it takes.
  absl::btree_map<std::pair<StageIndex, StageIndex>, double> overlap_;
  absl::btree_set<Op> ops_;
  absl::btree_set<uint32_t> plans_;
  absl::btree_map<TransferKey, size_t> transfer_of_;
  std::vector<Placed> placed_;
};

}  // namespace

std::string WorkerProgram::Transfer::Name() const {
  if (!name.empty()) return name;
  return absl::StrCat(producer(), ">", consumer());
}

std::string WorkerProgram::Rank::NameOfStep(int32_t op) const {
  return absl::StrJoin(StepAt(op), " ", [](std::string* text, const RankOp& one) {
    absl::StrAppend(text, one.Name());
  });
}

std::string WorkerProgram::NameOf(const TransferMessage& message) const {
  const Transfer& transfer = transfers[message.transfer];
  if (!transfer.ops.empty()) {
    const RankIndex end = transfer.sends ? transfer.from : transfer.to;
    const Rank& rank = *std::ranges::find(ranks, end, &Rank::rank);
    return absl::StrCat(transfer.name, transfer.sends ? " after " : " before ",
                        rank.ops[transfer.ops[message.index]].Name());
  }
  return absl::StrCat("microbatch ", transfer.microbatches[message.index], " of ", transfer.Name());
}

absl::StatusOr<WorkerProgram> FromProto(const v1::PipelineProgram& proto, absl::string_view name,
                                        MemoryBudget& memory) {
  return Decoder(proto, name, memory).Decode();
}

}  // namespace crossmesh
