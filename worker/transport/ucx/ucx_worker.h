#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <ucp/api/ucp.h>

namespace crossmesh {

// A status of UCX with what was being done, as Unavailable: what UCX reports are failures of links
// and peers.
absl::Status UcxError(absl::string_view doing, ucs_status_t status);

// One ucp_context with one ucp_worker, set up as Crossmesh uses UCX: active messages, wakeup by
// descriptor, one rail, one thread. Thread-compatible.
class UcxWorker {
 public:
  struct Options {
    std::vector<std::string> net_devices;  // as UCX names them: "lo", "eth0", "mlx5_0:1"
    bool shared_memory = false;            // read payloads from processes of this host directly
  };

  // InvalidArgument: no device; Unavailable: UCX finds no transport for these devices.
  static absl::StatusOr<UcxWorker> Create(const Options& options);

  UcxWorker(UcxWorker&&) = default;

  ucp_worker_h get() const { return worker_.get(); }
  int event_fd() const { return event_fd_; }
  const std::string& address() const { return address_; }
  // "tcp" or "rdma": what connects it to other hosts.
  absl::string_view network() const { return network_; }

 private:
  struct DestroyContext {
    void operator()(ucp_context_h context) const { ucp_cleanup(context); }
  };
  struct DestroyWorker {
    void operator()(ucp_worker_h worker) const { ucp_worker_destroy(worker); }
  };

  UcxWorker() = default;
  absl::Status Open(const Options& options);
  absl::Status ReadAddress();

  // The order of destruction matters: the worker first.
  std::unique_ptr<ucp_context, DestroyContext> context_;
  std::unique_ptr<ucp_worker, DestroyWorker> worker_;
  int event_fd_ = -1;  // the worker's
  std::string address_;
  absl::string_view network_;
};

}  // namespace crossmesh
