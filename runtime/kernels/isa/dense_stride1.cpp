// dense_stride1.cpp: the tiles of dense convolutions of horizontal stride 1.
#include "kernels/isa/dense.h"

namespace opforge {
namespace OPFORGE_ISA {

extern const DenseTable dense_stride1 = DenseFill<1>().table;

}  // namespace OPFORGE_ISA
}  // namespace opforge
