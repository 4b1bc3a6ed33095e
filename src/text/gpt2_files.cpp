#include "lamina/base/error.h"
#include "lamina/text/formats.h"
#include "lamina/text/patterns.h"
#include "lamina/text/read_json.h"
#include "lamina/text/spec_build.h"

namespace lamina::text {

TokenizerSpec read_gpt2_files(std::string_view vocab, std::string_view merges, const std::string& name) {
  JsonLists lists;
  const json tokens = parse_object(vocab, name);
  for (const auto& [token, id] : tokens.items()) {
    LAMINA_CHECK(id.is_number_integer(), name, ": \"", token, "\" has no number; expected an object of tokens and ids");
    lists.vocab.emplace_back(token, id.get<int64_t>());
  }
  for (int64_t number = 1; !merges.empty(); ++number) {
    const size_t end = merges.find('\n');
    std::string_view line = merges.substr(0, end);
    merges.remove_prefix(end == std::string_view::npos ? merges.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    LAMINA_CHECK(space != std::string_view::npos && line.find(' ', space + 1) == std::string_view::npos, name,
                 ": line ", number, " of the merges is \"", line.substr(0, 80), "\", expected two tokens and a space");
    lists.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  TokenizerSpec spec;
  spec.splits.push_back({pattern_named("gpt2").regex});
  add_lists(spec, lists, name);
  for (const auto& [token, id] : lists.vocab) {
    // GPT-2's only special token; the files do not mark it as special.
    if (token == "<|endoftext|>") add_token(spec, {static_cast<TokenId>(id), token});
  }
  guess_eos(spec);
  return spec;
}

}  // namespace lamina::text
