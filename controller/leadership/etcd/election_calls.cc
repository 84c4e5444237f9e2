#include "controller/leadership/etcd/election_calls.h"

#include <optional>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

using etcdserverpb::Compare;
using etcdserverpb::TxnRequest;

void RequireIdentity(TxnRequest& request, const EtcdKeys& keys, const std::string& identity) {
  Compare& compare = *request.add_compare();
  compare.set_target(Compare::VALUE);
  compare.set_key(keys.identity());
  compare.set_value(identity);
}

const etcdserverpb::RangeResponse& RangeOf(const etcdserverpb::TxnResponse& response, int read) {
  return read < response.responses_size() ? response.responses(read).response_range()
                                          : etcdserverpb::RangeResponse::default_instance();
}

}  // namespace

std::string LeaderValue(const LeaderEntry& leader) {
  return absl::StrCat(leader.address, " ", leader.incarnation);
}

LeaderEntry ParseLeader(const etcdserverpb::KeyValue& pair) {
  const std::string& value = pair.value();
  const size_t space = value.find(' ');
  return {.address = value.substr(0, space),
          .incarnation = space == std::string::npos ? "" : value.substr(space + 1),
          .lease = pair.lease()};
}

TxnRequest ReadElectionRequest(const EtcdKeys& keys, const std::string& identity) {
  TxnRequest request;
  RequireIdentity(request, keys, identity);
  request.add_success()->mutable_request_range()->set_key(keys.leader());
  request.add_success()->mutable_request_range()->set_key(keys.epoch());
  return request;
}

absl::StatusOr<ElectionReading> ReadingOf(const EtcdKeys& keys,
                                          const etcdserverpb::TxnResponse& response) {
  if (!response.succeeded()) {
    return absl::FailedPreconditionError(
        absl::StrCat(keys.identity(),
                     " of etcd: expected this cluster, found none or another; name the etcd of "
                     "this cluster, or restore its newest backup, and start again"));
  }
  ElectionReading reading{.revision = response.header().revision()};
  if (RangeOf(response, 0).kvs_size() > 0) {
    reading.leader = ParseLeader(RangeOf(response, 0).kvs(0));
  }
  if (RangeOf(response, 1).kvs_size() > 0) {
    const etcdserverpb::KeyValue& epoch = RangeOf(response, 1).kvs(0);
    const std::optional<uint64_t> stored = ParseEpochText(epoch.value());
    if (!stored.has_value()) {
      return absl::DataLossError(absl::StrCat("key ", keys.epoch(),
                                              " of etcd: expected an epoch of "
                                              "20 digits, found \"",
                                              epoch.value(), "\""));
    }
    reading.epoch = *stored;
    reading.epoch_revision = epoch.mod_revision();
  }
  return reading;
}

TxnRequest CampaignRequest(const CampaignCall& call) {
  TxnRequest request;
  RequireIdentity(request, call.keys, call.identity);
  Compare& no_leader = *request.add_compare();
  no_leader.set_target(Compare::CREATE);
  no_leader.set_key(call.keys.leader());
  no_leader.set_create_revision(0);
  Compare& same_epoch = *request.add_compare();
  same_epoch.set_target(Compare::MOD);
  same_epoch.set_key(call.keys.epoch());
  same_epoch.set_mod_revision(call.epoch_revision);
  etcdserverpb::PutRequest& leader = *request.add_success()->mutable_request_put();
  leader.set_key(call.keys.leader());
  leader.set_value(LeaderValue(call.leader));
  leader.set_lease(call.leader.lease);
  etcdserverpb::PutRequest& epoch = *request.add_success()->mutable_request_put();
  epoch.set_key(call.keys.epoch());
  epoch.set_value(EpochText(call.epoch));
  return request;
}

}  // namespace crossmesh
