#include "examples/pipeline_training/checkpoint_files.h"

#include "client/safetensors/writer.h"
#include "common/base/status_macros.h"
#include "common/mesh/shape.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh::training {
namespace {

constexpr int kRank = 2;
constexpr absl::string_view kSteps = "steps";

// Of "layer3.qkv [4:6, 0:16]".
struct BoxName {
  absl::string_view tensor;
  Box box;
};
std::optional<BoxName> ParseBoxName(absl::string_view name) {
  const size_t space = name.rfind(" [");
  if (space == absl::string_view::npos) return std::nullopt;
  absl::StatusOr<Box> box = ParseBox(name.substr(space + 1));
  if (!box.ok() || box->rank() != kRank) return std::nullopt;
  return BoxName{.tensor = name.substr(0, space), .box = *std::move(box)};
}

bool IsOfBox(const TensorSpec& spec, const Box& box) {
  return spec.type == DataType::kF32 &&
         std::ranges::equal(spec.shape.lengths(), std::array{box[0].length(), box[1].length()});
}

}  // namespace

absl::Status WriteCheckpoint(const std::string& path, int64_t steps,
                             std::span<const CheckpointBox> boxes) {
  std::vector<SafetensorsEntry> entries;
  ASSIGN_OR_RETURN(const Shape one, Shape::Create(std::vector<int64_t>{1}));
  entries.push_back({.spec = {.name = std::string(kSteps), .type = DataType::kI64, .shape = one},
                     .bytes = std::as_bytes(std::span(&steps, 1))});
  for (const CheckpointBox& box : boxes) {
    const std::vector<int64_t> lengths = {box.box[0].length(), box.box[1].length()};
    ASSIGN_OR_RETURN(const Shape shape, Shape::Create(lengths));
    entries.push_back({.spec = {.name = absl::StrCat(box.tensor, " ", ToString(box.box)),
                                .type = DataType::kF32,
                                .shape = shape},
                       .bytes = std::as_bytes(box.values)});
  }
  return WriteSafetensors(path, entries);
}

absl::StatusOr<CheckpointFiles> CheckpointFiles::Open(std::span<const std::string> paths) {
  if (paths.empty()) return absl::InvalidArgumentError("checkpoint: expected files, found none");
  CheckpointFiles checkpoint;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
    RETURN_IF_ERROR(checkpoint.Add(file));
    // What is mapped stays where it is.
    checkpoint.files_.push_back(std::move(file));
  }
  return checkpoint;
}

absl::Status CheckpointFiles::Add(const SafetensorsFile& file) {
  std::optional<int64_t> steps;
  for (size_t i = 0; i < file.header().tensors.size(); ++i) {
    const TensorSpec& spec = file.header().tensors[i].spec;
    const std::span<const std::byte> bytes = file.Bytes(i);
    if (spec.name == kSteps && spec.type == DataType::kI64 && bytes.size() == sizeof(int64_t)) {
      std::memcpy(&steps.emplace(), bytes.data(), bytes.size());
      continue;
    }
    std::optional<BoxName> name = ParseBoxName(spec.name);
    if (!name.has_value() || !IsOfBox(spec, name->box)) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.path(), ": tensor \"", spec.name,
                       "\": expected a box of F32 elements, as in \"layer3.qkv [4:6, 0:16]\""));
    }
    boxes_[std::string(name->tensor)].push_back({.box = std::move(name->box), .bytes = bytes});
  }
  if (!steps.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": expected a tensor \"", kSteps, "\" of I64, found none"));
  }
  if (!files_.empty() && *steps != steps_) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": expected ", steps_,
                                                   " steps, as in ", files_[0].path(), ", found ",
                                                   *steps));
  }
  steps_ = *steps;
  return absl::OkStatus();
}

absl::Status CheckpointFiles::Read(absl::string_view tensor, const Box& box,
                                   std::span<float> values) const {
  std::vector<bool> is_there(values.size());
  const int64_t columns = box[1].length();
  const auto found = boxes_.find(tensor);
  const std::span<const Stored> none;
  for (const Stored& stored : found == boxes_.end() ? none : std::span(found->second)) {
    const std::optional<Box> common = Intersect(box, stored.box);
    if (!common.has_value()) continue;
    const auto [first_column, last_column] = (*common)[1];
    for (int64_t row = (*common)[0].begin; row < (*common)[0].end; ++row) {
      const int64_t to = (row - box[0].begin) * columns + first_column - box[1].begin;
      const int64_t from =
          (row - stored.box[0].begin) * stored.box[1].length() + first_column - stored.box[1].begin;
      const int64_t count = last_column - first_column;
      std::memcpy(&values[to], &stored.bytes[from * sizeof(float)], count * sizeof(float));
      std::fill_n(is_there.begin() + to, count, true);
    }
  }
  const int64_t missing = std::ranges::find(is_there, false) - is_there.begin();
  if (missing == std::ssize(is_there)) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat("checkpoint: expected element (", box[0].begin + missing / columns, ", ",
                   box[1].begin + missing % columns, ") of ", tensor, " in one of ", files_.size(),
                   " files, found it in none"));
}

}  // namespace crossmesh::training
