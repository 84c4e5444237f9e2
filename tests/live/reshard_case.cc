#include "tests/live/reshard_case.h"

#include "client/planning/layout_rule_text.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/mesh/mesh.h"
#include "common/reshard/reshard_tensors.h"
#include "common/wire/tensor_codec.h"

#include <atomic>
#include <cstring>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int64_t kSamples = 4096;

void AddRule(v1::ReshardSide& side, const std::string& pattern, const std::string& layout) {
  v1::LayoutRule& rule = *side.add_rules();
  rule.set_pattern(pattern);
  rule.set_layout(layout);
}

// `rules`, or `layout` for all tensors where there are none.
absl::Status AddRules(v1::ReshardSide& side, const std::string& rules, const std::string& layout) {
  if (rules.empty()) return AddRule(side, "*", layout), absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<v1::LayoutRule> split, SplitRules(rules));
  side.mutable_rules()->Add(split.begin(), split.end());
  return absl::OkStatus();
}

// Spread over the whole of it.
std::vector<std::byte> SamplesOf(std::span<const std::byte> memory) {
  std::vector<std::byte> samples;
  for (int64_t i = 0; i < kSamples; ++i) {
    // Another process writes it: every look is a real one.
    const std::byte* const place = &memory[memory.size() * i / kSamples];
    samples.push_back(std::byte{*reinterpret_cast<const volatile uint8_t*>(place)});
  }
  return samples;
}

}  // namespace

void VersionedValues::Write(int64_t tensor, int64_t first, std::span<std::byte> out) const {
  generated_.Write(tensor, first, out);
  for (std::byte& byte : out) byte ^= std::byte{version_};
}

void SummedValues::Write(int64_t tensor, int64_t first, std::span<std::byte> out) const {
  for (size_t at = 0; at < out.size(); at += sizeof(float)) {
    const int64_t element = first + static_cast<int64_t>(at / sizeof(float));
    const int64_t summand = (element * 7 + tensor * 13 + int64_t{31} * version_) % 101 - 50;
    const auto value = static_cast<float>(summand * summands_);
    std::memcpy(&out[at], &value, sizeof(value));
  }
}

Manifest TensorsOf(int64_t bytes) {
  const auto tensor = [](const char* name, DataType type, std::vector<int64_t> shape) {
    return TensorSpec{.name = name, .type = type, .shape = Shape::Create(shape).value()};
  };
  const int64_t rows = bytes / 2 / (int64_t{4096} * 8);
  absl::StatusOr<Manifest> manifest =
      Manifest::Create({tensor("norm.weight", DataType::kF32, {1021}),
                        tensor("up.weight", DataType::kI64, {rows, 4096}),
                        tensor("odd.weight", DataType::kU8, {37, 41, 3}),
                        tensor("down.weight", DataType::kI64, {4096, rows})});
  CHECK_OK(manifest.status());
  return *std::move(manifest);
}

Manifest EvenTensors() {
  const auto tensor = [](const char* name, DataType type, std::vector<int64_t> shape) {
    return TensorSpec{.name = name, .type = type, .shape = Shape::Create(shape).value()};
  };
  absl::StatusOr<Manifest> manifest =
      Manifest::Create({tensor("norm.weight", DataType::kF32, {1022}),
                        tensor("up.weight", DataType::kI64, {256, 4096}),
                        tensor("experts.weight", DataType::kU8, {6, 41, 10})});
  CHECK_OK(manifest.status());
  return *std::move(manifest);
}

absl::StatusOr<DescribedReshard> DescribedReshard::Create(const ReshardOptions& options) {
  DescribedReshard made;
  ASSIGN_OR_RETURN(const Mesh source, ParseMesh(options.source));
  ASSIGN_OR_RETURN(const Mesh destination, ParseMesh(options.destination));
  *made.spec.mutable_inline_manifest() = ToProto(options.manifest);
  v1::ReshardSide& from = *made.spec.mutable_source();
  v1::ReshardSide& to = *made.spec.mutable_destination();
  *from.mutable_inline_mesh() = ToProto(source);
  *to.mutable_inline_mesh() = ToProto(destination);
  RETURN_IF_ERROR(AddRules(from, options.source_rules, options.source_layout));
  for (const std::string& name : options.whole_tensors) AddRule(to, name, "[...]");
  RETURN_IF_ERROR(AddRules(to, options.destination_rules, options.destination_layout));
  from.set_storage(options.source_storage);
  to.set_storage(options.destination_storage);
  for (const std::string& axis : options.replica_axes) made.spec.add_replica_axes(axis);
  made.spec.set_binding(options.binding);
  for (const std::string& name : options.source_partial) {
    made.spec.mutable_redistribution()->add_source_partial(name);
    const std::optional<int> axis = source.FindAxis(name);
    if (!axis.has_value()) return absl::InvalidArgumentError(absl::StrCat("no axis ", name));
    made.summands *= source.axes()[*axis].size;
  }
  ASSIGN_OR_RETURN(const LayoutRules source_rules, FromProto(from.rules()));
  ASSIGN_OR_RETURN(const LayoutRules destination_rules, FromProto(to.rules()));
  ASSIGN_OR_RETURN(TensorTable tensors,
                   BuildReshardTensors(options.manifest, {source, source_rules},
                                       {destination, destination_rules}, options.replica_axes));
  made.tensors = std::make_unique<const TensorTable>(std::move(tensors));
  return made;
}

absl::StatusOr<std::unique_ptr<ReshardCase>> ReshardCase::Create(const ReshardOptions& options,
                                                                 LiveCluster& cluster) {
  ASSIGN_OR_RETURN(DescribedReshard reshard, DescribedReshard::Create(options));
  std::unique_ptr<ReshardCase> result(
      new ReshardCase(options.manifest, std::move(reshard), cluster));
  for (const std::string& worker : cluster.workers()) RETURN_IF_ERROR(result->Prepare(worker));
  return result;
}

absl::Status ReshardCase::Prepare(const std::string& worker) {
  sources_.erase(worker);
  destinations_.erase(worker);
  ASSIGN_OR_RETURN(Holding source, MakeHolding(worker, Side::kSource, 1));
  if (source.storage != nullptr) sources_.emplace(worker, std::move(source));
  ASSIGN_OR_RETURN(Holding destination, MakeHolding(worker, Side::kDestination, 0));
  if (destination.storage != nullptr) destinations_.emplace(worker, std::move(destination));
  return absl::OkStatus();
}

std::unique_ptr<TensorValues> ReshardCase::ValuesOf(Side side, uint8_t version) const {
  if (!reshard_.spec.has_redistribution()) {
    return std::make_unique<VersionedValues>(manifest(), version);
  }
  return std::make_unique<SummedValues>(manifest(), version,
                                        side == Side::kSource ? 1 : reshard_.summands);
}

absl::StatusOr<ReshardCase::Holding> ReshardCase::MakeHolding(const std::string& worker, Side side,
                                                              uint8_t version) {
  const std::optional<DeviceRank> rank = reshard_.tensors->FindDevice({.host = worker});
  if (!rank) return Holding{};
  Holding holding{.tiles = std::make_unique<StorageTiles>(*reshard_.tensors, side, *rank)};
  if (holding.tiles->bytes() == 0) return Holding{};
  ASSIGN_OR_RETURN(MemoryClient memory, cluster_.Memory(worker));
  ASSIGN_OR_RETURN(MappedStorage storage,
                   memory.Create(side == Side::kSource ? reshard_.spec.source().storage()
                                                       : reshard_.spec.destination().storage(),
                                 absl::StrCat(worker, ".0"), holding.tiles->bytes()));
  const std::unique_ptr<TensorValues> values = ValuesOf(side, version);
  std::atomic<int64_t> done_bytes = 0;
  holding.tiles->Fill(*values, storage.bytes(), done_bytes);
  holding.samples = SamplesOf(storage.bytes());
  holding.storage = std::make_unique<MappedStorage>(std::move(storage));
  return holding;
}

absl::Status ReshardCase::FillSource(uint8_t version) {
  const std::unique_ptr<TensorValues> values = ValuesOf(Side::kSource, version);
  for (auto& [worker, holding] : sources_) {
    std::atomic<int64_t> done_bytes = 0;
    holding.tiles->Fill(*values, holding.storage->bytes(), done_bytes);
  }
  return absl::OkStatus();
}

absl::Status ReshardCase::Check(const std::string& worker, uint8_t version) const {
  ASSIGN_OR_RETURN(const MappedStorage now, OpenDestination(worker));
  const std::unique_ptr<TensorValues> values = ValuesOf(Side::kDestination, version);
  std::atomic<int64_t> done_bytes = 0;
  return destinations_.at(worker).tiles->Check(*values, now.bytes(), done_bytes);
}

absl::StatusOr<bool> ReshardCase::IsDirty(const std::string& worker) const {
  ASSIGN_OR_RETURN(const MappedStorage now, OpenDestination(worker));
  return now.description().dirty;
}

absl::StatusOr<MappedStorage> ReshardCase::OpenDestination(const std::string& worker) const {
  return OpenStorage(cluster_.PathOf(worker + ".memory"), reshard_.spec.destination().storage(),
                     absl::StrCat(worker, ".0"));
}

absl::Status ReshardCase::CheckAll(uint8_t version) const {
  for (const auto& [worker, holding] : destinations_) RETURN_IF_ERROR(Check(worker, version));
  return absl::OkStatus();
}

std::vector<std::string> ReshardCase::receivers() const {
  std::vector<std::string> workers;
  for (const auto& [worker, holding] : destinations_) workers.push_back(worker);
  return workers;
}

bool ReshardCase::HasArrived(const std::string& worker) const {
  const Holding& holding = destinations_.at(worker);
  return SamplesOf(holding.storage->bytes()) != holding.samples;
}

}  // namespace crossmesh
