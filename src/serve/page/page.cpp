#include "lamina/serve/page/page.h"

#include <openssl/evp.h>
#include <openssl/sha.h>

#include <array>

#include "lamina/base/error.h"

namespace lamina::serve {
namespace {

constexpr std::string_view kIcon =
    R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><path fill="#9cc7ea" d="M16 18 3 24.500 16 31l13-6.500z"/>)"
    R"(<path fill="#4a9bd6" d="M16 10.500 3 17l13 6.500L29 17z"/><path fill="#0a5fa8" d="M16 2.500 3 9l13 6.500L29 9z"/></svg>)";

std::string_view page_asset(std::string_view name) {
  for (const PageAsset& asset : page_assets()) {
    if (asset.name == name) return asset.text;
  }
  return {};
}

/// A Content-Security-Policy source that allows an inline script or style with exactly this text: its SHA-256 hash.
std::string hash_source(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  ::SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  std::array<unsigned char, 4 * ((SHA256_DIGEST_LENGTH + 2) / 3) + 1> base64{};
  ::EVP_EncodeBlock(base64.data(), digest.data(), static_cast<int>(digest.size()));
  return str("'sha256-", reinterpret_cast<const char*>(base64.data()), "'");
}

HttpResponse make_page() {
  const bool bundled = !page_asset("chat.js").empty();
  const std::string_view script = page_asset(bundled ? "chat.js" : "plain.js");
  const std::string_view style = page_asset(bundled ? "chat.css" : "plain.css");
  std::string html =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1, interactive-widget=resizes-content\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>Lamina</title>\n"
      "<link rel=\"icon\" href=\"favicon.ico\" type=\"image/svg+xml\">\n<style>";
  html.append(style).append("</style>\n</head>\n<body>\n<div id=\"app\"></div>\n");
  html += "<noscript>This page needs JavaScript. The API works without it: see /v1/models.</noscript>\n<script>";
  html.append(script).append("</script>\n</body>\n</html>\n");
  HttpResponse response{200, std::move(html), "text/html; charset=utf-8", {}};
  response.headers = {{"Content-Security-Policy",
                       str("default-src 'none'; script-src ", hash_source(script), "; style-src ", hash_source(style),
                           "; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
                           "frame-ancestors 'none'")},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cross-Origin-Opener-Policy", "same-origin"},
                      {"Cache-Control", "no-cache"}};
  return response;
}

}  // namespace

HttpResponse page_response() {
  static const HttpResponse page = make_page();
  return page;
}

HttpResponse icon_response() {
  return {200, std::string(kIcon), "image/svg+xml", {{"Cache-Control", "max-age=86400"}}};
}

bool is_page_path(std::string_view path) { return path == "/" || path == "/favicon.ico"; }

}  // namespace lamina::serve
