#include "controller/store/etcd/etcd_cluster.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <random>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

// Of a page, in keys. Small ones come many at a time; a page must fit into a message.
constexpr int64_t kPageKeysFirst = 256;
constexpr int64_t kPageKeysMax = 4096;
constexpr size_t kPageBytesAim = size_t{1} << 20;

std::string NewIdentity() {
  std::random_device random;
  return absl::StrFormat("%08x%08x%08x%08x", random(), random(), random(), random());
}

void AddRead(const std::string& key, etcdserverpb::RequestOp* operation) {
  operation->mutable_request_range()->set_key(key);
}

void AddPut(const std::string& key, const std::string& value, etcdserverpb::TxnRequest& request) {
  etcdserverpb::PutRequest& put = *request.add_success()->mutable_request_put();
  put.set_key(key);
  put.set_value(value);
}

// Reads identity and epoch; makes them first when there are none and `make` is an identity.
etcdserverpb::TxnRequest IdentityRequest(const EtcdKeys& keys, const std::string& make) {
  etcdserverpb::TxnRequest request;
  etcdserverpb::Compare& exists = *request.add_compare();
  exists.set_target(etcdserverpb::Compare::CREATE);
  exists.set_result(etcdserverpb::Compare::EQUAL);
  exists.set_key(keys.identity());
  exists.set_create_revision(0);
  if (!make.empty()) {
    AddPut(keys.identity(), make, request);
    AddPut(keys.epoch(), EpochText(0), request);
  }
  AddRead(keys.identity(), request.add_failure());
  AddRead(keys.epoch(), request.add_failure());
  return request;
}

std::string ValueRead(const etcdserverpb::TxnResponse& response, int read) {
  if (read >= response.responses_size()) return "";
  const etcdserverpb::RangeResponse& range = response.responses(read).response_range();
  return range.kvs_size() == 0 ? "" : range.kvs(0).value();
}

}  // namespace

absl::Status CheckEtcdCluster(const EtcdKeys& keys, const EtcdCluster& known,
                              const EtcdCluster& found) {
  if (found.identity != known.identity) {
    return absl::FailedPreconditionError(absl::StrCat(
        keys.identity(), " of etcd: expected cluster ", known.identity, ", found ",
        found.identity.empty() ? "none" : found.identity,
        "; name the etcd of this cluster, or restore its newest backup, and start again"));
  }
  if (found.revision < known.revision || found.epoch < known.epoch) {
    return absl::FailedPreconditionError(absl::StrCat(
        "etcd of cluster ", known.identity, " was set back: expected revision ", known.revision,
        " and epoch ", known.epoch, " or later, found ", found.revision, " and ", found.epoch,
        "; restore a newer backup, or accept the loss by starting all controllers again"));
  }
  return absl::OkStatus();
}

absl::StatusOr<EtcdCluster> IdentifyEtcdCluster(EtcdClient& client, const EtcdKeys& keys,
                                                const std::optional<EtcdCluster>& known,
                                                absl::Duration timeout) {
  const std::string made = known.has_value() ? "" : NewIdentity();
  ASSIGN_OR_RETURN(const etcdserverpb::TxnResponse response,
                   client.Await(&EtcdClient::Txn, IdentityRequest(keys, made), timeout));
  EtcdCluster found{.identity = made, .revision = response.header().revision()};
  if (!response.succeeded()) {
    found.identity = ValueRead(response, 0);
    const std::optional<uint64_t> epoch = ParseEpochText(ValueRead(response, 1));
    if (!epoch.has_value()) {
      return absl::DataLossError(absl::StrCat("key ", keys.epoch(),
                                              " of etcd: expected an epoch of 20 digits, found \"",
                                              ValueRead(response, 1), "\""));
    }
    found.epoch = *epoch;
  }
  if (known.has_value()) RETURN_IF_ERROR(CheckEtcdCluster(keys, *known, found));
  return found;
}

absl::StatusOr<EtcdSnapshot> ReadEtcdSnapshot(EtcdClient& client, const EtcdKeys& keys,
                                              absl::Duration timeout) {
  EtcdSnapshot snapshot;
  etcdserverpb::RangeRequest request;
  request.set_key(keys.root());
  request.set_range_end(EtcdPrefixEnd(keys.root()));
  request.set_limit(kPageKeysFirst);
  for (bool more = true; more;) {
    absl::StatusOr<etcdserverpb::RangeResponse> page =
        client.Await(&EtcdClient::Range, request, timeout);
    if (absl::IsResourceExhausted(page.status()) && request.limit() > 1) {
      request.set_limit(request.limit() / 2);  // it is larger than a message may be
      continue;
    }
    RETURN_IF_ERROR(page.status());
    // The first page says of which revision all others are.
    if (snapshot.revision == 0) snapshot.revision = page->header().revision();
    request.set_revision(snapshot.revision);
    more = page->more() && page->kvs_size() > 0;
    if (page->ByteSizeLong() < kPageBytesAim) {
      request.set_limit(std::min(request.limit() * 2, kPageKeysMax));
    }
    for (etcdserverpb::KeyValue& pair : *page->mutable_kvs()) {
      request.set_key(pair.key() + '\0');
      snapshot.pairs.push_back(std::move(pair));
    }
  }
  return snapshot;
}

}  // namespace crossmesh
