#include "tests/standin/m2n/m2n_group.h"

#include "common/base/mutex.h"
#include "tests/standin/control/stand_in_control.h"
#include "tests/standin/m2n/reshard_messages.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <set>

#include <absl/strings/str_cat.h>
#include <sched.h>

namespace crossmesh {
namespace {

// Of what it packs into, for a communicator; less than the library's 2 GiB.
constexpr size_t kStagingBytes = size_t{2} << 20;

struct Staging {
  void* memory = nullptr;
  void* registration = nullptr;
};

// Lives as long as the process, since the calls of a C library have no object.
struct State {
  Mutex mutex;
  std::set<uintptr_t> handles ABSL_GUARDED_BY(mutex);
  uintptr_t handle_count ABSL_GUARDED_BY(mutex) = 0;
  std::map<ncclComm_t, Staging> staging ABSL_GUARDED_BY(mutex);
  bool has_failed ABSL_GUARDED_BY(mutex) = false;
  std::atomic<int64_t> calls = 0;    // that are being made
  std::atomic<int64_t> running = 0;  // groups on streams
};
State& OfProcess() {
  static State& state = *new State;
  return state;
}

// The host's calls must not overlap in a process.
class SerialCall {
 public:
  SerialCall() : others_(OfProcess().calls++) {}
  ~SerialCall() { --OfProcess().calls; }
  SerialCall(const SerialCall&) = delete;
  SerialCall& operator=(const SerialCall&) = delete;

  Result Check() const {
    if (others_ == 0) return {};
    return Violation(ncclInvalidUsage, "while another thread is in a call");
  }

 private:
  const int64_t others_;
};

Result FromNccl(ncclResult_t result) {
  if (result == ncclSuccess) return {};
  return Failure(result, ncclGetLastError(nullptr));
}

// Waits until the communicator takes calls, as the library does of one that does not block.
Result Await(ncclComm_t communicator) {
  ncclResult_t state = crossmeshStandInCommunicatorState(communicator);
  while (state == ncclInProgress) {
    sched_yield();
    state = crossmeshStandInCommunicatorState(communicator);
  }
  if (state == ncclSuccess) return {};
  return Failure(state, "the communicator has failed, or was aborted");
}

// What it takes for the first call with a communicator.
Result Prepare(ncclComm_t communicator) {
  RETURN_IF_FAILED(Await(communicator));
  State& state = OfProcess();
  const MutexLock lock(state.mutex);
  const auto [found, is_new] = state.staging.try_emplace(communicator);
  if (!is_new) return {};
  Staging& staging = found->second;
  RETURN_IF_FAILED(FromNccl(ncclMemAlloc(&staging.memory, kStagingBytes)));
  return FromNccl(
      ncclCommRegister(communicator, staging.memory, kStagingBytes, &staging.registration));
}

Result IssueBucket(const RecordedReshard& first, const std::vector<ReshardMessage>& messages) {
  if (messages.empty()) return {};
  ++OfProcess().running;
  RETURN_IF_FAILED(FromNccl(ncclGroupStart()));
  for (const ReshardMessage& message : messages) {
    // The first that is refused is the result of the group.
    if (message.is_sent) {
      ncclSend(message.memory, message.bytes, ncclUint8, message.peer, first.communicator,
               first.stream);
    } else {
      ncclRecv(message.memory, message.bytes, ncclUint8, message.peer, first.communicator,
               first.stream);
    }
  }
  const ncclResult_t ended = ncclGroupEnd();
  if (ended != ncclInProgress) RETURN_IF_FAILED(FromNccl(ended));
  RETURN_IF_FAILED(Await(first.communicator));
  const auto run = [](void* /*argument*/) { --OfProcess().running; };
  if (crossmeshStandInEnqueue(first.stream, run, nullptr) == 0) return {};
  return Failure(ncclInternalError, "the stream has gone");
}

Result Issue(const std::vector<std::pair<ncclM2nHandle_t, RecordedReshard>>& calls) {
  std::vector<ReshardMessage> messages;
  for (const auto& [handle, reshard] : calls) {
    if (reshard.communicator != calls.front().second.communicator ||
        reshard.stream != calls.front().second.stream) {
      return Violation(ncclInvalidUsage, "a group of several communicators or streams");
    }
  }
  const RecordedReshard& first = calls.front().second;
  RETURN_IF_FAILED(Prepare(first.communicator));
  const int rank = crossmeshStandInCommunicatorRank(first.communicator);
  for (const auto& [handle, reshard] : calls) AppendMessages(reshard, rank, messages);
  if (crossmeshStandInFaultDue("m2n_fails_at") != 0) {
    return Failure(ncclRemoteError, "injected fault m2n_fails_at");
  }
  return IssueBucket(first, messages);
}

Result CheckHandle(ncclM2nHandle_t handle) {
  State& state = OfProcess();
  const MutexLock lock(state.mutex);
  if (state.has_failed) {
    return Violation(ncclInvalidUsage, "after a call that failed, in the same process");
  }
  if (state.handles.contains(reinterpret_cast<uintptr_t>(handle))) return {};
  return Violation(ncclInvalidArgument, "no handle of ncclM2nInit, or a finalized one");
}

// All that fails once a group is issued is the end of it.
Result Remember(const Result& result) {
  if (result.ok()) return result;
  State& state = OfProcess();
  const MutexLock lock(state.mutex);
  state.has_failed = true;
  return result;
}

}  // namespace

M2nGroup& M2nGroup::OfThread() {
  thread_local M2nGroup group;
  return group;
}

Result M2nGroup::Add(ncclM2nHandle_t handle, const ReshardCall& call) {
  const SerialCall serial;
  RETURN_IF_FAILED(serial.Check());
  RETURN_IF_FAILED(CheckHandle(handle));
  RecordedReshard recorded;
  RETURN_IF_FAILED(CheckReshard(call, recorded));
  calls_.emplace_back(handle, recorded);
  if (depth_ > 0) return {};
  return Remember(Issue(std::exchange(calls_, {})));
}

Result M2nGroup::End() {
  const SerialCall serial;
  RETURN_IF_FAILED(serial.Check());
  if (depth_ == 0) return Violation(ncclInvalidUsage, "without ncclM2nGroupStart");
  if (--depth_ > 0 || calls_.empty()) return {};
  return Remember(Issue(std::exchange(calls_, {})));
}

Result InitM2n(ncclM2nHandle_t* handle, const ncclM2nConfig_t* config) {
  const SerialCall serial;
  RETURN_IF_FAILED(serial.Check());
  if (handle == nullptr) return Violation(ncclInvalidArgument, "no place for the handle");
  *handle = nullptr;
  if (config != nullptr &&
      (config->size != sizeof(ncclM2nConfig_t) || config->magic != kM2nConfigMagic ||
       config->version != kM2nApiVersion)) {
    return Violation(ncclInvalidArgument, "a config of another version");
  }
  State& state = OfProcess();
  const MutexLock lock(state.mutex);
  state.handles.insert(++state.handle_count);
  *handle = reinterpret_cast<ncclM2nHandle_t>(state.handle_count);
  return {};
}

Result FinalizeM2n(ncclM2nHandle_t handle) {
  const SerialCall serial;
  RETURN_IF_FAILED(serial.Check());
  if (M2nGroup::OfThread().is_open()) return Violation(ncclInvalidArgument, "in a group");
  State& state = OfProcess();
  const MutexLock lock(state.mutex);
  if (state.handles.erase(reinterpret_cast<uintptr_t>(handle)) == 0) {
    return Violation(ncclInvalidArgument, "no handle of ncclM2nInit, or a finalized one");
  }
  if (!state.handles.empty()) return {};
  if (state.running > 0) {
    return Violation(ncclInvalidUsage,
                     absl::StrCat("with ", state.running.load(), " groups still on streams"));
  }
  for (auto& [communicator, staging] : state.staging) {
    RETURN_IF_FAILED(FromNccl(ncclCommDeregister(communicator, staging.registration)));
    RETURN_IF_FAILED(FromNccl(ncclMemFree(staging.memory)));
  }
  state.staging.clear();
  return {};
}

}  // namespace crossmesh
