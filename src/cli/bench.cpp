#include "lamina/cli/commands.h"

namespace lamina::cli {

void add_bench(CLI::App& program) {
  CLI::App* bench =
      program.add_subcommand("bench", "Measure speed: training, decoding, serving, operators, tokenizers");
  bench->require_subcommand(1);
  add_bench_decode(*bench);
  add_bench_engine(*bench);
  add_bench_length(*bench);
  add_bench_load(*bench);
  add_bench_ops(*bench);
  add_bench_grammar(*bench);
  add_bench_plan(*bench);
  add_bench_serve(*bench);
  add_bench_tokenizer(*bench);
  add_bench_train(*bench);
}

}  // namespace lamina::cli
