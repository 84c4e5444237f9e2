#include "common/metrics/prometheus/process_collector.h"

#include "common/base/allocator.h"
#include "common/metrics/metric_names.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>

#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#include <absl/strings/string_view.h>
#include <absl/strings/strip.h>
#include <sys/resource.h>
#include <unistd.h>

namespace crossmesh {
namespace {

std::string ReadFile(const char* path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void Add(const MetricName& name, prometheus::MetricType type, double value,
         std::vector<prometheus::MetricFamily>& families) {
  prometheus::ClientMetric metric;
  if (type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  families.push_back({.name = std::string(name.name),
                      .help = std::string(name.help),
                      .type = type,
                      .metric = {metric}});
}

// The numbers of /proc/self/stat that are needed, as numbered by proc(5).
struct Stat {
  double cpu_seconds = 0;
  double threads = 0;
  double start_seconds_after_boot = 0;
  double resident_bytes = 0;
};

std::optional<Stat> ReadStat() {
  constexpr size_t kUserTime = 14;
  constexpr size_t kSystemTime = 15;
  constexpr size_t kThreads = 20;
  constexpr size_t kStartTime = 22;
  constexpr size_t kResidentPages = 24;
  const std::string text = ReadFile("/proc/self/stat");
  // The second field, the program's name in parentheses, may hold anything.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(text).substr(name_end + 1), ' ', absl::SkipEmpty());
  const auto number = [&](size_t field) {
    double value = 0;
    return field - 3 < fields.size() && absl::SimpleAtod(fields[field - 3], &value) ? value : 0.0;
  };
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  return Stat{
      .cpu_seconds = (number(kUserTime) + number(kSystemTime)) / ticks,
      .threads = number(kThreads),
      .start_seconds_after_boot = number(kStartTime) / ticks,
      .resident_bytes = number(kResidentPages) * static_cast<double>(sysconf(_SC_PAGESIZE))};
}

// Unix time of the start of the system.
std::optional<double> ReadBootTime() {
  const std::string text = ReadFile("/proc/stat");
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    double seconds = 0;
    if (absl::ConsumePrefix(&line, "btime ") && absl::SimpleAtod(line, &seconds)) return seconds;
  }
  return std::nullopt;
}

std::optional<double> CountOpenFds() {
  std::error_code error;
  double count = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
       it.increment(error)) {
    ++count;
  }
  if (error) return std::nullopt;
  return count - 1;  // without the iterator's own
}

}  // namespace

std::vector<prometheus::MetricFamily> ProcessCollector::Collect() const {
  using prometheus::MetricType;
  std::vector<prometheus::MetricFamily> families;
  if (const std::optional<Stat> stat = ReadStat()) {
    Add(metric::kProcessCpu, MetricType::Counter, stat->cpu_seconds, families);
    Add(metric::kProcessMemory, MetricType::Gauge, stat->resident_bytes, families);
    Add(metric::kProcessAllocated, MetricType::Gauge, static_cast<double>(AllocatedBytes()),
        families);
    Add(metric::kProcessThreads, MetricType::Gauge, stat->threads, families);
    if (const std::optional<double> boot = ReadBootTime()) {
      Add(metric::kProcessStart, MetricType::Gauge, *boot + stat->start_seconds_after_boot,
          families);
    }
  }
  if (const std::optional<double> fds = CountOpenFds()) {
    Add(metric::kProcessFds, MetricType::Gauge, *fds, families);
  }
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    Add(metric::kProcessMaxFds, MetricType::Gauge, static_cast<double>(limit.rlim_cur), families);
  }
  return families;
}

}  // namespace crossmesh
