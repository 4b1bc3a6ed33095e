#include <cstdio>
#include <string>
#include <vector>

#include "lamina/base/suggest.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/usage.h"

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
  std::vector<std::string> families;
  bool found = false;
  for (const OpRow& op : kOps) {
    families.emplace_back(op.family);
    if (!family.empty() && family != op.family) continue;
    found = true;
    std::printf("%-12s %-24s %s\n", op.family, op.name, op.purpose);
  }
  if (found) return;
  const std::string hint = did_you_mean(family, families);
  throw UsageError(str("no family of operators \"", family, "\"; ", hint.empty() ? "`lamina ops` lists all" : hint));
}

}  // namespace

void add_ops(CLI::App& program) {
  auto* command = program.add_subcommand("ops", "List the operators of this build: family, name, purpose");
  auto* family = command->add_option("family", "Only this family");
  command->callback([family] { run(family->count() > 0 ? family->as<std::string>() : std::string()); });
}

}  // namespace lamina::cli
