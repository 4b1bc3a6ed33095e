#pragma once

#include <CLI/CLI.hpp>

namespace lamina::cli {

// One file per command; each adds its subcommand to the program.
void add_advise(CLI::App& program);
void add_bench(CLI::App& program);
void add_check(CLI::App& program);
void add_compare(CLI::App& program);
void add_convert(CLI::App& program);
void add_data(CLI::App& program);
void add_draw(CLI::App& program);
void add_embed(CLI::App& program);
void add_eval(CLI::App& program);
void add_generate(CLI::App& program);
void add_index(CLI::App& program);
void add_info(CLI::App& program);
void add_launch(CLI::App& program);
void add_ops(CLI::App& program);
void add_plan(CLI::App& program);
void add_plot(CLI::App& program);
void add_presets(CLI::App& program);
void add_report(CLI::App& program);
void add_search(CLI::App& program);
void add_serve(CLI::App& program);
void add_stretch(CLI::App& program);
void add_tokenizer(CLI::App& program);
void add_train(CLI::App& program);

// Subcommands of `lamina bench`.
void add_bench_decode(CLI::App& bench);
void add_bench_engine(CLI::App& bench);
void add_bench_load(CLI::App& bench);
void add_bench_ops(CLI::App& bench);
void add_bench_grammar(CLI::App& bench);
void add_bench_plan(CLI::App& bench);
void add_bench_serve(CLI::App& bench);
void add_bench_tokenizer(CLI::App& bench);
void add_bench_length(CLI::App& bench);
void add_bench_train(CLI::App& bench);

// Subcommands of `lamina index` that have their own files.
void add_index_states(CLI::App& index);
void add_index_neighbours(CLI::App& index);

// Subcommands of `lamina tokenizer` that have their own files.
void add_tokenizer_train(CLI::App& tokenizer);

}  // namespace lamina::cli
