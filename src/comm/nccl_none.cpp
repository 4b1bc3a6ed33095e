#include "lamina/comm/nccl.h"

namespace lamina::comm {

std::shared_ptr<Communicator> make_nccl_communicator(std::shared_ptr<Communicator> /*host*/, const Device& device) {
  throw Error(str("collectives on ", device, ": this build has no CUDA; build with LAMINA_CUDA=ON"));
}

}  // namespace lamina::comm
