#include "worker/transport/socket/socket_transport.h"

#include "common/testing/status_matchers.h"
#include "worker/transport/testing/transport_conformance.h"
#include "worker/transport/testing/transport_node.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

MakeTransport MakeSocket(bool shared_memory) {
  return [shared_memory](TransportSink& sink) {
    return SocketTransport::Create(sink, {.interfaces = {"lo"}, .shared_memory = shared_memory});
  };
}

INSTANTIATE_TEST_SUITE_P(
    All, TransportConformanceTest,
    testing::Values(TransportUnderTest{"SocketTcp", [] { return MakeSocket(false); }},
                    TransportUnderTest{"SocketSharedMemory", [] { return MakeSocket(true); }}),
    TransportUnderTest::Name);

}  // namespace
}  // namespace crossmesh
