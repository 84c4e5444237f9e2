#pragma once

#include "client/client.h"
#include "client/memory/memory_client.h"
#include "common/testing/child_process.h"
#include "common/testing/temporary_folder.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>
#include <nlohmann/json.hpp>

namespace crossmesh {

// Asks until `holds` says yes; false when that takes longer than `limit`. The condition is one that
// another process makes true, so there is nothing to wait on.
bool WaitUntil(absl::Duration limit, absl::FunctionRef<bool()> holds);

// The folder with the programs of the release before this one; empty: none is given.
std::string ReleaseBefore();

// The document at http://ADDRESS/PATH. Unavailable: there is no answer; Internal: not status 200.
absl::StatusOr<std::string> HttpGet(const std::string& address, const std::string& path);

// A controller and workers, the real programs, as children of this process; on Unix sockets in a
// private folder. A worker NAME owns the device "NAME.0" and counts as a host of its own. Daemons
// can be stopped, killed and started again under the same addresses. The destructor leaves no
// process and no file; when the test has failed it prints the end of each log first. Programs are
// of this build, but for daemons that CROSSMESH_OLD_DAEMONS names, "controller,node-0": theirs are
// in the folder CROSSMESH_RELEASE_BEFORE.
// Thread-compatible; the thread that starts daemons must outlive them.
class LiveCluster {
 public:
  static constexpr char kController[] = "controller";

  struct Options {
    std::vector<std::string> workers;
    std::vector<std::string> worker_flags;
    std::vector<std::string> controller_flags;
    // Beside those, by the daemon's name.
    std::map<std::string, std::vector<std::string>> flags_of_daemon = {};
    // With flags that name an etcd, more than one: the first leads at first.
    std::vector<std::string> controllers = {kController};
    // Of the release before, in place of those that the environment names.
    std::optional<std::set<std::string>> old_daemons = std::nullopt;
  };

  // Returns when all workers have joined.
  static absl::StatusOr<std::unique_ptr<LiveCluster>> Start(Options options);
  ~LiveCluster();
  LiveCluster(const LiveCluster&) = delete;
  LiveCluster& operator=(const LiveCluster&) = delete;

  Client& client() { return *client_; }
  const std::vector<std::string>& workers() const { return options_.workers; }
  const std::string& folder() const { return folder_.path(); }
  // Those of all controllers, with commas.
  std::string controller_address() const;
  // That of one of them.
  std::string AddressOf(const std::string& controller) const;
  std::string PathOf(const std::string& file) const { return folder_.PathOf(file); }

  // Of a worker, or of a controller. One that stands by is started when its process is.
  absl::Status StartController(const std::string& name = kController);
  absl::Status StartWorker(const std::string& name);
  // Its next start is of this build.
  void Upgrade(const std::string& name) { old_daemons_.erase(name); }
  bool IsOld(const std::string& name) const { return old_daemons_.contains(name); }
  // SIGSTOP: returns when the process has stopped.
  void Signal(const std::string& name, int signal);
  // Ends it by SIGKILL and waits for that.
  void Kill(const std::string& name);
  // Asks it to end and waits for that. Internal: it ended otherwise than as asked.
  absl::Status Stop(const std::string& name);
  // What a daemon wrote into its ready file.
  absl::StatusOr<nlohmann::json> Ready(const std::string& name) const;

  // Does that controller lead, or stand by? Errors: it does not answer.
  absl::StatusOr<bool> Leads(const std::string& controller) const;
  absl::StatusOr<v1::Worker> GetWorker(const std::string& name);
  absl::Status WaitForWorker(const std::string& name, v1::WorkerState state);
  absl::Status WaitForAllWorkers();

  absl::StatusOr<MemoryClient> Memory(const std::string& worker) const;
  // The sum of a metric's series whose labels contain `label`, e.g. `state="used"`.
  absl::StatusOr<double> Metric(const std::string& daemon, const std::string& metric,
                                const std::string& label = "") const;

 private:
  explicit LiveCluster(Options options);
  std::string ProgramOf(const std::string& name, const std::string& program) const;
  absl::Status LaunchDaemon(const std::string& program, const std::string& name,
                            std::vector<std::string> arguments);
  absl::Status StartDaemon(const std::string& program, const std::string& name,
                           std::vector<std::string> arguments);
  std::string EndOfLog(const std::string& name) const;

  const Options options_;
  const TemporaryFolder folder_;
  std::set<std::string> old_daemons_;
  std::unique_ptr<Client> client_;
  std::map<std::string, ChildProcess> daemons_;
};

}  // namespace crossmesh
