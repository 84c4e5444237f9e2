#include "controller/store/testing/store_clients.h"

#include "common/base/thread.h"

#include <atomic>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// One of them. Confined to its thread, but for the time.
class StoreClient {
 public:
  StoreClient(MetadataStore& store, std::atomic<int64_t>& time, uint64_t seed)
      : store_(store), time_(time), seed_(seed), random_(seed) {}

  void Run(const StoreClients& options) {
    for (int i = 0; i < options.operations; ++i) {
      StoreOperation operation = {.key = absl::StrCat("object/", random_() % options.keys),
                                  .begin = ++time_};
      if (random_() % 2 == 0) {
        Get(operation);
      } else {
        Put(operation, i);
      }
      history_.push_back(std::move(operation));
    }
  }

  const StoreHistory& history() const { return history_; }

 private:
  void Get(StoreOperation& operation) {
    const absl::StatusOr<StoredObject> got = store_.Get(operation.key);
    operation.end = ++time_;
    if (got.ok()) {
      operation.value = got->value;
      operation.revision = got->revision;
    } else if (got.status().code() != absl::StatusCode::kNotFound) {
      operation.value = absl::StrCat("an error: ", got.status().ToString());
    }
    known_ = operation.revision;
  }

  void Put(StoreOperation& operation, int number) {
    StoreTransaction transaction;
    operation.kind = StoreOperation::Kind::kPut;
    if (random_() % 4 != 0) operation.value = absl::StrCat("by ", seed_, ", ", number);
    if (random_() % 2 == 0) {
      operation.kind = StoreOperation::Kind::kCompareAndPut;
      // What another object has is wrong for this one, as it should be now and then.
      operation.required =
          random_() % 4 == 0 ? known_ : store_.RevisionOf(operation.key).value_or(0);
      transaction.requirements = {{operation.key, operation.required}};
    }
    transaction.writes = {{operation.key, operation.value}};
    const absl::StatusOr<int64_t> revision = store_.Commit(std::move(transaction));
    operation.end = ++time_;
    if (revision.ok()) {
      operation.revision = *revision;
    } else if (revision.status().code() == absl::StatusCode::kAborted) {
      operation.outcome = StoreOperation::Outcome::kAborted;
    } else {
      operation.outcome = StoreOperation::Outcome::kUnknown;
      operation.end = StoreOperation::kNever;
    }
  }

  MetadataStore& store_;
  std::atomic<int64_t>& time_;
  const uint64_t seed_;
  std::mt19937_64 random_;
  StoreHistory history_;
  int64_t known_ = 0;  // a revision
};

}  // namespace

StoreHistory RunStoreClients(MetadataStore& store, const StoreClients& options) {
  std::atomic<int64_t> time = 0;
  std::vector<StoreClient> clients;
  for (int i = 0; i < options.clients; ++i) {
    clients.emplace_back(store, time, options.seed * 1000 + static_cast<uint64_t>(i));
  }
  std::vector<Thread> threads;
  for (StoreClient& client : clients) {
    threads.emplace_back("client", [&client, &options] { client.Run(options); });
  }
  for (Thread& thread : threads) thread.Join();
  StoreHistory history;
  for (const StoreClient& client : clients) {
    history.insert(history.end(), client.history().begin(), client.history().end());
  }
  return history;
}

}  // namespace crossmesh
