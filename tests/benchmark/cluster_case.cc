#include "tests/benchmark/cluster_case.h"

#include "common/base/status_macros.h"
#include "common/base/thread.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// A copy of all of it, in equal pieces.
std::vector<std::vector<std::byte>> PiecesOf(std::span<const std::byte> memory, size_t count) {
  std::vector<std::vector<std::byte>> pieces;
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = memory.size() * i / count;
    const auto piece = memory.subspan(begin, memory.size() * (i + 1) / count - begin);
    pieces.emplace_back(piece.begin(), piece.end());
  }
  return pieces;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClusterCase>> ClusterCase::Create(const Options& options) {
  auto result = std::make_unique<ClusterCase>();
  ASSIGN_OR_RETURN(result->cluster_,
                   LiveCluster::Start({.workers = {"node-0", "node-1", "node-2", "node-3"},
                                       .worker_flags = {"--shared-memory",
                                                        options.shared_memory ? "on" : "off"}}));
  ReshardOptions reshard = {
      .manifest = options.manifest,
      .source = "fsdp=4 on node-0.0,node-1.0,node-2.0,node-3.0",
      .source_layout = "[fsdp, ...] nested_chunk",
      .destination = "replica=2,model=2 on node-0.0,node-1.0,node-2.0,node-3.0",
      .destination_layout = "[-, model]",
      .binding = v1::BINDING_MODE_IN_PLACE};
  for (const TensorSpec& tensor : options.manifest.tensors()) {
    if (tensor.shape.rank() < 2) reshard.whole_tensors.push_back(tensor.name);
  }
  ASSIGN_OR_RETURN(result->reshard_, ReshardCase::Create(reshard, *result->cluster_));
  result->reshard_->spec().set_checksums(options.checksums);
  return result;
}

absl::StatusOr<v1::Operation> ClusterCase::Move() {
  v1::ExecuteReshardRequest request;
  *request.mutable_spec() = reshard_->spec();
  request.set_request_id(NewRequestId());
  ASSIGN_OR_RETURN(v1::Operation operation,
                   cluster_->client().Execute(request, [](const v1::Operation&) {}));
  RETURN_IF_ERROR(OutcomeOf(operation));
  return operation;
}

absl::Status ClusterCase::OpenCopies() {
  if (!copies_.empty()) return absl::OkStatus();
  for (const std::string& worker : cluster_->workers()) {
    const std::string device = absl::StrCat(worker, ".0");
    ASSIGN_OR_RETURN(MemoryClient memory, cluster_->Memory(worker));
    ASSIGN_OR_RETURN(MappedStorage source,
                     memory.Open(reshard_->spec().source().storage(), device));
    ASSIGN_OR_RETURN(MappedStorage destination,
                     memory.Open(reshard_->spec().destination().storage(), device));
    copies_.push_back({.source = std::move(source), .destination = std::move(destination)});
    Copies& copies = copies_.back();
    const size_t tensors = reshard_->manifest().tensors().size();
    copies.filled = PiecesOf(copies.source.bytes(), tensors);
    copies.read = PiecesOf(copies.destination.bytes(), tensors);
  }
  return absl::OkStatus();
}

void ClusterCase::OfEachWorker(absl::FunctionRef<void(Copies& copies)> copy) {
  std::vector<Thread> threads;
  for (Copies& copies : copies_) threads.emplace_back("copy", [&copies, copy] { copy(copies); });
}

absl::Status ClusterCase::Fill() {
  RETURN_IF_ERROR(OpenCopies());
  OfEachWorker([](Copies& copies) {
    auto place = copies.source.bytes().begin();
    for (const std::vector<std::byte>& piece : copies.filled) {
      place = std::ranges::copy(piece, place).out;
    }
  });
  return absl::OkStatus();
}

absl::Status ClusterCase::Read() {
  RETURN_IF_ERROR(OpenCopies());
  OfEachWorker([](Copies& copies) {
    const std::byte* place = copies.destination.bytes().data();
    for (std::vector<std::byte>& piece : copies.read) {
      std::copy_n(place, piece.size(), piece.begin());
      place += piece.size();
    }
  });
  return absl::OkStatus();
}

}  // namespace crossmesh
