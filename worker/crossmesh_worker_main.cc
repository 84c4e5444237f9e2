// The daemon: one worker for a set of devices of this host.

#include "common/base/event_fd.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/communicators/gpu_share.h"
#include "common/daemon/daemon_main.h"
#include "common/daemon/ready_file.h"
#include "common/daemon/service_manager.h"
#include "common/daemon/stop_signals.h"
#include "common/mesh/device.h"
#include "common/mesh/mesh.h"
#include "worker/gpu/devices/gpu_name.h"
#include "worker/worker.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

struct Flags {
  WorkerOptions worker;
  std::string devices;
  std::vector<std::string> gpus;
  bool gpu_shares = false;
  std::string pages = "off";
  std::string shared_memory = "on";
  std::string transport = "socket";
  double drain_timeout_seconds = 60;
};

// How tensors travel, and where they lie.
void DeclareData(CLI::App& app, Flags& flags) {
  const CLI::IsMember on_or_off({"on", "off"});
  app.add_option("--huge-pages", flags.pages, "Storages in huge pages")
      ->check(on_or_off)
      ->capture_default_str();
  app.add_option(
         "--memory-max", flags.worker.memory_max,
         "Bytes of host memory for all storages, shadows, buffers and plans, e.g. 64G; 0.9 of "
         "what the machine or its control group has if not given")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false));
  app.add_option("--data-transport", flags.transport,
                 "How tensors travel: socket (TCP) or ucx (RDMA); the same for all workers")
      ->check(CLI::IsMember({"socket", "ucx"}))
      ->capture_default_str();
  app.add_option("--data-interface", flags.worker.data.interfaces,
                 "Network interface of the data plane; repeat it to use more at once")
      ->capture_default_str();
  app.add_option("--trusted-network", flags.worker.data.trusted_networks,
                 "Network, e.g. 10.1.0.0/16, whose addresses tensors may be received at without "
                 "encryption; repeat it for more. --insecure allows all");
  app.add_option("--shared-memory", flags.shared_memory,
                 "Read the memory of workers of this host directly")
      ->check(on_or_off)
      ->capture_default_str();
}

void Declare(CLI::App& app, Flags& flags) {
  app.add_option("--name", flags.worker.name, "Name of this worker, [a-z0-9._-]{1,63}")->required();
  app.add_option("--devices", flags.devices, "Its devices in host memory, e.g. node-a.0-3");
  app.add_option("--gpu", flags.gpus,
                 "A device that is a GPU, e.g. node-a.4=GPU-4bd8...; repeat it for each. UUIDs are "
                 "those of nvidia-smi -L. On a host without a driver it is left out");
  app.add_flag("--gpu-shares", flags.gpu_shares,
               "For tests on a machine with few GPUs: a --gpu may be a share of one, "
               "e.g. node-a.4=GPU-4bd8...:0; on all workers or none");
  app.add_option("--controller", flags.worker.controllers,
                 "Address of the controller; of several all, with commas, or repeat it")
      ->required();
  app.add_option("--listen", flags.worker.listen,
                 "Where the controller reaches it: HOST:PORT (port 0: any) or unix:/PATH")
      ->capture_default_str();
  app.add_option("--memory-socket", flags.worker.memory_socket,
                 "Unix socket at which user processes get its storages");
  app.add_option("--metrics-listen", flags.worker.metrics_listen,
                 "Where Prometheus scrapes, e.g. 127.0.0.1:9401");
  app.add_flag("--insecure", flags.worker.insecure,
               "Allow addresses beyond this host, without encryption");
  app.add_option("--cuda-library", flags.worker.gpu_process.driver_library, "The CUDA driver")
      ->capture_default_str();
  app.add_option("--nccl-library", flags.worker.gpu_process.nccl_library,
                 "NCCL, by which GPUs exchange tensors; the same for all workers")
      ->capture_default_str();
  app.add_option("--m2n-library", flags.worker.gpu_process.m2n_library,
                 "NCCL M2N; may be missing. none: it is not used")
      ->capture_default_str();
  app.add_option("--nvml-library", flags.worker.gpu_process.nvml_library,
                 "NVML, which tells memory and links of GPUs; may be missing")
      ->capture_default_str();
  app.add_option("--nccl-ctas-min", flags.worker.gpu_process.ctas_min,
                 "Thread blocks of a GPU that NCCL takes at least; 0: as it thinks best")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--nccl-ctas-max", flags.worker.gpu_process.ctas_max,
                 "Thread blocks of a GPU that NCCL takes at most, and leaves the others to what "
                 "computes; 0: as it thinks best")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--gpu-program", flags.worker.gpu_process.program,
                 "What drives each GPU in a process of its own; crossmesh-gpu beside this program "
                 "if not given");
  app.add_option("--state-dir", flags.worker.state_folder,
                 "Folder in which it remembers the controller's epoch");
  app.add_option("--drain-timeout", flags.drain_timeout_seconds,
                 "Seconds for running tasks to end after SIGTERM")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  DeclareData(app, flags);
}

absl::Status CheckEachOnce(std::vector<DeviceId> devices) {
  std::ranges::sort(devices);
  const auto twice = std::ranges::adjacent_find(devices);
  if (twice == devices.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--devices: expected each device once, found ", ToString(*twice), " twice"));
}

absl::Status Resolve(Flags& flags) {
  if (!flags.devices.empty()) {
    ASSIGN_OR_RETURN(flags.worker.devices, ParseDevices(flags.devices));
    RETURN_IF_ERROR(CheckEachOnce(flags.worker.devices));
  }
  for (const std::string& text : flags.gpus) {
    GpuName& name = flags.worker.gpus.emplace_back();
    ASSIGN_OR_RETURN(name, ParseGpuName(text));
    if (IsGpuShare(name.gpu) == flags.gpu_shares) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--gpu ", text, ": expected ",
        flags.gpu_shares ? "a share such as GPU-4bd8...:0, as --gpu-shares says, found a whole GPU"
                         : "a whole GPU, found a share, which --gpu-shares allows, for tests"));
  }
  const int ctas_max = flags.worker.gpu_process.ctas_max;
  if (ctas_max > 0 && flags.worker.gpu_process.ctas_min > ctas_max) {
    return absl::InvalidArgumentError(absl::StrCat("--nccl-ctas-min: expected at most ", ctas_max,
                                                   ", which --nccl-ctas-max is, found ",
                                                   flags.worker.gpu_process.ctas_min));
  }
  flags.worker.data.kind = flags.transport == "ucx" ? DataTransport::kUcx : DataTransport::kSocket;
  flags.worker.data.insecure = flags.worker.insecure;
  flags.worker.data.shared_memory = flags.shared_memory == "on";
  flags.worker.pages = flags.pages == "on" ? Arena::Pages::kHuge : Arena::Pages::kSmall;
  return absl::OkStatus();
}

absl::Status RunWorker(Flags flags, const DaemonFlags& daemon) {
  RETURN_IF_ERROR(Resolve(flags));
  if (daemon.only_check) return absl::OkStatus();
  flags.worker.health = daemon.health;
  // Before the worker makes threads, which inherit what is blocked.
  ASSIGN_OR_RETURN(const StopSignals signals, StopSignals::Block());
  ASSIGN_OR_RETURN(EventFd drained, EventFd::Create());
  flags.worker.on_drained = [&drained] { drained.Signal(); };
  absl::Status refused;  // read when the worker's threads have ended
  flags.worker.on_refused = [&drained, &refused](const absl::Status& why) {
    refused = why;
    drained.Signal();
  };
  ASSIGN_OR_RETURN(ReadyFile ready, ReadyFile::Claim(daemon.ready_file));
  ASSIGN_OR_RETURN(const std::unique_ptr<Worker> worker, Worker::Create(flags.worker));
  RETURN_IF_ERROR(ready.Write({{"name", worker->name()},
                               {"devices", DevicesToString(worker->devices())},
                               {"execution_address", worker->execution_address()},
                               {"memory_socket", flags.worker.memory_socket},
                               {"metrics_address", worker->metrics_address()}}));
  RETURN_IF_ERROR(TellServiceManager("READY=1"));
  if (const int signal = WaitUntilStopped(signals, daemon, &drained); signal != 0) {
    LogInfo("worker_stops", {{"signal", signal}});
  }
  RETURN_IF_ERROR(StopUnlessInsisted(
      signals, [&] { worker->Stop(absl::Seconds(flags.drain_timeout_seconds)); }));
  return refused;
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  CLI::App app("Crossmesh worker: holds tensors of a set of devices and moves them",
               "crossmesh-worker");
  crossmesh::Flags flags;
  crossmesh::Declare(app, flags);
  return crossmesh::RunDaemon(app, argc, argv, [&flags](const crossmesh::DaemonFlags& daemon) {
    return crossmesh::RunWorker(std::move(flags), daemon);
  });
}
