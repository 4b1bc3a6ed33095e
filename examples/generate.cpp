// Loads a model and continues a text: generate MODEL TEXT
// MODEL is the folder of a training run, a Lamina or Hugging Face folder with a tokenizer, or a llama2.c file.
#include <lamina/lamina.h>

#include <iostream>

int main(int argc, char** argv) try {
  if (argc != 3) throw lamina::Error("usage: generate MODEL TEXT");
  lamina::infer::LoadedModel model = lamina::infer::load_model(argv[1], lamina::Device::cpu());
  std::cout << argv[2] << lamina::infer::generate_text(model, argv[2], {.max_tokens = 64}) << '\n';
} catch (const std::exception& error) {
  std::cerr << "generate: " << error.what() << '\n';
  return 1;
}
