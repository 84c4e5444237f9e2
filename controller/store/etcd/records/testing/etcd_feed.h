#pragma once

#include "common/testing/status_matchers.h"
#include "controller/store/etcd/records/etcd_mirror.h"
#include "controller/store/etcd/records/testing/etcd_model.h"

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {

// Brings a mirror everything that a model has and it has not, as a watch does.
inline void Follow(const EtcdModel& model, EtcdMirror& mirror) {
  etcdserverpb::WatchResponse response;
  for (const etcdserverpb::Event& event : model.EventsFrom(mirror.ResumeAt())) {
    *response.add_events() = event;
  }
  EXPECT_OK(mirror.Apply(response));
}

// The same in parts of `part` events, of which at most `parts` come before the stream breaks.
inline void FollowInParts(const EtcdModel& model, EtcdMirror& mirror, size_t part, size_t parts) {
  const std::vector<etcdserverpb::Event> events = model.EventsFrom(mirror.ResumeAt());
  for (size_t i = 0; i < events.size() && parts > 0; --parts) {
    etcdserverpb::WatchResponse response;
    for (const size_t end = i + part; i < end && i < events.size(); ++i) {
      *response.add_events() = events[i];
    }
    response.set_fragment(i < events.size());
    EXPECT_OK(mirror.Apply(response));
  }
}

}  // namespace crossmesh
