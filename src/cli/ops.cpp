#include <cstdio>
#include <string>

#include "lamina/cli/commands.h"

namespace lamina::cli {
namespace {

struct OpRow {
  const char* name;
  const char* family;
  const char* purpose;
};

constexpr OpRow kOps[] = {
#define LAMINA_OP(name, family, purpose) {#name, #family, purpose},
#include "lamina/ops/op_list.def"
#undef LAMINA_OP
};

void run(const std::string& family) {
  for (const OpRow& op : kOps) {
    if (family.empty() || family == op.family) std::printf("%-12s %-24s %s\n", op.family, op.name, op.purpose);
  }
}

}  // namespace

void add_ops(CLI::App& program) {
  auto* command = program.add_subcommand("ops", "The operators of this build: family, name, purpose");
  auto* family = command->add_option("family", "Only this family");
  command->callback([family] { run(family->count() > 0 ? family->as<std::string>() : std::string()); });
}

}  // namespace lamina::cli
