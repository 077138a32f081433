//! Matrices that kernels copy in tiles.

use super::context::check;
use cudarc::driver::sys;
use gristmill_gpu::TensorMap;
use gristmill_kernels::error::Result;
use gristmill_kernels::tensor::DeviceId;
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// The driver's form of a matrix, a kernel's parameter. Blocks of an L2 line of 256 bytes are fetched together.
pub(super) fn encode(device: DeviceId, map: &TensorMap) -> Result<sys::CUtensorMap> {
    let mut encoded = MaybeUninit::uninit();
    let address = (map.region.address() + map.offset as u64) as *mut c_void;
    let [columns, rows] = map.size.map(|size| size as u64);
    let size = [columns, rows];
    let stride = [map.stride as u64];
    let tile = [TensorMap::TILE_COLUMNS as u32, map.tile_rows];
    let steps = [1, 1];
    // SAFETY: all arrays have as many elements as the rank says: two, and one stride. The driver checks their values, and
    // `gristmill_gpu::Device` has checked that the matrix is inside a region of this driver.
    let code = unsafe {
        sys::cuTensorMapEncodeTiled(
            encoded.as_mut_ptr(),
            sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            2,
            address,
            size.as_ptr(),
            stride.as_ptr(),
            tile.as_ptr(),
            steps.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    check(device, "describing a matrix to it", code)?;
    // SAFETY: the driver has written all of it.
    Ok(unsafe { encoded.assume_init() })
}
