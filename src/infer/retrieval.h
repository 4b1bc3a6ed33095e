#pragma once

#include <string>
#include <vector>

namespace lamina::infer {

/// A passage that is inserted into a prompt.
struct Passage {
  std::string source;  ///< name of the passage's document
  std::string text;    ///< the text to insert
};

/// Default prompt for retrieval-augmented generation (Lewis et al. 2020). {passages} stands for the passages, each
/// written as "[N] text" and separated by blank lines. {question} stands for the user's prompt.
inline constexpr const char* kRetrievalTemplate =
    "Answer the question with the help of the passages.\n\n{passages}\n\nQuestion: {question}\nAnswer:";

/// Fills a template. Braces in passages and question are not interpreted. Throws an Error if `form` lacks {passages} or
/// {question}.
std::string retrieval_prompt(const std::string& form, const std::string& question,
                             const std::vector<Passage>& passages);

}  // namespace lamina::infer
