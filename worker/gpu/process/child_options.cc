#include "worker/gpu/process/child_options.h"

#include "common/communicators/gpu_share.h"
#include "worker/gpu/process/child_environment.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <unistd.h>

namespace crossmesh {
namespace {

std::string ProgramBesideThisOne() {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  return (own.parent_path() / "crossmesh-gpu").string();
}

// Ranks on one GPU wait for each other's kernels, so these must fit on it side by side.
constexpr int kCtasMaxOfShares = 4;
// NCCL refuses several ranks on a GPU else, and multicast over NVLink knows none.
constexpr const char* kVariablesOfShares[] = {"NCCL_MULTI_RANK_GPU_ENABLE=1", "NCCL_NVLS_ENABLE=0"};

int CtasMaxOf(const GpuProcessOptions& options) {
  const bool is_chosen = options.ctas_max > 0 || !IsGpuShare(options.gpu);
  return is_chosen ? options.ctas_max : std::max(options.ctas_min, kCtasMaxOfShares);
}

std::string SecondsText(absl::Duration duration) {
  return absl::StrCat(absl::ToDoubleSeconds(duration));
}

}  // namespace

GpuChild::Options ChildOptions(const GpuProcessOptions& options, uint64_t incarnation) {
  std::vector<std::string> environment = options.environment;
  // A process sees no MIG instance but one that is named. Others see their GPU alone, so that NCCL
  // and CUDA, where they take the first one, take the right one; NCCL finds peers that are not
  // visible by NVML (ncclTopoCheckP2p and p2pCanConnect of NCCL 2.30).
  environment.push_back(absl::StrCat("CUDA_VISIBLE_DEVICES=", UuidOf(options.gpu)));
  if (IsGpuShare(options.gpu)) {
    environment.insert(environment.end(), std::begin(kVariablesOfShares),
                       std::end(kVariablesOfShares));
  }
  // Or the default would count more than the limit (ncclTopoComputeP2pChannels of NCCL 2.30).
  const int ctas_max = CtasMaxOf(options);
  if (ctas_max > 0) environment.emplace_back("NCCL_MIN_P2P_NCHANNELS=1");
  return {.program = options.program.empty() ? ProgramBesideThisOne() : options.program,
          .arguments = {"--gpu",
                        options.gpu,  //
                        "--incarnation",
                        absl::StrCat(incarnation),  //
                        "--driver-library",
                        options.driver_library,  //
                        "--nccl-library",
                        options.nccl_library,  //
                        "--m2n-library",
                        options.m2n_library,  //
                        "--nvml-library",
                        options.nvml_library,  //
                        "--staging-bytes",
                        absl::StrCat(options.staging_bytes.value()),  //
                        "--ctas-min",
                        absl::StrCat(options.ctas_min),  //
                        "--ctas-max",
                        absl::StrCat(ctas_max),      //
                        "--communicator-end-limit",  //
                        SecondsText(options.communicator_end_limit)},
          .environment = ChildEnvironment(std::move(environment), environ),
          .kill_signal = options.kill_signal,
          .kill_limit = options.kill_limit};
}

}  // namespace crossmesh
