// What an etcd says of the keys of a cluster, by a watch or when all is read: it is refused, or
// what shows is whole.

#include "common/base/check.h"
#include "controller/store/etcd/records/etcd_keys.h"
#include "controller/store/etcd/records/etcd_mirror.h"
#include "tests/fuzz/fuzz_input.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <google/protobuf/stubs/logging.h>

namespace crossmesh {
namespace {

// What shows can be read, and no revision is beyond what is known.
void Look(EtcdMirror& mirror) {
  CHECK_LE(mirror.table().revision(), mirror.revision());
  CHECK_LE(mirror.revision(), mirror.ResumeAt());
  for (const StoredObject& object : mirror.table().List("", "", 1000)) {
    CHECK_OK(mirror.table().Get(object.key).status());
  }
  mirror.LooseChunks();
}

}  // namespace

void FuzzOne(const uint8_t* data, size_t size) {
  static const google::protobuf::LogSilencer quiet;
  etcdserverpb::WatchResponse response;
  if (!response.ParseFromArray(data, static_cast<int>(size))) return;
  const EtcdKeys keys("f");
  EtcdMirror watching(keys, 2);
  if (watching.Apply(response).ok()) Look(watching);

  std::vector<etcdserverpb::KeyValue> pairs;
  int64_t revision = 0;
  for (etcdserverpb::Event& event : *response.mutable_events()) {
    revision = event.kv().mod_revision();
    pairs.push_back(std::move(*event.mutable_kv()));
  }
  EtcdMirror loading(keys, 2);
  if (loading.Load(std::move(pairs), revision).ok()) Look(loading);
}

}  // namespace crossmesh
