#include "worker/transport/ucx/ucx_worker.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>
#include <unistd.h>

namespace crossmesh {
namespace {

// Variables of UCX apply with any prefix that a context is given; those of the user's shell are not
// meant for this process.
void ForgetEnvironment() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const absl::string_view text = *entry;
    if (absl::StartsWith(text, "UCX_")) names.emplace_back(text.substr(0, text.find('=')));
  }
  for (const std::string& name : names) unsetenv(name.c_str());
}

// Once for the process: UCX leaves crashes to the program's own handlers and core dumps, and what
// goes wrong is told by statuses, not on standard error.
void QuietenLibrary() {
  static const bool done = [] {
    ForgetEnvironment();
    ucs_global_opts_set_value("LOG_LEVEL", "fatal");
    for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) ucs_debug_disable_signal(signal);
    return true;
  }();
  static_cast<void>(done);
}

struct ReleaseConfig {
  void operator()(ucp_config_t* config) const { ucp_config_release(config); }
};
using Config = std::unique_ptr<ucp_config_t, ReleaseConfig>;

// UCX names RDMA devices with their port, as in "mlx5_0:1", and network interfaces without.
bool HasRdma(const UcxWorker::Options& options) {
  return std::any_of(options.net_devices.begin(), options.net_devices.end(),
                     [](const std::string& device) { return device.find(':') != device.npos; });
}

// Endpoints that report lost peers can use only transports that notice the loss. UCX's shared
// memory segments (posix, sysv) do not; so control messages always take the network, whose sockets
// notice, and shared memory inside a host means `cma`: the receiver copies large payloads straight
// from the sender's memory.
std::string Transports(const UcxWorker::Options& options) {
  return absl::StrCat(HasRdma(options) ? "rc,tcp" : "tcp", options.shared_memory ? ",cma" : "");
}

absl::StatusOr<Config> MakeConfig(const UcxWorker::Options& options) {
  ucp_config_t* read = nullptr;
  ucs_status_t status = ucp_config_read("CROSSMESH", nullptr, &read);
  if (status != UCS_OK) return UcxError("reading the configuration", status);
  Config config(read);
  const std::pair<const char*, std::string> settings[] = {
      {"TLS", Transports(options)},
      {"NET_DEVICES", absl::StrJoin(options.net_devices, ",")},
      // Striping over NICs is the striped transport's.
      {"MAX_EAGER_RAILS", "1"},
      {"MAX_RNDV_RAILS", "1"},
      // Bytes go through the sockets' own buffers, in large segments: sending from the user's
      // memory saves nothing on a socket, and aborts in the library when a peer closes in the
      // middle.
      {"ZCOPY_THRESH", "inf"},
      {"TX_SEG_SIZE", "256K"},
      {"RX_SEG_SIZE", "256K"},
      {"WARN_INVALID_CONFIG", "n"},
      // A peer that closed one connection of several that share sockets, or whose host fell silent,
      // is noticed by asking. (The end of a process is noticed at once, as its sockets close.)
      {"KEEPALIVE_INTERVAL", "500ms"},
      // Without this UCX takes `cma` for unfit to report lost peers. Its fear is of a remote write
      // to memory that was given back; here the receiver reads, and no side writes for the other.
      {"MEMORY_INVALIDATE", "y"},
      // A connect to a host that does not answer must not hold up the loop.
      {"CONN_NB", "y"},
  };
  for (const auto& [key, value] : settings) {
    status = ucp_config_modify(config.get(), key, value.c_str());
    if (status != UCS_OK) return UcxError(absl::StrCat("setting ", key, "=", value), status);
  }
  return config;
}

}  // namespace

absl::Status UcxError(absl::string_view doing, ucs_status_t status) {
  return absl::UnavailableError(absl::StrCat("UCX, ", doing, ": ", ucs_status_string(status)));
}

absl::StatusOr<UcxWorker> UcxWorker::Create(const Options& options) {
  if (options.net_devices.empty()) {
    return absl::InvalidArgumentError("UCX needs a network device, e.g. lo; found none");
  }
  UcxWorker worker;
  worker.network_ = HasRdma(options) ? "rdma" : "tcp";
  RETURN_IF_ERROR(worker.Open(options));
  RETURN_IF_ERROR(worker.ReadAddress());
  return worker;
}

absl::Status UcxWorker::Open(const Options& options) {
  QuietenLibrary();
  ASSIGN_OR_RETURN(const Config config, MakeConfig(options));
  const std::string devices = absl::StrJoin(options.net_devices, ",");

  ucp_params_t params = {};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  ucp_context_h context = nullptr;
  ucs_status_t status = ucp_init(&params, config.get(), &context);
  if (status != UCS_OK) return UcxError(absl::StrCat("opening devices ", devices), status);
  context_.reset(context);

  ucp_worker_params_t worker_params = {};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  // The transport is made by one thread and then driven by its loop's: one at a time.
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h worker = nullptr;
  status = ucp_worker_create(context_.get(), &worker_params, &worker);
  if (status != UCS_OK) return UcxError(absl::StrCat("a worker on ", devices), status);
  worker_.reset(worker);

  status = ucp_worker_get_efd(worker_.get(), &event_fd_);
  if (status != UCS_OK) return UcxError("the worker's event descriptor", status);
  return absl::OkStatus();
}

absl::Status UcxWorker::ReadAddress() {
  ucp_address_t* address = nullptr;
  size_t length = 0;
  const ucs_status_t status = ucp_worker_get_address(worker_.get(), &address, &length);
  if (status != UCS_OK) return UcxError("the worker's address", status);
  address_.assign(reinterpret_cast<const char*>(address), length);
  ucp_worker_release_address(worker_.get(), address);
  return absl::OkStatus();
}

}  // namespace crossmesh
