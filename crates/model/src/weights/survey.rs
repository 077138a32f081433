//! Checks that a file has the tensors of a program, and counts what loading them will take.

use std::collections::HashSet;

use gristmill_cpu::READERS;
use gristmill_cuda::STAGING_BYTES;
use gristmill_files::gguf::{GgufFile, TensorInfo};
use gristmill_kernels::Backend;
use gristmill_kernels::format::Format;
use gristmill_kernels::tensor::DeviceId;
use gristmill_kernels::weight::{Footprint, Location, Role, TensorShape};

use super::find::find;
use super::outer_scale::{input_scale_of, scale_of};
use crate::error::{Error, Result};
use crate::machine;
use crate::program::tensors::{Tensors, VectorSpec};

/// A tensor of a matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Matrix {
    shape: TensorShape,
    role: Role,
    location: Location,
    slots: usize,
    /// Its data is made or copied when it is loaded, so nothing of it stays in the file's map.
    made: bool,
}

/// Shapes and bytes of the weights of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WeightShapes {
    /// Bytes that are read from the file.
    pub(crate) file: u64,
    matrices: Vec<Matrix>,
    /// Bytes of all vectors in memory.
    vectors: u64,
}

impl WeightShapes {
    /// Bytes in the memory of a backend.
    pub(crate) fn footprint(&self, backend: &Backend) -> Footprint {
        let slots = self.slot_bytes(Location::Host, backend).saturating_add(match backend.device() {
            DeviceId::Cpu => self.slot_bytes(Location::File, backend),
            _ => 0,
        });
        let vectors = Footprint { owned: self.vectors.saturating_add(slots), mapped: 0 };
        self.sum(vectors, Location::Device, backend)
    }

    /// Fails if the memory that is free is too little.
    pub(crate) fn check_memory(&self, backend: &Backend, what: &'static str) -> Result<()> {
        let Footprint { owned, mapped } = self.footprint(backend);
        let needed = owned.saturating_add(mapped);
        let limit = backend.free_memory()?;
        let free = match backend.device() {
            DeviceId::Cpu => limit.into_iter().chain(machine::available_memory()).min(),
            _ => limit,
        };
        match free {
            Some(free) if needed > free => {
                let remedy = "use a smaller quantisation, leave it out, or free memory";
                Err(Error::Memory { what, needed, free, remedy })
            }
            _ => Ok(()),
        }
    }

    /// Bytes of the slots for experts that are elsewhere, with the memory through which they are filled.
    fn slot_bytes(&self, place: Location, backend: &Backend) -> u64 {
        let with_slots = || self.matrices.iter().filter(|matrix| matrix.location == place && matrix.slots > 0);
        let slots = with_slots().map(|matrix| {
            let shape = TensorShape { experts: matrix.slots.min(matrix.shape.experts), ..matrix.shape };
            backend.footprint(&shape, matrix.role).owned
        });
        let largest = with_slots().map(|matrix| matrix.shape.matrix_bytes()).max().unwrap_or(0);
        let filled_through = match place {
            Location::File => largest.saturating_mul(READERS as u64),
            _ => STAGING_BYTES as u64,
        };
        match slots.fold(0, u64::saturating_add) {
            0 => 0,
            bytes => bytes.saturating_add(filled_through),
        }
    }

    /// Bytes of the experts that stay in the file.
    pub(crate) fn streamed_bytes(&self) -> u64 {
        let streamed = self.matrices.iter().filter(|matrix| matrix.location == Location::File);
        streamed.map(|matrix| matrix.shape.file_bytes()).fold(0, u64::saturating_add)
    }

    /// Slots for experts of each layer.
    pub(crate) fn slots(&self) -> usize {
        self.matrices.iter().map(|matrix| matrix.slots.min(matrix.shape.experts)).max().unwrap_or(0)
    }

    /// Bytes in host memory of the experts that the CPU computes for a backend; of those in the file, of their slots.
    pub(crate) fn host_bytes(&self, backend: &Backend) -> u64 {
        let host = backend.offload().host().map_or(backend, |host| host);
        let slots = if backend.device() == DeviceId::Cpu { 0 } else { self.slot_bytes(Location::File, host) };
        self.sum(Footprint::default(), Location::Host, host).owned.saturating_add(slots)
    }

    fn sum(&self, mut all: Footprint, place: Location, backend: &Backend) -> Footprint {
        for Matrix { shape, role, made, .. } in self.matrices.iter().filter(|matrix| matrix.location == place) {
            let Footprint { owned, mapped } = backend.footprint(shape, *role);
            let (owned, mapped) = if *made { (owned.saturating_add(mapped), 0) } else { (owned, mapped) };
            all.owned = all.owned.saturating_add(owned);
            all.mapped = all.mapped.saturating_add(mapped);
        }
        all
    }
}

/// Checks that the file has every tensor in its shape, and no others except tensors of skipped layers, and counts
/// bytes.
pub(crate) fn survey(
    file: &GgufFile,
    leaves_out: &dyn Fn(&str) -> bool,
    architecture: &str,
    tensors: &Tensors,
) -> Result<WeightShapes> {
    let (mut seen, mut found) = (HashSet::new(), WeightShapes::default());
    for needed in tensors.all() {
        let tensor = find(file, needed)?;
        // A tensor that serves twice is read once. No sum of these overflows: the tensors of a file do not overlap.
        if seen.insert(tensor.name.as_str()) {
            found.file += needed.part_of(tensor.bytes);
        }
    }
    for matrix in &tensors.matrices {
        for needed in &matrix.tensors {
            let tensor = find(file, needed)?;
            let (format, made) = match scale_of(file, needed)? {
                None => (tensor.format, file.is_made(tensor)),
                Some(scale) => {
                    if seen.insert(scale.name.as_str()) {
                        found.file += scale.bytes;
                    }
                    (Format::NVFP4_SCALED, true)
                }
            };
            // Activations have more than four bits, so their scale is not used.
            seen.extend(input_scale_of(file, needed).map(|scale| scale.name.as_str()));
            let (experts, rows, cols) = needed.matrix();
            let made = made || needed.is_transposed() || matrix.is_copied;
            let format = needed.loaded_format(format);
            let shape = TensorShape { format, experts, rows, cols };
            found.matrices.push(Matrix {
                shape,
                role: matrix.role,
                location: matrix.location,
                slots: matrix.slots,
                made,
            });
        }
    }
    for vector in &tensors.vectors {
        // The length of a repeated vector is a width that the tensors' shapes bound.
        let elements = match vector {
            VectorSpec::Repeated { values, count } => (values.len() as u64).saturating_mul(*count as u64),
            VectorSpec::Tensors(_) | VectorSpec::Scaled(..) => {
                let tensors = vector.tensors().iter();
                tensors.map(|needed| Ok(needed.part_of(find(file, needed)?.elements()))).sum::<Result<u64>>()?
            }
        };
        found.vectors = found.vectors.saturating_add(elements.saturating_mul(size_of::<f32>() as u64));
    }
    let columns = tensors.orders.iter().filter_map(|order| Some(order.first()?.elements()));
    found.vectors = columns.fold(found.vectors, |all, columns| all.saturating_add(4 * columns));
    let unused = |tensor: &&TensorInfo| !(seen.contains(tensor.name.as_str()) || leaves_out(&tensor.name));
    match file.tensors().iter().find(unused) {
        None => Ok(found),
        Some(tensor) => Err(Error::UnusedTensor { name: tensor.name.clone(), architecture: architecture.to_owned() }),
    }
}
