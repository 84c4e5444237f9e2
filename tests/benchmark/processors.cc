#include "tests/benchmark/processors.h"

#include "common/base/check.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <sched.h>
#include <unistd.h>

namespace crossmesh {
namespace {

int ProcessorsOfMachine() { return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); }

cpu_set_t SetOf(Processors processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int i = 0; i < processors.count; ++i) CPU_SET(processors.first + i, &set);
  return set;
}

// This thread.
void RunWhenNothingElseDoes(int processor) {
  const cpu_set_t set = SetOf({.first = processor});
  CHECK(sched_setaffinity(0, sizeof(set), &set) == 0) << errno;
  const sched_param none = {};
  CHECK(sched_setscheduler(0, SCHED_IDLE, &none) == 0) << errno;
}

}  // namespace

Processors FirstHalf() { return {.count = std::max(ProcessorsOfMachine() / 2, 1)}; }

Processors SecondHalf() {
  const int all = ProcessorsOfMachine();
  return {.first = all / 2, .count = all - all / 2};
}

void RunOn(Processors processors, pid_t process) {
  const cpu_set_t set = SetOf(processors);
  for (const auto& entry :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", process, "/task"))) {
    pid_t thread = 0;
    CHECK(absl::SimpleAtoi(entry.path().filename().string(), &thread));
    // One may have ended since it was listed.
    CHECK(sched_setaffinity(thread, sizeof(set), &set) == 0 || errno == ESRCH) << errno;
  }
}

BusyProcessors::BusyProcessors(Processors processors) {
  for (int i = 0; i < processors.count; ++i) {
    threads_.emplace_back("busy", [this, processor = processors.first + i] {
      RunWhenNothingElseDoes(processor);
      while (!stop_.load(std::memory_order_relaxed)) {
      }
    });
  }
}

BusyProcessors::~BusyProcessors() {
  stop_ = true;
  for (Thread& thread : threads_) thread.Join();
}

}  // namespace crossmesh
