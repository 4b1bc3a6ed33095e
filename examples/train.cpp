// Trains a model by a recipe of the library: train TEXT_FILE RUN_FOLDER [KEY=VALUE…]
// The run is resumable (lamina train --resume RUN_FOLDER), and its folder is a model: generate RUN_FOLDER TEXT.
#include <lamina/lamina.h>

#include <iostream>

int main(int argc, char** argv) try {
  if (argc < 3) throw lamina::Error("usage: train TEXT_FILE RUN_FOLDER [KEY=VALUE...]");
  std::vector<std::string> changes(argv + 3, argv + argc);
  changes.push_back(std::string("data.train=") + argv[1]);
  const lamina::train::Recipe recipe = lamina::train::load_recipe("quickstart", changes);
  const lamina::train::Progress progress = lamina::train::train_recipe(recipe, argv[2], lamina::Device::cpu());
  std::cout << "validation loss " << *progress.best_loss << " after " << progress.best_step << " updates\n";
} catch (const std::exception& error) {
  std::cerr << "train: " << error.what() << '\n';
  return 1;
}
