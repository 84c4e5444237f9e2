#include "common/daemon/stack_dump.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <execinfo.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace crossmesh {
namespace {

constexpr int kFramesMax = 64;
constexpr int kPatienceMs = 1000;

// A signal's handler has no other way to tell.
std::atomic<int> dumped = 0;  // NOLINT

void Write(const std::string& text) {
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;  // nowhere left to report to
}

// On the thread whose stack it is. What it calls was loaded before: see below.
void OnSignal(int /*signal*/) {
  std::array<void*, kFramesMax> frames;
  backtrace_symbols_fd(frames.data(), backtrace(frames.data(), kFramesMax), STDERR_FILENO);
  dumped.fetch_add(1);
}

std::string NameOf(const std::string& task) {
  std::string name;
  std::getline(std::ifstream("/proc/self/task/" + task + "/comm"), name);
  return name;
}

void DumpThread(const std::string& task) {
  int id = 0;
  if (!absl::SimpleAtoi(task, &id)) return;
  Write(absl::StrCat("thread ", id, " ", NameOf(task), "\n"));
  const int before = dumped.load();
  if (syscall(SYS_tgkill, getpid(), id, SIGRTMIN) != 0) return;  // has ended
  for (int waited = 0; dumped.load() == before && waited < kPatienceMs; ++waited) {
    poll(nullptr, 0, 1);
  }
  if (dumped.load() == before) Write("  does not answer\n");
}

}  // namespace

void DumpStacks() {
  // The first call loads a library, which must not happen in a handler.
  std::array<void*, 1> frame;
  backtrace(frame.data(), 1);
  struct sigaction action = {};
  action.sa_handler = &OnSignal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGRTMIN, &action, nullptr);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", error)) {
    DumpThread(entry.path().filename());
  }
}

void AbortWithStacks() {
  DumpStacks();
  std::abort();
}

}  // namespace crossmesh
