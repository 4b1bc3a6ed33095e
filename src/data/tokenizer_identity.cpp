#include "lamina/data/tokenizer_identity.h"

#include <cstdio>

#include "lamina/base/error.h"
#include "lamina/data/sha256.h"

namespace lamina::data {
namespace {

std::string hexadecimal(uint64_t hash) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

}  // namespace

uint64_t tokenizer_hash(const text::Tokenizer& tokenizer) { return sha256_short(tokenizer.to_json()); }

TokenizerIdentity identity_of(const text::Tokenizer& tokenizer, const std::string& path) {
  const uint64_t hash = tokenizer_hash(tokenizer);
  return {hash, str(hexadecimal(hash), " (", tokenizer.describe().kind, ", ", tokenizer.vocab_size(), " tokens, ", path,
                    ")")};
}

TokenizerIdentity identity_of(const TokenFile& file) {
  const uint64_t hash = file.tokenizer_hash();
  if (hash == 0) return {};
  return {hash, str(hexadecimal(hash), " (", file.vocab_size(), " tokens)")};
}

void check_same_tokenizer(const TokenizerUse& a, const TokenizerUse& b, const std::string& advice) {
  const bool known = a.tokenizer.hash != 0 && b.tokenizer.hash != 0;
  LAMINA_CHECK(!known || a.tokenizer.hash == b.tokenizer.hash, a.what, ": its tokenizer is ", a.tokenizer.about,
               ", that of ", b.what, " is ", b.tokenizer.about, "; ", advice);
}

void check_tokens_of_model(const TokenFile& file, const std::string& model, const text::Tokenizer& tokenizer,
                           const std::string& path) {
  check_same_tokenizer(
      {file.name(), identity_of(file)}, {"the model " + model, identity_of(tokenizer, path)},
      str("give text, or tokens that `lamina data prepare TEXT --out FOLDER --tokenizer ", path, "` makes"));
}

}  // namespace lamina::data
