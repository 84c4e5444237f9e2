#include "planner/pipeline/planning/pipeline_codec.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/wire/object_name.h"
#include "common/wire/tensor_codec.h"
#include "planner/pipeline/planning/microbatch_sizes.h"
#include "planner/pipeline/planning/refused.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::Status CheckRange(absl::string_view field, int64_t found, int64_t least, int64_t most) {
  if (found >= least && found <= most) return absl::OkStatus();
  return Refused(field, ": expected from ", least, " to ", most, ", found ", found);
}

absl::Status CheckSeconds(absl::string_view field, double found) {
  if (std::isfinite(found) && found >= 0 && found <= PipelineLimits::kSeconds) {
    return absl::OkStatus();
  }
  return Refused(field, ": expected from 0 to ", PipelineLimits::kSeconds, ", found ", found);
}

class Decoder {
 public:
  Decoder(const v1::PipelineSpec& proto, const std::vector<std::shared_ptr<const Mesh>>& named)
      : proto_(proto), named_(named) {}

  absl::StatusOr<PipelineDescription> Decode() && {
    pipeline_.name = proto_.name();
    if (!proto_.name().empty()) RETURN_IF_ERROR(CheckObjectName("pipeline", proto_.name()));
    RETURN_IF_ERROR(DecodeMicrobatches());
    RETURN_IF_ERROR(DecodeRanks());
    RETURN_IF_ERROR(DecodeStages());
    RETURN_IF_ERROR(DecodePairs());
    RETURN_IF_ERROR(DecodeSequenceParts());
    RETURN_IF_ERROR(DecodeEdges());
    if (proto_.has_topology()) {
      ASSIGN_OR_RETURN(pipeline_.topology, At("topology", FromProto(proto_.topology())));
    }
    return std::move(pipeline_);
  }

 private:
  absl::Status DecodeMicrobatches() {
    RETURN_IF_ERROR(CheckRange("microbatches", proto_.microbatches_size(), 1,
                               PipelineLimits::kMicrobatchGroups));
    for (int i = 0; i < proto_.microbatches_size(); ++i) {
      const v1::PipelineMicrobatches& group = proto_.microbatches(i);
      const std::string field = absl::StrCat("microbatches[", i, "]");
      const auto left = PipelineLimits::kOps - static_cast<int64_t>(pipeline_.samples.size());
      RETURN_IF_ERROR(CheckRange(field + ".count", group.count(), 1, left));
      RETURN_IF_ERROR(CheckRange(field + ".samples", group.samples(), 1, PipelineLimits::kSamples));
      pipeline_.samples.insert(pipeline_.samples.end(), group.count(), group.samples());
    }
    // All later steps are linear in microbatches times stages or edges: bounded here, before
    // anything is as large.
    const auto most =
        PipelineLimits::kOps / std::max({proto_.stages_size(), proto_.edges_size(), 1});
    RETURN_IF_ERROR(CheckRange("microbatches with so many stages and edges, all counts",
                               static_cast<int64_t>(pipeline_.samples.size()), 1, most));
    sizes_ = SizesOf(pipeline_.samples);
    return CheckRange("microbatches, different samples", static_cast<int64_t>(sizes_.size()), 1,
                      PipelineLimits::kSizes);
  }

  absl::Status DecodeRanks() {
    RETURN_IF_ERROR(CheckRange("ranks", proto_.ranks_size(), 1, PipelineLimits::kRanks));
    for (RankIndex rank = 0; rank < proto_.ranks_size(); ++rank) {
      const v1::PipelineRank& given = proto_.ranks(rank);
      const std::string field = absl::StrCat("ranks[", rank, "]");
      PipelineDescription::Rank& decoded = pipeline_.ranks.emplace_back();
      RETURN_IF_ERROR(FindMesh(field, given, rank, decoded.mesh));
      RETURN_IF_ERROR(EnterDevices(field, rank, *decoded.mesh));
      RETURN_IF_ERROR(CheckBytes(field + ".device_bytes_max", given.device_bytes_max()));
      if (given.device_bytes_max() > 0) {
        decoded.device_bytes_max = ByteCount(given.device_bytes_max());
      }
    }
    return absl::OkStatus();
  }

  absl::Status FindMesh(const std::string& field, const v1::PipelineRank& given, RankIndex rank,
                        std::shared_ptr<const Mesh>& found) const {
    if (given.has_inline_mesh()) {
      ASSIGN_OR_RETURN(Mesh mesh, At(field + ".inline_mesh", FromProto(given.inline_mesh())));
      found = std::make_shared<const Mesh>(std::move(mesh));
      return absl::OkStatus();
    }
    if (rank < std::ssize(named_)) found = named_[rank];
    if (found != nullptr) return absl::OkStatus();
    return Refused(field, ".mesh: expected a name or an inline mesh");
  }

  absl::Status EnterDevices(const std::string& field, RankIndex rank, const Mesh& mesh) {
    for (const DeviceId& device : mesh.devices()) {
      const auto [known, is_new] = rank_of_device_.try_emplace(device, rank);
      if (is_new) continue;
      return Refused(field, ".mesh: expected devices of its own, found ", ToString(device),
                     ", which rank ", known->second, " has");
    }
    return absl::OkStatus();
  }

  static absl::Status CheckBytes(absl::string_view field, int64_t bytes) {
    return CheckRange(field, bytes, 0, PipelineLimits::kBytes);
  }

  absl::Status DecodeStages() {
    RETURN_IF_ERROR(CheckRange("stages", proto_.stages_size(), 1, PipelineLimits::kStages));
    std::vector<bool> has_stage(pipeline_.ranks.size(), false);
    for (StageIndex s = 0; s < proto_.stages_size(); ++s) {
      RETURN_IF_ERROR(DecodeStage(proto_.stages(s), absl::StrCat("stages[", s, "]")));
      has_stage[proto_.stages(s).rank()] = true;
    }
    for (size_t rank = 0; rank < has_stage.size(); ++rank) {
      if (!has_stage[rank]) return Refused("ranks[", rank, "]: expected a stage, found none");
    }
    return absl::OkStatus();
  }

  absl::Status DecodeStage(const v1::PipelineStage& given, const std::string& field) {
    RETURN_IF_ERROR(CheckRange(field + ".rank", given.rank(), 0, proto_.ranks_size() - 1));
    RETURN_IF_ERROR(CheckSeconds(field + ".forward_seconds", given.forward_seconds()));
    RETURN_IF_ERROR(
        CheckSeconds(field + ".input_gradient_seconds", given.input_gradient_seconds()));
    RETURN_IF_ERROR(
        CheckSeconds(field + ".weight_gradient_seconds", given.weight_gradient_seconds()));
    RETURN_IF_ERROR(CheckBytes(field + ".input_gradient_bytes", given.input_gradient_bytes()));
    RETURN_IF_ERROR(CheckBytes(field + ".weight_gradient_bytes", given.weight_gradient_bytes()));
    RETURN_IF_ERROR(CheckBytes(field + ".static_bytes", given.static_bytes()));
    PipelineDescription::Stage& stage = pipeline_.stages.emplace_back();
    stage.name = given.name();
    stage.rank = given.rank();
    stage.forward_seconds = given.forward_seconds();
    stage.input_gradient_seconds = given.input_gradient_seconds();
    stage.weight_gradient_seconds = given.weight_gradient_seconds();
    stage.input_gradient_bytes = ByteCount(given.input_gradient_bytes());
    stage.weight_gradient_bytes = ByteCount(given.weight_gradient_bytes());
    stage.static_bytes = ByteCount(given.static_bytes());
    return absl::OkStatus();
  }

  absl::Status DecodePairs() {
    RETURN_IF_ERROR(CheckRange("pairs", proto_.pairs_size(), 0, PipelineLimits::kPairs));
    for (int i = 0; i < proto_.pairs_size(); ++i) {
      RETURN_IF_ERROR(DecodePair(proto_.pairs(i), absl::StrCat("pairs[", i, "]")));
    }
    const auto stages = [](const PairProfile& pair) {
      return std::pair(pair.forward, pair.backward);
    };
    std::ranges::sort(pipeline_.pairs, {}, stages);
    const auto again = std::ranges::adjacent_find(pipeline_.pairs, {}, stages);
    if (again == pipeline_.pairs.end()) return absl::OkStatus();
    return Refused("pairs: expected that of stages ", again->forward, " and ", again->backward,
                   " once, found it again");
  }

  absl::Status DecodePair(const v1::PipelinePair& given, const std::string& field) {
    const int last = proto_.stages_size() - 1;
    RETURN_IF_ERROR(CheckRange(field + ".forward_stage", given.forward_stage(), 0, last));
    RETURN_IF_ERROR(CheckRange(field + ".backward_stage", given.backward_stage(), 0, last));
    RETURN_IF_ERROR(CheckSeconds(field + ".seconds", given.seconds()));
    const PipelineDescription::Stage& forward = pipeline_.stages[given.forward_stage()];
    const PipelineDescription::Stage& backward = pipeline_.stages[given.backward_stage()];
    if (forward.rank != backward.rank) {
      return Refused(field, ": expected stages of one rank, found stage ", given.forward_stage(),
                     " on rank ", forward.rank, " and stage ", given.backward_stage(), " on rank ",
                     backward.rank);
    }
    const double least = std::max(forward.forward_seconds, backward.backward_seconds());
    if (given.seconds() < least) {
      return Refused(field, ".seconds: expected at least the ", least, " of the longer op, found ",
                     given.seconds());
    }
    pipeline_.pairs.push_back({.forward = given.forward_stage(),
                               .backward = given.backward_stage(),
                               .seconds = given.seconds()});
    return absl::OkStatus();
  }

  // No schedule for sequences in parts has several stages on a rank.
  absl::Status DecodeSequenceParts() {
    const auto microbatches = static_cast<int32_t>(pipeline_.samples.size());
    RETURN_IF_ERROR(CheckRange("sequence_parts", proto_.sequence_parts(), 0, microbatches));
    pipeline_.sequence_parts = std::max(proto_.sequence_parts(), 1);
    if (microbatches % pipeline_.sequence_parts != 0) {
      return Refused("sequence_parts: expected a divisor of the ", microbatches,
                     " microbatches, found ", pipeline_.sequence_parts);
    }
    for (StageIndex s = 0; s < std::ssize(pipeline_.stages); ++s) {
      if (pipeline_.sequence_parts == 1 || pipeline_.stages[s].rank == s) continue;
      return Refused("sequence_parts: expected stage ", s, " on rank ", s, ", found it on rank ",
                     pipeline_.stages[s].rank);
    }
    return absl::OkStatus();
  }

  absl::Status DecodeEdges() {
    RETURN_IF_ERROR(CheckRange("edges", proto_.edges_size(), 0, PipelineLimits::kEdges));
    absl::flat_hash_set<std::pair<StageIndex, StageIndex>> known;
    for (int i = 0; i < proto_.edges_size(); ++i) {
      const v1::PipelineEdge& given = proto_.edges(i);
      const std::string field =
          absl::StrCat("edges[", i, "] (stage ", given.from(), " to ", given.to(), ")");
      if (given.from() < 0 || given.from() >= given.to() || given.to() >= proto_.stages_size()) {
        return Refused(field, ": expected one of the ", proto_.stages_size(),
                       " stages and a later one");
      }
      if (!known.emplace(given.from(), given.to()).second) {
        return Refused(field, ": expected it once, found it again");
      }
      RETURN_IF_ERROR(DecodeEdge(given, field));
    }
    return absl::OkStatus();
  }

  absl::Status DecodeEdge(const v1::PipelineEdge& given, const std::string& field) {
    PipelineDescription::Edge& edge = pipeline_.edges.emplace_back();
    edge.from = given.from();
    edge.to = given.to();
    if (given.has_forward_seconds()) {
      RETURN_IF_ERROR(CheckSeconds(field + ".forward_seconds", given.forward_seconds()));
      edge.forward_seconds = given.forward_seconds();
    }
    if (given.has_backward_seconds()) {
      RETURN_IF_ERROR(CheckSeconds(field + ".backward_seconds", given.backward_seconds()));
      edge.backward_seconds = given.backward_seconds();
    }
    RETURN_IF_ERROR(
        CheckRange(field + ".tensors", given.tensors_size(), 0, PipelineLimits::kTensorsOfEdge));
    if (given.tensors_size() == 0 && !(edge.forward_seconds && edge.backward_seconds)) {
      return Refused(field, ": expected tensors, or the seconds of both directions, found neither");
    }
    absl::flat_hash_set<std::string> names;
    for (int t = 0; t < given.tensors_size(); ++t) {
      const std::string& name = given.tensors(t).tensor().name();
      const std::string of_tensor = absl::StrCat(field, ".tensors[", t, "] \"", name, "\"");
      if (!names.insert(name).second) {
        return Refused(of_tensor, ": expected another name than those before it");
      }
      RETURN_IF_ERROR(DecodeTensor(given.tensors(t), of_tensor, edge));
    }
    return absl::OkStatus();
  }

  absl::Status DecodeTensor(const v1::PipelineTensor& given, const std::string& field,
                            PipelineDescription::Edge& edge) const {
    PipelineDescription::Tensor& tensor = edge.tensors.emplace_back();
    ASSIGN_OR_RETURN(tensor.tensor, At(field, FromProto(given.tensor())));
    // A manifest of one checks what holds for any tensor, such as its name and its size.
    RETURN_IF_ERROR(At(field, Manifest::Create({tensor.tensor}).status()));
    if (given.has_batch_dimension()) {
      RETURN_IF_ERROR(CheckBatchDimension(given, field, tensor.tensor.shape));
      tensor.batch_dimension = given.batch_dimension();
    }
    ASSIGN_OR_RETURN(tensor.source,
                     At(field + ": source layout", ParseLayout(given.source_layout())));
    ASSIGN_OR_RETURN(tensor.destination,
                     At(field + ": destination layout", ParseLayout(given.destination_layout())));
    for (const MicrobatchSize& size : sizes_) {
      const std::string of_size =
          size == sizes_.front() ? field : absl::StrCat(field, " for ", size.samples, " samples");
      ASSIGN_OR_RETURN(const TensorSpec scaled, At(of_size, TensorOfSize(tensor, size.samples)));
      RETURN_IF_ERROR(CheckFits(of_size + ": source", tensor.source, edge.from, scaled.shape));
      RETURN_IF_ERROR(
          CheckFits(of_size + ": destination", tensor.destination, edge.to, scaled.shape));
    }
    return absl::OkStatus();
  }

  absl::Status CheckBatchDimension(const v1::PipelineTensor& given, const std::string& field,
                                   const Shape& shape) const {
    const int32_t dimension = given.batch_dimension();
    if (dimension < 0 || dimension >= shape.rank()) {
      return Refused(field, ".batch_dimension: expected one of the ", shape.rank(),
                     " dimensions of ", ToString(shape), ", from 0, found ", dimension);
    }
    if (shape[dimension] == sizes_.front().samples) return absl::OkStatus();
    return Refused(field, ".batch_dimension: expected dimension ", dimension, " of ",
                   ToString(shape), " to have the ", sizes_.front().samples,
                   " samples of the first microbatch, found ", shape[dimension]);
  }

  absl::Status CheckFits(const std::string& field, const Layout& layout, StageIndex stage,
                         const Shape& shape) const {
    const Mesh& mesh = *pipeline_.ranks[pipeline_.stages[stage].rank].mesh;
    return At(field, layout.Validate(mesh, shape));
  }

  const v1::PipelineSpec& proto_;
  const std::vector<std::shared_ptr<const Mesh>>& named_;
  std::vector<MicrobatchSize> sizes_;
  absl::flat_hash_map<DeviceId, RankIndex> rank_of_device_;
  PipelineDescription pipeline_;
};

}  // namespace

absl::StatusOr<PipelineDescription> FromProto(
    const v1::PipelineSpec& proto, const std::vector<std::shared_ptr<const Mesh>>& named) {
  return Decoder(proto, named).Decode();
}

}  // namespace crossmesh
