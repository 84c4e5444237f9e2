#include "controller/store/etcd/etcd_store.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <random>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

constexpr size_t kTasksMax = size_t{1} << 16;
// A commit that follows another one which it did not know of is done again; when this controller is
// the only one that writes, that is one of its own, of which etcd's answer was lost.
constexpr int kAttemptsMax = 4;
constexpr int kDeletionsMax = 100;  // of chunks, in a request

std::string NewChunkIds() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

// Its own limits are what etcd refuses in a commit.
absl::Status TooLarge(const EtcdCommit& commit, const absl::Status& refusal) {
  return absl::InvalidArgumentError(
      absl::StrCat(refusal.message(), "; a commit of ", commit.operations(), " operations and ",
                   commit.last().ByteSizeLong(),
                   " bytes: expected etcd to be started with --max-txn-ops=4096 and, as is its "
                   "default, --max-request-bytes=1572864"));
}

// Asks one member after the other.
absl::StatusOr<EtcdCluster> IdentifyByAny(EtcdClient& client, const EtcdKeys& keys,
                                          const EtcdStore::Options& options) {
  absl::StatusOr<EtcdCluster> cluster = absl::UnavailableError("no endpoint");
  for (size_t i = 0; i < options.etcd.endpoints.size() && absl::IsUnavailable(cluster.status());
       ++i) {
    cluster = IdentifyEtcdCluster(client, keys, options.known, options.timeout);
  }
  return cluster;
}

// What a caller may do about it: nothing is known, and it should try again.
absl::Status AsStoreError(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:  // what etcd's own limits refuse
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
      return status;
    default:
      return absl::UnavailableError(status.message());
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<EtcdStore>> EtcdStore::Open(const Options& options) {
  RETURN_IF_ERROR(EtcdKeys::Check(options.cluster));
  ASSIGN_OR_RETURN(std::unique_ptr<EtcdClient> client, EtcdClient::Create(options.etcd));
  const EtcdKeys keys(options.cluster);
  ASSIGN_OR_RETURN(EtcdCluster cluster, IdentifyByAny(*client, keys, options));
  std::unique_ptr<EtcdStore> store(
      new EtcdStore(options, std::move(client), std::move(cluster.identity)));
  RETURN_IF_ERROR(store->follower_.Start());
  store->writer_ = Thread("etcd-writer", [&store = *store] { store.Write(); });
  return store;
}

EtcdStore::EtcdStore(const Options& options, std::unique_ptr<EtcdClient> client,
                     std::string identity)
    : timeout_(options.timeout),
      keys_(options.cluster),
      chunk_ids_(NewChunkIds()),
      mirror_(keys_, options.commits_kept),
      client_(std::move(client)),
      follower_({.client = *client_,
                 .keys = keys_,
                 .mirror = mirror_,
                 .identity = std::move(identity),
                 .timeout = timeout_}) {}

EtcdStore::~EtcdStore() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    has_task_.SignalAll();
  }
  client_->Stop();
  writer_.Join();
  follower_.Stop();
}

void EtcdStore::BeginTerm(int64_t fence, uint64_t epoch,
                          absl::AnyInvocable<void(absl::Status)> done) {
  const MutexLock lock(mutex_);
  tasks_.push_back([this, fence, epoch, term = ++term_, done = std::move(done)]() mutable {
    done(CatchUp(fence, epoch, term));
  });
  has_task_.SignalAll();
}

void EtcdStore::EndTerm() {
  const MutexLock lock(mutex_);
  ++term_;
  fence_ = std::nullopt;
}

void EtcdStore::CommitThen(StoreTransaction transaction, CommitDone done) {
  {
    const MutexLock lock(mutex_);
    if (tasks_.size() < kTasksMax) {
      tasks_.push_back([this, transaction = std::move(transaction),
                        done = std::move(done)]() mutable { done(CommitNow(transaction)); });
      has_task_.SignalAll();
      return;
    }
  }
  done(absl::ResourceExhaustedError(
      absl::StrCat("expected at most ", kTasksMax, " commits that wait for etcd")));
}

absl::StatusOr<StoredObject> EtcdStore::Get(absl::string_view key) const {
  return mirror_.table().Get(key);
}
absl::StatusOr<int64_t> EtcdStore::RevisionOf(absl::string_view key) const {
  return mirror_.table().RevisionOf(key);
}
absl::StatusOr<std::vector<StoredObject>> EtcdStore::List(absl::string_view prefix,
                                                          absl::string_view after,
                                                          int64_t limit) const {
  return mirror_.table().List(prefix, after, limit);
}
int64_t EtcdStore::revision() const { return mirror_.table().revision(); }
absl::StatusOr<std::vector<StoredCommit>> EtcdStore::CommitsAfter(int64_t revision, int64_t limit,
                                                                  absl::Duration wait) const {
  return mirror_.table().CommitsAfter(revision, limit, wait);
}

void EtcdStore::Write() {
  for (;;) {
    Task task;
    {
      const MutexLock lock(mutex_);
      while (tasks_.empty() && !stopping_) has_task_.Wait(mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();  // when the client has stopped it fails at once
  }
}

absl::StatusOr<EtcdCommit::Context> EtcdStore::NewContext() {
  RETURN_IF_ERROR(follower_.health());
  const MutexLock lock(mutex_);
  if (!fence_.has_value()) {
    return absl::AbortedError("this controller does not lead: expected the one that does to write");
  }
  return EtcdCommit::Context{.keys = keys_,
                             .mirror = mirror_,
                             .fence = *fence_,
                             .chunk_id = absl::StrCat(chunk_ids_, "-", chunk_ids_used_++)};
}

absl::StatusOr<int64_t> EtcdStore::CommitNow(const StoreTransaction& transaction) {
  ASSIGN_OR_RETURN(const EtcdCommit::Context context, NewContext());
  for (int i = 0; i < kAttemptsMax; ++i) {
    ASSIGN_OR_RETURN(const std::optional<int64_t> revision, TryCommit(transaction, context));
    if (revision.has_value()) return *revision;
  }
  return absl::UnavailableError(
      absl::StrCat("etcd: others have written before each of ", kAttemptsMax, " attempts"));
}

absl::StatusOr<std::optional<int64_t>> EtcdStore::TryCommit(const StoreTransaction& transaction,
                                                            const EtcdCommit::Context& context) {
  ASSIGN_OR_RETURN(const EtcdCommit commit, EtcdCommit::Create(transaction, context));
  for (const etcdserverpb::TxnRequest& chunk : commit.chunks()) {
    ASSIGN_OR_RETURN(const etcdserverpb::TxnResponse response, Send(chunk));
    if (!response.succeeded()) return WhyRefused(transaction, context, response).status;
  }
  absl::StatusOr<etcdserverpb::TxnResponse> sent = Send(commit.last());
  if (absl::IsInvalidArgument(sent.status())) return TooLarge(commit, sent.status());
  ASSIGN_OR_RETURN(const etcdserverpb::TxnResponse response, std::move(sent));
  if (response.succeeded()) {
    RETURN_IF_ERROR(AwaitRevision(response.header().revision()));
    return response.header().revision();
  }
  const EtcdRefusal refusal = WhyRefused(transaction, context, response);
  RETURN_IF_ERROR(refusal.status);
  RETURN_IF_ERROR(AwaitRevision(refusal.newest_commit));
  return std::nullopt;
}

absl::StatusOr<etcdserverpb::TxnResponse> EtcdStore::Send(const etcdserverpb::TxnRequest& request) {
  absl::StatusOr<etcdserverpb::TxnResponse> response =
      client_->Await(&EtcdClient::Txn, request, timeout_);
  if (!response.ok()) return AsStoreError(response.status());
  return response;
}

absl::Status EtcdStore::AwaitRevision(int64_t revision) const {
  if (mirror_.AwaitRevision(revision, timeout_)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("etcd: expected the watch to show revision ", revision,
                                             " within ", absl::FormatDuration(timeout_), ", found ",
                                             mirror_.revision()));
}

absl::Status EtcdStore::CatchUp(int64_t fence, uint64_t epoch, int64_t term) {
  // The leader's key comes by the watch like everything else, after all that leaders before wrote.
  RETURN_IF_ERROR(AwaitRevision(fence));
  {
    const MutexLock lock(mutex_);
    if (term_ != term) return absl::AbortedError("the term has ended");
    fence_ = fence;
  }
  ASSIGN_OR_RETURN(const EtcdCommit::Context context, NewContext());
  std::vector<std::string> loose = mirror_.LooseChunks();
  while (!loose.empty()) {
    const auto end = loose.begin() + std::min<ptrdiff_t>(kDeletionsMax, std::ssize(loose));
    const std::vector<std::string> some(loose.begin(), end);
    RETURN_IF_ERROR(Send(DeletionOfChunks(some, context, epoch)).status());
    loose.erase(loose.begin(), end);
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
