// Versions, errors, and the life of communicators.

#include "tests/standin/nccl/group.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <unistd.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kIdBegin = "Crossmesh stand-in:";

int Version() {
  const char* text = std::getenv("CROSSMESH_STANDIN_NCCL_VERSION");  // "2.29.7"
  const std::vector<std::string> parts = absl::StrSplit(text == nullptr ? "" : text, '.');
  int numbers[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    if (parts.size() != 3 || !absl::SimpleAtoi(parts[i], &numbers[i])) return NCCL_VERSION_CODE;
  }
  return NCCL_VERSION(numbers[0], numbers[1], numbers[2]);
}

Communicator::Identity IdentityOf(int device) {
  Communicator::Identity identity = {.version = Version()};
  CUuuid uuid = {};
  cuDeviceGetUuid(&uuid, device);
  std::memcpy(identity.uuid.data(), uuid.bytes, identity.uuid.size());
  const char* cumem = std::getenv("NCCL_CUMEM_ENABLE");
  identity.environment = absl::StrCat("NCCL_CUMEM_ENABLE=", cumem == nullptr ? "" : cumem);
  return identity;
}

Result CheckConfig(const ncclConfig_t* config) {
  // Null and NCCL_CONFIG_UNDEF_INT are the default, which blocks.
  if (config == nullptr || config->blocking != 0) {
    return Violation(ncclInvalidArgument,
                     "a communicator whose calls block; the config's blocking must be 0");
  }
  if (config->magic != NCCL_API_MAGIC || config->size == 0) {
    return Violation(ncclInvalidArgument, "the config was not begun with NCCL_CONFIG_INITIALIZER");
  }
  // As NCCL compares them: what is not set is the least integer.
  if (config->minCTAs > config->maxCTAs) {
    return Violation(ncclInvalidArgument,
                     absl::StrCat("minCTAs ", config->minCTAs, ", maxCTAs ", config->maxCTAs));
  }
  if (config->splitShare == 1) {
    return Violation(ncclInvalidArgument,
                     "resources shared with communicators that are split from it: the abort of one "
                     "would be that of all");
  }
  return {};
}

Result CommInit(ncclComm_t* handle, int ranks, const ncclUniqueId& id, int rank,
                const ncclConfig_t* config) {
  *handle = nullptr;
  RETURN_IF_FAILED(Group::OfThread().CheckNone());
  RETURN_IF_FAILED(CheckConfig(config));
  const int device = crossmeshStandInCurrentDevice();
  if (device < 0) return Violation(ncclInvalidUsage, "this thread has no current context");
  if (ranks < 1 || ranks > Rendezvous::kRanksMax || rank < 0 || rank >= ranks) {
    return Violation(ncclInvalidArgument, absl::StrCat("rank ", rank, " of ", ranks, " ranks"));
  }
  absl::string_view name(id.internal, strnlen(id.internal, sizeof(id.internal)));
  if (!absl::ConsumePrefix(&name, kIdBegin)) {
    return Violation(ncclInvalidArgument, "the unique id is not one of ncclGetUniqueId");
  }
  auto made = std::make_unique<Communicator>(device);
  Communicator& communicator = *made;
  *handle = AddCommunicator(std::move(made));
  const Result begun = communicator.Init(
      "ncclCommInitRankConfig",
      {.rendezvous_name = std::string(name), .ranks = ranks, .rank = rank}, IdentityOf(device));
  // A communicator that could not even begin is none.
  if (!begun.ok()) {
    communicator.Abort();
    *handle = nullptr;
  }
  return begun;
}

// NCCL would take the thread for one of device 0 and leave it so, by which it makes a context
// there.
Result CheckThread(const Communicator& communicator) {
  const int device = crossmeshStandInCurrentDevice();
  if (device == communicator.device()) return {};
  return Violation(ncclInvalidUsage,
                   absl::StrCat("this thread has ",
                                device < 0 ? "no current context" : absl::StrCat("device ", device),
                                ", the communicator is on device ", communicator.device()));
}

// A call on a communicator that has no place in a group.
template <typename Function>
ncclResult_t RunAlone(const char* name, ncclComm_t handle, Communicator::Purpose purpose,
                      Function function) {
  NcclCall call(name);
  Communicator* communicator = nullptr;
  END_IF_FAILED(call, NcclCall::Need(handle, purpose, communicator));
  END_IF_FAILED(call, Group::OfThread().CheckNone());
  return call.End(function(*communicator));
}

// What `get` says of a communicator that takes calls; `otherwise` of any other.
template <typename Get>
int IfReady(ncclComm_t handle, Get get, int otherwise) {
  Communicator* const communicator = FindCommunicator(handle);
  if (communicator == nullptr) return otherwise;
  const MutexLock lock(communicator->calls());
  const bool is_ready = communicator->Check(Communicator::Purpose::kCommunicate).ok();
  return is_ready ? get(*communicator) : otherwise;
}

}  // namespace
}  // namespace crossmesh

using crossmesh::CheckThread;
using crossmesh::Communicator;
using crossmesh::Group;
using crossmesh::NcclCall;
using crossmesh::Result;
using crossmesh::RunAlone;
using crossmesh::Violation;
using Purpose = crossmesh::Communicator::Purpose;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = crossmesh::Version();
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* kTexts[] = {"Crossmesh stand-in: no error",
                                    "Crossmesh stand-in: unhandled cuda error",
                                    "Crossmesh stand-in: unhandled system error",
                                    "Crossmesh stand-in: internal error",
                                    "Crossmesh stand-in: invalid argument",
                                    "Crossmesh stand-in: invalid usage",
                                    "Crossmesh stand-in: remote process exited or network error",
                                    "Crossmesh stand-in: NCCL operation in progress",
                                    "Crossmesh stand-in: time-out"};
  return result >= 0 && result < ncclNumResults ? kTexts[result]
                                                : "Crossmesh stand-in: unknown result code";
}

const char* ncclGetLastError(ncclComm_t) { return NcclCall::LastText(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  NcclCall call("ncclGetUniqueId");
  const std::string text = absl::StrCat(crossmesh::kIdBegin, crossmesh::Rendezvous::MakeName());
  *id = {};
  std::memcpy(id->internal, text.data(), text.size());
  return call.End({});
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  NcclCall call("ncclCommInitRankConfig");
  return call.End(crossmesh::CommInit(handle, ranks, id, rank, config));
}

ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t* made,
                           ncclConfig_t* config) {
  return RunAlone("ncclCommSplit", handle, Purpose::kCommunicate,
                  [&](Communicator& communicator) -> Result {
                    RETURN_IF_FAILED(crossmesh::CheckConfig(config));
                    RETURN_IF_FAILED(CheckThread(communicator));
                    return communicator.Split(color, key, made);
                  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* state) {
  NcclCall call("ncclCommGetAsyncError");
  Communicator* communicator = nullptr;
  END_IF_FAILED(call, NcclCall::NeedOpen(handle, communicator));
  const crossmesh::MutexLock lock(communicator->calls());
  const Result polled = communicator->Poll();
  *state = call.End(polled);
  return ncclSuccess;
}

ncclResult_t ncclCommMemStats(ncclComm_t handle, ncclCommMemStat_t stat, uint64_t* value) {
  return RunAlone("ncclCommMemStats", handle, Purpose::kCommunicate,
                  [&](Communicator& communicator) -> Result {
                    // As where the environment has turned off what counts.
                    if (crossmesh::Version() < NCCL_VERSION(2, 29, 7)) return {ncclInvalidUsage};
                    if (stat != ncclStatGpuMemTotal) {
                      return Violation(ncclInvalidArgument, "expected the total");
                    }
                    *value = communicator.taken_bytes();
                    return {};
                  });
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  return RunAlone("ncclCommFinalize", handle, Purpose::kCommunicate,
                  [](Communicator& communicator) { return communicator.Finalize(); });
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  return RunAlone("ncclCommDestroy", handle, Purpose::kDestroy,
                  [](Communicator& communicator) -> Result {
                    RETURN_IF_FAILED(CheckThread(communicator));
                    return communicator.Destroy();
                  });
}

ncclResult_t ncclCommRevoke(ncclComm_t handle, int flags) {
  return RunAlone("ncclCommRevoke", handle, Purpose::kRevoke, [&](Communicator& communicator) {
    if (flags != 0) return Violation(ncclInvalidArgument, "flags must be 0");
    return communicator.Revoke();
  });
}

// In any state of the communicator.
ncclResult_t ncclCommAbort(ncclComm_t handle) {
  NcclCall call("ncclCommAbort");
  Communicator* communicator = nullptr;
  END_IF_FAILED(call, NcclCall::NeedOpen(handle, communicator));
  END_IF_FAILED(call, Group::OfThread().CheckNone());
  END_IF_FAILED(call, CheckThread(*communicator));
  while (crossmeshStandInFault("abort_hangs") != 0) pause();
  const crossmesh::MutexLock lock(communicator->calls());
  return call.End(communicator->Abort());
}

ncclResult_t ncclCommRegister(ncclComm_t handle, void* memory, size_t bytes, void** registration) {
  return RunAlone("ncclCommRegister", handle, Purpose::kCommunicate,
                  [&](Communicator& communicator) {
                    return communicator.Register(memory, bytes, *registration);
                  });
}

ncclResult_t ncclCommDeregister(ncclComm_t handle, void* registration) {
  return RunAlone(
      "ncclCommDeregister", handle, Purpose::kDeregister,
      [&](Communicator& communicator) { return communicator.Deregister(registration); });
}

ncclResult_t crossmeshStandInCommunicatorState(ncclComm_t handle) {
  Communicator* const communicator = crossmesh::FindCommunicator(handle);
  if (communicator == nullptr) return ncclInvalidArgument;
  const crossmesh::MutexLock lock(communicator->calls());
  return communicator->CheckOpen().ok() ? communicator->Poll().code : ncclRemoteError;
}

int crossmeshStandInCommunicatorSize(ncclComm_t handle) {
  return crossmesh::IfReady(handle, [](const Communicator& ready) { return ready.ranks(); }, 0);
}

int crossmeshStandInCommunicatorRank(ncclComm_t handle) {
  return crossmesh::IfReady(handle, [](const Communicator& ready) { return ready.rank(); }, -1);
}

}  // extern "C"
