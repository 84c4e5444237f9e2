#include "common/base/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/string_view.h>
#include <sys/resource.h>
#include <unistd.h>

namespace crossmesh {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

// A number alone in a file; none where there is no such file, or where it says "max".
int64_t LimitIn(const std::string& path) {
  std::string text;
  std::ifstream(path) >> text;
  uint64_t limit = 0;
  if (!absl::SimpleAtoi(text, &limit)) return kNone;
  return static_cast<int64_t>(std::min<uint64_t>(limit, kNone));
}

// The least limit of a group and of all above it. Inside a container the path may be that of the
// host, of which the container sees nothing but the end, as its root: so that is always looked at.
int64_t LeastLimit(const std::string& hierarchy, absl::string_view group, absl::string_view file) {
  int64_t least = kNone;
  while (!group.empty()) {
    least = std::min(least, LimitIn(absl::StrCat(hierarchy, group, "/", file)));
    group = group.substr(0, group.rfind('/'));
  }
  return std::min(least, LimitIn(absl::StrCat(hierarchy, "/", file)));
}

int64_t MachineMemory() { return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE); }

}  // namespace

int64_t MemoryLimit(const std::string& root) {
  int64_t least = MachineMemory();
  // Lines of "number:controllers:path"; of version 2 the number is 0 and there are no controllers.
  std::ifstream groups(absl::StrCat(root, "/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || !absl::StartsWith(parts[2], "/")) continue;
    const std::vector<absl::string_view> controllers = absl::StrSplit(parts[1], ',');
    if (parts[0] == "0" && parts[1].empty()) {
      least =
          std::min(least, LeastLimit(absl::StrCat(root, "/sys/fs/cgroup"), parts[2], "memory.max"));
    } else if (std::ranges::find(controllers, absl::string_view("memory")) != controllers.end()) {
      least = std::min(least, LeastLimit(absl::StrCat(root, "/sys/fs/cgroup/memory"), parts[2],
                                         "memory.limit_in_bytes"));
    }
  }
  return least;
}

int64_t AddressSpaceLeft() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNone;
  int64_t mapped_pages = 0;
  std::ifstream("/proc/self/statm") >> mapped_pages;
  return static_cast<int64_t>(limit.rlim_cur) - mapped_pages * sysconf(_SC_PAGE_SIZE);
}

}  // namespace crossmesh
