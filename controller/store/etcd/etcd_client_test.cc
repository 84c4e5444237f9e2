#include "controller/store/etcd/etcd_client.h"

#include "common/base/mutex.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "controller/store/etcd/testing/etcd_process.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(10);

class EtcdClientTest : public testing::Test {
 protected:
  int64_t Put(const std::string& key, const std::string& value, int64_t lease = 0) {
    etcdserverpb::TxnRequest request;
    etcdserverpb::PutRequest& put = *request.add_success()->mutable_request_put();
    put.set_key(key);
    put.set_value(value);
    put.set_lease(lease);
    const auto response = client_->Await(&EtcdClient::Txn, request, kTimeout);
    EXPECT_OK(response.status());
    return response->header().revision();
  }
  etcdserverpb::RangeResponse Read(const std::string& key) {
    etcdserverpb::RangeRequest request;
    request.set_key(key);
    return *client_->Await(&EtcdClient::Range, request, kTimeout);
  }
  int64_t KeepAlive(int64_t lease) {
    etcdserverpb::LeaseKeepAliveRequest request;
    request.set_id(lease);
    return client_->Await(&EtcdClient::LeaseKeepAlive, request, kTimeout)->ttl();
  }

  EtcdProcess etcd_;
  std::unique_ptr<EtcdClient> client_ = etcd_.NewClient();
};

TEST_F(EtcdClientTest, ATransactionComparesWritesAndReads) {
  const int64_t revision = Put("k", "1");
  etcdserverpb::TxnRequest request;
  etcdserverpb::Compare& compare = *request.add_compare();
  compare.set_target(etcdserverpb::Compare::MOD);
  compare.set_key("k");
  compare.set_mod_revision(revision + 1);
  request.add_failure()->mutable_request_range()->set_key("k");
  ASSERT_OK_AND_ASSIGN(const etcdserverpb::TxnResponse response,
                       client_->Await(&EtcdClient::Txn, request, kTimeout));
  EXPECT_FALSE(response.succeeded());
  const etcdserverpb::KeyValue& found = response.responses(0).response_range().kvs(0);
  EXPECT_EQ(found.value(), "1");
  EXPECT_EQ(found.create_revision(), revision);
  EXPECT_EQ(found.mod_revision(), revision);
  EXPECT_EQ(found.version(), 1);
}

TEST_F(EtcdClientTest, ALeaseIsKeptAliveAndTakesItsKeysWithIt) {
  etcdserverpb::LeaseGrantRequest grant;
  grant.set_ttl(60);
  ASSERT_OK_AND_ASSIGN(const etcdserverpb::LeaseGrantResponse lease,
                       client_->Await(&EtcdClient::LeaseGrant, grant, kTimeout));
  EXPECT_EQ(lease.ttl(), 60);
  Put("k", "1", lease.id());
  EXPECT_EQ(Read("k").kvs(0).lease(), lease.id());
  EXPECT_EQ(KeepAlive(lease.id()), 60);
  etcdserverpb::LeaseRevokeRequest revoke;
  revoke.set_id(lease.id());
  ASSERT_OK(client_->Await(&EtcdClient::LeaseRevoke, revoke, kTimeout).status());
  EXPECT_EQ(Read("k").kvs_size(), 0);
  EXPECT_EQ(KeepAlive(lease.id()), 0);
  EXPECT_THAT(client_->Await(&EtcdClient::LeaseRevoke, revoke, kTimeout),
              StatusIs(absl::StatusCode::kNotFound));
}

// Collects what a watch tells.
class Watcher {
 public:
  EtcdWatchListener Listener() {
    return {.on_response =
                [this](const etcdserverpb::WatchResponse& response) {
                  const MutexLock lock(mutex_);
                  for (const etcdserverpb::Event& event : response.events()) {
                    seen_.push_back(absl::StrCat(
                        event.kv().mod_revision(), " ",
                        event.type() == etcdserverpb::Event::PUT ? event.kv().value() : "deleted"));
                  }
                  changed_.SignalAll();
                },
            .on_end =
                [this](const absl::Status& status) {
                  const MutexLock lock(mutex_);
                  end_ = status;
                  changed_.SignalAll();
                }};
  }
  std::vector<std::string> Await(size_t events) {
    const MutexLock lock(mutex_);
    while (seen_.size() < events) changed_.Wait(mutex_);
    return seen_;
  }
  absl::Status AwaitEnd() {
    const MutexLock lock(mutex_);
    while (end_.ok()) changed_.Wait(mutex_);
    return end_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> seen_ ABSL_GUARDED_BY(mutex_);
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(EtcdClientTest, AWatchTellsWhatHappenedFromARevisionOnUntilItIsCancelled) {
  const int64_t first = Put("k", "1");
  Put("other", "1");
  const int64_t second = Put("k", "2");
  Watcher watcher;
  etcdserverpb::WatchCreateRequest request;
  request.set_key("k");
  request.set_start_revision(first);
  const std::function<void()> cancel = client_->Watch(request, watcher.Listener());
  watcher.Await(2);
  etcdserverpb::TxnRequest deletion;
  deletion.add_success()->mutable_request_delete_range()->set_key("k");
  ASSERT_OK(client_->Await(&EtcdClient::Txn, deletion, kTimeout).status());
  EXPECT_THAT(watcher.Await(3),
              testing::ElementsAre(absl::StrCat(first, " 1"), absl::StrCat(second, " 2"),
                                   absl::StrCat(second + 1, " deleted")));
  cancel();
  EXPECT_THAT(watcher.AwaitEnd(), StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(EtcdClientTest, AWatchFromWhatIsCompactedIsToldSo) {
  Put("k", "1");
  etcdserverpb::CompactionRequest compaction;
  compaction.set_revision(Put("k", "2"));
  ASSERT_OK(client_->Await(&EtcdClient::Compact, compaction, kTimeout).status());
  Watcher watcher;
  etcdserverpb::WatchCreateRequest request;
  request.set_key("k");
  request.set_start_revision(1);
  client_->Watch(request, watcher.Listener());
  EXPECT_THAT(watcher.AwaitEnd(),
              StatusIs(absl::StatusCode::kOutOfRange,
                       HasSubstr(absl::StrCat("before revision ", compaction.revision()))));
}

TEST_F(EtcdClientTest, AMemberThatFailsIsNamedAndTheNextOneIsAskedThen) {
  const TemporaryFolder folder;
  const std::string nobody = absl::StrCat("unix:", folder.PathOf("nobody"));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<EtcdClient> client,
                       EtcdClient::Create({.endpoints = {nobody, etcd_.endpoint()}}));
  etcdserverpb::RangeRequest request;
  request.set_key("k");
  EXPECT_THAT(
      client->Await(&EtcdClient::Range, request, kTimeout),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr(absl::StrCat("etcd at ", nobody))));
  EXPECT_OK(client->Await(&EtcdClient::Range, request, kTimeout).status());
}

TEST_F(EtcdClientTest, AnEtcdThatDoesNotAnswerIsUnavailableWhenTheTimeIsOver) {
  etcd_.Stop();
  etcdserverpb::RangeRequest request;
  request.set_key("k");
  EXPECT_THAT(client_->Await(&EtcdClient::Range, request, absl::Milliseconds(50)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("an answer within 50ms")));
  etcd_.Continue();
}

TEST_F(EtcdClientTest, WhatIsStoppedBreaksItsCallsOffAndMakesNoMore) {
  etcd_.Stop();
  Watcher watcher;
  etcdserverpb::WatchCreateRequest watch;
  watch.set_key("k");
  client_->Watch(watch, watcher.Listener());
  etcdserverpb::RangeRequest request;
  request.set_key("k");
  absl::StatusOr<etcdserverpb::RangeResponse> pending;
  client_->Range(request, kTimeout, [&pending](auto result) { pending = std::move(result); });
  client_->Stop();
  EXPECT_THAT(pending, StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(watcher.AwaitEnd(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(client_->Await(&EtcdClient::Range, request, kTimeout),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("stopped")));
  etcd_.Continue();
}

TEST(EtcdClientOptions, PlaintextStaysOnThisMachineUnlessItIsAllowed) {
  EXPECT_THAT(EtcdClient::Create({}).status(), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(EtcdClient::Create({.endpoints = {"etcd-0:2379"}}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--insecure")));
  EXPECT_OK(EtcdClient::Create({.endpoints = {"etcd-0:2379"}, .insecure = true}).status());
}

}  // namespace
}  // namespace crossmesh
