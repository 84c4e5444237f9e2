#include "tests/standin/rank_processes.h"

#include "common/base/check.h"
#include "common/base/unique_fd.h"

#include <csignal>
#include <memory>
#include <new>

#include <absl/strings/str_cat.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace crossmesh {
namespace {

// A rank on a real GPU takes 5 to 12 s until its communicator is there, and has several in its
// life.
constexpr unsigned int kLifeSecondsMax = 240;

struct Child {
  pid_t process = -1;
  UniqueFd from;
};

[[noreturn]] void RunChild(int to, absl::FunctionRef<absl::Status()> body) {
  alarm(kLifeSecondsMax);
  const absl::Status status = body();
  const std::string text = status.ok() ? "" : status.ToString();
  const bool is_written = write(to, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  // Runs what runs at an exit, such as the writing of a log, but not GoogleTest.
  std::exit(is_written ? 0 : 1);
}

std::string Read(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t bytes = 0; (bytes = read(fd, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, bytes);
  }
  return text;
}

}  // namespace

Meeting::Meeting(int ranks) {
  pthread_barrierattr_t attributes;
  CHECK_EQ(pthread_barrierattr_init(&attributes), 0);
  CHECK_EQ(pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED), 0);
  CHECK_EQ(pthread_barrier_init(&barrier_, &attributes, ranks), 0);
}

std::vector<std::string> RunRanks(
    int ranks, absl::FunctionRef<absl::Status(int rank, Meeting& meeting)> body) {
  void* const memory =
      mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  auto* const meeting = new (memory) Meeting(ranks);
  std::vector<Child> children(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2] = {};
    CHECK_EQ(pipe(ends), 0);
    UniqueFd to(ends[1]);
    children[rank].from.Reset(ends[0]);
    children[rank].process = fork();
    CHECK(children[rank].process >= 0);
    if (children[rank].process == 0) RunChild(to.get(), [&] { return body(rank, *meeting); });
  }
  std::vector<std::string> results;
  for (const Child& child : children) {
    std::string text = Read(child.from.get());
    int status = 0;
    CHECK_EQ(waitpid(child.process, &status, 0), child.process);
    if (WIFSIGNALED(status)) text = absl::StrCat("killed by signal ", WTERMSIG(status));
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0 && text.empty()) {
      text = absl::StrCat("ended with status ", WEXITSTATUS(status));
    }
    results.push_back(std::move(text));
  }
  munmap(memory, sizeof(Meeting));
  return results;
}

}  // namespace crossmesh
