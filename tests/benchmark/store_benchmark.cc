// What the metadata stores cost, that in memory beside that on disk: commits of one object of 1
// KiB, alone and from many threads at once, lookups, and opening a store that has many objects.
// Prints one line of JSON per case; times are in microseconds.

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "controller/store/memory_store.h"
#include "controller/store/sqlite/sqlite_store.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

struct Options {
  std::string folder = "store-benchmark";
  int commits = 5000;
  int threads = 32;
  int64_t objects = 100'000;
};

const std::string& Value() {
  static const std::string value(1024, 'x');
  return value;
}

class StoreBenchmark {
 public:
  StoreBenchmark(const Options& options, std::string name, MetadataStore& store)
      : options_(options), name_(std::move(name)), store_(store) {}

  void Run() {
    Commits(1);
    Commits(options_.threads);
    for (int64_t i = 0; i < options_.objects;) {
      StoreTransaction transaction;
      for (int k = 0; k < 1000 && i < options_.objects; ++k, ++i) {
        transaction.writes.push_back({Key(i), Value()});
      }
      CHECK_OK(store_.Commit(std::move(transaction)));
    }
    Lookups("revision_of", [this](const std::string& key) { CHECK_OK(store_.RevisionOf(key)); });
    Lookups("get", [this](const std::string& key) { CHECK_OK(store_.Get(key)); });
  }

 private:
  static std::string Key(int64_t i) { return absl::StrCat("manifest/of-some-model-", i); }

  void Print(const std::string& what, std::vector<double> times, double seconds) {
    std::ranges::sort(times);
    const nlohmann::json line = {{"store", name_},
                                 {"case", what},
                                 {"per_second", static_cast<double>(times.size()) / seconds},
                                 {"p50_us", times[times.size() / 2]},
                                 {"p99_us", times[times.size() * 99 / 100]}};
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }

  double Timed(const std::function<void()>& body) {
    const absl::Duration before = clock_.Monotonic();
    body();
    return absl::ToDoubleMicroseconds(clock_.Monotonic() - before);
  }

  void Commits(int threads) {
    std::vector<std::vector<double>> times(threads);
    const double us = Timed([&] {
      std::vector<Thread> running;
      for (std::vector<double>& mine : times) {
        running.emplace_back("commits", [&] {
          const std::string key = absl::StrCat("job/", &mine - times.data());
          for (int i = 0; i < options_.commits / threads; ++i) {
            mine.push_back(Timed([&] { CHECK_OK(store_.Commit({.writes = {{key, Value()}}})); }));
          }
        });
      }
    });
    std::vector<double> all;
    for (const std::vector<double>& mine : times) all.insert(all.end(), mine.begin(), mine.end());
    Print(absl::StrCat("commits of ", threads), std::move(all), us / 1e6);
  }

  void Lookups(const std::string& what, const std::function<void(const std::string&)>& look_up) {
    constexpr int64_t kTogether = 100;  // one lookup is about as long as a look at the clock
    constexpr int64_t kStride = 7919;   // a prime, so that neighbours are not read one by one
    std::vector<double> times;
    std::vector<std::string> keys(kTogether);
    for (int64_t i = 0; i < 200; ++i) {
      for (int64_t k = 0; k < kTogether; ++k) {
        keys[k] = Key((i * kTogether + k) * kStride % options_.objects);
      }
      times.push_back(Timed([&] {
                        for (const std::string& key : keys) look_up(key);
                      }) /
                      kTogether);
    }
    double sum = 0;
    for (const double time : times) sum += time;
    Print(what, std::move(times), sum / 1e6);
  }

  const Options options_;
  const std::string name_;
  MetadataStore& store_;
  const RealClock clock_;
};

void RunOnDisk(const Options& options) {
  const RealClock clock;
  std::filesystem::remove_all(options.folder);
  const SqliteStore::Options on_disk = {.folder = options.folder, .clock = clock};
  {
    const auto store = SqliteStore::Open(on_disk);
    CHECK_OK(store);
    StoreBenchmark(options, "sqlite", **store).Run();
  }
  for (int i = 0; i < 3; ++i) {
    const absl::Duration before = clock.Monotonic();
    const auto store = SqliteStore::Open(on_disk);
    CHECK_OK(store);
    const nlohmann::json line = {{"store", "sqlite"},
                                 {"case", "open"},
                                 {"seconds", absl::ToDoubleSeconds(clock.Monotonic() - before)},
                                 {"objects", (*store)->stats().objects},
                                 {"database_bytes", (*store)->stats().database_bytes}};
    std::printf("%s\n", line.dump().c_str());
  }
  std::filesystem::remove_all(options.folder);
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  crossmesh::Options options;
  CLI::App app("Benchmark of the metadata stores", "store_benchmark");
  app.add_option("--folder", options.folder, "Of the store on disk; emptied before and after")
      ->capture_default_str();
  app.add_option("--commits", options.commits)
      ->check(CLI::Range(100, 1'000'000))
      ->capture_default_str();
  app.add_option("--threads", options.threads)->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--objects", options.objects)
      ->check(CLI::Range(1000, 10'000'000))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  crossmesh::SetMinimumLogLevel(crossmesh::LogLevel::kWarning);
  crossmesh::MemoryStore memory;
  crossmesh::StoreBenchmark(options, "memory", memory).Run();
  crossmesh::RunOnDisk(options);
}
