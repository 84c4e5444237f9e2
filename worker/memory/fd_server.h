#pragma once

#include "common/base/event_fd.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/base/unique_fd.h"
#include "common/base/unix_listener.h"
#include "common/memory_protocol/memory_protocol.h"
#include "worker/memory/storage_table.h"
#include "worker/memory/user_memory.h"

#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Lets user processes of this host make, find, map and lend the storages of a worker, through a
// Unix socket that only the worker's user can open. Has a thread of its own; a client can neither
// block nor crash it, and one that wants memory of a GPU waits for that alone. Thread-compatible;
// Stop is repeatable.
class FdServer {
 public:
  struct Options {
    std::string socket_path;   // a socket that nothing listens on makes way
    int32_t clients_max = 64;  // further ones wait in the kernel
    int64_t storage_bytes_max = int64_t{1} << 40;
    UserMemory::Maker user_memory = {};
  };

  // `storages` must outlive the server. As UnixListener::Listen says; ResourceExhausted: there are
  // no descriptors left.
  static absl::StatusOr<std::unique_ptr<FdServer>> Create(StorageTable& storages, Options options);
  ~FdServer() { Stop(); }
  FdServer(const FdServer&) = delete;
  FdServer& operator=(const FdServer&) = delete;

  // Closes all connections, removes the socket unless it is another's by now, and joins.
  void Stop();

 private:
  struct Answer {
    MemoryReply reply;
    std::shared_ptr<Arena> arena;  // none: no descriptor goes along
  };

  // Answers that waited for the memory of a GPU, which its loop has told of since.
  struct Ready {
    struct Reply {
      int client = -1;
      Answer answer;
      int descriptor = -1;  // the arena has it
    };

    explicit Ready(EventFd made) : event(std::move(made)) {}

    EventFd event;  // set when there is one
    Mutex mutex;
    std::vector<Reply> replies ABSL_GUARDED_BY(mutex);
  };

  struct Descriptors {
    UnixListener listener;
    UniqueFd epoll;
    EventFd stop;
    EventFd ready;
    UniqueFd retry;
  };

  FdServer(StorageTable& storages, Options options, Descriptors descriptors);

  void Run();
  void Accept();
  void PauseAccepting();
  // Zero: no more.
  void SetRetry(timespec after);
  // Unless there are as many clients as it keeps.
  void GoOnAccepting();
  struct Request {
    MemoryRequest memory;
    UniqueFd descriptor = UniqueFd();  // that came along
    int client = -1;
  };

  // Answers one request. False when the client is gone or breaks the rules.
  bool Serve(int client);
  // The client is not heard until its answer is ready.
  void AnswerWhenMade(int client, Answer answer);
  void SendReady();
  void Drop(int client);
  Answer AnswerTo(Request request);
  absl::StatusOr<Answer> Execute(Request request);
  // What create, open, sequence, lend and bind have to do.
  absl::StatusOr<StorageTable::Opened> OpenFor(Request request, const StorageKey& key);
  void Watch(int fd);
  void Ignore(int fd);

  StorageTable& storages_;
  const Options options_;
  UserMemory user_memory_;
  UnixListener listener_;
  const UniqueFd epoll_;
  EventFd stop_;
  // Shared with the waiters for memory, which may outlive the server.
  const std::shared_ptr<Ready> ready_;
  const UniqueFd retry_;             // a timer: after a pause for want of descriptors
  bool accepting_ = true;            // of the thread
  std::map<int, UniqueFd> clients_;  // of the thread
  Thread thread_;
};

}  // namespace crossmesh
