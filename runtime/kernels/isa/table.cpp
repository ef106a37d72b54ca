// table.cpp: the table of one instruction set.
#include "kernels/isa/functions.h"
#include "kernels/isa/simd.h"

#define OPFORGE_TEXT_(x) #x
#define OPFORGE_TEXT(x) OPFORGE_TEXT_(x)

namespace opforge {
namespace OPFORGE_ISA {

const IsaTable table = {
    OPFORGE_TEXT(OPFORGE_ISA),
    kFused ? 1 : 0,
    pack_a,
    pack_a_part,
    matmul,
    matmul_panel_floats,
    matmul_unpacked_floats,
    widen,
    pack_b,
    thin_product,
    dot_rows,
    double_product,
    double_columns,
    conv_direct,
    conv_first,
    conv_first_scratch,
    conv_depthwise,
    winograd_input,
    winograd_product,
    winograd_output,
    deconv2,
    deconv2_plain,
    pool,
    global_average,
    resize_nearest,
    concat_channels,
    to_plain,
    from_plain,
    epilogue,
    pool_row,
    widen_halves,
    narrow_halves,
    softmax,
    layer_norm,
    rms_norm,
    reduce_rows,
    reduce_middle,
    scale_shift,
    attention,
    attention_step,
    attention_rows,
    attention_scratch,
    cell,
    integer_product,
    integer_depthwise,
    integer_rows,
    transpose_bytes,
    quantize_bytes,
    byte_pairs,
    byte_table,
};

}  // namespace OPFORGE_ISA
}  // namespace opforge
