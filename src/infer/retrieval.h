#pragma once

#include <string>
#include <vector>

namespace lamina::infer {

/// A passage for a prompt.
struct Passage {
  std::string source;  ///< name of its document
  std::string text;    ///< as inserted
};

/// The prompt of retrieval-augmented generation (Lewis et al. 2020): {passages} stands for the passages, each as
/// "[N] text", separated by blank lines, and {question} for the user's prompt.
inline constexpr const char* kRetrievalTemplate =
    "Answer the question with the help of the passages.\n\n{passages}\n\nQuestion: {question}\nAnswer:";

/// Fills a template. Braces in passages and question stay as they are. Throws Error if `form` lacks {passages} or
/// {question}.
std::string retrieval_prompt(const std::string& form, const std::string& question,
                             const std::vector<Passage>& passages);

}  // namespace lamina::infer
