#include "worker/pipeline/layer_worker_program.h"

#include "common/base/status_macros.h"
#include "worker/pipeline/transfer_part.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr size_t kLayerNameBytesMax = 256;

template <typename... Parts>
absl::Status Unfit(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("layer program: ", parts...));
}

absl::Status CheckName(absl::string_view of, const std::string& name,
                       std::set<absl::string_view>& names) {
  if (!name.empty() && name.size() <= kLayerNameBytesMax && names.insert(name).second) {
    return absl::OkStatus();
  }
  return Unfit(of, ": expected names of their own of 1 to ", kLayerNameBytesMax, " bytes, found \"",
               name.substr(0, kLayerNameBytesMax), "\"");
}

class LayerDecoder {
 public:
  LayerDecoder(const v1::LayerProgram& proto, PartAdmission admission)
      : proto_(proto), admission_(admission) {}

  absl::StatusOr<WorkerProgram> Decode() {
    for (const v1::LayerProgram::Rank& rank : proto_.ranks()) RETURN_IF_ERROR(DecodeRank(rank));
    if (program_.ranks.empty()) return Unfit("expected ranks, found none");
    std::set<absl::string_view> names;
    for (const v1::LayerProgram::Transfer& transfer : proto_.transfers()) {
      RETURN_IF_ERROR(CheckName("transfers", transfer.name(), names));
      RETURN_IF_ERROR(DecodeTransfer(transfer));
    }
    return std::move(program_);
  }

 private:
  using Ends = std::vector<TransferMessage> WorkerProgram::RankOp::*;

  absl::Status DecodeRank(const v1::LayerProgram::Rank& proto) {
    if (proto.rank() < 0 || Find(proto.rank()) != nullptr) {
      return Unfit("expected each rank once, from 0 on, found ", proto.rank());
    }
    WorkerProgram::Rank rank{.rank = proto.rank()};
    if (proto.ops().empty() || proto.ops_size() > WorkerProgram::kOpsMax - ops_) {
      return Unfit("rank ", rank.rank, ": expected 1 to ", WorkerProgram::kOpsMax,
                   " ops at all ranks, found ", proto.ops_size());
    }
    ops_ += proto.ops_size();
    const std::string place = absl::StrCat("ops of rank ", rank.rank);
    std::set<absl::string_view> names;
    for (const v1::LayerProgram::Op& op : proto.ops()) {
      RETURN_IF_ERROR(CheckName(place, op.name(), names));
      if (!std::isfinite(op.seconds()) || op.seconds() < 0) {
        return Unfit("rank ", rank.rank, ", op ", op.name(),
                     ": expected a time of 0 s or more, found ", op.seconds());
      }
      rank.actions.push_back({.op = static_cast<int32_t>(rank.ops.size())});
      rank.ops.push_back({.name = op.name(), .seconds = op.seconds()});
    }
    program_.ranks.push_back(std::move(rank));
    return absl::OkStatus();
  }

  WorkerProgram::Rank* Find(RankIndex rank) {
    const auto found = std::ranges::find(program_.ranks, rank, &WorkerProgram::Rank::rank);
    return found == program_.ranks.end() ? nullptr : &*found;
  }

  absl::Status DecodeTransfer(const v1::LayerProgram::Transfer& proto) {
    WorkerProgram::Transfer transfer{.name = proto.name(),
                                     .from = proto.from(),
                                     .to = proto.to(),
                                     .buffers = proto.buffers(),
                                     .plan = proto.plan(),
                                     .tensors = {proto.tensors().begin(), proto.tensors().end()}};
    const auto refused = [&](const auto&... why) {
      return Unfit("transfer ", transfer.name, ": ", why...);
    };
    if (transfer.from < 0 || transfer.to < 0) {
      return refused("expected ranks from 0 on, found ", transfer.from, " and ", transfer.to);
    }
    if (!plans_.insert(transfer.plan).second) {
      return refused("expected a plan of its own, found ", transfer.plan);
    }
    absl::Status admitted = AdmitPart(proto.part(), admission_, transfer);
    if (absl::IsResourceExhausted(admitted)) return admitted;
    if (!admitted.ok()) return refused(admitted.message());
    RETURN_IF_ERROR(CheckMessages(proto, transfer));
    const auto index = static_cast<int32_t>(program_.transfers.size());
    if (transfer.sends) Join(proto, index, *Find(transfer.from), &WorkerProgram::RankOp::outputs);
    if (transfer.receives) Join(proto, index, *Find(transfer.to), &WorkerProgram::RankOp::inputs);
    for (const v1::LayerProgram::Message& message : proto.messages()) {
      transfer.ops.push_back(transfer.sends ? message.producer() : message.consumer());
    }
    program_.transfers.push_back(std::move(transfer));
    return absl::OkStatus();
  }

  absl::Status CheckMessages(const v1::LayerProgram::Transfer& proto,
                             const WorkerProgram::Transfer& transfer) {
    const WorkerProgram::Rank* const from = Find(transfer.from);
    const WorkerProgram::Rank* const to = Find(transfer.to);
    const auto refused = [&](const auto&... why) {
      return Unfit("transfer ", transfer.name, ": ", why...);
    };
    if (transfer.sends && from == nullptr) {
      return refused("expected ops of rank ", transfer.from, ", which gives it, found none");
    }
    if (transfer.receives && to == nullptr) {
      return refused("expected ops of rank ", transfer.to, ", which needs it, found none");
    }
    if (proto.messages().empty()) return refused("expected messages, found none");
    const auto fits = [](int32_t op, const WorkerProgram::Rank* rank) {
      return op >= 0 && (rank == nullptr || op < std::ssize(rank->ops));
    };
    for (int32_t index = 0; index < proto.messages_size(); ++index) {
      const v1::LayerProgram::Message& message = proto.messages(index);
      if (!fits(message.producer(), from) || !fits(message.consumer(), to)) {
        return refused("message ", index, ": expected ops of ranks ", transfer.from, " and ",
                       transfer.to, ", found ", message.producer(), " and ", message.consumer());
      }
      if (index == 0) continue;
      const v1::LayerProgram::Message& before = proto.messages(index - 1);
      if (message.producer() <= before.producer() || message.consumer() <= before.consumer()) {
        return refused("message ", index, ": expected messages in the order of the ops, found ops ",
                       message.producer(), " and ", message.consumer(), " after ",
                       before.producer(), " and ", before.consumer());
      }
    }
    return transfer.from == transfer.to ? CheckInside(proto) : absl::OkStatus();
  }

  // A message inside a rank, whose ops are done one after the other.
  static absl::Status CheckInside(const v1::LayerProgram::Transfer& proto) {
    for (int32_t index = 0; index < proto.messages_size(); ++index) {
      const v1::LayerProgram::Message& message = proto.messages(index);
      if (message.producer() >= message.consumer()) {
        return Unfit("transfer ", proto.name(), ": message ", index,
                     ": expected the op that needs it after the one that gives it, found ",
                     message.consumer(), " and ", message.producer());
      }
      if (index < proto.buffers()) continue;
      const int32_t frees = proto.messages(index - proto.buffers()).consumer();
      if (frees < message.producer()) continue;
      return Unfit("transfer ", proto.name(), ": message ", index, ": expected memory before op ",
                   message.producer(), ", found that op ", frees, " frees it");
    }
    return absl::OkStatus();
  }

  static void Join(const v1::LayerProgram::Transfer& proto, int32_t transfer,
                   WorkerProgram::Rank& rank, Ends ends) {
    const bool gives = ends == &WorkerProgram::RankOp::outputs;
    for (int32_t index = 0; index < proto.messages_size(); ++index) {
      const v1::LayerProgram::Message& message = proto.messages(index);
      WorkerProgram::RankOp& op = rank.ops[gives ? message.producer() : message.consumer()];
      (op.*ends).push_back({transfer, index});
    }
  }

  const v1::LayerProgram& proto_;
  const PartAdmission admission_;
  WorkerProgram program_;
  int64_t ops_ = 0;
  std::set<uint32_t> plans_;
};

}  // namespace

absl::StatusOr<WorkerProgram> FromProto(const v1::LayerProgram& proto, absl::string_view name,
                                        MemoryBudget& memory) {
  return LayerDecoder(proto, {.program = name, .memory = memory}).Decode();
}

}  // namespace crossmesh
