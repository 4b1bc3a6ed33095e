#include <iostream>

#include "lamina/base/version.h"
#include "lamina/cli/commands.h"

int main(int argc, char** argv) {
  CLI::App program("Transformer language models in which every architecture choice is a switch", "lamina");
  program.set_version_flag("--version", std::string(lamina::kVersion));
  program.require_subcommand(1);
  lamina::cli::add_advise(program);
  lamina::cli::add_bench(program);
  lamina::cli::add_check(program);
  lamina::cli::add_compare(program);
  lamina::cli::add_convert(program);
  lamina::cli::add_data(program);
  lamina::cli::add_eval(program);
  lamina::cli::add_generate(program);
  lamina::cli::add_info(program);
  lamina::cli::add_ops(program);
  lamina::cli::add_plan(program);
  lamina::cli::add_plot(program);
  lamina::cli::add_presets(program);
  lamina::cli::add_report(program);
  lamina::cli::add_stretch(program);
  lamina::cli::add_tokenizer(program);
  lamina::cli::add_train(program);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return program.exit(error);
  } catch (const std::exception& error) {
    std::cerr << "lamina: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
