#include "tests/standin/nccl/rendezvous.h"

#include "common/base/mutex.h"
#include "common/base/unique_fd.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace crossmesh {
namespace {

constexpr size_t kPageBytes = 4096;
// Waits are cut short so that a peer that is killed while it rings does not cost the wake-up.
constexpr int64_t kWaitNsMax = 20'000'000;

size_t InPages(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

constexpr absl::string_view kNameBegin = "crossmesh-standin-";
constexpr auto kAbandonedAge = std::chrono::minutes(10);

// Rendezvous of processes that were killed before all ranks had joined.
void RemoveAbandoned() {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/dev/shm", error)) {
    const std::string name = entry.path().filename().string();
    absl::string_view rest = name;
    int process = 0;
    if (!absl::ConsumePrefix(&rest, kNameBegin) ||
        !absl::SimpleAtoi(rest.substr(0, rest.find('-')), &process)) {
      continue;
    }
    const auto age = fs::file_time_type::clock::now() - entry.last_write_time(error);
    if (!error && age > kAbandonedAge && kill(process, 0) != 0) fs::remove(entry.path(), error);
  }
}

// The process that made an id must live until all ranks have joined, as with the real one.
struct MadeNames {
  Mutex mutex;
  std::vector<std::string> names ABSL_GUARDED_BY(mutex);
};

MadeNames& NamesOfProcess() {
  static MadeNames& names = *[] {
    RemoveAbandoned();
    std::atexit([] {
      MutexLock lock(NamesOfProcess().mutex);
      for (const std::string& name : NamesOfProcess().names) shm_unlink(name.c_str());
    });
    return new MadeNames;
  }();
  return names;
}

UniqueFd OpenShared(const std::string& name, int flags) {
  return UniqueFd(shm_open(name.c_str(), O_RDWR | O_CLOEXEC | flags, 0600));
}

}  // namespace

std::string Rendezvous::MakeName() {
  static std::atomic<int> count = 0;
  MadeNames& made = NamesOfProcess();
  while (true) {
    std::string name = absl::StrCat("/", kNameBegin, getpid(), "-", ++count);
    if (!OpenShared(name, O_CREAT | O_EXCL).valid()) continue;
    MutexLock lock(made.mutex);
    made.names.push_back(name);
    return name;
  }
}

void Rendezvous::Make(const std::string& name) {
  const UniqueFd made = OpenShared(name, O_CREAT);
  static_cast<void>(made);  // Open tells of what is not there
}

size_t Rendezvous::BytesFor(int ranks) {
  return InPages(sizeof(Head)) + InPages(sizeof(RendezvousCell) * ranks) +
         sizeof(RendezvousRing) * ranks * ranks;
}

std::unique_ptr<Rendezvous> Rendezvous::Open(const std::string& name, int ranks,
                                             std::string& reason) {
  const UniqueFd file = OpenShared(name, 0);
  if (!file.valid()) {
    reason = "the unique id is none of this machine's, or all its ranks have joined already";
    return nullptr;
  }
  // Of one size for any number of ranks: what is not written to takes no memory.
  const size_t bytes = BytesFor(ranks);
  if (ftruncate(file.get(), static_cast<off_t>(BytesFor(kRanksMax))) != 0) {
    reason = "no shared memory";
    return nullptr;
  }
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) {
    reason = "no address space for shared memory";
    return nullptr;
  }
  auto rendezvous = std::unique_ptr<Rendezvous>(new Rendezvous(name, ranks, memory));
  int32_t agreed = 0;
  if (!rendezvous->head_.ranks.compare_exchange_strong(agreed, ranks) && agreed != ranks) {
    reason = absl::StrCat("this rank says that there are ", ranks, " ranks, another one ", agreed);
    return nullptr;
  }
  return rendezvous;
}

Rendezvous::Rendezvous(std::string name, int ranks, void* memory)
    : name_(std::move(name)),
      ranks_(ranks),
      memory_(memory),
      head_(*static_cast<Head*>(memory)),
      cells_(reinterpret_cast<RendezvousCell*>(static_cast<std::byte*>(memory) +
                                               InPages(sizeof(Head)))),
      rings_(reinterpret_cast<RendezvousRing*>(reinterpret_cast<std::byte*>(cells_) +
                                               InPages(sizeof(RendezvousCell) * ranks))) {}

Rendezvous::~Rendezvous() { munmap(memory_, BytesFor(ranks_)); }

void Rendezvous::RemoveName() { shm_unlink(name_.c_str()); }

void Rendezvous::RingDoorbell(int rank) const {
  std::atomic<uint32_t>& doorbell = cell(rank).doorbell;
  ++doorbell;
  syscall(SYS_futex, &doorbell, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void Rendezvous::RingAllDoorbells() const {
  for (int rank = 0; rank < ranks_; ++rank) RingDoorbell(rank);
}

void Rendezvous::WaitDoorbell(int rank, uint32_t seen) const {
  const timespec timeout = {.tv_sec = 0, .tv_nsec = kWaitNsMax};
  syscall(SYS_futex, &cell(rank).doorbell, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

void Rendezvous::Break(absl::string_view text) const {
  uint32_t whole = 0;
  if (!head_.broken.compare_exchange_strong(whole, 1)) return;
  SetText(head_.broken_text, text);
  head_.broken = 2;
  RingAllDoorbells();
}

}  // namespace crossmesh
