#include "controller/leadership/etcd/etcd_candidate.h"

#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "controller/store/etcd/cluster_watermark.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

// What has become of the election and its terms. Thread-safe.
class EtcdCandidate::News {
 public:
  News(EventFd has_begun, EventFd has_ended)
      : has_begun_(std::move(has_begun)), has_ended_(std::move(has_ended)) {}

  const EventFd& has_begun() const { return has_begun_; }
  const EventFd& has_ended() const { return has_ended_; }
  Standing standing() const {
    const MutexLock lock(mutex_);
    return standing_;
  }

  // The store has caught up with a term that was won, or could not.
  void TermBegins(uint64_t epoch, const absl::Status& status) {
    {
      const MutexLock lock(mutex_);
      if (status.ok() && !standing_.epoch.has_value()) standing_.epoch = epoch;
      standing_.leader.reset();
      standing_.why = status;
    }
    if (!status.ok()) has_ended_.Signal();
    has_begun_.Signal();
  }
  void DoesNotLead(const std::optional<std::string>& leader, const absl::Status& why) {
    bool has_led = false;
    {
      const MutexLock lock(mutex_);
      standing_.leader = leader;
      standing_.why = why;
      has_led = standing_.epoch.has_value();
    }
    if (has_led) has_ended_.Signal();
  }

 private:
  EventFd has_begun_;
  EventFd has_ended_;
  mutable Mutex mutex_;
  Standing standing_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::unique_ptr<EtcdCandidate>> EtcdCandidate::Start(const Options& options) {
  ASSIGN_OR_RETURN(EventFd has_begun, EventFd::Create());
  ASSIGN_OR_RETURN(EventFd has_ended, EventFd::Create());
  EtcdStore::Options store_options = options.store;
  std::unique_ptr<ClusterWatermark> watermark;
  if (!options.watermark.empty()) {
    ASSIGN_OR_RETURN(watermark, ClusterWatermark::Open(options.watermark));
    store_options.known = watermark->known();
  }
  absl::StatusOr<std::shared_ptr<EtcdStore>> opened = EtcdStore::Open(store_options);
  if (absl::IsFailedPrecondition(opened.status()) && watermark != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(opened.status().message(), ", without ",
                                                      watermark->path(), ", which knows better"));
  }
  RETURN_IF_ERROR(opened.status());
  std::shared_ptr<EtcdStore> store = *std::move(opened);
  const auto news = std::make_shared<News>(std::move(has_begun), std::move(has_ended));
  std::unique_ptr<EtcdCandidate> candidate(new EtcdCandidate(store, news));
  LeadershipListener listener{
      .on_leading =
          [store, news](uint64_t epoch, int64_t fence) {
            store->BeginTerm(fence, epoch, [news, epoch](const absl::Status& status) {
              news->TermBegins(epoch, status);
            });
          },
      .on_not_leading =
          [store, news](const std::optional<std::string>& leader, const absl::Status& why) {
            store->EndTerm();
            news->DoesNotLead(leader, why);
          }};
  ASSIGN_OR_RETURN(candidate->election_,
                   LeaderElection::Start({.etcd = options.store.etcd,
                                          .cluster = options.store.cluster,
                                          .identity = store->cluster().identity,
                                          .address = options.address,
                                          .lease_time = options.lease_time},
                                         std::move(listener)));
  if (watermark != nullptr) {
    watermark->Follow([store] { return store->cluster(); });
    candidate->watermark_ = std::move(watermark);
  }
  return candidate;
}

EtcdCandidate::EtcdCandidate(std::shared_ptr<EtcdStore> store, std::shared_ptr<News> news)
    : store_(std::move(store)), news_(std::move(news)) {}

EtcdCandidate::~EtcdCandidate() {
  watermark_.reset();
  election_.reset();
  store_->EndTerm();
}

const EventFd& EtcdCandidate::has_begun() const { return news_->has_begun(); }
const EventFd& EtcdCandidate::has_ended() const { return news_->has_ended(); }
void EtcdCandidate::End(const absl::Status& why) { news_->DoesNotLead(std::nullopt, why); }
EtcdCandidate::Standing EtcdCandidate::standing() const { return news_->standing(); }

}  // namespace crossmesh
