#include "lamina/infer/retrieval.h"

#include "lamina/base/error.h"

namespace lamina::infer {

std::string retrieval_prompt(const std::string& form, const std::string& question,
                             const std::vector<Passage>& passages) {
  constexpr std::string_view kPassages = "{passages}";
  constexpr std::string_view kQuestion = "{question}";
  for (const std::string_view name : {kPassages, kQuestion}) {
    LAMINA_CHECK(form.find(name) != std::string::npos, "retrieval template: ", name,
                 " is missing; it stands for the text to insert");
  }
  std::string list;
  for (size_t i = 0; i < passages.size(); ++i) list += str(i == 0 ? "" : "\n\n", "[", i + 1, "] ", passages[i].text);
  std::string prompt;
  for (size_t at = 0; at < form.size();) {
    const std::string_view rest = std::string_view(form).substr(at);
    if (rest.starts_with(kPassages)) {
      prompt += list;
      at += kPassages.size();
    } else if (rest.starts_with(kQuestion)) {
      prompt += question;
      at += kQuestion.size();
    } else {
      prompt += form[at++];
    }
  }
  return prompt;
}

}  // namespace lamina::infer
