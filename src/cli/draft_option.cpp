#include "lamina/cli/draft_option.h"

#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/base/files.h"
#include "lamina/cli/usage.h"

namespace lamina::cli {

void DraftChoice::add_to(CLI::App& command) {
  command.add_option("--draft", model,
                     "Speculative decoding: a smaller model with the same tokenizer drafts tokens; same answers");
  command.add_option("--draft-weights", weights, "Weight format of the draft model (default: that of --weights)");
  command
      .add_option("--draft-tokens", tokens,
                  "Most tokens drafted at once: by the draft model (default 8), else from earlier text (default: none)")
      ->check(at_least(0));
}

infer::LoadedModel DraftChoice::load(const std::string& path, const infer::LoadedModel& target,
                                     const std::string& target_weights, const Device& device) const {
  const nn::WeightFormats formats = nn::parse_weight_formats(weights.empty() ? target_weights : weights);
  infer::LoadedModel draft;
  if (path_exists(path)) {
    draft = infer::load_model(path, device, {{}, formats});
  } else {
    draft.path = path;
    arch::ArchSpec spec = arch::load_arch(path);
    spec.vocab_size = target.model->spec().vocab_size;
    draft.model = std::make_unique<nn::Model>(arch::resolve(spec, path), device);
    draft.model->store_weights(formats);
  }
  infer::check_draft(target, draft);
  return draft;
}

}  // namespace lamina::cli
