#include "controller/dispatch/layer_programs.h"

#include "common/base/status_macros.h"
#include "common/wire/worker_part_codec.h"
#include "controller/dispatch/plan_cutter.h"

#include <cstddef>
#include <map>
#include <memory>
#include <utility>

namespace crossmesh {
namespace {

using Parts = std::vector<std::pair<size_t, WorkerPart>>;

class LayerProgramMaker {
 public:
  LayerProgramMaker(const PlannedLayers& planned, const std::vector<std::vector<DeviceId>>& devices)
      : program_(planned.program),
        planned_(planned),
        cutter_(devices),
        place_(program_.ops.size()),
        programs_(devices.size()) {}

  absl::StatusOr<std::vector<PlannedLayerProgram>> Make() && {
    RETURN_IF_ERROR(AddRanks());
    for (size_t index = 0; index < program_.transfers.size(); ++index) {
      RETURN_IF_ERROR(AddTransfer(static_cast<int32_t>(index)));
    }
    return std::move(programs_);
  }

 private:
  absl::Status AddRanks() {
    std::vector<v1::LayerProgram::Rank> ranks(program_.ranks.size());
    for (size_t op = 0; op < program_.ops.size(); ++op) {
      v1::LayerProgram::Rank& rank = ranks[program_.ops[op].rank];
      place_[op] = rank.ops_size();
      v1::LayerProgram::Op& out = *rank.add_ops();
      out.set_name(program_.ops[op].name);
      out.set_seconds(program_.ops[op].seconds);
    }
    for (RankIndex rank = 0; rank < std::ssize(ranks); ++rank) {
      ranks[rank].set_rank(rank);
      ASSIGN_OR_RETURN(const auto workers, cutter_.WorkersOf(rank, *program_.ranks[rank].mesh));
      for (const size_t worker : workers) *programs_[worker].message.add_ranks() = ranks[rank];
    }
    return absl::OkStatus();
  }

  absl::Status AddTransfer(int32_t index) {
    const LayerProgram::Transfer& transfer = program_.transfers[index];
    v1::LayerProgram::Transfer message;
    message.set_name(transfer.name);
    message.set_from(program_.from(transfer));
    message.set_to(program_.to(transfer));
    message.set_buffers(transfer.buffers);
    // In the keys of messages: the same at all workers, and never 0.
    message.set_plan(static_cast<uint32_t>(1 + index));
    for (const auto& [producer, consumer] : transfer.messages) {
      v1::LayerProgram::Message& out = *message.add_messages();
      out.set_producer(place_[producer]);
      out.set_consumer(place_[consumer]);
    }
    for (const LayerProgram::Tensor& tensor : transfer.tensors) {
      message.add_tensors(tensor.tensor.name);
    }
    ASSIGN_OR_RETURN(const Parts* const parts, PartsOf(planned_.transfers[index].plan.get()));
    for (const auto& [worker, part] : *parts) {
      v1::LayerProgram::Transfer& out = *programs_[worker].message.add_transfers() = message;
      *out.mutable_part() = ToProto(part);
      programs_[worker].transfers.push_back(index);
    }
    return absl::OkStatus();
  }

  // Each plan is cut once.
  absl::StatusOr<const Parts*> PartsOf(const Plan* plan) {
    auto known = parts_.find(plan);
    if (known == parts_.end()) {
      ASSIGN_OR_RETURN(Parts parts, cutter_.Cut(*plan));
      known = parts_.emplace(plan, std::move(parts)).first;
    }
    return &known->second;
  }

  const LayerProgram& program_;
  const PlannedLayers& planned_;
  const PlanCutter cutter_;
  std::vector<int32_t> place_;  // of an op among those of its rank
  std::map<const Plan*, Parts> parts_;
  std::vector<PlannedLayerProgram> programs_;
};

}  // namespace

absl::StatusOr<std::vector<PlannedLayerProgram>> MakeLayerPrograms(
    const PlannedLayers& planned, const std::vector<std::vector<DeviceId>>& devices_of_worker) {
  return LayerProgramMaker(planned, devices_of_worker).Make();
}

}  // namespace crossmesh
