#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <absl/status/statusor.h>

struct mg_connection;
struct mg_context;

namespace crossmesh {

// Serves a few pages over HTTP, at fixed paths, by civetweb. Confined to the thread that made it;
// pages are made by threads of its own.
class WebServer {
 public:
  struct Page {
    int code = 200;
    std::string type = "text/plain; charset=utf-8";
    std::string text;
  };
  using Maker = std::function<Page()>;

  // `address`: one that the library takes, as MetricsExporter has checked. FailedPrecondition: it
  // cannot be listened on.
  static absl::StatusOr<std::unique_ptr<WebServer>> Start(const std::string& address);
  ~WebServer();
  WebServer(const WebServer&) = delete;
  WebServer& operator=(const WebServer&) = delete;

  // That was bound.
  int port() const;
  // Serves what `make` makes, from now on, to GET and HEAD; other methods get 405.
  void Serve(const std::string& path, Maker make);

 private:
  WebServer(mg_context* context, std::string host) : context_(context), host_(std::move(host)) {}

  static int Answer(mg_connection* connection, void* maker);

  mg_context* const context_;
  const std::string host_;              // that was bound
  std::map<std::string, Maker> pages_;  // the library keeps pointers to these
};

}  // namespace crossmesh
