#include "examples/tensor_parallel_training/op_messages.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

namespace crossmesh::grid_training {
namespace {

// "qkv.sum" of "stage1.qkv.sum".
absl::string_view WithoutStage(absl::string_view transfer) {
  return absl::StartsWith(transfer, "stage") ? transfer.substr(transfer.find('.') + 1) : transfer;
}

}  // namespace

OpMessages::OpMessages(std::span<const MessageTile> inputs, std::span<const MessageTile> outputs)
    : inputs_(EndsOf(inputs)), outputs_(EndsOf(outputs)) {}

std::vector<OpMessages::End> OpMessages::EndsOf(std::span<const MessageTile> tiles) {
  std::vector<End> ends;
  for (const MessageTile& tile : tiles) {
    ends.push_back({.name = std::string(WithoutStage(tile.transfer)), .bytes = tile.bytes});
  }
  return ends;
}

OpMessages::End* OpMessages::Find(std::vector<End>& ends, absl::string_view name) {
  const auto found = std::ranges::find(ends, name, &End::name);
  return found == ends.end() ? nullptr : &*found;
}

absl::Status OpMessages::Use(End* end, absl::string_view name, size_t bytes) {
  if (end == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("expected a message ", name, ", found none"));
  }
  if (end->bytes.size() != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("message ", name, ": expected ", bytes, " bytes, found ", end->bytes.size()));
  }
  end->is_used = true;
  return absl::OkStatus();
}

bool OpMessages::Brings(absl::string_view name) const {
  return std::ranges::find(inputs_, name, &End::name) != inputs_.end();
}

bool OpMessages::Takes(absl::string_view name) const {
  return std::ranges::find(outputs_, name, &End::name) != outputs_.end();
}

absl::StatusOr<Matrix> OpMessages::Read(absl::string_view name, Eigen::Index rows,
                                        Eigen::Index columns) {
  End* input = Find(inputs_, name);
  const size_t bytes = rows * columns * sizeof(float);
  RETURN_IF_ERROR(Use(input, name, bytes));
  Matrix values(rows, columns);
  if (bytes > 0) std::memcpy(values.data(), input->bytes.data(), bytes);
  return values;
}

absl::Status OpMessages::Write(absl::string_view name, const Matrix& values) {
  End* output = Find(outputs_, name);
  const size_t bytes = values.size() * sizeof(float);
  RETURN_IF_ERROR(Use(output, name, bytes));
  if (bytes > 0) std::memcpy(output->bytes.data(), values.data(), bytes);
  return absl::OkStatus();
}

absl::Status OpMessages::CheckAllUsed() const {
  for (const auto& [ends, what] : {std::pair(&inputs_, "needs"), std::pair(&outputs_, "gives")}) {
    for (const End& end : *ends) {
      if (end.is_used) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("expected messages that the op ", what, ", found ", end.name));
    }
  }
  return absl::OkStatus();
}

}  // namespace crossmesh::grid_training
