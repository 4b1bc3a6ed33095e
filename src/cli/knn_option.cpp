#include "lamina/cli/knn_option.h"

#include <limits>

#include "lamina/cli/usage.h"

namespace lamina::cli {

void KnnChoice::add_to(CLI::App& command) {
  CLI::Option* given = command.add_option(
      "--knn", store, "A store of the model's states (`lamina index states`): interpolate with its neighbours");
  command.add_option("--knn-lambda", options.lambda, "Weight of the neighbours")
      ->capture_default_str()
      ->check(between(0, 1))
      ->needs(given);
  command.add_option("--knn-neighbors", options.neighbors, "Number of neighbours")
      ->capture_default_str()
      ->check(at_least(1))
      ->needs(given);
  command
      .add_option("--knn-temperature", options.temperature,
                  "Divides squared distances; 0: the typical distance between neighbours in the store")
      ->capture_default_str()
      ->check(between(0, std::numeric_limits<double>::max()))
      ->needs(given);
  command.add_flag("--knn-by-distance", options.by_distance, "Less weight if the nearest neighbour is far away")
      ->needs(given);
  command.add_option("--knn-beam", options.beam, "Approximate search with this beam; 0: exact")
      ->capture_default_str()
      ->check(at_least(0))
      ->needs(given);
}

std::shared_ptr<const infer::KnnLm> KnnChoice::open(nn::Model& model) const {
  if (store.empty()) return nullptr;
  return std::make_shared<infer::KnnLm>(search::StateStore::open(store), options, model);
}

}  // namespace lamina::cli
