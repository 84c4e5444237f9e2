#include "tests/simulation/simulated_etcd_store.h"

#include "common/base/check.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr size_t kCommitsKept = 1000;
constexpr absl::Duration kTimeout = absl::Seconds(5);
constexpr int kAttemptsMax = 4;  // as EtcdStore
constexpr absl::Duration kFollowPause = absl::Milliseconds(100);

}  // namespace

SimulatedEtcdStore::SimulatedEtcdStore(SimulatedNode& node, SimulatedEtcdCalls& calls)
    : node_(node), calls_(calls), mirror_(keys_, kCommitsKept) {}

SimulatedEtcdStore::~SimulatedEtcdStore() = default;

void SimulatedEtcdStore::Open(std::function<void()> done) {
  Load([this, done = std::move(done)] {
    Follow();
    done();
  });
}

void SimulatedEtcdStore::Load(std::function<void()> then) {
  calls_.Call<SimulatedEtcd::Snapshot>(
      "is read by a controller", kTimeout, [](SimulatedEtcd& etcd) { return etcd.Read(); },
      IfThere([this, then](const absl::StatusOr<SimulatedEtcd::Snapshot>& snapshot) {
        if (!snapshot.ok()) {
          node_.After(kFollowPause, IfThere([this, then] { Load(then); }));
          return;
        }
        CHECK_OK(mirror_.Load(snapshot->pairs, snapshot->revision));
        TellWaiting();
        then();
      }));
}

void SimulatedEtcdStore::Follow() {
  watch_ =
      calls_.Watch(mirror_.ResumeAt(), IfThere([this](const etcdserverpb::WatchResponse& response) {
                     CHECK_OK(mirror_.Apply(response));
                     TellWaiting();
                   }),
                   IfThere([this](const absl::Status& status) { OnWatchEnd(status); }));
}

void SimulatedEtcdStore::OnWatchEnd(const absl::Status& status) {
  const bool is_compacted = absl::IsOutOfRange(status);
  node_.After(kFollowPause, IfThere([this, is_compacted] {
                if (!is_compacted) return Follow();
                Load([this] { Follow(); });
              }));
}

void SimulatedEtcdStore::Await(int64_t revision, std::function<void(absl::Status)> done) {
  const uint64_t number = ++waits_;
  waiting_[number] = {revision, std::move(done)};
  node_.After(kTimeout, IfThere([this, number] {
                const auto found = waiting_.find(number);
                if (found == waiting_.end()) return;
                const Waiting late = std::move(found->second);
                waiting_.erase(found);
                late.done(absl::UnavailableError("the watch is behind"));
              }));
  TellWaiting();
}

void SimulatedEtcdStore::TellWaiting() {
  std::vector<Waiting> told;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const bool is_there = it->second.revision <= mirror_.revision();
    if (is_there) told.push_back(std::move(it->second));
    it = is_there ? waiting_.erase(it) : std::next(it);
  }
  // Later, as the thread that waits hears it.
  for (Waiting& waiting : told) {
    node_.After(absl::Microseconds(5),
                IfThere([done = std::move(waiting.done)] { done(absl::OkStatus()); }));
  }
}

void SimulatedEtcdStore::BeginTerm(int64_t fence, std::function<void(absl::Status)> done) {
  Await(fence, [this, fence, term = ++term_, done = std::move(done)](const absl::Status& status) {
    if (!status.ok()) return done(status);
    if (term != term_) return done(absl::AbortedError("the term has ended"));
    fence_ = fence;
    done(absl::OkStatus());
  });
}

void SimulatedEtcdStore::EndTerm() {
  ++term_;
  fence_.reset();
}

void SimulatedEtcdStore::CommitThen(StoreTransaction transaction, CommitDone done) {
  commits_.push_back(std::make_shared<Pending>(
      Pending{.transaction = std::move(transaction), .done = std::move(done)}));
  if (commits_.size() == 1) CommitNext();
}

void SimulatedEtcdStore::CommitNext() {
  node_.After(absl::Microseconds(5), IfThere([this] { TryCommit(); }));
}

void SimulatedEtcdStore::TryCommit() {
  Pending& pending = *commits_.front();
  if (!fence_.has_value()) {
    return Finish(absl::AbortedError("this controller does not lead"));
  }
  if (++pending.attempts > kAttemptsMax) {
    return Finish(absl::UnavailableError("others have written before each attempt"));
  }
  const EtcdCommit::Context context{.keys = keys_,
                                    .mirror = mirror_,
                                    .fence = *fence_,
                                    .chunk_id = absl::StrCat(node_.name(), "-", ++chunk_ids_used_)};
  const absl::StatusOr<EtcdCommit> commit = EtcdCommit::Create(pending.transaction, context);
  if (!commit.ok()) return Finish(commit.status());
  calls_.Call<etcdserverpb::TxnResponse>(
      "is asked for a commit", kTimeout,
      [request = commit->last(), epoch = pending.transaction.epoch](SimulatedEtcd& etcd) {
        return etcd.Commit(request, epoch);
      },
      IfThere(
          [this, fence = context.fence](const absl::StatusOr<etcdserverpb::TxnResponse>& response) {
            const EtcdCommit::Context asked{.keys = keys_, .mirror = mirror_, .fence = fence};
            OnAnswer(asked, response);
          }));
}

void SimulatedEtcdStore::OnAnswer(const EtcdCommit::Context& context,
                                  const absl::StatusOr<etcdserverpb::TxnResponse>& response) {
  if (!response.ok()) return Finish(absl::UnavailableError(response.status().message()));
  if (response->succeeded()) {
    const int64_t revision = response->header().revision();
    return Await(revision, [this, revision](const absl::Status& status) {
      status.ok() ? Finish(revision) : Finish(status);
    });
  }
  const EtcdRefusal refusal = WhyRefused(commits_.front()->transaction, context, *response);
  if (!refusal.status.ok()) return Finish(refusal.status);
  Await(refusal.newest_commit,
        [this](const absl::Status& status) { status.ok() ? CommitNext() : Finish(status); });
}

void SimulatedEtcdStore::Finish(absl::StatusOr<int64_t> result) {
  const std::shared_ptr<Pending> pending = std::move(commits_.front());
  commits_.pop_front();
  if (!commits_.empty()) CommitNext();
  pending->done(std::move(result));
}

}  // namespace crossmesh
