#include "controller/store/etcd/testing/etcd_process.h"

#include "common/base/check.h"
#include "common/testing/patience.h"
#include "common/testing/send_signal.h"
#include "etcd/rpc.pb.h"

#include <csignal>
#include <filesystem>
#include <iterator>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/time/time.h>

namespace crossmesh {
namespace {

// etcd takes what follows unix:// for the path of a socket, below its working folder, and wants it
// to look like a host with a port.
std::string ClientSocket(int member) { return absl::StrCat("localhost:", 2 * member + 1); }
std::string PeerSocket(int member) { return absl::StrCat("localhost:", 2 * member + 2); }
std::string Name(int member) { return absl::StrCat("m", member); }
std::string DataFolder(int member) { return absl::StrCat("data", member); }

std::vector<std::string> Arguments(int member, int members) {
  std::vector<std::string> all;
  for (int i = 0; i < members; ++i) {
    all.push_back(absl::StrCat(Name(i), "=unix://", PeerSocket(i)));
  }
  const std::string clients = absl::StrCat("unix://", ClientSocket(member));
  const std::string peers = absl::StrCat("unix://", PeerSocket(member));
  return {"/usr/bin/etcd",
          absl::StrCat("--name=", Name(member)),
          absl::StrCat("--data-dir=", DataFolder(member)),
          absl::StrCat("--listen-client-urls=", clients),
          absl::StrCat("--advertise-client-urls=", clients),
          absl::StrCat("--listen-peer-urls=", peers),
          absl::StrCat("--initial-advertise-peer-urls=", peers),
          absl::StrCat("--initial-cluster=", absl::StrJoin(all, ",")),
          "--max-txn-ops=4096",
          "--heartbeat-interval=10",
          "--election-timeout=100",
          "--logger=zap",
          "--log-outputs=stderr"};
}

}  // namespace

EtcdProcess::EtcdProcess(bool start, int members) : processes_(members) {
  if (!start) return;
  for (int member = 0; member < members; ++member) Launch(member);
  for (int member = 0; member < members; ++member) AwaitService(member);
}

std::string EtcdProcess::endpoint(int member) const {
  return absl::StrCat("unix:", socket(member));
}
std::string EtcdProcess::socket(int member) const { return folder_.PathOf(ClientSocket(member)); }
std::string EtcdProcess::data_folder(int member) const {
  return folder_.PathOf(DataFolder(member));
}

EtcdClient::Options EtcdProcess::options() const {
  EtcdClient::Options options;
  for (int i = 0; i < std::ssize(processes_); ++i) options.endpoints.push_back(endpoint(i));
  return options;
}

std::unique_ptr<EtcdClient> EtcdProcess::NewClient() const {
  absl::StatusOr<std::unique_ptr<EtcdClient>> client = EtcdClient::Create(options());
  CHECK(client.ok()) << client.status();
  return *std::move(client);
}

void EtcdProcess::Start(int member) {
  Launch(member);
  AwaitService(member);
}

void EtcdProcess::Launch(int member) {
  // It does not listen where an etcd that was killed did.
  for (const std::string& path : {ClientSocket(member), PeerSocket(member)}) {
    std::filesystem::remove(folder_.PathOf(path));
  }
  std::vector<std::string> arguments = {absl::StrCat("--chdir=", folder_.path())};
  for (const std::string& argument : Arguments(member, static_cast<int>(std::ssize(processes_)))) {
    arguments.push_back(argument);
  }
  absl::StatusOr<ChildProcess> process = ChildProcess::Start(
      {.program = "/usr/bin/env", .arguments = arguments, .log_path = folder_.PathOf("log")});
  CHECK(process.ok()) << process.status();
  processes_[member].emplace(*std::move(process));
}

void EtcdProcess::AwaitService(int member) {
  const Patience patience;
  etcdserverpb::RangeRequest request;
  request.set_key("any");
  for (bool serves = false; !serves; patience.Check()) {
    const std::optional<std::string> exit = processes_[member]->ExitText();
    CHECK(!exit.has_value()) << "etcd (Debian's package etcd-server): " << *exit;
    const absl::StatusOr<std::unique_ptr<EtcdClient>> client =
        EtcdClient::Create({.endpoints = {endpoint(member)}});
    CHECK(client.ok()) << client.status();
    serves = (*client)->Await(&EtcdClient::Range, request, absl::Seconds(1)).ok();
  }
}

void EtcdProcess::Stop(int member) { StopChild(processes_[member]->pid()); }
void EtcdProcess::Continue(int member) { SendSignal(processes_[member]->pid(), SIGCONT); }

}  // namespace crossmesh
