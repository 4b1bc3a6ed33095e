#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "lamina/base/error.h"
#include "lamina/base/mapped_file.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/seconds_of.h"
#include "lamina/cli/usage.h"
#include "lamina/text/load.h"

namespace lamina::cli {
namespace {

struct TokenizerBenchArguments {
  std::string tokenizer;
  std::string pattern;
  std::string file;
  int repeats = 5;
  bool json = false;
};

/// Minimum time in seconds over `repeats` runs.
template <class F>
double best_of(int repeats, const F& body) {
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) best = std::min(best, seconds_of(body));
  return best;
}

void run(const TokenizerBenchArguments& arguments) {
  std::unique_ptr<text::Tokenizer> tokenizer;
  const double loading =
      seconds_of([&] { tokenizer = text::load_tokenizer(arguments.tokenizer, {arguments.pattern}); });
  const MappedFile file = map_file(arguments.file, "a text");
  const std::string_view text(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
  LAMINA_CHECK(!text.empty(), arguments.file, ": is empty; expected a text");
  std::vector<text::TokenId> ids;
  const double encoding = best_of(arguments.repeats, [&] {
    ids.clear();
    tokenizer->encode(text, ids);
  });
  std::string back;
  const double decoding = best_of(arguments.repeats, [&] { back = tokenizer->decode(ids); });
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  if (arguments.json) {
    const nlohmann::json result = {{"load_ms", loading * 1e3},
                                   {"encode_mb_s", megabytes / encoding},
                                   {"decode_mb_s", megabytes / decoding},
                                   {"tokens", ids.size()},
                                   {"identity", back == text}};
    std::puts(result.dump().c_str());
    return;
  }
  std::printf("load    %8.1f ms\nencode  %8.1f MB/s, %.1f million tokens/s, one thread\ndecode  %8.1f MB/s\n",
              loading * 1e3, megabytes / encoding, static_cast<double>(ids.size()) / encoding / 1e6,
              megabytes / decoding);
}

}  // namespace

void add_bench_tokenizer(CLI::App& bench) {
  auto arguments = std::make_shared<TokenizerBenchArguments>();
  CLI::App* command =
      bench.add_subcommand("tokenizer", "Encoding and decoding of a text with one thread; best of several runs");
  command->add_option("tokenizer", arguments->tokenizer, "A tokenizer's file or folder")->required();
  command->add_option("file", arguments->file, "The text")->required();
  command->add_option("--pattern", arguments->pattern, "Split pattern of a tiktoken file, as in lamina tokenizer");
  command->add_option("--repeats", arguments->repeats, "Runs")->capture_default_str()->check(at_least(1));
  command->add_flag("--json", arguments->json, "As JSON");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
