// The process of one GPU. A worker starts it, with a socket to it; it ends with its worker.

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/communicators/gpu_share.h"
#include "common/daemon/daemon_main.h"
#include "common/event_loop/event_loop.h"
#include "common/host_devices/nvml.h"
#include "crossmesh/v1/worker_service.pb.h"
#include "worker/gpu/loop/gpu_loop.h"
#include "worker/gpu/protocol/gpu_protocol.h"

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>
#include <fcntl.h>
#include <sys/prctl.h>

namespace crossmesh {
namespace {

struct Flags {
  GpuLoop::Options loop;
  int64_t staging_bytes = int64_t{256} << 20;
  double communicator_end_limit_seconds = 20;
  std::string nvml_library = kNvmlLibrary;
};

void Declare(CLI::App& app, Flags& flags) {
  app.add_option("--gpu", flags.loop.gpu,
                 "UUID, as nvidia-smi prints it; with \":0\" a share of it, for tests")
      ->required();
  app.add_option("--incarnation", flags.loop.incarnation,
                 "Tells this process from others of the same GPU")
      ->required();
  app.add_option("--driver-library", flags.loop.driver.library, "The CUDA driver")
      ->capture_default_str();
  app.add_option("--nccl-library", flags.loop.nccl.library, "NCCL")->capture_default_str();
  app.add_option("--m2n-library", flags.loop.m2n.library, "NCCL M2N; may be missing")
      ->capture_default_str();
  app.add_option("--nvml-library", flags.nvml_library,
                 "NVML, the driver's management library; may be missing")
      ->capture_default_str();
  app.add_option("--staging-bytes", flags.staging_bytes, "Memory for what is sent and received")
      ->check(CLI::Range(int64_t{1} << 20, int64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--communicator-end-limit", flags.communicator_end_limit_seconds,
                 "Seconds after which the abort of a communicator hangs")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--ctas-min", flags.loop.communicator_ctas.min,
                 "Thread blocks that each communicator has at least; 0: as NCCL thinks best")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--ctas-max", flags.loop.communicator_ctas.max,
                 "Thread blocks that each communicator has at most; 0: as NCCL thinks best")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

// The socket's end tells of the worker's too, but not while the driver hangs. A terminal's SIGINT
// and a service manager's SIGTERM go to all processes: the worker, which they are for, ends this.
void EndWithTheWorkerOnly() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
}

// Nothing where the library is not there, or does not know the GPU.
std::optional<v1::GpuHardware> ReadHardware(const Flags& flags) {
  const std::vector<std::string> uuids = {UuidOf(flags.loop.gpu)};
  const absl::StatusOr<std::vector<std::optional<NvmlGpu>>> gpus =
      ReadNvml(flags.nvml_library, uuids);
  if (!gpus.ok() || !gpus->front().has_value()) return std::nullopt;
  const NvmlGpu& gpu = *gpus->front();
  v1::GpuHardware hardware;
  hardware.set_memory_bytes(gpu.memory_bytes);
  hardware.set_nvlinks(gpu.nvlinks);
  if (gpu.persistence.has_value()) hardware.set_persistence(*gpu.persistence);
  if (gpu.mig.has_value()) hardware.set_mig(*gpu.mig);
  return hardware;
}

absl::Status RunGpu(Flags flags) {
  EndWithTheWorkerOnly();
  // Programs that libraries start need not have it.
  fcntl(kGpuSocketDescriptor, F_SETFD, FD_CLOEXEC);
  flags.loop.staging_bytes = ByteCount(flags.staging_bytes);
  flags.loop.communicator_end_limit = absl::Seconds(flags.communicator_end_limit_seconds);
  flags.loop.hardware = ReadHardware(flags);
  const RealClock clock;
  ASSIGN_OR_RETURN(const std::unique_ptr<EventLoop> loop,
                   EventLoop::Create(clock, {.name = "gpu"}));
  ASSIGN_OR_RETURN(
      std::unique_ptr<GpuLoop> gpu,
      GpuLoop::Create(*loop, clock, UniqueFd(kGpuSocketDescriptor), std::move(flags.loop)));
  while (!gpu->is_over()) loop->RunOnce(absl::InfiniteDuration());
  if (gpu->end().ok()) return absl::OkStatus();
  LogError("gpu_process_fails", {{"cause", gpu->end().ToString()}});
  // At once: what hangs would be waited for.
  std::_Exit(kExitFailure);
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  CLI::App app("Crossmesh GPU: moves tensors of one GPU, for a worker that starts it",
               "crossmesh-gpu");
  crossmesh::Flags flags;
  crossmesh::Declare(app, flags);
  return crossmesh::RunDaemon(app, argc, argv, [&flags](const crossmesh::DaemonFlags& daemon) {
    if (daemon.only_check) return absl::OkStatus();
    return crossmesh::RunGpu(std::move(flags));
  });
}
