#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "lamina/arch/plan.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/device_option.h"
#include "lamina/cli/progress_line.h"
#include "lamina/cli/stop_signal.h"
#include "lamina/cli/usage.h"
#include "lamina/data/sources.h"
#include "lamina/infer/text_vectors.h"
#include "lamina/search/index.h"
#include "lamina/search/index_update.h"

namespace lamina::cli {
namespace {

struct IndexArguments {
  std::string folder;
  std::vector<std::string> sources;
  std::vector<std::string> names;
  data::SourceOptions reading;
  search::ChunkOptions chunks;
  std::string model;
  std::string dtype = "f16";
  std::string metric = "cosine";
  int64_t graph_from = 20000;
  search::HnswOptions graph;
  bool no_bm25 = false;
  bool replace = false;
  bool json = false;
  DeviceChoice device;
};

/// Adds all documents. A line of a JSON lines file is named FILE:LINE.
int64_t add_sources(const IndexArguments& arguments, search::IndexUpdate& update, const Threads& threads) {
  catch_stop_signals("\nstopping: temporary files are removed; press Ctrl-C again to stop immediately\n",
                     WaitingReads::fail);
  data::SourceOptions reading = arguments.reading;
  reading.input = &std::cin;
  reading.on_pipe = [](int64_t) { throw_if_stopped(); };
  const data::Sources sources(arguments.sources, reading);
  const auto progress = progress_of("indexing", arch::short_bytes);
  std::string document;
  int64_t documents = 0;
  sources.each([&](const data::Piece& piece) {
    if (piece.at == 0) document.clear();
    document += piece.text;
    if (!piece.last) return;
    const std::string name = piece.line > 0 ? str(piece.file, ":", piece.line) : std::string(piece.file);
    documents += update.add(name, document, threads) > 0 ? 1 : 0;
    progress(piece.source_end, sources.bytes());
  });
  LAMINA_CHECK(documents > 0, "the sources have no words; give texts");
  return documents;
}

void report_cut(int64_t cut, const infer::LoadedModel* model) {
  if (cut == 0) return;
  std::fprintf(
      stderr,
      "lamina: %lld passages have more tokens than %s reads; their vectors are those of the beginning. Make shorter "
      "passages with --words of `index build`\n",
      static_cast<long long>(cut), model->path.c_str());
}

void print_state(const std::string& folder) {
  const search::Index index = search::Index::open(folder);
  const auto counted = [](int64_t n, const char* one) { return str(n, " ", one, n == 1 ? "" : "s"); };
  std::printf("%s: %s, %s, %s, %s\n", folder.c_str(), counted(index.document_count(), "document").c_str(),
              counted(index.passage_count(), "passage").c_str(),
              counted(static_cast<int64_t>(index.segments().size()), "segment").c_str(),
              arch::short_bytes(static_cast<double>(index.bytes())).c_str());
}

void build_index(const IndexArguments& arguments) {
  const Device device = arguments.device.open();
  search::IndexSettings settings;
  settings.chunks = arguments.chunks;
  settings.bm25 = !arguments.no_bm25;
  std::unique_ptr<infer::LoadedModel> model;
  if (!arguments.model.empty()) {
    model = std::make_unique<infer::LoadedModel>(infer::load_model(arguments.model, device));
    settings.vectors = infer::vector_settings(*model, arguments.model);
    settings.vectors->dtype = *dtype_from_name(arguments.dtype == "q8" ? "u8" : arguments.dtype);
    settings.vectors->metric = *search::metric_from_name(arguments.metric);
    settings.vectors->graph_from = arguments.graph_from;
    settings.vectors->graph = arguments.graph;
  }
  search::IndexUpdate update = search::IndexUpdate::create(arguments.folder, settings, arguments.replace);
  int64_t cut = 0;
  if (model) update.set_embedder(infer::text_embedder(*model, infer::TextRole::document, &cut));
  add_sources(arguments, update, device.threads());
  update.commit(device.threads());
  report_cut(cut, model.get());
  print_state(arguments.folder);
}

void add_to_index(const IndexArguments& arguments) {
  const Device device = arguments.device.open();
  search::IndexUpdate update = search::IndexUpdate::open(arguments.folder);
  std::unique_ptr<infer::LoadedModel> model;
  int64_t cut = 0;
  if (const auto& vectors = update.settings().vectors) {
    model = std::make_unique<infer::LoadedModel>(infer::load_embedder(*vectors, arguments.model, device, "--model"));
    update.set_embedder(infer::text_embedder(*model, infer::TextRole::document, &cut));
  }
  add_sources(arguments, update, device.threads());
  update.commit(device.threads());
  report_cut(cut, model.get());
  print_state(arguments.folder);
}

void delete_from_index(const IndexArguments& arguments) {
  const Threads threads(arguments.device.threads);
  search::IndexUpdate update = search::IndexUpdate::open(arguments.folder);
  for (const std::string& name : arguments.names) {
    LAMINA_CHECK(update.remove(name) > 0, name, ": no document of the index has this name; `lamina index info ",
                 arguments.folder, " --documents` lists them. Nothing was deleted");
  }
  update.commit(threads);
  print_state(arguments.folder);
}

void compact_index(const IndexArguments& arguments) {
  const Threads threads(arguments.device.threads);
  search::IndexUpdate update = search::IndexUpdate::open(arguments.folder);
  update.commit(threads, /*compact=*/true);
  print_state(arguments.folder);
}

nlohmann::ordered_json info_json(const search::Index& index) {
  nlohmann::ordered_json json{{"documents", index.document_count()},
                              {"passages", index.passage_count()},
                              {"deleted_passages", index.deleted_count()},
                              {"segments", index.segments().size()},
                              {"bytes", index.bytes()},
                              {"words_per_passage", index.settings().chunks.words},
                              {"overlap", index.settings().chunks.overlap},
                              {"bm25", index.settings().bm25}};
  if (const auto& vectors = index.settings().vectors) {
    int64_t graphs = 0;
    for (const search::Segment& segment : index.segments()) graphs += segment.graph() ? 1 : 0;
    json["vectors"] = {{"model", vectors->model},
                       {"dim", vectors->dim},
                       {"dtype", std::string(lamina::name_of(vectors->dtype))},
                       {"metric", std::string(search::name_of(vectors->metric))},
                       {"segments_with_graph", graphs}};
  }
  return json;
}

void show_index(const IndexArguments& arguments, bool documents) {
  const search::Index index = search::Index::open(arguments.folder);
  if (documents) {
    std::string last;
    index.each([&](std::string_view name, int64_t) {
      if (name == last) return;
      last = name;
      std::printf("%s\n", last.c_str());
    });
    return;
  }
  const nlohmann::ordered_json info = info_json(index);
  if (arguments.json) {
    std::printf("%s\n", info.dump(2).c_str());
    return;
  }
  for (const auto& [key, value] : info.items()) std::printf("%-18s %s\n", key.c_str(), value.dump().c_str());
}

void add_reading(CLI::App& command, IndexArguments& arguments) {
  command
      .add_option("sources", arguments.sources,
                  "Text files, .jsonl files, folders of them, pipes, or - for standard input")
      ->required();
  command.add_option("--text-key", arguments.reading.text_key, "In .jsonl files: the key of the text")
      ->capture_default_str();
  command.add_flag("--jsonl", arguments.reading.json_lines, "All sources are JSON lines, standard input too");
  arguments.device.add_to(command);
}

void add_build(CLI::App& command, const std::shared_ptr<IndexArguments>& arguments) {
  add_reading(command, *arguments);
  command.add_option("--out", arguments->folder, "A new folder for the index")->required();
  command.add_option("--words", arguments->chunks.words, "Most words of a passage")
      ->capture_default_str()
      ->check(at_least(1));
  command.add_option("--overlap", arguments->chunks.overlap, "Words repeated where a paragraph is cut")
      ->capture_default_str()
      ->check(at_least(0));
  command.add_option("--model", arguments->model, "Also make vectors of passages with this model");
  command.add_option("--vectors", arguments->dtype, "How vectors are stored: f32, f16 or q8 (8 bits)")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "f16", "q8"}));
  command.add_option("--metric", arguments->metric, "cosine, inner_product or l2")
      ->capture_default_str()
      ->check(CLI::IsMember({"cosine", "inner_product", "l2"}));
  command
      .add_option("--graph-from", arguments->graph_from,
                  "Passages of a segment from which it gets a graph for approximate search; 0: never")
      ->capture_default_str()
      ->check(at_least(0));
  command.add_option("--links", arguments->graph.links, "Links of a vector in the graph")->capture_default_str();
  command.add_option("--build-beam", arguments->graph.beam, "Vectors considered when one is inserted into the graph")
      ->capture_default_str();
  command.add_flag("--no-bm25", arguments->no_bm25, "Vectors only");
  command.add_flag("--force", arguments->replace, "Replace an index that is there");
  command.callback([arguments] { build_index(*arguments); });
}

CLI::App* add_existing(CLI::App& index, const char* name, const char* description,
                       const std::shared_ptr<IndexArguments>& arguments) {
  CLI::App* command = index.add_subcommand(name, description);
  command->add_option("index", arguments->folder, "The folder of the index")->required();
  return command;
}

}  // namespace

void add_index(CLI::App& program) {
  auto arguments = std::make_shared<IndexArguments>();
  CLI::App* command = program.add_subcommand(
      "index", "Indexes for search and retrieval: build, add, delete, compact, info, states, neighbours");
  command->require_subcommand(1);
  add_build(*command->add_subcommand("build", "Make an index of texts"), arguments);
  CLI::App* added = add_existing(*command, "add", "Add texts, or replace those of the same name", arguments);
  add_reading(*added, *arguments);
  added->add_option("--model", arguments->model, "The model of the index, if it is not where the index says");
  added->callback([arguments] { add_to_index(*arguments); });
  CLI::App* deleted = add_existing(*command, "delete", "Delete documents by name", arguments);
  deleted->add_option("names", arguments->names, "Names as info --documents lists them; FILE also means FILE:LINE")
      ->required();
  deleted->callback([arguments] { delete_from_index(*arguments); });
  CLI::App* compacted = add_existing(*command, "compact", "Rewrite the index as one segment", arguments);
  compacted->callback([arguments] { compact_index(*arguments); });
  CLI::App* shown = add_existing(*command, "info", "Print what an index holds; checks every file", arguments);
  auto documents = std::make_shared<bool>(false);
  shown->add_flag("--documents", *documents, "List the names of the documents");
  shown->add_flag("--json", arguments->json, "Print as JSON");
  shown->callback([arguments, documents] { show_index(*arguments, *documents); });
  add_index_states(*command);
  add_index_neighbours(*command);
}

}  // namespace lamina::cli
