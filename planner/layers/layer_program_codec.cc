#include "planner/layers/layer_program_codec.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/mesh/manifest.h"
#include "common/wire/object_name.h"
#include "common/wire/tensor_codec.h"
#include "planner/layers/planned_layers.h"
#include "planner/pipeline/planning/refused.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::Status CheckWithin(absl::string_view field, int64_t found, int64_t least, int64_t most) {
  if (found >= least && found <= most) return absl::OkStatus();
  return Refused(field, ": expected from ", least, " to ", most, ", found ", found);
}

absl::StatusOr<ReductionKind> ReductionOf(const std::string& name) {
  if (name.empty()) return ReductionKind::kSum;
  for (const ReductionKind kind : {ReductionKind::kSum, ReductionKind::kMin, ReductionKind::kMax}) {
    if (ReductionKindName(kind) == name) return kind;
  }
  return Refused("reduction: expected sum, min or max, found \"", name, "\"");
}

absl::StatusOr<LayerProgram::Tensor> TensorOf(const v1::LayerProgramSpec::Tensor& given) {
  ASSIGN_OR_RETURN(TensorSpec spec, FromProto(given.tensor()));
  // A manifest of one checks what holds for any tensor, such as its name and its size.
  RETURN_IF_ERROR(Manifest::Create({spec}).status());
  ASSIGN_OR_RETURN(Layout source, At("source layout", ParseLayout(given.source_layout())));
  ASSIGN_OR_RETURN(Layout destination,
                   At("destination layout", ParseLayout(given.destination_layout())));
  return LayerProgram::Tensor{.tensor = std::move(spec),
                              .source = std::move(source),
                              .destination = std::move(destination)};
}

class LayerDecoder {
 public:
  LayerDecoder(const v1::LayerProgramSpec& proto,
               const std::vector<std::shared_ptr<const Mesh>>& named)
      : proto_(proto), named_(named) {}

  absl::StatusOr<DescribedLayers> Decode() && {
    if (!proto_.name().empty()) RETURN_IF_ERROR(CheckObjectName("layers", proto_.name()));
    layers_.program.name = proto_.name();
    RETURN_IF_ERROR(DecodeRanks());
    RETURN_IF_ERROR(DecodeOps());
    RETURN_IF_ERROR(
        CheckWithin("transfers", proto_.transfers_size(), 1, PlannedLayers::kTransfersMax));
    for (int t = 0; t < proto_.transfers_size(); ++t) {
      RETURN_IF_ERROR(At(absl::StrCat("transfers[", t, "] \"", proto_.transfers(t).name(), "\""),
                         DecodeTransfer(proto_.transfers(t))));
    }
    if (proto_.has_topology()) {
      ASSIGN_OR_RETURN(layers_.topology, At("topology", FromProto(proto_.topology())));
    }
    RETURN_IF_ERROR(Validate(layers_.program));
    return std::move(layers_);
  }

 private:
  absl::Status DecodeRanks() {
    RETURN_IF_ERROR(CheckWithin("ranks", proto_.ranks_size(), 1, DescribedLayers::kRanksMax));
    for (RankIndex rank = 0; rank < proto_.ranks_size(); ++rank) {
      RETURN_IF_ERROR(At(absl::StrCat("ranks[", rank, "]"), DecodeRank(rank)));
    }
    return absl::OkStatus();
  }

  absl::Status DecodeRank(RankIndex rank) {
    const v1::PipelineRank& given = proto_.ranks(rank);
    LayerProgram::Rank& decoded = layers_.program.ranks.emplace_back();
    if (given.has_inline_mesh()) {
      ASSIGN_OR_RETURN(Mesh mesh, At("inline_mesh", FromProto(given.inline_mesh())));
      decoded.mesh = std::make_shared<const Mesh>(std::move(mesh));
    } else if (rank < std::ssize(named_)) {
      decoded.mesh = named_[rank];
    }
    if (decoded.mesh == nullptr) return Refused("mesh: expected a name or an inline mesh");
    for (const DeviceId& device : decoded.mesh->devices()) {
      const auto [known, is_new] = rank_of_device_.try_emplace(device, rank);
      if (is_new) continue;
      return Refused("mesh: expected devices of its own, found ", ToString(device), ", which rank ",
                     known->second, " has");
    }
    RETURN_IF_ERROR(
        CheckWithin("device_bytes_max", given.device_bytes_max(), 0, DescribedLayers::kBytesMax));
    if (given.device_bytes_max() > 0) {
      decoded.device_bytes_max = ByteCount(given.device_bytes_max());
    }
    return absl::OkStatus();
  }

  absl::Status DecodeOps() {
    RETURN_IF_ERROR(CheckWithin("ops", proto_.ops_size(), 1, DescribedLayers::kOpsMax));
    for (const v1::LayerProgramSpec::Op& op : proto_.ops()) {
      if (!(op.seconds() >= 0 && op.seconds() <= DescribedLayers::kSecondsMax)) {
        return Refused("ops[", layers_.program.ops.size(), "].seconds: expected from 0 to ",
                       DescribedLayers::kSecondsMax, ", found ", op.seconds());
      }
      layers_.program.ops.push_back(
          {.name = op.name(), .rank = op.rank(), .seconds = op.seconds(), .layer = op.layer()});
    }
    return absl::OkStatus();
  }

  absl::Status DecodeTransfer(const v1::LayerProgramSpec::Transfer& given) {
    LayerProgram::Transfer transfer{
        .name = given.name(),
        .partial = {given.partial_axes().begin(), given.partial_axes().end()},
        .buffers = std::max(given.buffers(), 1)};
    RETURN_IF_ERROR(CheckWithin("tensors", given.tensors_size(), 1, DescribedLayers::kTensorsMax));
    RETURN_IF_ERROR(CheckWithin("buffers", given.buffers(), 0, DescribedLayers::kBuffersMax));
    ASSIGN_OR_RETURN(transfer.reduction, ReductionOf(given.reduction()));
    std::set<absl::string_view> names;
    for (int t = 0; t < given.tensors_size(); ++t) {
      const std::string& name = given.tensors(t).tensor().name();
      const std::string field = absl::StrCat("tensors[", t, "] \"", name, "\"");
      if (!names.insert(name).second) {
        return Refused(field, ": expected another name than those before it");
      }
      ASSIGN_OR_RETURN(LayerProgram::Tensor tensor, At(field, TensorOf(given.tensors(t))));
      transfer.tensors.push_back(std::move(tensor));
    }
    messages_ += given.messages_size();
    RETURN_IF_ERROR(CheckWithin("messages, with those of transfers before it", messages_, 1,
                                PlannedLayers::kMessagesMax));
    for (const v1::LayerProgramSpec::Message& message : given.messages()) {
      transfer.messages.push_back({message.producer(), message.consumer()});
    }
    layers_.program.transfers.push_back(std::move(transfer));
    return absl::OkStatus();
  }

  const v1::LayerProgramSpec& proto_;
  const std::vector<std::shared_ptr<const Mesh>>& named_;
  absl::flat_hash_map<DeviceId, RankIndex> rank_of_device_;
  int64_t messages_ = 0;
  DescribedLayers layers_;
};

}  // namespace

absl::StatusOr<DescribedLayers> FromProto(const v1::LayerProgramSpec& proto,
                                          const std::vector<std::shared_ptr<const Mesh>>& named) {
  return LayerDecoder(proto, named).Decode();
}

v1::LayerProgramSpec ToProto(const LayerProgram& program) {
  v1::LayerProgramSpec proto;
  proto.set_name(program.name);
  for (const LayerProgram::Rank& rank : program.ranks) {
    v1::PipelineRank& out = *proto.add_ranks();
    *out.mutable_inline_mesh() = ToProto(*rank.mesh);
    if (rank.device_bytes_max) out.set_device_bytes_max(rank.device_bytes_max->value());
  }
  for (const LayerProgram::Op& op : program.ops) {
    v1::LayerProgramSpec::Op& out = *proto.add_ops();
    out.set_name(op.name);
    out.set_rank(op.rank);
    out.set_seconds(op.seconds);
    out.set_layer(op.layer);
  }
  for (const LayerProgram::Transfer& transfer : program.transfers) {
    v1::LayerProgramSpec::Transfer& out = *proto.add_transfers();
    out.set_name(transfer.name);
    for (const LayerProgram::Tensor& tensor : transfer.tensors) {
      v1::LayerProgramSpec::Tensor& of_transfer = *out.add_tensors();
      *of_transfer.mutable_tensor() = ToProto(tensor.tensor);
      of_transfer.set_source_layout(ToString(tensor.source));
      of_transfer.set_destination_layout(ToString(tensor.destination));
    }
    out.mutable_partial_axes()->Assign(transfer.partial.begin(), transfer.partial.end());
    out.set_reduction(std::string(ReductionKindName(transfer.reduction)));
    out.set_buffers(transfer.buffers);
    for (const LayerProgram::Message& message : transfer.messages) {
      v1::LayerProgramSpec::Message& of_transfer = *out.add_messages();
      of_transfer.set_producer(message.producer);
      of_transfer.set_consumer(message.consumer);
    }
  }
  return proto;
}

}  // namespace crossmesh
