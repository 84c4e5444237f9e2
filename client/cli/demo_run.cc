#include "client/cli/demo_run.h"

#include "client/pause.h"
#include "common/base/byte_count.h"
#include "common/base/format.h"
#include "common/base/status_macros.h"
#include "common/base/thread.h"
#include "common/mesh/device.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kProgressInterval = absl::Milliseconds(50);

std::string Bytes(int64_t bytes) { return FormatBytes(ByteCount(bytes)); }

}  // namespace

DemoRun::DemoRun(Options options, const TensorTable& tensors, const DemoValues& values,
                 DemoCluster& cluster)
    : options_(std::move(options)),
      tensors_(tensors),
      values_(values),
      received_(values, tensors),
      cluster_(cluster) {}

absl::Status DemoRun::Prepare() {
  for (const DemoCluster::Worker& worker : cluster_.workers()) {
    RETURN_IF_ERROR(OpenStorages(worker));
  }
  RETURN_IF_ERROR(
      OnEach("filling", sources_, [this](const Holding& source, std::atomic<int64_t>& done_bytes) {
        source.tiles.Fill(values_, source.storage.bytes(), done_bytes);
        return absl::OkStatus();
      }));
  return Carry(options_.specs.load, "to GPUs");
}

absl::Status DemoRun::OpenStorages(const DemoCluster::Worker& worker) {
  ASSIGN_OR_RETURN(const DeviceId device, ParseDevice(worker.device));
  const std::optional<DeviceRank> rank = tensors_.FindDevice(device);
  if (!rank) return absl::OkStatus();  // has nothing, and gets nothing
  ASSIGN_OR_RETURN(MemoryClient memory, MemoryClient::Connect(worker.memory_socket));
  DemoTiles source(tensors_, Side::kSource, *rank);
  if (source.bytes() > 0) {
    ASSIGN_OR_RETURN(MappedStorage storage,
                     memory.Create(DemoSpecs::kSourceStorage, worker.device, source.bytes()));
    sources_.push_back({worker.device, std::move(source), std::move(storage)});
  }
  DemoTiles destination(tensors_, Side::kDestination, *rank);
  if (destination.bytes() > 0) {
    ASSIGN_OR_RETURN(MappedStorage storage, memory.Create(DemoSpecs::kDestinationStorage,
                                                          worker.device, destination.bytes()));
    destinations_.push_back({worker.device, std::move(destination), std::move(storage)});
  }
  return absl::OkStatus();
}

absl::Status DemoRun::OnEach(absl::string_view label, std::span<const Holding> holdings,
                             Work work) {
  int64_t total_bytes = 0;
  for (const Holding& holding : holdings) total_bytes += holding.tiles.bytes();
  Progress progress(std::string(label), total_bytes, options_.progress, clock_);
  const absl::Duration begin = clock_.Monotonic();
  std::atomic<int64_t> done_bytes = 0;
  std::atomic<int64_t> running = std::ssize(holdings);
  std::vector<absl::Status> results(holdings.size());
  std::vector<Thread> threads;
  for (size_t i = 0; i < holdings.size(); ++i) {
    threads.emplace_back(label, [&, i] {
      results[i] = work(holdings[i], done_bytes);
      --running;
    });
  }
  while (running > 0) {
    Pause(kProgressInterval);
    progress.Update(done_bytes);
  }
  for (Thread& thread : threads) thread.Join();
  for (const absl::Status& result : results) RETURN_IF_ERROR(result);
  progress.Finish(absl::StrCat(label, ": ", Bytes(total_bytes), " on ", holdings.size(),
                               " devices in ",
                               FormatSeconds(absl::ToDoubleSeconds(clock_.Monotonic() - begin))));
  return absl::OkStatus();
}

absl::StatusOr<DemoResult> DemoRun::Run(const std::string& strategy, const std::string& label) {
  v1::ReshardSpec& spec = options_.specs.move;
  spec.set_strategy(strategy);
  for (const Holding& destination : destinations_) {
    const std::span<std::byte> memory = destination.storage.bytes();
    std::memset(memory.data(), 0, memory.size());
  }
  RETURN_IF_ERROR(Carry(options_.specs.clear, "clearing GPUs"));
  DemoResult result;
  v1::PlanReshardRequest request;
  *request.mutable_spec() = spec;
  ASSIGN_OR_RETURN(const v1::PlanReshardResponse plan, cluster_.client().Plan(request));
  result.plan = plan.summary();
  ASSIGN_OR_RETURN(const v1::Operation operation, Move(label));
  result.report = operation.report();
  RETURN_IF_ERROR(Carry(options_.specs.fetch, "from GPUs"));
  if (options_.verify) {
    RETURN_IF_ERROR(OnEach("checking", destinations_,
                           [this](const Holding& destination, std::atomic<int64_t>& done_bytes) {
                             return destination.tiles.Check(received_, destination.storage.bytes(),
                                                            done_bytes);
                           }));
  }
  return result;
}

absl::StatusOr<v1::Operation> DemoRun::Move(const std::string& label) {
  Progress progress(label, 0, options_.progress, clock_);
  ASSIGN_OR_RETURN(v1::Operation operation, Execute(options_.specs.move, progress));
  const v1::OperationReport& report = operation.report();
  progress.Finish(absl::StrCat(label, ": ", Bytes(report.destination_bytes()), " in ",
                               FormatSeconds(report.transfer_seconds()), ", ",
                               FormatRate(report.throughput_bytes_per_second())));
  return operation;
}

absl::Status DemoRun::Carry(const std::vector<v1::ReshardSpec>& specs, const std::string& label) {
  for (const v1::ReshardSpec& spec : specs) {
    Progress progress(label, 0, options_.progress, clock_);
    RETURN_IF_ERROR(Execute(spec, progress).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Operation> DemoRun::Execute(const v1::ReshardSpec& spec, Progress& progress) {
  v1::ExecuteReshardRequest request;
  *request.mutable_spec() = spec;
  request.set_request_id(NewRequestId());
  ASSIGN_OR_RETURN(v1::Operation operation,
                   cluster_.client().Execute(request, [&progress](const v1::Operation& now) {
                     progress.SetTotal(now.total_bytes());
                     progress.Update(now.moved_bytes());
                   }));
  RETURN_IF_ERROR(OutcomeOf(operation));
  return operation;
}

absl::Status DemoRun::Save(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot create ", folder));
  }
  return OnEach("writing", destinations_,
                [&](const Holding& destination, std::atomic<int64_t>& done_bytes) -> absl::Status {
                  const std::string path =
                      (fs::path(folder) / (destination.device + ".safetensors")).string();
                  RETURN_IF_ERROR(destination.tiles.Save(received_.manifest(),
                                                         destination.storage.bytes(), path));
                  done_bytes += destination.tiles.bytes();
                  return absl::OkStatus();
                });
}

}  // namespace crossmesh
