#pragma once

#include "client/cli/child_process.h"
#include "client/client.h"
#include "common/base/mutex.h"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// A controller and workers as children of this process, on Unix sockets in a private temporary
// folder. Each worker counts as a host of its own, node-0, node-1, ..., with one device in host
// memory, and one that is a GPU if there are any. Whatever happens, the destructor leaves no
// process and no file. Thread-safe where it says so.
class DemoCluster {
 public:
  struct Options {
    int workers = 4;
    std::vector<std::string> gpus;  // UUIDs, none or one for each worker: its second device
    std::vector<std::string> worker_flags;
  };
  struct Worker {
    std::string name;           // "node-0"
    std::string device;         // "node-0.0"
    std::string memory_socket;  // path
    std::string metrics_address;
  };

  DemoCluster() = default;
  ~DemoCluster() { Abandon(); }
  DemoCluster(const DemoCluster&) = delete;
  DemoCluster& operator=(const DemoCluster&) = delete;

  // Starts the daemons beside this program, and returns when all workers have joined. An error has
  // the end of the log of the daemon that failed.
  absl::Status Start(const Options& options);
  // Asks the daemons to end, waits a while, and removes everything. Repeatable.
  void Stop();
  // Kills and removes everything at once, for ever: what is being started ends as well. Repeatable;
  // thread-safe.
  void Abandon();

  // After Start.
  Client& client() { return *client_; }
  const std::vector<Worker>& workers() const { return workers_; }
  const std::string& controller_address() const { return controller_address_; }
  const std::string& controller_metrics_address() const { return controller_metrics_address_; }
  const std::string& folder() const { return folder_; }

 private:
  struct Daemon {
    std::string name;
    ChildProcess process;
  };

  std::string PathOf(const std::string& file) const { return folder_ + "/" + file; }
  absl::Status MakeFolder();
  absl::Status StartDaemon(const std::string& program, const std::string& name,
                           std::vector<std::string> arguments);
  absl::Status StartController();
  absl::Status StartWorker(int number, const Options& options);
  // The value of `key` in the ready file of a daemon, once there is one.
  absl::StatusOr<std::string> WaitUntilReady(const std::string& name, const std::string& key);
  absl::Status WaitForWorkers();
  // An error when a daemon has ended.
  absl::Status CheckAlive();
  std::string EndOfLog(const std::string& name) const;

  std::string program_folder_;
  std::string folder_;
  std::string controller_address_;
  std::string controller_metrics_address_;
  std::vector<Worker> workers_;
  std::unique_ptr<Client> client_;

  Mutex mutex_;
  std::vector<Daemon> daemons_ ABSL_GUARDED_BY(mutex_);
  std::string folder_to_remove_ ABSL_GUARDED_BY(mutex_);
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace crossmesh
