#include "controller/store/etcd/testing/etcd_terms.h"

#include "common/base/check.h"
#include "etcd/rpc.pb.h"

#include <future>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(10);

etcdserverpb::TxnResponse MustDo(EtcdClient& client, const etcdserverpb::TxnRequest& request) {
  const absl::StatusOr<etcdserverpb::TxnResponse> response =
      client.Await(&EtcdClient::Txn, request, kTimeout);
  CHECK(response.ok()) << response.status();
  return *response;
}

}  // namespace

int64_t Usurp(EtcdClient& client, const EtcdKeys& keys, uint64_t epoch) {
  etcdserverpb::TxnRequest deletion;
  deletion.add_success()->mutable_request_delete_range()->set_key(keys.leader());
  MustDo(client, deletion);
  etcdserverpb::TxnRequest creation;
  creation.add_success()->mutable_request_put()->set_key(keys.leader());
  if (epoch != 0) {
    etcdserverpb::PutRequest& put = *creation.add_success()->mutable_request_put();
    put.set_key(keys.epoch());
    put.set_value(EpochText(epoch));
  }
  return MustDo(client, creation).header().revision();
}

void Lead(EtcdStore& store, EtcdClient& client, const EtcdKeys& keys, uint64_t epoch) {
  std::promise<absl::Status> begun;
  store.BeginTerm(Usurp(client, keys, epoch), epoch,
                  [&begun](absl::Status status) { begun.set_value(std::move(status)); });
  const absl::Status status = begun.get_future().get();
  CHECK(status.ok()) << status;
}

}  // namespace crossmesh
