// Every operator of op_list.def is declared by lamina/ops.h: a missing one does not compile. Nothing else is included.
#include <lamina/ops.h>

namespace {
#define LAMINA_OP(name, family, about) using lamina::ops::name;
#include "lamina/ops/op_list.def"
#undef LAMINA_OP
}  // namespace
