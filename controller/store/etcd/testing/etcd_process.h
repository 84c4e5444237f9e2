#pragma once

#include "common/testing/child_process.h"
#include "common/testing/temporary_folder.h"
#include "controller/store/etcd/etcd_client.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace crossmesh {

// An etcd, Debian's, of one member or more, with the flags that Crossmesh asks of operators. They
// talk over Unix sockets, and have their data in a folder that goes, as they do, with this object.
// Members are numbered from 0.
// Thread-compatible.
class EtcdProcess {
 public:
  // Serves when this returns, unless `start` says that it is away.
  explicit EtcdProcess(bool start = true, int members = 1);

  // "unix:/..."
  std::string endpoint(int member = 0) const;
  // The same without "unix:".
  std::string socket(int member = 0) const;
  EtcdClient::Options options() const;
  std::unique_ptr<EtcdClient> NewClient() const;

  // Starts a member, perhaps again, on the data that is there, and returns when it serves.
  void Start(int member = 0);
  void Kill(int member = 0) { processes_[member]->Kill(); }
  // Between these it does nothing, and its connections stay.
  void Stop(int member = 0);
  void Continue(int member = 0);

  // Of a member, to be copied while it is killed.
  std::string data_folder(int member = 0) const;

 private:
  void Launch(int member);
  void AwaitService(int member);

  TemporaryFolder folder_;
  std::vector<std::optional<ChildProcess>> processes_;
};

}  // namespace crossmesh
