#include "lamina/cli/command_line.h"

#include <fstream>

namespace lamina::cli {

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text;
  for (std::string word; std::getline(file, word, '\0');) {
    if (text.empty()) {
      text = "lamina";
      continue;
    }
    const bool plain = !word.empty() && word.find_first_of(" ;'\"$*?[]{}()<>|&\\`!#~") == std::string::npos;
    text += plain ? " " + word : " '" + word + "'";
  }
  return text;
}

}  // namespace lamina::cli
