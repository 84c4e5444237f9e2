#include "common/metrics/prometheus/web_server.h"

#include "common/base/mutex.h"
#include "common/base/thread.h"

#include <array>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <absl/strings/strip.h>
#include <absl/time/time.h>
#include <civetweb.h>

namespace crossmesh {
namespace {

absl::string_view Phrase(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 405:
      return "Method Not Allowed";
    default:
      return "Service Unavailable";
  }
}

// What the library has to say of its own: nothing that is of use to an operator.
int KeepSilent(const mg_connection* /*connection*/, const char* /*message*/) { return 1; }

}  // namespace

absl::StatusOr<std::unique_ptr<WebServer>> WebServer::Start(const std::string& address) {
  mg_init_library(0);
  // A connection has a thread, also while it says nothing: of few threads, and the library's half
  // minute of patience, as many silent connections would take all.
  std::array<const char*, 9> options = {"listening_ports",
                                        address.c_str(),
                                        "num_threads",
                                        "8",
                                        "request_timeout_ms",
                                        "3000",
                                        "tcp_nodelay",
                                        "1",
                                        nullptr};
  mg_callbacks callbacks = {};
  callbacks.log_message = &KeepSilent;
  mg_context* const context = mg_start(&callbacks, nullptr, options.data());
  if (context == nullptr) {
    mg_exit_library();
    return absl::FailedPreconditionError(
        absl::StrCat("cannot serve metrics on ", address, ": cannot be listened on"));
  }
  const absl::string_view host = absl::string_view(address).substr(0, address.rfind(':'));
  return std::unique_ptr<WebServer>(
      new WebServer(context, std::string(absl::StripPrefix(absl::StripSuffix(host, "]"), "["))));
}

WebServer::~WebServer() {
  // The library's own thread looks whether it is to end every 2 s, and when a connection comes.
  const int port = this->port();
  Mutex mutex;
  CondVar changed;
  bool has_stopped = false;  // guarded by mutex
  Thread stopping("web-stop", [&] {
    mg_stop(context_);
    const MutexLock lock(mutex);
    has_stopped = true;
    changed.Signal();
  });
  const auto stops = [&] {
    const MutexLock lock(mutex);
    if (!has_stopped) changed.WaitFor(mutex, absl::Milliseconds(10));
    return has_stopped;
  };
  do {
    std::array<char, 128> error = {};
    mg_connection* const visit =
        mg_connect_client(host_.c_str(), port, /*use_ssl=*/0, error.data(), error.size());
    if (visit != nullptr) mg_close_connection(visit);
  } while (!stops());
  stopping.Join();
  mg_exit_library();
}

int WebServer::port() const {
  std::array<mg_server_port, 1> ports = {};
  return mg_get_server_ports(context_, static_cast<int>(ports.size()), ports.data()) < 1
             ? 0
             : ports[0].port;
}

void WebServer::Serve(const std::string& path, Maker make) {
  Maker& kept = pages_[path] = std::move(make);
  // "$" ends the pattern: no page is served below another one.
  mg_set_request_handler(context_, absl::StrCat(path, "$").c_str(), &WebServer::Answer, &kept);
}

int WebServer::Answer(mg_connection* connection, void* maker) {
  const absl::string_view method = mg_get_request_info(connection)->request_method;
  const bool is_head = method == "HEAD";
  const Page page = is_head || method == "GET" ? (*static_cast<const Maker*>(maker))()
                                               : Page{.code = 405, .text = "expected GET\n"};
  const std::string answer =
      absl::StrCat("HTTP/1.1 ", page.code, " ", Phrase(page.code), "\r\nContent-Type: ", page.type,
                   "\r\nContent-Length: ", page.text.size(), "\r\nConnection: close\r\n\r\n",
                   is_head ? "" : page.text);
  mg_write(connection, answer.data(), answer.size());
  return page.code;
}

}  // namespace crossmesh
