#include "client/doctor/host_checks.h"

#include "client/doctor/gpu_libraries.h"
#include "common/base/byte_count.h"
#include "common/base/format.h"
#include "common/base/free_space.h"
#include "common/base/unique_fd.h"
#include "common/communicators/shared_memory.h"
#include "common/host_devices/host_devices.h"
#include "common/mesh/gpu_model.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using State = HostCheck::State;
namespace fs = std::filesystem;

// A controller with 4,096 workers, or a worker with as many peers, has a descriptor for each.
constexpr uint64_t kOpenFilesMin = 4096;

// Communicators of all GPUs of a host that there should be room for.
constexpr int64_t kCommunicatorsMin = 4;

class HostChecker {
 public:
  explicit HostChecker(const HostCheckOptions& options) : options_(options) {}

  std::vector<HostCheck> Run() {
    Programs();
    Kernel();
    OpenFiles();
    LockedMemory();
    Memory();
    HugePages();
    PagesOfStorages();
    SharedMemory();
    NumaNodes();
    Interfaces();
    RdmaDevices();
    Gpus();
    Nccl();
    M2n();
    CongestionControl();
    Port();
    ClockSynchronised();
    return std::move(checks_);
  }

 private:
  void Add(std::string name, State state, std::string found, std::string advice = "") {
    checks_.push_back({std::move(name), state, std::move(found), std::move(advice)});
  }

  std::optional<std::string> Read(absl::string_view path) const {
    std::ifstream file(options_.root + std::string(path));
    if (!file) return std::nullopt;
    std::ostringstream text;
    text << file.rdbuf();
    return std::string(absl::StripAsciiWhitespace(text.str()));
  }

  std::vector<std::string> EntriesOf(absl::string_view path) const {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(options_.root + std::string(path), error)) {
      names.push_back(entry.path().filename());
    }
    std::ranges::sort(names);
    return names;
  }

  void Programs() {
    std::vector<std::string> lacking;
    for (const char* name : {"crossmesh-controller", "crossmesh-worker"}) {
      if (access((fs::path(options_.programs) / name).c_str(), X_OK) != 0)
        lacking.emplace_back(name);
    }
    if (lacking.empty()) return Add("programs", State::kGood, options_.programs);
    Add("programs", State::kProblem,
        absl::StrCat("no ", absl::StrJoin(lacking, " and no "), " in ", options_.programs),
        "scripts/setup, then cmake --build --preset release");
  }

  void Kernel() {
    utsname name = {};
    uname(&name);
    const std::vector<std::string> parts = absl::StrSplit(name.release, absl::ByAnyChar(".-"));
    int major = 0, minor = 0;
    const bool known = parts.size() > 1 && absl::SimpleAtoi(parts[0], &major) &&
                       absl::SimpleAtoi(parts[1], &minor);
    const bool old = known && std::pair(major, minor) < std::pair(5, 7);
    Add("kernel", old ? State::kNote : State::kGood, absl::StrCat(name.sysname, " ", name.release),
        old ? "before 5.7 only root may choose among several NICs of one subnet" : "");
  }

  void OpenFiles() {
    rlimit limit = {};
    getrlimit(RLIMIT_NOFILE, &limit);
    const bool few = limit.rlim_cur < kOpenFilesMin;
    Add("open files", few ? State::kProblem : State::kGood,
        absl::StrCat("at most ", limit.rlim_cur),
        few ? absl::StrCat("ulimit -n ", kOpenFilesMin, ", or LimitNOFILE of the service") : "");
  }

  void LockedMemory() {
    rlimit limit = {};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur == RLIM_INFINITY) return Add("locked memory", State::kGood, "unlimited");
    Add("locked memory", State::kNote, FormatBytes(ByteCount(static_cast<int64_t>(limit.rlim_cur))),
        "RDMA needs ulimit -l unlimited; TCP does not");
  }

  // In bytes, of /proc/meminfo.
  std::map<std::string, int64_t> MemoryInfo() const {
    std::map<std::string, int64_t> values;
    const std::string text = Read("proc/meminfo").value_or("");
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      const std::vector<absl::string_view> words =
          absl::StrSplit(line, absl::ByAnyChar(": "), absl::SkipEmpty());
      int64_t value = 0;
      if (words.size() < 2 || !absl::SimpleAtoi(words[1], &value)) continue;
      // Sizes have the unit kB, counts have none.
      values[std::string(words[0])] = words.size() > 2 ? value * 1024 : value;
    }
    return values;
  }

  void Memory() {
    const std::map<std::string, int64_t> info = MemoryInfo();
    const auto found = info.find("MemAvailable");
    if (found == info.end()) return Add("memory", State::kNote, "unknown");
    const bool little = found->second < options_.memory_bytes;
    Add("memory", little ? State::kProblem : State::kGood,
        absl::StrCat(FormatBytes(ByteCount(found->second)), " available"),
        little
            ? absl::StrCat("storages are to have ", FormatBytes(ByteCount(options_.memory_bytes)),
                           "; a shadow takes as much again")
            : "");
  }

  void HugePages() {
    const std::map<std::string, int64_t> info = MemoryInfo();
    const auto free = info.find("HugePages_Free"), size = info.find("Hugepagesize");
    if (free == info.end() || size == info.end() || free->second == 0) {
      return Add("huge pages", State::kGood, "none reserved");
    }
    Add("huge pages", State::kGood,
        absl::StrCat(free->second, " of ", FormatBytes(ByteCount(size->second)), " free"));
  }

  // Storages are shared memory that asks for huge pages, where none are reserved.
  void PagesOfStorages() {
    const std::string path = "sys/kernel/mm/transparent_hugepage/shmem_enabled";
    const std::string choices = Read(path).value_or("[unknown]");
    // The one that holds is in brackets.
    const std::vector<std::string> parts = absl::StrSplit(choices, absl::ByAnyChar("[]"));
    const std::string chosen = parts.size() > 1 ? parts[1] : choices;
    const bool small = chosen == "never" || chosen == "deny";
    Add("pages of storages", small ? State::kNote : State::kGood,
        absl::StrCat("huge ones: ", chosen),
        small ? absl::StrCat("echo advise > /", path, ": sums in a host take up to 30 % less time")
              : "");
  }

  // NCCL's, of the GPUs of this host.
  void SharedMemory() {
    const std::optional<int64_t> free = options_.shared_memory_bytes.has_value()
                                            ? options_.shared_memory_bytes
                                            : FreeBytesAt(options_.root + "dev/shm");
    if (!free.has_value()) return Add("shared memory", State::kNote, "no /dev/shm");
    const int64_t gpus = CountGpus();
    const std::string found =
        absl::StrCat(FormatBytes(ByteCount(*free)), " free for ", gpus, " GPUs");
    if (gpus == 0) return Add("shared memory", State::kGood, found);
    if (const auto shortage = SharedMemoryShortage(*free, gpus)) {
      return Add("shared memory", State::kProblem, *shortage, std::string(kSharedMemoryAdvice));
    }
    // A worker keeps several.
    const bool is_little = SharedMemoryShortage(*free, kCommunicatorsMin * gpus).has_value();
    Add("shared memory", is_little ? State::kNote : State::kGood, found,
        is_little ? absl::StrCat("less than ", kCommunicatorsMin,
                                 " communicators of all of them: ", kSharedMemoryAdvice)
                  : "");
  }

  void NumaNodes() {
    int64_t nodes = 0;
    for (const std::string& name : EntriesOf("sys/devices/system/node")) {
      nodes += name.starts_with("node") && name.size() > 4 &&
                       absl::ascii_isdigit(static_cast<unsigned char>(name[4]))
                   ? 1
                   : 0;
    }
    Add("NUMA nodes", nodes > 1 ? State::kNote : State::kGood,
        absl::StrCat(std::max<int64_t>(nodes, 1)),
        nodes > 1 ? "run a worker per node with numactl, near its NIC" : "");
  }

  void Interfaces() {
    std::vector<std::string> texts;
    for (const std::string& name : EntriesOf("sys/class/net")) {
      const std::string folder = absl::StrCat("sys/class/net/", name, "/");
      const std::string state = Read(folder + "operstate").value_or("unknown");
      const std::string speed = Read(folder + "speed").value_or("");
      int64_t megabits = 0;
      // That of an interface which is down is -1, or cannot be read.
      const bool known = absl::SimpleAtoi(speed, &megabits) && megabits > 0;
      texts.push_back(
          absl::StrCat(name, " ", state, known ? absl::StrCat(" ", megabits, " Mbit/s") : ""));
    }
    if (texts.empty()) {
      return Add("interfaces", State::kProblem, "none", "workers on other hosts cannot be reached");
    }
    Add("interfaces", State::kGood, absl::StrJoin(texts, ", "));
  }

  void RdmaDevices() {
    const std::vector<std::string> devices = EntriesOf("sys/class/infiniband");
    if (devices.empty()) return Add("RDMA devices", State::kGood, "none: workers use TCP");
    Add("RDMA devices", State::kNote, absl::StrJoin(devices, ", "),
        "crossmesh-worker --data-transport ucx uses them");
  }

  int64_t CountGpus() const { return std::ssize(EntriesOf("proc/driver/nvidia/gpus")); }

  void Nccl() {
    if (options_.nccl.empty()) return;
    if (CountGpus() == 0) return Add("NCCL", State::kGood, "not needed: no GPUs");
    const absl::StatusOr<std::string> version = FindNccl(options_.nccl);
    if (version.ok()) return Add("NCCL", State::kGood, *version);
    Add("NCCL", State::kNote, std::string(version.status().message()),
        "GPUs exchange nothing without it: pip install nvidia-nccl-cu13, and name its library by "
        "--nccl-library");
  }

  // After NCCL, which it needs.
  void M2n() {
    if (options_.m2n.empty() || CountGpus() == 0) return;
    const absl::Status found = FindM2n(options_.m2n);
    if (found.ok()) return Add("NCCL M2N", State::kGood, "there");
    Add("NCCL M2N", State::kGood, absl::StrCat("none, and no strategy m2n: ", found.message()));
  }

  // With their NICs and links, as plans would count them.
  void Gpus() {
    const SystemDevices devices = options_.nvml.empty()
                                      ? ReadSystemDevices(options_.root)
                                      : ReadSystemDevices(options_.root, options_.nvml);
    if (devices.gpus.empty()) return Add("GPUs", State::kGood, "none");
    const absl::StatusOr<Host> host = DescribeHost(devices, "this");
    std::vector<std::string> texts;
    for (size_t i = 0; i < devices.gpus.size(); ++i) {
      const SystemGpu& gpu = devices.gpus[i];
      texts.push_back(absl::StrCat(gpu.model.empty() ? gpu.address : gpu.model, " ", gpu.uuid));
      if (host.ok()) {
        const HostGpu& described = host->gpus[i];
        absl::StrAppend(&texts.back(), " by ", described.nic, ", links ",
                        FormatRate(static_cast<double>(described.link_out_bytes_per_second)));
      }
      absl::StrAppend(&texts.back(), ManagedText(gpu));
    }
    std::vector<std::string> advice;
    if (!host.ok()) {
      advice.push_back(absl::StrCat("describe them yourself (crossmesh network preset): ",
                                    host.status().message()));
    }
    for (const SystemGpu& gpu : devices.gpus) AddAdvice(gpu, advice);
    Add("GPUs", advice.empty() ? State::kGood : State::kNote, absl::StrJoin(texts, "; "),
        absl::StrJoin(advice, "; "));
  }

  // ", 85.5 GB, 18 NVLinks up, persistence mode on, MIG off"
  static std::string ManagedText(const SystemGpu& gpu) {
    if (!gpu.managed.has_value()) return "";
    const NvmlGpu& managed = *gpu.managed;
    const auto on_or_off = [](bool is_on) { return is_on ? "on" : "off"; };
    std::string text;
    if (managed.memory_bytes > 0) {
      absl::StrAppend(&text, ", ", FormatBytes(ByteCount(managed.memory_bytes)));
    }
    if (managed.nvlinks > 0) absl::StrAppend(&text, ", ", managed.nvlinks, " NVLinks up");
    if (managed.persistence.has_value()) {
      absl::StrAppend(&text, ", persistence mode ", on_or_off(*managed.persistence));
    }
    if (managed.mig.has_value()) absl::StrAppend(&text, ", MIG ", on_or_off(*managed.mig));
    return text;
  }

  static void AddAdvice(const SystemGpu& gpu, std::vector<std::string>& advice) {
    if (!gpu.managed.has_value()) return;
    const GpuModel* const model = FindGpuModel(gpu.model);
    if (model != nullptr && gpu.managed->nvlinks < model->nvlinks) {
      advice.push_back(absl::StrCat(gpu.uuid, ": ", gpu.managed->nvlinks, " of ", model->nvlinks,
                                    " NVLinks are up (nvidia-smi nvlink --status)"));
    }
    if (gpu.managed->mig.value_or(false)) {
      advice.push_back(absl::StrCat(
          gpu.uuid, ": MIG is on; a worker takes one of its instances, by --gpu DEVICE=MIG-..."));
    }
  }

  void CongestionControl() {
    const std::string name = Read("proc/sys/net/ipv4/tcp_congestion_control").value_or("unknown");
    const bool paces = name.starts_with("bbr");
    Add("TCP", paces ? State::kNote : State::kGood, absl::StrCat("congestion control ", name),
        paces
            ? "bbr costs about 1 % per hop of a relay; sysctl net.ipv4.tcp_congestion_control=cubic"
            : "");
  }

  void Port() {
    const std::string address = options_.listen.empty() ? "127.0.0.1:0" : options_.listen;
    const size_t colon = address.rfind(':');
    const std::string host = address.substr(0, colon);
    const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
    const std::string problem = port.empty() ? "expected HOST:PORT" : TryToListen(host, port);
    const std::string shown = options_.listen.empty() ? "loopback" : address;
    if (problem.empty()) return Add("listening", State::kGood, absl::StrCat(shown, " is free"));
    Add("listening", State::kProblem, absl::StrCat(shown, ": ", problem),
        "another address, or the program that has it");
  }

  // Empty when a program could listen there.
  static std::string TryToListen(const std::string& host, const std::string& port) {
    addrinfo hints = {};
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
      return gai_strerror(error);
    }
    const UniqueFd fd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int one = 1;
    // As the daemons do, so that connections of one that has just ended are no problem.
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    const bool bound =
        bind(fd.get(), found->ai_addr, found->ai_addrlen) == 0 && listen(fd.get(), 1) == 0;
    const std::string problem = bound ? "" : std::strerror(errno);
    freeaddrinfo(found);
    return problem;
  }

  void ClockSynchronised() {
    timex time = {};  // without modes: only reads
    const bool synchronised = adjtimex(&time) >= 0 && (time.status & STA_UNSYNC) == 0;
    Add("clock", synchronised ? State::kGood : State::kNote,
        synchronised ? "synchronised" : "not synchronised",
        synchronised
            ? ""
            : "times in logs of different hosts will not agree; nothing else depends on it");
  }

  const HostCheckOptions& options_;
  std::vector<HostCheck> checks_;
};

}  // namespace

absl::string_view StateName(HostCheck::State state) {
  // In the order of HostCheck::State.
  constexpr absl::string_view kNames[] = {"good", "note", "problem"};
  static_assert(std::size(kNames) == static_cast<size_t>(State::kProblem) + 1);
  return kNames[static_cast<size_t>(state)];
}

std::vector<HostCheck> CheckHost(const HostCheckOptions& options) {
  return HostChecker(options).Run();
}

}  // namespace crossmesh
