#include "tests/gpu/real_gpu.h"

#include "common/base/check.h"
#include "tests/standin/rank_processes.h"
#include "worker/gpu/device/gpu.h"

#include <cstdlib>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/string_view.h>
#include <sys/mman.h>
#include <unistd.h>

namespace crossmesh {
namespace {

// The oldest for which kernel_image.h has machine code.
constexpr int kCapabilityMin = 90;

// Plain, since it crosses processes. Texts are empty where nothing lacks.
struct Machine {
  int gpus = 0;
  char no_gpu[512] = {};
  char no_nccl[512] = {};
  char no_sharing[512] = {};
};

template <size_t size>
void Note(absl::string_view text, char (&to)[size]) {
  absl::SNPrintF(to, size, "%s", text);
}

// Lacking is NotFound, or FailedPrecondition of what is too old.
bool IsLack(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsFailedPrecondition(status);
}

void LookAtGpus(const DriverApi& driver, Machine& machine) {
  if (driver.cuInit(0) == CUDA_ERROR_NO_DEVICE) {
    return Note(absl::StrCat("no GPU: ", driver.description(), " finds none"), machine.no_gpu);
  }
  const absl::StatusOr<std::vector<std::string>> uuids = Gpu::Uuids(driver);
  if (!uuids.ok()) return;
  machine.gpus = static_cast<int>(uuids->size());
  int capability[2] = {};
  driver.cuDeviceGetAttribute(&capability[0], CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
  driver.cuDeviceGetAttribute(&capability[1], CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
  if (capability[0] * 10 + capability[1] < kCapabilityMin) {
    Note(absl::StrCat("no GPU: ", uuids->front(), " has compute capability ", capability[0], ".",
                      capability[1], ", expected 9.0 or later"),
         machine.no_gpu);
  }
}

void LookAtNccl(Machine& machine) {
  const auto nccl = LoadNccl();
  if (IsLack(nccl.status())) {
    Note(absl::StrCat("no NCCL: ", nccl.status().message()), machine.no_nccl);
  } else if (nccl.ok() && !(*nccl)->can_run_ranks_on_one_gpu()) {
    Note(absl::StrCat("no NCCL that runs ranks on one GPU: ", (*nccl)->description(),
                      ", expected 2.30.3 or later"),
         machine.no_sharing);
  }
}

Machine Look() {
  Machine machine;
  const auto driver = LoadDriver();
  if (IsLack(driver.status())) {
    Note(absl::StrCat("no GPU: ", driver.status().message()), machine.no_gpu);
  } else if (driver.ok()) {
    LookAtGpus(**driver, machine);
  }
  LookAtNccl(machine);
  return machine;
}

// A process that does not come to an end has found nothing that lacks.
Machine LookByAProcess() {
  void* const memory =
      mmap(nullptr, sizeof(Machine), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  auto* const shared = new (memory) Machine;
  RunRanks(1, [&](int, Meeting&) {
    *shared = Look();
    return absl::OkStatus();
  });
  const Machine machine = *shared;
  munmap(memory, sizeof(Machine));
  return machine;
}

const char* FromEnvironment(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

}  // namespace

std::string WhatLacks(const GpuNeeds& needs) {
  static const Machine machine = LookByAProcess();
  if (machine.no_gpu[0] != '\0') return machine.no_gpu;
  if (machine.gpus > 0 && machine.gpus < needs.gpus) {
    return absl::StrCat("too few GPUs: expected ", needs.gpus, ", found ", machine.gpus);
  }
  if ((needs.nccl || needs.ranks_share_gpu) && machine.no_nccl[0] != '\0') return machine.no_nccl;
  return needs.ranks_share_gpu ? machine.no_sharing : "";
}

absl::StatusOr<std::unique_ptr<const DriverApi>> LoadDriver() {
  return DriverApi::Load({.library = FromEnvironment("CROSSMESH_DRIVER_LIBRARY", "libcuda.so.1")});
}

absl::StatusOr<std::unique_ptr<const NcclApi>> LoadNccl() {
  const bool has_wheel = access(CROSSMESH_NCCL_OF_WHEEL, R_OK) == 0;
  const char* const library = has_wheel ? CROSSMESH_NCCL_OF_WHEEL : "libnccl.so.2";
  return NcclApi::Load({.library = FromEnvironment("CROSSMESH_NCCL_LIBRARY", library)});
}

}  // namespace crossmesh
