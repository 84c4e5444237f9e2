#include "client/cli/worker_report.h"

#include "client/cli/report_text.h"
#include "common/base/format.h"
#include "common/base/table.h"
#include "common/wire/tensor_codec.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// "85.5 GB", or that it is not known.
std::string KnownBytes(int64_t bytes) { return bytes > 0 ? Bytes(bytes) : "unknown"; }

std::string OnOrOff(bool is_there, bool is_on) {
  if (!is_there) return "-";
  return is_on ? "on" : "off";
}

const v1::HostGpu* FindDescribed(const v1::Worker& worker, const v1::Gpu& gpu) {
  const auto& described = worker.described_host().gpus();
  const auto found = std::ranges::find_if(described, [&](const v1::HostGpu& candidate) {
    return gpu.device() == absl::StrCat(worker.described_host().name(), ".", candidate.device());
  });
  return found == described.end() ? nullptr : &*found;
}

}  // namespace

std::string GpusText(std::span<const v1::Worker> workers) {
  TextTable table({"DEVICE", "WORKER", "GPU", "MEMORY>", "NVLINKS>", "MIG", "PERSISTENCE", "NIC",
                   "LINKS>", "NCCL M2N"});
  for (const v1::Worker& worker : workers) {
    for (const v1::Gpu& gpu : worker.gpus()) {
      const v1::GpuHardware& hardware = gpu.hardware();
      const v1::HostGpu* const described = FindDescribed(worker, gpu);
      table.AddRow({gpu.device(), worker.name(), gpu.process().gpu(),
                    KnownBytes(hardware.memory_bytes()),
                    gpu.has_hardware() ? absl::StrCat(hardware.nvlinks()) : "unknown",
                    OnOrOff(hardware.has_mig(), hardware.mig()),
                    OnOrOff(hardware.has_persistence(), hardware.persistence()),
                    described == nullptr ? "unknown" : described->nic(),
                    described == nullptr
                        ? "unknown"
                        : FormatRate(static_cast<double>(described->link_out_bytes_per_second())),
                    worker.m2n() ? "yes" : "no"});
    }
  }
  return table.ToString();
}

absl::StatusOr<Topology> DescribedNetwork(std::span<const v1::Worker> workers) {
  // Workers of one host have GPUs of their own, and the same NICs.
  v1::Topology described;
  std::map<std::string, v1::Host*> hosts;
  for (const v1::Worker& worker : workers) {
    if (!worker.has_described_host()) continue;
    v1::Host*& host = hosts[worker.described_host().name()];
    if (host == nullptr) {
      host = described.add_hosts();
      *host = worker.described_host();
    } else {
      host->mutable_gpus()->MergeFrom(worker.described_host().gpus());
    }
  }
  if (hosts.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "none of ", workers.size(),
        " workers describes its host: expected one with GPUs that its "
        "system names (crossmesh doctor says why not); crossmesh network measure probes all"));
  }
  return FromProto(described);
}

}  // namespace crossmesh
