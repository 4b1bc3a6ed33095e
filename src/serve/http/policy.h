#pragma once

#include <array>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/serve/http/exchange.h"

namespace lamina::serve {

/// API keys from a file, one per line. Empty lines and lines that begin with # are skipped. Thread-safe.
class ApiKeys {
 public:
  /// Reads the file. Throws Error if it cannot be read, has no key, or a key shorter than 8 characters.
  explicit ApiKeys(std::string path);
  /// Reads the file again. On an Error the old keys stay valid.
  void reload();
  /// Compares SHA-256 digests with every key in constant time.
  bool accepts(std::string_view key) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  static Digest digest_of(std::string_view key);

  std::string path_;
  mutable std::mutex mutex_;
  std::vector<Digest> digests_;
};

/// Host names and origins that the server accepts.
struct PolicyOptions {
  std::vector<std::string> hosts;    ///< names accepted in Host, besides localhost and IP addresses
  std::vector<std::string> origins;  ///< origins of web pages that may call the server (CORS); "*" allows all
};

/// Decides from the headers alone whether to serve a request.
class Policy {
 public:
  /// `keys` may be null if no key is needed; otherwise they must outlive the policy.
  Policy(PolicyOptions options, const ApiKeys* keys) : options_(std::move(options)), keys_(keys) {}

  /// The response, if a request is refused or is a CORS preflight; otherwise the request must be handled.
  std::optional<HttpResponse> answer(const HttpRequest& request) const;
  /// CORS headers to add to a response.
  Headers headers_for(const HttpRequest& request) const;

 private:
  bool knows_host(std::string_view host) const;
  bool allows_origin(std::string_view origin) const;

  PolicyOptions options_;
  const ApiKeys* keys_;
};

/// An error response in OpenAI's form. Empty `param` and `code` become null.
HttpResponse error_response(int status, const std::string& message, const std::string& param = "",
                            const std::string& code = "");

}  // namespace lamina::serve
