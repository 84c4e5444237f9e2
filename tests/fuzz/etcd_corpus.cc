#include "tests/fuzz/etcd_corpus.h"

#include "common/base/digest.h"
#include "controller/store/etcd/records/etcd_keys.h"
#include "controller/store/etcd/records/testing/etcd_model.h"
#include "crossmesh/v1/etcd_record.pb.h"
#include "etcd/rpc.pb.h"

#include <string>

#include <google/protobuf/message_lite.h>

namespace crossmesh {

void WriteEtcdWatches(const CorpusWriter& corpus) {
  const EtcdKeys keys("f");
  EtcdModel etcd;
  etcd.Put(keys.epoch(), EpochText(7));
  etcd.Put(keys.Chunk("c-0", 0), "large");
  etcdserverpb::TxnRequest commit;
  v1::EtcdCommitRecord record;
  const auto put = [&commit](const std::string& key, const google::protobuf::MessageLite& value) {
    etcdserverpb::PutRequest& request = *commit.add_success()->mutable_request_put();
    request.set_key(key);
    request.set_value(value.SerializeAsString());
  };
  v1::EtcdObjectRecord object;
  object.set_inline_value("small");
  put(keys.Object("a"), object);
  v1::EtcdObjectRecord::Chunks& chunks = *object.mutable_chunks();
  chunks.set_id("c-0");
  chunks.set_count(1);
  chunks.set_size_bytes(5);
  chunks.set_digest(Digest::Of("large").ToString());
  put(keys.Object("b"), object);
  record.set_epoch(7);
  record.add_writes()->set_key("a");
  record.add_writes()->set_key("b");
  v1::EtcdCommitRecord::Write& deletion = *record.add_writes();
  deletion.set_key("c");
  deletion.set_deleted(true);
  put(keys.commit(), record);
  etcd.Txn(commit);
  etcdserverpb::WatchResponse response;
  for (const etcdserverpb::Event& event : etcd.EventsFrom(0)) *response.add_events() = event;
  corpus.Write("etcd_watch", "commit", response);
}

}  // namespace crossmesh
