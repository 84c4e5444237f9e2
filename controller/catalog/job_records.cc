#include "controller/catalog/job_records.h"

#include "common/base/status_macros.h"
#include "crossmesh/stored/v1/job.pb.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <absl/functional/function_ref.h>
#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/strip.h>

namespace crossmesh {
namespace {

constexpr int kIdDigits = 16;

// Objects that are read at once.
constexpr int64_t kPage = 1000;
// Requests that are erased in one commit, at most.
constexpr int64_t kStaleAtOnce = 1000;

absl::Status DoesNotParse(absl::string_view key) {
  return absl::DataLossError(
      absl::StrCat("stored object ", key, ": expected a record of a job, found something else"));
}

// Of the id that the key ends with.
std::optional<uint64_t> NumberIn(absl::string_view key) {
  uint64_t number = 0;
  if (key.size() < kIdDigits) return std::nullopt;
  if (!absl::SimpleHexAtoi(key.substr(key.size() - kIdDigits), &number)) return std::nullopt;
  return number;
}

// In the order of their keys.
absl::Status ForEachObject(const MetadataStore& store, const std::string& prefix,
                           absl::FunctionRef<absl::Status(const StoredObject&)> action) {
  std::string after;
  while (true) {
    ASSIGN_OR_RETURN(const std::vector<StoredObject> page, store.List(prefix, after, kPage));
    for (const StoredObject& object : page) RETURN_IF_ERROR(action(object));
    if (std::ssize(page) < kPage) return absl::OkStatus();
    after = page.back().key;
  }
}

// NotFound names the key.
absl::StatusOr<int64_t> PresentRevision(const MetadataStore& store, absl::string_view key) {
  ASSIGN_OR_RETURN(const int64_t revision, store.RevisionOf(key));
  if (revision > 0) return revision;
  return absl::NotFoundError(absl::StrCat("object ", key, ": expected one, found none"));
}

std::string Encode(const JobRecord& record, bool ended) {
  stored::v1::Job job;
  job.set_shown(record.shown);
  if (!ended) job.set_resumption(record.resumption);
  job.set_content(record.content.ToString());
  job.set_ended(ended);
  return job.SerializeAsString();
}

std::string EncodeRequest(const JobRecord& record, absl::Time now, absl::Duration served) {
  stored::v1::Request request;
  request.set_id(Digest::Of(record.request_id).ToString());
  request.set_content(record.content.ToString());
  request.set_time(absl::ToUnixMicros(now));
  request.set_served_us(absl::ToInt64Microseconds(served));
  return request.SerializeAsString();
}

absl::StatusOr<std::string> ShownIn(const StoredObject& object) {
  stored::v1::Job job;
  if (!job.ParseFromString(object.value)) return DoesNotParse(object.key);
  return std::move(*job.mutable_shown());
}

}  // namespace

JobRecords::Counts JobRecords::counts() const {
  const MutexLock lock(mutex_);
  return {.finished = std::ssize(finished_), .requests = requests_.size()};
}

std::string JobRecords::IdOf(uint64_t number) const {
  return absl::StrFormat("%s%0*x", options_.id_prefix, kIdDigits, number);
}

bool JobRecords::IsId(absl::string_view text) const {
  return absl::ConsumePrefix(&text, options_.id_prefix) && text.size() == kIdDigits &&
         std::ranges::all_of(text, absl::ascii_isxdigit);
}

std::string JobRecords::KeyOf(absl::string_view id) const {
  return absl::StrCat(options_.noun, "/", id);
}

// By the job, not by the request's id: so the store's order is that of age.
std::string JobRecords::RequestKeyOf(absl::string_view id) const {
  return absl::StrCat("request-", options_.noun, "/", id);
}

std::string JobRecords::ProgressKeyOf(absl::string_view id) const {
  return absl::StrCat("progress-", options_.noun, "/", id);
}

JobRecords::JobRecords(MetadataStore& store, uint64_t epoch, const Clock& clock, Options options)
    : store_(store),
      epoch_(epoch),
      clock_(clock),
      options_(std::move(options)),
      start_(clock.Monotonic()) {}

absl::StatusOr<std::vector<JobRecords::Unfinished>> JobRecords::Load() {
  const MutexLock lock(mutex_);
  RETURN_IF_ERROR(ForEachObject(store_, RequestKeyOf(""),
                                [this](const StoredObject& object) ABSL_EXCLUSIVE_LOCKS_REQUIRED(
                                    mutex_) { return LoadRequest(object); }));
  std::vector<Unfinished> unfinished;
  RETURN_IF_ERROR(ForEachObject(
      store_, KeyOf(""),
      [&](const StoredObject& object) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
        ASSIGN_OR_RETURN(std::optional<Unfinished> job, LoadJob(object));
        if (job.has_value()) unfinished.push_back(*std::move(job));
        return absl::OkStatus();
      }));
  return unfinished;
}

// The system's clock may have been set, or be another one's. What it would say is not asked.
absl::Status JobRecords::LoadRequest(const StoredObject& object) {
  stored::v1::Request request;
  if (!request.ParseFromString(object.value)) return DoesNotParse(object.key);
  const std::optional<uint64_t> job = NumberIn(object.key);
  const std::optional<Digest> id = Digest::Parse(request.id());
  const std::optional<Digest> content = Digest::Parse(request.content());
  if (!job.has_value() || !id.has_value() || !content.has_value()) return DoesNotParse(object.key);
  newest_loaded_ = std::max(newest_loaded_, *job);
  if (requests_.Find(*id) != nullptr) {
    stale_requests_.push_back(object.key);
    return absl::OkStatus();
  }
  // Controllers of release 0.1 did not say it.
  absl::Duration since = absl::Microseconds(request.served_us());
  if (const auto* newest = requests_.Newest()) since = std::max(since, newest->since);
  served_before_ = std::max(served_before_, since);
  requests_.Add({.id = *id, .content = *content, .job = *job, .since = since});
  return absl::OkStatus();
}

absl::StatusOr<std::optional<JobRecords::Unfinished>> JobRecords::LoadJob(
    const StoredObject& object) {
  stored::v1::Job job;
  if (!job.ParseFromString(object.value)) return DoesNotParse(object.key);
  const std::optional<uint64_t> number = NumberIn(object.key);
  const std::optional<Digest> content = Digest::Parse(job.content());
  if (!number.has_value() || !content.has_value()) return DoesNotParse(object.key);
  newest_loaded_ = std::max(newest_loaded_, *number);
  if (job.ended()) {
    finished_.push_back({IdOf(*number), object.value.size()});
    finished_bytes_ += object.value.size();
    return std::nullopt;
  }
  Unfinished unfinished{.number = *number,
                        .content = *content,
                        .shown = std::move(*job.mutable_shown()),
                        .resumption = std::move(*job.mutable_resumption())};
  absl::StatusOr<StoredObject> progress = store_.Get(ProgressKeyOf(IdOf(*number)));
  if (progress.ok()) {
    unfinished.progress = std::move(progress->value);
  } else if (!absl::IsNotFound(progress.status())) {
    return progress.status();
  }
  return unfinished;
}

absl::StatusOr<std::optional<std::string>> JobRecords::FindRequest(absl::string_view request_id,
                                                                   const Digest& content) const {
  const MutexLock lock(mutex_);
  const RequestTable::Request* known = requests_.Find(Digest::Of(request_id));
  if (known == nullptr || IsTooOld(*known)) {
    RETURN_IF_ERROR(CheckRoom());
    return std::nullopt;
  }
  std::string id = IdOf(known->job);
  if (known->content == content) return id;
  return absl::AlreadyExistsError(
      absl::StrCat("request_id ", request_id, " began ", noun(), " ", id, " with other content"));
}

void JobRecords::Begin(const JobRecord& record, Done done) {
  const std::string id = IdOf(record.number);
  absl::Duration served;
  {
    const MutexLock lock(mutex_);
    served = Served();
  }
  StoreTransaction begin{
      .epoch = epoch_,
      .requirements = {{KeyOf(id), 0}},
      .writes = {{KeyOf(id), Encode(record, /*ended=*/false)},
                 {RequestKeyOf(id), EncodeRequest(record, clock_.Now(), served)}}};
  if (IsUncertain(record.number)) {
    const absl::StatusOr<int64_t> present = store_.RevisionOf(KeyOf(id));
    if (!present.ok()) return done(present.status());
    begin.requirements.front().revision = *present;
  }
  absl::StatusOr<std::vector<std::string>> stale = Reserve(record);
  if (!stale.ok()) return done(stale.status());
  for (const std::string& key : *stale) begin.writes.push_back({key, std::nullopt});
  store_.CommitThen(
      std::move(begin), [this, number = record.number, content = record.content,
                         request = Digest::Of(record.request_id), stale = *std::move(stale),
                         done = std::move(done)](const absl::StatusOr<int64_t>& revision) mutable {
        {
          const MutexLock lock(mutex_);
          beginning_.erase(request);
          if (revision.ok()) {
            requests_.Add({.id = request, .content = content, .job = number, .since = Served()});
          } else {
            stale_requests_.insert(stale_requests_.end(), stale.begin(), stale.end());
          }
        }
        done(Settle(number, revision.status()));
      });
}

bool JobRecords::IsUncertain(uint64_t number) const {
  const MutexLock lock(mutex_);
  return uncertain_.contains(number);
}

absl::Status JobRecords::Settle(uint64_t number, const absl::Status& answer) {
  const MutexLock lock(mutex_);
  if (answer.ok()) uncertain_.erase(number);
  if (absl::IsUnavailable(answer)) uncertain_.insert(number);
  if (!absl::IsAborted(answer) || !uncertain_.contains(number)) return answer;
  return absl::UnavailableError(absl::StrCat(
      noun(), " ", IdOf(number), ": an earlier commit may have been written: ", answer.message()));
}

absl::StatusOr<std::vector<std::string>> JobRecords::Reserve(const JobRecord& record) {
  const Digest request = Digest::Of(record.request_id);
  const MutexLock lock(mutex_);
  for (; requests_.size() > 0 && IsTooOld(*requests_.Oldest()); requests_.ForgetOldest()) {
    stale_requests_.push_back(RequestKeyOf(IdOf(requests_.Oldest()->job)));
  }
  if (const RequestTable::Request* known = requests_.Find(request); known != nullptr) {
    return absl::AbortedError(
        absl::StrCat("request_id ", record.request_id, " began ", noun(), " ", IdOf(known->job)));
  }
  RETURN_IF_ERROR(CheckRoom());
  if (!beginning_.insert(request).second) {
    return absl::AbortedError(
        absl::StrCat("request_id ", record.request_id, " begins a ", noun(), " now"));
  }
  const auto some =
      stale_requests_.begin() + std::min(std::ssize(stale_requests_), std::ptrdiff_t{kStaleAtOnce});
  std::vector<std::string> stale(stale_requests_.begin(), some);
  stale_requests_.erase(stale_requests_.begin(), some);
  return stale;
}

absl::Duration JobRecords::Served() const { return served_before_ + clock_.Monotonic() - start_; }

bool JobRecords::IsTooOld(const RequestTable::Request& request) const {
  return Served() - request.since >= options_.request_ids_for;
}

absl::Status JobRecords::CheckRoom() const {
  if (requests_.size() < options_.requests_max || IsTooOld(*requests_.Oldest())) {
    return absl::OkStatus();
  }
  const absl::Duration wait = requests_.Oldest()->since + options_.request_ids_for - Served();
  return absl::ResourceExhaustedError(absl::StrCat(
      "request ids: expected less than ", options_.requests_max, " in ",
      absl::FormatDuration(options_.request_ids_for), ", found ", requests_.size(),
      "; there is room for another in ", absl::FormatDuration(absl::Ceil(wait, absl::Seconds(1)))));
}

void JobRecords::Amend(const JobRecord& record, Done done) {
  const std::string key = KeyOf(IdOf(record.number));
  const absl::StatusOr<int64_t> present = PresentRevision(store_, key);
  if (!present.ok()) return done(present.status());
  store_.CommitThen({.epoch = epoch_,
                     .requirements = {{key, *present}},
                     .writes = {{key, Encode(record, /*ended=*/false)}}},
                    [this, number = record.number,
                     done = std::move(done)](const absl::StatusOr<int64_t>& revision) mutable {
                      done(Settle(number, revision.status()));
                    });
}

void JobRecords::RecordProgress(uint64_t number, std::string progress, Done done) {
  const std::string id = IdOf(number);
  const std::string key = KeyOf(id);
  const absl::StatusOr<int64_t> present = PresentRevision(store_, key);
  if (!present.ok()) return done(present.status());
  store_.CommitThen({.epoch = epoch_,
                     .requirements = {{key, *present}},
                     .writes = {{ProgressKeyOf(id), std::move(progress)}}},
                    [done = std::move(done)](const absl::StatusOr<int64_t>& revision) mutable {
                      done(revision.status());
                    });
}

void JobRecords::Finish(const JobRecord& record, Done done) {
  std::string id = IdOf(record.number);
  const std::string key = KeyOf(id);
  const absl::StatusOr<int64_t> present = PresentRevision(store_, key);
  if (!present.ok()) return done(present.status());
  StoreTransaction finish{.epoch = epoch_,
                          .requirements = {{key, *present}},
                          .writes = {{key, Encode(record, /*ended=*/true)}}};
  const std::string progress = ProgressKeyOf(id);
  const absl::StatusOr<int64_t> progress_revision = store_.RevisionOf(progress);
  if (!progress_revision.ok()) return done(progress_revision.status());
  if (*progress_revision > 0) finish.writes.push_back({progress, std::nullopt});
  const size_t size = finish.writes.front().value->size();
  std::deque<Finished> forgotten;
  {
    // What is forgotten goes in the same commit, so that the store never has more than its bound.
    const MutexLock lock(mutex_);
    while (TooMany(size)) {
      finish.writes.push_back({KeyOf(finished_.front().id), std::nullopt});
      finished_bytes_ -= finished_.front().bytes;
      forgotten.push_back(std::move(finished_.front()));
      finished_.pop_front();
    }
    finished_.push_back({id, size});
    finished_bytes_ += size;
  }
  store_.CommitThen(std::move(finish), [this, number = record.number, id = std::move(id),
                                        forgotten = std::move(forgotten), done = std::move(done)](
                                           const absl::StatusOr<int64_t>& revision) mutable {
    if (!revision.ok()) Unfinish(id, std::move(forgotten));
    done(Settle(number, revision.status()));
  });
}

// The commit has failed, or is tried again. Another one that was under way at the same time may
// have forgotten the job already.
void JobRecords::Unfinish(absl::string_view id, std::deque<Finished> forgotten) {
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find(finished_, id, &Finished::id);
  if (found != finished_.end()) {
    finished_bytes_ -= found->bytes;
    finished_.erase(found);
  }
  for (auto oldest = forgotten.rbegin(); oldest != forgotten.rend(); ++oldest) {
    finished_bytes_ += oldest->bytes;
    finished_.push_front(std::move(*oldest));
  }
}

bool JobRecords::TooMany(size_t bytes) const {
  return !finished_.empty() && (finished_.size() >= options_.finished_max ||
                                finished_bytes_ + bytes > options_.finished_bytes_max);
}

absl::StatusOr<std::string> JobRecords::Get(absl::string_view id) const {
  absl::StatusOr<StoredObject> object = store_.Get(KeyOf(id));
  if (absl::IsNotFound(object.status())) {
    return absl::NotFoundError(absl::StrCat(noun(), " \"", absl::CHexEscape(id),
                                            "\": expected one that is known, found none"));
  }
  RETURN_IF_ERROR(object.status());
  return ShownIn(*object);
}

std::vector<std::pair<std::string, std::string>> JobRecords::List(absl::string_view before,
                                                                  int64_t limit) const {
  const std::string prefix = KeyOf("");
  // A few thousand at most: the bound on finished jobs keeps this short.
  const absl::StatusOr<std::vector<StoredObject>> all =
      store_.List(prefix, "", static_cast<int64_t>(options_.finished_max) * 64);
  std::vector<std::pair<std::string, std::string>> listed;
  if (!all.ok()) return listed;
  for (auto object = all->rbegin(); object != all->rend(); ++object) {
    if (static_cast<int64_t>(listed.size()) == limit) break;
    std::string id = object->key.substr(prefix.size());
    if (!before.empty() && id >= before) continue;
    absl::StatusOr<std::string> shown = ShownIn(*object);
    if (shown.ok()) listed.emplace_back(std::move(id), *std::move(shown));
  }
  return listed;
}

}  // namespace crossmesh
