#include "lamina/infer/generate_text.h"

#include "lamina/infer/text_stream.h"

namespace lamina::infer {

std::string generate_text(LoadedModel& model, const std::string& prompt, GenerateOptions options,
                          const std::vector<std::string>& stops, const OnText& on_text) {
  const text::Tokenizer& tokenizer = require_tokenizer(model);
  options.stop_tokens.insert(options.stop_tokens.end(), model.stop_tokens.begin(), model.stop_tokens.end());
  if (options.sampler.vocab_size == 0) options.sampler.vocab_size = tokenizer.vocab_size();
  text::UnknownCharacters unknown;
  const bool reads_source = model.model->spec().encoder.has_value();
  const std::vector<text::TokenId> ids =
      reads_source ? source_ids(tokenizer, prompt, &unknown) : prompt_ids(tokenizer, prompt, &unknown);

  TextStream stream(tokenizer, stops);
  if (!reads_source) stream.see_prompt(ids);
  std::string text;
  const auto take = [&](const std::string& piece) {
    text += piece;
    if (on_text && !piece.empty()) on_text(piece);
  };
  generate(*model.model, {ids}, options, [&](size_t /*row*/, text::TokenId id) {
    take(stream.push(id));
    return !stream.stopped();
  });
  take(stream.finish());
  return text;
}

}  // namespace lamina::infer
