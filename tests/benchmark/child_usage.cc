#include "tests/benchmark/child_usage.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>

#include <unistd.h>

namespace crossmesh {
namespace {

namespace fs = std::filesystem;

std::map<std::string, std::string> ReadStatus(const fs::path& process) {
  std::map<std::string, std::string> fields;
  std::ifstream file(process / "status");
  for (std::string key, value; file >> key && std::getline(file >> std::ws, value);) {
    fields[key] = value;
  }
  return fields;
}

// The scheduler counts in nanoseconds, where the totals of /proc/PID/stat are in ticks.
double ProcessorSeconds(const fs::path& process) {
  double seconds = 0;
  std::error_code error;
  for (const fs::directory_entry& thread : fs::directory_iterator(process / "task", error)) {
    int64_t nanoseconds = 0;
    if (std::ifstream(thread.path() / "schedstat") >> nanoseconds) {
      seconds += 1e-9 * static_cast<double>(nanoseconds);
    }
  }
  return seconds;
}

}  // namespace

std::vector<ChildUsage> UsageOfChildren() {
  std::map<int, ChildUsage> children;
  std::error_code error;
  for (const fs::directory_entry& process : fs::directory_iterator("/proc", error)) {
    const std::string pid = process.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::map<std::string, std::string> status = ReadStatus(process.path());
    if (status["PPid:"] != std::to_string(getpid())) continue;
    children[std::stoi(pid)] = {.program = status["Name:"],
                                .processor_seconds = ProcessorSeconds(process.path()),
                                .resident_bytes = std::atoll(status["VmRSS:"].c_str()) * 1024};
  }
  std::vector<ChildUsage> result;
  for (const auto& [pid, usage] : children) result.push_back(usage);
  return result;
}

}  // namespace crossmesh
