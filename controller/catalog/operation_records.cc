#include "controller/catalog/operation_records.h"

#include "common/base/status_macros.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kOperationPrefix = "operation/";

std::string OperationKey(absl::string_view id) { return absl::StrCat(kOperationPrefix, id); }

}  // namespace

std::string OperationId(uint64_t number) { return absl::StrFormat("op-%016x", number); }

OperationRecords::OperationRecords(MetadataStore& store, uint64_t epoch, const Clock& clock,
                                   Options options)
    : store_(store), epoch_(epoch), clock_(clock), options_(options) {}

absl::StatusOr<std::optional<std::string>> OperationRecords::FindRequest(
    absl::string_view request_id, const Digest& content) const {
  const MutexLock lock(mutex_);
  const RequestTable::Request* known = requests_.Find(Digest::Of(request_id));
  if (known == nullptr || IsTooOld(*known)) {
    RETURN_IF_ERROR(CheckRoom());
    return std::nullopt;
  }
  std::string id = OperationId(known->operation);
  if (known->content == content) return id;
  return absl::AlreadyExistsError(
      absl::StrCat("request_id ", request_id, " began operation ", id, " with other content"));
}

absl::Status OperationRecords::Begin(const OperationRecord& record) {
  const std::string key = OperationKey(OperationId(record.number));
  const StoreTransaction begin{
      .epoch = epoch_, .requirements = {{key, 0}}, .writes = {{key, record.bytes}}};
  const Digest request = Digest::Of(record.request_id);
  const MutexLock lock(mutex_);
  while (requests_.size() > 0 && IsTooOld(*requests_.Oldest())) requests_.ForgetOldest();
  if (const RequestTable::Request* known = requests_.Find(request); known != nullptr) {
    return absl::AbortedError(absl::StrCat("request_id ", record.request_id, " began operation ",
                                           OperationId(known->operation)));
  }
  RETURN_IF_ERROR(CheckRoom());
  RETURN_IF_ERROR(store_.Commit(begin).status());
  requests_.Add({.id = request,
                 .content = record.content,
                 .operation = record.number,
                 .since = clock_.Monotonic()});
  return absl::OkStatus();
}

bool OperationRecords::IsTooOld(const RequestTable::Request& request) const {
  return clock_.Monotonic() - request.since >= options_.request_ids_for;
}

absl::Status OperationRecords::CheckRoom() const {
  if (requests_.size() < options_.requests_max || IsTooOld(*requests_.Oldest())) {
    return absl::OkStatus();
  }
  const absl::Duration wait =
      requests_.Oldest()->since + options_.request_ids_for - clock_.Monotonic();
  return absl::ResourceExhaustedError(absl::StrCat(
      "request ids: expected less than ", options_.requests_max, " in ",
      absl::FormatDuration(options_.request_ids_for), ", found ", requests_.size(),
      "; there is room for another in ", absl::FormatDuration(absl::Ceil(wait, absl::Seconds(1)))));
}

absl::Status OperationRecords::Finish(absl::string_view id, std::string bytes) {
  ASSIGN_OR_RETURN(const StoredObject present, store_.Get(OperationKey(id)));
  StoreTransaction finish{.epoch = epoch_,
                          .requirements = {{present.key, present.revision}},
                          .writes = {{present.key, std::move(bytes)}}};
  const MutexLock lock(mutex_);
  const bool full = static_cast<int64_t>(finished_.size()) >= options_.finished_max;
  if (full) finish.writes.push_back({OperationKey(finished_.front()), std::nullopt});
  RETURN_IF_ERROR(store_.Commit(finish).status());
  if (full) finished_.pop_front();
  finished_.push_back(std::string(id));
  return absl::OkStatus();
}

absl::StatusOr<std::string> OperationRecords::Get(absl::string_view id) const {
  absl::StatusOr<StoredObject> object = store_.Get(OperationKey(id));
  if (!object.ok()) return absl::NotFoundError(absl::StrCat("unknown operation ", id));
  return std::move(object->value);
}

std::vector<std::pair<std::string, std::string>> OperationRecords::List(absl::string_view before,
                                                                        int64_t limit) const {
  // A few thousand at most: the bound on finished operations keeps this short.
  const absl::StatusOr<std::vector<StoredObject>> all =
      store_.List(kOperationPrefix, "", options_.finished_max * 64);
  std::vector<std::pair<std::string, std::string>> listed;
  if (!all.ok()) return listed;
  for (auto object = all->rbegin(); object != all->rend(); ++object) {
    if (static_cast<int64_t>(listed.size()) == limit) break;
    std::string id = object->key.substr(kOperationPrefix.size());
    if (!before.empty() && id >= before) continue;
    listed.emplace_back(std::move(id), object->value);
  }
  return listed;
}

}  // namespace crossmesh
