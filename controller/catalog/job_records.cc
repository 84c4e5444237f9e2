#include "controller/catalog/job_records.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/strip.h>

namespace crossmesh {
namespace {

constexpr int kIdDigits = 16;

}  // namespace

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

JobRecords::JobRecords(MetadataStore& store, uint64_t epoch, const Clock& clock, Options options)
    : store_(store), epoch_(epoch), clock_(clock), options_(std::move(options)) {}

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

absl::Status JobRecords::Begin(const JobRecord& record) {
  const std::string key = KeyOf(IdOf(record.number));
  const StoreTransaction begin{
      .epoch = epoch_, .requirements = {{key, 0}}, .writes = {{key, record.bytes}}};
  const Digest request = Digest::Of(record.request_id);
  // Held during the commit, so that one request cannot begin twice.
  const MutexLock lock(mutex_);
  while (requests_.size() > 0 && IsTooOld(*requests_.Oldest())) requests_.ForgetOldest();
  if (const RequestTable::Request* known = requests_.Find(request); known != nullptr) {
    return absl::AbortedError(
        absl::StrCat("request_id ", record.request_id, " began ", noun(), " ", IdOf(known->job)));
  }
  RETURN_IF_ERROR(CheckRoom());
  RETURN_IF_ERROR(store_.Commit(begin).status());
  requests_.Add({.id = request,
                 .content = record.content,
                 .job = record.number,
                 .since = clock_.Monotonic()});
  return absl::OkStatus();
}

bool JobRecords::IsTooOld(const RequestTable::Request& request) const {
  return clock_.Monotonic() - request.since >= kRequestIdsFor;
}

absl::Status JobRecords::CheckRoom() const {
  if (requests_.size() < options_.requests_max || IsTooOld(*requests_.Oldest())) {
    return absl::OkStatus();
  }
  const absl::Duration wait = requests_.Oldest()->since + kRequestIdsFor - clock_.Monotonic();
  return absl::ResourceExhaustedError(absl::StrCat(
      "request ids: expected less than ", options_.requests_max, " in ",
      absl::FormatDuration(kRequestIdsFor), ", found ", requests_.size(),
      "; there is room for another in ", absl::FormatDuration(absl::Ceil(wait, absl::Seconds(1)))));
}

absl::Status JobRecords::Finish(absl::string_view id, std::string bytes) {
  ASSIGN_OR_RETURN(const StoredObject present, store_.Get(KeyOf(id)));
  StoreTransaction finish{.epoch = epoch_,
                          .requirements = {{present.key, present.revision}},
                          .writes = {{present.key, std::move(bytes)}}};
  const size_t size = finish.writes.front().value->size();
  const MutexLock lock(mutex_);
  // What is forgotten goes in the same commit, so that the store never has more than its bound.
  size_t forgotten = 0;
  size_t forgotten_bytes = 0;
  for (; TooMany(forgotten, forgotten_bytes, size); ++forgotten) {
    forgotten_bytes += finished_[forgotten].bytes;
    finish.writes.push_back({KeyOf(finished_[forgotten].id), std::nullopt});
  }
  RETURN_IF_ERROR(store_.Commit(finish).status());
  finished_.erase(finished_.begin(), finished_.begin() + static_cast<int64_t>(forgotten));
  finished_.push_back({std::string(id), size});
  finished_bytes_ += size - forgotten_bytes;
  return absl::OkStatus();
}

bool JobRecords::TooMany(size_t forgotten, size_t forgotten_bytes, size_t bytes) const {
  return forgotten < finished_.size() &&
         (finished_.size() - forgotten >= options_.finished_max ||
          finished_bytes_ - forgotten_bytes + bytes > options_.finished_bytes_max);
}

absl::StatusOr<std::string> JobRecords::Get(absl::string_view id) const {
  absl::StatusOr<StoredObject> object = store_.Get(KeyOf(id));
  if (!object.ok()) {
    return absl::NotFoundError(absl::StrCat(noun(), " \"", absl::CHexEscape(id),
                                            "\": expected one that is known, found none"));
  }
  return std::move(object->value);
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
    listed.emplace_back(std::move(id), object->value);
  }
  return listed;
}

}  // namespace crossmesh
