#include <cstdio>
#include <memory>

#include "lamina/base/files.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/device_option.h"
#include "lamina/cli/progress_line.h"
#include "lamina/cli/text_input.h"
#include "lamina/cli/usage.h"
#include "lamina/data/token_file.h"
#include "lamina/data/tokenizer_identity.h"
#include "lamina/infer/knn.h"
#include "lamina/infer/load.h"

namespace lamina::cli {
namespace {

struct StatesArguments {
  std::string model;
  std::string data;
  std::string out;
  std::string tokenizer;
  std::string dtype = "f16";
  infer::EvaluateOptions options;
  int64_t tokens = 0;
  search::HnswOptions graph;
  bool with_graph = false;
  bool replace = false;
  DeviceChoice device;
};

std::vector<text::TokenId> ids_of(const StatesArguments& arguments, const infer::LoadedModel& model) {
  std::vector<text::TokenId> ids;
  if (data::is_token_file(arguments.data)) {
    const data::TokenFile file = data::TokenFile::open(arguments.data);
    if (model.tokenizer) data::check_tokens_of_model(file, model.path, *model.tokenizer, model.tokenizer_path);
    std::vector<int64_t> wide(static_cast<size_t>(file.size()));
    file.read(0, wide);
    ids.assign(wide.begin(), wide.end());
  } else {
    text::UnknownCharacters unknown;
    ids = infer::prompt_ids(infer::require_tokenizer(model), read_input(arguments.data), &unknown);
    report_unknown(arguments.data, unknown);
  }
  if (arguments.tokens > 0 && static_cast<int64_t>(ids.size()) > arguments.tokens) {
    ids.resize(static_cast<size_t>(arguments.tokens));
  }
  return ids;
}

void make_states(const StatesArguments& arguments) {
  LAMINA_CHECK(arguments.replace || !path_exists(arguments.out), arguments.out,
               ": already exists; choose another name, or replace it with --force");
  LAMINA_CHECK(!file_exists(arguments.out) || search::StateStore::is_store(arguments.out), arguments.out,
               ": is not a store of states, and --force replaces nothing else; choose another name");
  const Device device = arguments.device.open();
  const infer::LoadedModel model = infer::load_model(arguments.model, device, {arguments.tokenizer, {}});
  infer::EvaluateOptions options = arguments.options;
  options.progress = progress_of("states", count_of_tokens);
  const DType dtype = arguments.dtype == "q8" ? DType::u8 : *dtype_from_name(arguments.dtype);
  const search::StateStoreBuilder store = infer::collect_states(*model.model, ids_of(arguments, model), dtype, options);
  store.write(arguments.out, arguments.model, arguments.with_graph, arguments.graph, device.threads());
  const auto written = search::StateStore::open(arguments.out);
  std::printf("%s: %lld states of %lld dimensions, %.1f MB, scale %.4g%s\n", arguments.out.c_str(),
              static_cast<long long>(written->count()), static_cast<long long>(written->dim()),
              static_cast<double>(written->bytes()) * 1e-6, written->scale(),
              written->has_graph() ? ", with graph" : "");
}

}  // namespace

void add_index_states(CLI::App& index) {
  auto arguments = std::make_shared<StatesArguments>();
  CLI::App* command =
      index.add_subcommand("states", "Store a model's hidden states over a text, for --knn of eval and generate");
  command->add_option("model", arguments->model, "Model as in generate")->required();
  command->add_option("--data", arguments->data, "A text file or pipe, - for standard input, or a token file")
      ->required();
  command->add_option("--out", arguments->out, "The file of the store")->required();
  command->add_option("--tokenizer", arguments->tokenizer, "Tokenizer file or folder (default: next to the model)");
  command->add_option("--dtype", arguments->dtype, "How states are stored: f32, f16 or q8 (8 bits)")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "f16", "q8"}));
  command->add_option("--context", arguments->options.context, "Tokens of a window (default: the model's context)")
      ->check(at_least(1));
  command
      ->add_option("--stride", arguments->options.stride,
                   "Distance of windows; below the context they overlap (default: no overlap)")
      ->check(at_least(1));
  command->add_option("--tokens", arguments->tokens, "Only the first N tokens of the data")->check(at_least(1));
  command->add_flag("--graph", arguments->with_graph, "Also build a graph, for approximate search (--knn-beam)");
  command->add_option("--links", arguments->graph.links, "Links of a state in the graph")->capture_default_str();
  command->add_option("--build-beam", arguments->graph.beam, "States considered when one is inserted into the graph")
      ->capture_default_str();
  command->add_flag("--force", arguments->replace, "Replace a store that is there");
  arguments->device.add_to(*command);
  command->callback([arguments] { make_states(*arguments); });
}

}  // namespace lamina::cli
