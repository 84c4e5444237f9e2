#include "worker/gpu/process/gpu_child.h"

#include "common/base/child_exit.h"
#include "common/base/log.h"
#include "common/base/process_end.h"
#include "common/base/status_macros.h"
#include "worker/gpu/protocol/gpu_protocol.h"

#include <csignal>
#include <optional>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/memory/memory.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <spawn.h>
#include <unistd.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kHangs =
    "SIGKILL did not end it: it hangs in the driver, which takes a reset of the GPU or of the host";

std::vector<char*> PointersTo(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// 0, or the error's number.
int Spawn(const GpuChild::Options& options, int socket, pid_t& pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const absl::Cleanup free_actions = [&] { posix_spawn_file_actions_destroy(&actions); };
  // Also where both are the same number: then it makes the child inherit it.
  posix_spawn_file_actions_adddup2(&actions, socket, kGpuSocketDescriptor);
  if (options.standard_output >= 0) {
    posix_spawn_file_actions_adddup2(&actions, options.standard_output, STDOUT_FILENO);
  }

  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  const absl::Cleanup free_attributes = [&] { posix_spawnattr_destroy(&attributes); };
  // The mask is inherited, and the worker's threads have the signals that stop it blocked.
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);

  std::vector<std::string> arguments = options.arguments;
  arguments.insert(arguments.begin(), options.program);
  std::vector<std::string> environment = options.environment;
  return posix_spawn(&pid, options.program.c_str(), &actions, &attributes,
                     PointersTo(arguments).data(), PointersTo(environment).data());
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuChild>> GpuChild::Start(const Options& options, UniqueFd socket,
                                                          OnExit on_exit) {
  pid_t pid = -1;
  if (const int error = Spawn(options, socket.get(), pid); error != 0) {
    return absl::ErrnoToStatus(error, absl::StrCat("cannot run ", options.program));
  }
  auto child = absl::WrapUnique(new GpuChild(pid, options, std::move(on_exit)));
  ASSIGN_OR_RETURN(child->process_, OpenProcess(pid));
  return child;
}

GpuChild::GpuChild(pid_t pid, const Options& options, OnExit on_exit)
    : pid_(pid),
      kill_signal_(options.kill_signal),
      kill_limit_(options.kill_limit),
      on_exit_(std::move(on_exit)) {}

GpuChild::~GpuChild() {
  if (has_ended_) return;
  Kill();
  // Without its descriptor it has only just begun, and hangs nowhere.
  if (process_.valid() && !AwaitExit(kill_limit_)) {
    GiveUp();
  } else {
    AwaitChild(pid_);
  }
}

// Once the end is reaped, the number may be another process's.
void GpuChild::Kill() {
  if (!has_ended_) kill(pid_, kill_signal_);
}

bool GpuChild::AwaitExit(absl::Duration timeout) {
  return has_ended_ || AwaitEnd(process_, timeout);
}

void GpuChild::GiveUp() {
  if (std::exchange(has_ended_, true)) return;
  LogError("gpu_process_does_not_end", {{"pid", pid_}, {"found", kHangs}});
}

int GpuChild::Progress() {
  if (has_ended_) return 0;
  const std::optional<std::string> how = ReapChild(pid_);
  if (!how.has_value()) return 0;
  has_ended_ = true;
  on_exit_(*how);
  return 1;
}

}  // namespace crossmesh
