// dense_stride2.cpp: the tiles of dense convolutions of horizontal stride 2.
#include "kernels/isa/dense.h"

namespace opforge {
namespace OPFORGE_ISA {

extern const DenseTable dense_stride2 = DenseFill<2>().table;

}  // namespace OPFORGE_ISA
}  // namespace opforge
