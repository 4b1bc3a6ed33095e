#include "lamina/serve/http/policy.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lamina/base/error.h"
#include "lamina/serve/page/page.h"

namespace lamina::serve {
namespace {

constexpr size_t kMinKeyLength = 8;

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

/// The host name in "name:port" or "[::1]:port".
std::string_view host_name(std::string_view host) {
  if (host.starts_with("[")) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

/// Whether the Host header holds an IP address. Such requests are safe from DNS rebinding, which always sends a DNS
/// name in Host.
bool is_ip_address(std::string_view name) {
  if (name.starts_with("[")) return name.ends_with("]");
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0 || c == '.'; });
}

std::string_view type_of(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 404) return "not_found_error";
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

}  // namespace

std::string_view header_of(const Headers& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (equal_ignoring_case(key, name)) return value;
  }
  return {};
}

HttpResponse error_response(int status, const std::string& message, const std::string& param, const std::string& code) {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
  };
  // Anthropic's clients need the top-level "type"; OpenAI's ignore it.
  const nlohmann::ordered_json body{{"type", "error"},
                                    {"error",
                                     {{"message", message},
                                      {"type", type_of(status)},
                                      {"param", text_or_null(param)},
                                      {"code", text_or_null(code)}}}};
  HttpResponse response;
  response.status = status;
  response.body = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (status == 429 || status == 503) response.headers.emplace_back("Retry-After", "1");
  if (status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

ApiKeys::ApiKeys(std::string path) : path_(std::move(path)) { reload(); }

ApiKeys::Digest ApiKeys::digest_of(std::string_view key) {
  Digest digest;
  ::SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

void ApiKeys::reload() {
  std::ifstream file(path_);
  LAMINA_CHECK(file.is_open(), path_, ": cannot be read; expected a text file with one API key per line");
  std::vector<Digest> digests;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0) line.pop_back();
    if (line.empty() || line.front() == '#') continue;
    LAMINA_CHECK(line.size() >= kMinKeyLength, path_, ": line ", number, ": a key of ", line.size(),
                 " characters; expected at least ", kMinKeyLength);
    digests.push_back(digest_of(line));
  }
  LAMINA_CHECK(!digests.empty(), path_, ": has no key; expected one API key per line");
  const std::lock_guard lock(mutex_);
  digests_ = std::move(digests);
}

bool ApiKeys::accepts(std::string_view key) const {
  const Digest given = digest_of(key);
  const std::lock_guard lock(mutex_);
  int found = 0;
  for (const Digest& digest : digests_)
    found |= ::CRYPTO_memcmp(digest.data(), given.data(), given.size()) == 0 ? 1 : 0;
  return found != 0;
}

bool Policy::knows_host(std::string_view host) const {
  const std::string_view name = host_name(host);
  if (is_ip_address(name) || equal_ignoring_case(name, "localhost")) return true;
  return std::any_of(options_.hosts.begin(), options_.hosts.end(),
                     [&](const std::string& known) { return equal_ignoring_case(name, known); });
}

bool Policy::allows_origin(std::string_view origin) const {
  return std::any_of(options_.origins.begin(), options_.origins.end(),
                     [&](const std::string& known) { return known == "*" || known == origin; });
}

std::optional<HttpResponse> Policy::answer(const HttpRequest& request) const {
  const std::string_view host = header_of(request.headers, "host");
  const auto is_host = [](const auto& header) { return equal_ignoring_case(header.first, "host"); };
  if (host.empty() || std::count_if(request.headers.begin(), request.headers.end(), is_host) > 1) {
    return error_response(400, "expected one Host header");
  }
  if (!knows_host(host)) {
    return error_response(403,
                          str("Host '", host.substr(0, 100), "' is not served; start the server with --allow-host ",
                              host_name(host).substr(0, 100)));
  }
  const std::string_view origin = header_of(request.headers, "origin");
  const bool same_origin = origin.ends_with(str("://", host));
  if (!origin.empty() && !same_origin && !allows_origin(origin)) {
    return error_response(403, str("Origin '", origin.substr(0, 100),
                                   "' may not call this server; start it with --origin ", origin.substr(0, 100)));
  }
  const std::string_view encoding = header_of(request.headers, "content-encoding");
  if (!encoding.empty() && !equal_ignoring_case(encoding, "identity")) {
    return error_response(
        415, str("Content-Encoding '", encoding.substr(0, 40), "' is not supported; send the body uncompressed"));
  }
  if (request.method == "OPTIONS") return HttpResponse{204, "", "", {{"Allow", "GET, HEAD, POST, DELETE, OPTIONS"}}};
  const bool reads = request.method == "GET" || request.method == "HEAD";
  const bool is_public = request.path == "/health" || (reads && is_page_path(request.path));
  if (keys_ == nullptr || is_public) return {};
  std::string_view key = header_of(request.headers, "authorization");
  if (key.size() > 7 && equal_ignoring_case(key.substr(0, 7), "bearer ")) {
    key.remove_prefix(7);
  } else {
    key = header_of(request.headers, "x-api-key");
  }
  if (key.empty()) {
    return error_response(401, "no API key was given; send it as 'Authorization: Bearer KEY'", "", "invalid_api_key");
  }
  if (!keys_->accepts(key)) return error_response(401, "the API key is not valid", "", "invalid_api_key");
  return {};
}

Headers Policy::headers_for(const HttpRequest& request) const {
  const std::string_view origin = header_of(request.headers, "origin");
  if (origin.empty() || !allows_origin(origin)) return {};
  Headers headers{{"Access-Control-Allow-Origin", std::string(origin)},
                  {"Vary", "Origin"},
                  {"Access-Control-Expose-Headers", "x-request-id, request-id, Retry-After"}};
  if (request.method == "OPTIONS") {
    headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    headers.emplace_back("Access-Control-Allow-Headers", "*, Authorization, Content-Type");
    headers.emplace_back("Access-Control-Max-Age", "600");
  }
  return headers;
}

}  // namespace lamina::serve
