// Rates of the kernels, and of a run that copies within one GPU, beside copies that the driver
// makes in the same run: bytes read plus written per second, as a table. Without a GPU it says so.
// It loads the libraries that the checks on GPUs load (tests/README.md).

#include "common/base/status_macros.h"
#include "tests/benchmark/gpu_kernel_works.h"
#include "tests/benchmark/gpu_rates.h"
#include "tests/benchmark/measure.h"
#include "tests/gpu/real_gpu.h"
#include "worker/gpu/communicators/nccl_communicator.h"
#include "worker/gpu/compiler/testing/compiled_parts.h"
#include "worker/gpu/compiler/testing/small_plans.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/executor/gpu_binding.h"
#include "worker/gpu/executor/gpu_task.h"
#include "worker/gpu/executor/testing/executor_rank.h"

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {
namespace {

struct Options {
  int64_t mebibytes = 1024;
  int rounds = 9;
};

absl::Status MeasureKernels(const DriverApi& driver, const std::string& uuid,
                            const Options& options, RateTable& table) {
  const int64_t bytes = options.mebibytes << 20;
  ASSIGN_OR_RETURN(const auto gpu, Gpu::Create(driver, uuid));
  ASSIGN_OR_RETURN(const auto tiles, MeasuredTiles::Create(*gpu, 4 * bytes));
  ASSIGN_OR_RETURN(const auto works, GpuKernelWorks::Create(*gpu, *tiles, bytes));
  return tiles->Measure(works->All(), options.rounds, table);
}

// Whole runs of a plan that copies so many bytes between tiles of one device, by wall time. Copies
// are not hashed.
absl::StatusOr<MeasuredWork> LocalCopy(ExecutorRank& rank, const MeasuredTiles& tiles,
                                       int64_t bytes) {
  ASSIGN_OR_RETURN(const CompiledParts compiled_parts,
                   CompiledPartsOf(Made(OnOneDevice(bytes)), {}));
  const GpuTiles places = {.source = {tiles.first_half()}, .destination = {tiles.second_half()}};
  ASSIGN_OR_RETURN(const GpuTaskSpec first, rank.Spec(compiled_parts.front(), places));
  const auto run = [&rank, spec = first]() mutable -> absl::StatusOr<double> {
    ++spec.key.instance;
    absl::Status status;
    const double seconds = SecondsOf([&] { status = rank.Run(spec).status(); });
    RETURN_IF_ERROR(status);
    return seconds;
  };
  return MeasuredWork{"copy by the executor", 0.90, 2 * bytes, run};
}

absl::Status MeasureExecutor(const DriverApi& driver, const std::string& uuid,
                             const Options& options, RateTable& table) {
  const int64_t bytes = options.mebibytes << 21;
  ASSIGN_OR_RETURN(const auto nccl, LoadNccl());
  ASSIGN_OR_RETURN(const auto rank, ExecutorRank::CreateOn(driver, *nccl, uuid, {}));
  ASSIGN_OR_RETURN(const std::string id, MintId(*nccl));
  RETURN_IF_ERROR(rank->Join(1, 0, id));
  {
    ASSIGN_OR_RETURN(const auto tiles, MeasuredTiles::Create(rank->gpu(), 2 * bytes));
    ASSIGN_OR_RETURN(const MeasuredWork copy, LocalCopy(*rank, *tiles, bytes));
    RETURN_IF_ERROR(tiles->Measure({copy}, options.rounds, table));
  }
  return rank->Close();
}

absl::Status Measure(const Options& options) {
  ASSIGN_OR_RETURN(const auto driver, LoadDriver());
  ASSIGN_OR_RETURN(const std::vector<std::string> uuids, Gpu::Uuids(*driver));
  char name[256] = {};
  RETURN_IF_ERROR(driver->Check(driver->cuDeviceGetName(name, sizeof(name), 0), "cuDeviceGetName"));
  std::cout << name << ", " << driver->description() << "; medians of " << options.rounds
            << " rounds over " << options.mebibytes << " MiB of packed bytes\n\n";
  RateTable table;
  RETURN_IF_ERROR(MeasureKernels(*driver, uuids.front(), options, table));
  const std::string lack = WhatLacks({.nccl = true});
  if (lack.empty()) RETURN_IF_ERROR(MeasureExecutor(*driver, uuids.front(), options, table));
  std::cout << table.ToString();
  if (!lack.empty()) {
    std::cout << "\nNot measured: the executor, which needs NCCL: " << lack << "\n";
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app("Rates of the kernels of a GPU beside copies");
  Options options;
  app.add_option("--mebibytes", options.mebibytes,
                 "Packed bytes of a launch; takes a little more than five times as much memory")
      ->check(CLI::Range(1, 1 << 14))
      ->capture_default_str();
  app.add_option("--rounds", options.rounds, "Medians are over so many")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (const std::string lack = WhatLacks({}); !lack.empty()) {
    std::cout << "Nothing measured: " << lack << "\n";
    return 0;
  }
  const absl::Status status = Measure(options);
  if (!status.ok()) std::cerr << status.ToString() << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) { return crossmesh::Main(argc, argv); }
