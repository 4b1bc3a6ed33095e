#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/base/mapped_file.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/text_input.h"
#include "lamina/text/load.h"
#include "lamina/text/patterns.h"

namespace lamina::cli {
namespace {

struct TokenizerArguments {
  std::string tokenizer;
  std::string pattern;
  std::string text;
  std::string file;
  std::vector<text::TokenId> ids;
  bool special = false;
  bool pieces = false;
  bool json = false;
  bool bos = false;
  bool wrap = false;
};

std::unique_ptr<text::Tokenizer> tokenizer_of(const TokenizerArguments& arguments) {
  return text::load_tokenizer(arguments.tokenizer, {arguments.pattern});
}

std::string text_of(const TokenizerArguments& arguments, bool given) {
  LAMINA_CHECK(!given || arguments.file.empty(), "a text and --file were given; expected one of them");
  if (given) return arguments.text;
  if (arguments.file.empty()) return read_stdin();
  if (arguments.file == "-" || is_pipe(arguments.file)) return read_input(arguments.file);
  const MappedFile file = map_file(arguments.file, "a text");
  return {reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()};
}

/// Quotes text as JSON. Invalid UTF-8 becomes a replacement character.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void encode(const TokenizerArguments& arguments, bool given) {
  const auto tokenizer = tokenizer_of(arguments);
  std::vector<text::TokenId> ids;
  if (arguments.bos) {
    LAMINA_CHECK(tokenizer->bos(), arguments.tokenizer, ": puts no token before a text; leave --bos out");
    ids.push_back(*tokenizer->bos());
  }
  if (arguments.wrap && tokenizer->bos()) ids.push_back(*tokenizer->bos());
  tokenizer->encode(text_of(arguments, given), ids, arguments.special);
  if (arguments.wrap && tokenizer->appended()) ids.push_back(*tokenizer->appended());
  if (arguments.json) {
    nlohmann::json list = nlohmann::json::array();
    for (const text::TokenId id : ids) {
      if (arguments.pieces) {
        list.push_back({{"id", id}, {"token", tokenizer->token(id)}});
      } else {
        list.push_back(id);
      }
    }
    std::puts(list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } else if (arguments.pieces) {
    for (const text::TokenId id : ids) std::printf("%8d  %s\n", id, quoted(tokenizer->token(id)).c_str());
  } else {
    for (size_t i = 0; i < ids.size(); ++i) std::printf("%s%d", i == 0 ? "" : " ", ids[i]);
    std::puts("");
  }
}

void decode(const TokenizerArguments& arguments, bool given) {
  const auto tokenizer = tokenizer_of(arguments);
  std::vector<text::TokenId> ids = arguments.ids;
  if (!given) {
    std::string input = read_stdin();
    std::ranges::replace_if(
        input, [](char c) { return c == ',' || c == '[' || c == ']'; }, ' ');
    std::istringstream numbers(input);
    for (text::TokenId id = 0; numbers >> id;) ids.push_back(id);
    LAMINA_CHECK(numbers.eof(), "standard input: expected ids, numbers with spaces or commas between; the one after ",
                 ids.size(), " of them is none");
  }
  const std::string text = tokenizer->decode(ids);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

/// How well the tokenizer compresses a text.
nlohmann::json compression(const text::Tokenizer& tokenizer, const std::string& path) {
  const MappedFile file = map_file(path, "a text");
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
  std::vector<text::TokenId> ids;
  tokenizer.encode(bytes, ids);
  std::vector<bool> used(static_cast<size_t>(tokenizer.vocab_size()));
  for (const text::TokenId id : ids) used[static_cast<size_t>(id)] = true;
  const double each = ids.empty() ? 0.0 : static_cast<double>(bytes.size()) / static_cast<double>(ids.size());
  return {{"bytes", bytes.size()},
          {"tokens", ids.size()},
          {"bytes_per_token", each},
          {"different_tokens", std::ranges::count(used, true)}};
}

nlohmann::json facts(const TokenizerArguments& arguments) {
  const auto tokenizer = tokenizer_of(arguments);
  const text::Description description = tokenizer->describe();
  nlohmann::json specials = nlohmann::json::array();
  for (text::TokenId id = 0; id < tokenizer->vocab_size(); ++id) {
    if (tokenizer->is_special(id)) specials.push_back({{"id", id}, {"token", tokenizer->token(id)}});
  }
  nlohmann::json result = {{"kind", description.kind},
                           {"vocab_size", tokenizer->vocab_size()},
                           {"merges", description.merges},
                           {"pattern", description.pattern},
                           {"specials", specials},
                           {"normalizer", description.normalizer},
                           {"bos", nullptr},
                           {"eos", nullptr}};
  if (tokenizer->bos()) result["bos"] = *tokenizer->bos();
  if (tokenizer->eos()) result["eos"] = *tokenizer->eos();
  if (!arguments.file.empty()) result["text"] = compression(*tokenizer, arguments.file);
  return result;
}

void info(const TokenizerArguments& arguments) {
  const nlohmann::json all = facts(arguments);
  if (arguments.json) {
    std::puts(all.dump(2).c_str());
    return;
  }
  const auto line = [](const char* name, const std::string& value) {
    if (!value.empty()) std::printf("%-12s %s\n", name, value.c_str());
  };
  line("kind", all["kind"]);
  line("vocabulary", str(all["vocab_size"].get<int64_t>(), " tokens, ", all["merges"].get<int64_t>(), " merges"));
  line("pattern", all["pattern"]);
  line("normalizer", all["normalizer"]);
  const size_t shown = 12;
  for (size_t i = 0; i < std::min(shown, all["specials"].size()); ++i) {
    const nlohmann::json& special = all["specials"][i];
    std::string role = special["id"] == all["bos"] ? "  before every text" : "";
    if (special["id"] == all["eos"]) role += "  ends a text";
    line(i == 0 ? "special" : "", str(special["id"].get<int64_t>(), " ", special["token"].get<std::string>(), role));
  }
  if (all["specials"].size() > shown) line(" ", str("and ", all["specials"].size() - shown, " more (--json)"));
  if (all.contains("text")) {
    const nlohmann::json& text = all["text"];
    line("text", str(text["bytes"].get<int64_t>(), " bytes, ", text["tokens"].get<int64_t>(), " tokens, ",
                     text["bytes_per_token"].get<double>(), " bytes per token, ",
                     text["different_tokens"].get<int64_t>(), " different tokens"));
  }
}

std::string pattern_names() {
  std::string names;
  for (const text::Pattern& pattern : text::patterns()) names += (names.empty() ? "" : ", ") + pattern.name;
  return names;
}

void add_tokenizer_options(CLI::App& command, TokenizerArguments& arguments) {
  command
      .add_option("tokenizer", arguments.tokenizer,
                  "A tokenizer.json, vocab.json (with merges.txt next to it), tiktoken file, SentencePiece .model, "
                  "BERT's vocab.txt or llama2.c tokenizer.bin, or a folder with one")
      ->required();
  command.add_option("--pattern", arguments.pattern,
                     "How a tiktoken file's text is cut, with its special tokens: " + pattern_names());
}

}  // namespace

void add_tokenizer(CLI::App& program) {
  CLI::App* command =
      program.add_subcommand("tokenizer", "Train tokenizers, encode and decode text: train, encode, decode, info");
  command->require_subcommand(1);
  add_tokenizer_train(*command);
  auto arguments = std::make_shared<TokenizerArguments>();

  CLI::App* encoder = command->add_subcommand("encode", "Print the tokens of a text");
  add_tokenizer_options(*encoder, *arguments);
  CLI::Option* text = encoder->add_option("text", arguments->text, "The text (default: standard input)");
  encoder->add_option("--file", arguments->file, "Read the text from this file");
  encoder->add_flag("--special", arguments->special, "Special tokens written in the text become their ids");
  encoder->add_flag("--bos", arguments->bos, "Put the token before the text that the tokenizer names for it");
  encoder->add_flag("--wrap", arguments->wrap,
                    "Put the tokens around the text that its models expect, such as [CLS] and [SEP], or </s>");
  encoder->add_flag("--pieces", arguments->pieces, "A line per token, with what it stands for");
  encoder->add_flag("--json", arguments->json, "A JSON list of ids, or with --pieces of ids and tokens");
  encoder->callback([=] { encode(*arguments, text->count() > 0); });

  CLI::App* decoder = command->add_subcommand("decode", "Print the text of tokens, without a line end");
  add_tokenizer_options(*decoder, *arguments);
  CLI::Option* ids = decoder->add_option("ids", arguments->ids, "The tokens (default: standard input)");
  decoder->callback([=] { decode(*arguments, ids->count() > 0); });

  CLI::App* informer = command->add_subcommand("info", "Describe a tokenizer, and measure it on a text");
  add_tokenizer_options(*informer, *arguments);
  informer->add_option("--file", arguments->file, "Count the tokens of this text");
  informer->add_flag("--json", arguments->json, "As JSON, with every special token");
  informer->callback([=] { info(*arguments); });
}

}  // namespace lamina::cli
