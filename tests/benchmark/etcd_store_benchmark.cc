// What metadata in etcd costs: commits one after the other and many at once, and how long a
// controller takes to read everything. The etcd is one member, on this machine.

#include "common/base/check.h"
#include "common/base/mutex.h"
#include "controller/store/etcd/etcd_store.h"
#include "controller/store/etcd/testing/etcd_process.h"
#include "controller/store/etcd/testing/etcd_terms.h"
#include "tests/benchmark/measure.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

struct Options {
  int64_t commits = 2000;
  int64_t objects = 10000;
  int64_t bytes = 1024;
};

std::unique_ptr<EtcdStore> Open(const EtcdProcess& etcd) {
  absl::StatusOr<std::unique_ptr<EtcdStore>> store = EtcdStore::Open({.etcd = etcd.options()});
  CHECK(store.ok()) << store.status();
  return *std::move(store);
}

StoreTransaction Put(int64_t object, int64_t bytes) {
  return {.epoch = 1, .writes = {{absl::StrCat("object/", object), std::string(bytes, 'x')}}};
}

// Each waits for the one before.
std::vector<double> CommitInTurn(EtcdStore& store, const Options& options) {
  std::vector<double> seconds;
  for (int64_t i = 0; i < options.commits; ++i) {
    seconds.push_back(SecondsOf([&] { CHECK(store.Commit(Put(i, options.bytes)).ok()); }));
  }
  return seconds;
}

// All are given to the store before the first is done.
double CommitAtOnce(EtcdStore& store, const Options& options) {
  Mutex mutex;
  CondVar is_done;
  int64_t done = 0;
  return SecondsOf([&] {
    for (int64_t i = 0; i < options.commits; ++i) {
      store.CommitThen(Put(i, options.bytes), [&](const absl::StatusOr<int64_t>& revision) {
        CHECK(revision.ok()) << revision.status();
        const MutexLock lock(mutex);
        ++done;
        is_done.SignalAll();
      });
    }
    const MutexLock lock(mutex);
    while (done < options.commits) is_done.Wait(mutex);
  });
}

void Fill(EtcdStore& store, const Options& options) {
  constexpr int64_t kObjectsInCommit = 100;
  for (int64_t i = 0; i < options.objects; i += kObjectsInCommit) {
    StoreTransaction transaction{.epoch = 1};
    for (int64_t k = i; k < std::min(i + kObjectsInCommit, options.objects); ++k) {
      transaction.writes.push_back(Put(k, options.bytes).writes[0]);
    }
    CHECK(store.Commit(transaction).ok());
  }
}

void Run(const Options& options) {
  const EtcdProcess etcd;
  const std::unique_ptr<EtcdClient> client = etcd.NewClient();
  const std::unique_ptr<EtcdStore> store = Open(etcd);
  Lead(*store, *client, EtcdKeys("default"), /*epoch=*/1);
  std::vector<double> seconds = CommitInTurn(*store, options);
  std::ranges::sort(seconds);
  const double at_once = CommitAtOnce(*store, options);
  Fill(*store, options);
  std::vector<double> loads;
  for (int i = 0; i < 5; ++i) {
    std::unique_ptr<EtcdStore> loaded;
    loads.push_back(SecondsOf([&] { loaded = Open(etcd); }));
    CHECK_GE(std::ssize(*loaded->List("object/", "", options.objects + 1)), options.objects);
  }
  std::printf("commits of %d bytes: in turn p50 %.2f ms, p99 %.2f ms; at once %.0f/s\n",
              static_cast<int>(options.bytes), 1e3 * seconds[seconds.size() / 2],
              1e3 * seconds[seconds.size() * 99 / 100],
              static_cast<double>(options.commits) / at_once);
  std::printf("%d objects of %d bytes are read in %.3f s (median of %d)\n",
              static_cast<int>(options.objects), static_cast<int>(options.bytes), MedianOf(loads),
              static_cast<int>(loads.size()));
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  CLI::App app("Measures metadata in etcd");
  crossmesh::Options options;
  app.add_option("--commits", options.commits)->check(CLI::PositiveNumber);
  app.add_option("--objects", options.objects)->check(CLI::PositiveNumber);
  app.add_option("--bytes", options.bytes, "Of each object")->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, argc, argv);
  crossmesh::Run(options);
  return 0;
}
